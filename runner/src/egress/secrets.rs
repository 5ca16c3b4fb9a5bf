//! Where requests get what proves them.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use cleat_crds::SecretKey;

/// Gives out what Secrets hold, by name.
#[async_trait]
pub trait Secrets: Send + Sync + 'static {
    /// The value of one key of a Secret.
    ///
    /// # Errors
    /// [`NoSecret`] if there is none, or nobody can be asked.
    async fn get(&self, key: &SecretKey) -> Result<Bytes, NoSecret>;
}

/// A Secret that could not be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("key {} of Secret {} cannot be had: {why}", .key.key, .key.name)]
pub struct NoSecret {
    /// What was asked for.
    pub key: SecretKey,
    /// Why not.
    pub why: String,
}

/// Secrets that are there from the beginning: for tests, and for where there is no Kubernetes.
#[derive(Debug, Clone, Default)]
pub struct Fixed(BTreeMap<SecretKey, Bytes>);

impl Fixed {
    /// The same with one more value.
    #[must_use]
    pub fn with(mut self, name: &str, key: &str, value: impl Into<Bytes>) -> Self {
        self.0.insert(SecretKey { name: name.to_owned(), key: key.to_owned() }, value.into());
        self
    }
}

#[async_trait]
impl Secrets for Fixed {
    async fn get(&self, key: &SecretKey) -> Result<Bytes, NoSecret> {
        let missing = || NoSecret { key: key.clone(), why: "there is no such Secret here".to_owned() };
        self.0.get(key).cloned().ok_or_else(missing)
    }
}
