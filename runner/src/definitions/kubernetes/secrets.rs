//! Secrets of a namespace.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cleat_crds::SecretKey;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::time::Instant;

use crate::egress::{NoSecret, Secrets};

/// How long what was read is believed. One that was replaced is in use after so long.
const FRESH: Duration = Duration::from_secs(15);

/// How long what was read is used while the API server cannot be reached.
const USABLE: Duration = Duration::from_secs(24 * 3600);

/// Secrets of a namespace, read by name when they are needed: a runner may get those that its Role names, and list none.
pub struct KubernetesSecrets {
    api: Api<Secret>,
    read: Mutex<HashMap<String, Read>>,
}

/// A Secret as it was read.
struct Read {
    when: Instant,
    values: HashMap<String, Bytes>,
}

impl KubernetesSecrets {
    /// Those of a namespace.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), read: Mutex::default() }
    }

    fn remembered(&self, key: &SecretKey, within: Duration) -> Option<Result<Bytes, NoSecret>> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let Read { when, values } = read.get(&key.name)?;
        (when.elapsed() < within).then(|| values.get(&key.key).cloned().ok_or_else(|| missing(key)))
    }
}

#[async_trait]
impl Secrets for KubernetesSecrets {
    async fn get(&self, key: &SecretKey) -> Result<Bytes, NoSecret> {
        if let Some(known) = self.remembered(key, FRESH) {
            return known;
        }
        match self.api.get_opt(&key.name).await {
            Ok(Some(secret)) => {
                let values =
                    secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0.into()));
                let values: HashMap<String, Bytes> = values.collect();
                let value = values.get(&key.key).cloned().ok_or_else(|| missing(key));
                let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
                read.insert(key.name.clone(), Read { when: Instant::now(), values });
                value
            }
            Ok(None) => {
                self.read.lock().unwrap_or_else(PoisonError::into_inner).remove(&key.name);
                Err(NoSecret {
                    key: key.clone(),
                    why: "there is no such Secret in this namespace".to_owned(),
                })
            }
            // Running clusters go on serving while the API server is down.
            Err(error) => self
                .remembered(key, USABLE)
                .unwrap_or_else(|| Err(NoSecret { key: key.clone(), why: error.to_string() })),
        }
    }
}

fn missing(key: &SecretKey) -> NoSecret {
    NoSecret { key: key.clone(), why: "the Secret has no such key".to_owned() }
}
