//! Which of several replicas works.
//!
//! They agree on it by one Lease. Whoever holds it renews it; who does not watches whether it changes. A holder is taken for dead when its
//! Lease did not change for its duration by the observer's own clock: clocks of different machines are not compared. Every write
//! replaces the very state that was read, so of two who take the Lease at the same time one gets it.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use tokio::time::{Instant, sleep, timeout};

use crate::error::{Error, chain};

/// A Lease that did not change for so long is free.
const DURATION: Duration = Duration::from_secs(15);
/// A holder that could not renew for so long stops: well before anybody may take over.
const GIVE_UP: Duration = Duration::from_secs(10);
/// How often it is renewed, and looked at.
const RENEW: Duration = Duration::from_secs(3);
/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(4);

/// A replica that wants to lead.
pub struct Leader {
    leases: Api<Lease>,
    name: String,
    identity: String,
}

/// The Lease as it was last written by its holder.
pub struct Held(Lease);

/// What was last seen of another's Lease.
struct Seen {
    version: Option<String>,
    since: Instant,
}

impl Leader {
    /// Does nothing yet.
    pub fn new(client: &Client, namespace: &str, name: &str, replica: &str) -> Self {
        let leases = Api::namespaced(client.clone(), namespace);
        // A pod that starts again is somebody else.
        let identity = format!("{replica}_{:016x}", rand::random::<u64>());
        Self { leases, name: name.to_owned(), identity }
    }

    /// Waits until this replica leads.
    pub async fn acquire(&self) -> Held {
        let mut seen = None;
        loop {
            match timeout(REQUEST, self.attempt(&mut seen)).await {
                Ok(Ok(Some(lease))) => {
                    tracing::info!(lease = self.name, "this replica works now");
                    return Held(lease);
                }
                Ok(Ok(None)) => {}
                Ok(Err(error)) => {
                    tracing::warn!(error = chain(&error), "the Lease cannot be read or written")
                }
                Err(_) => tracing::warn!("the API server does not answer"),
            }
            sleep(RENEW).await;
        }
    }

    /// Renews for as long as it can be done. Comes back only when it is lost.
    pub async fn keep(&self, held: &mut Held) -> Error {
        let mut renewed = Instant::now();
        loop {
            sleep(RENEW).await;
            // What was sent at this moment counts from this moment.
            let sent = Instant::now();
            match timeout(REQUEST, self.renew(&held.0)).await {
                Ok(Ok(lease)) => {
                    held.0 = lease;
                    renewed = sent;
                }
                Ok(Err(kube::Error::Api(answer))) if matches!(answer.code, 404 | 409) => {
                    // It may have been our own write whose answer was lost.
                    match self.leases.get(&self.name).await {
                        Ok(lease) if self.is_holder(&lease) => held.0 = lease,
                        Ok(_) => break,
                        Err(_) => {}
                    }
                }
                Ok(Err(error)) => tracing::warn!(error = chain(&error), "the Lease cannot be renewed"),
                Err(_) => tracing::warn!("the Lease cannot be renewed in time"),
            }
            if renewed.elapsed() > GIVE_UP {
                break;
            }
        }
        Error::Leadership { lease: self.name.clone() }
    }

    /// Gives the Lease back, so that another need not wait.
    pub async fn release(&self, held: Held) {
        let mut lease = held.0;
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = None;
        }
        lease.metadata.managed_fields = None;
        // If it does not work, another takes it after a while.
        let _ = timeout(REQUEST, self.leases.replace(&self.name, &PostParams::default(), &lease)).await;
    }

    /// Takes the Lease if it is free.
    async fn attempt(&self, seen: &mut Option<Seen>) -> Result<Option<Lease>, kube::Error> {
        let Some(lease) = self.leases.get_opt(&self.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                spec: Some(self.spec(0)),
            };
            return lost_race(self.leases.create(&PostParams::default(), &lease).await);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        let free = spec.holder_identity.as_deref().is_none_or(str::is_empty);
        let version = lease.resource_version();
        if !free && !self.is_holder(&lease) {
            match seen {
                Some(known) if known.version == version => {
                    if known.since.elapsed() < DURATION {
                        return Ok(None);
                    }
                }
                _ => {
                    *seen = Some(Seen { version, since: Instant::now() });
                    return Ok(None);
                }
            }
        }
        let mut taken = lease;
        taken.metadata.managed_fields = None;
        taken.spec = Some(self.spec(spec.lease_transitions.unwrap_or(0).saturating_add(1)));
        lost_race(self.leases.replace(&self.name, &PostParams::default(), &taken).await)
    }

    async fn renew(&self, lease: &Lease) -> Result<Lease, kube::Error> {
        let mut renewed = lease.clone();
        renewed.metadata.managed_fields = None;
        if let Some(spec) = &mut renewed.spec {
            spec.renew_time = Some(MicroTime(Timestamp::now()));
        }
        self.leases.replace(&self.name, &PostParams::default(), &renewed).await
    }

    fn is_holder(&self, lease: &Lease) -> bool {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        holder == Some(self.identity.as_str())
    }

    fn spec(&self, transitions: i32) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            lease_transitions: Some(transitions),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }
    }
}

/// That another was first is no error.
fn lost_race(written: Result<Lease, kube::Error>) -> Result<Option<Lease>, kube::Error> {
    match written {
        Ok(lease) => Ok(Some(lease)),
        Err(kube::Error::Api(answer)) if answer.code == 409 => Ok(None),
        Err(error) => Err(error),
    }
}
