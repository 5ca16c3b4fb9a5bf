//! What has to be done for the database now and then, by one runner of the cluster.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::entity::Never;
use crate::shard::{GroupName, ShardMap};
use crate::singleton::{Context, Singleton};
use crate::store::{Retention, Store};

/// The singleton that deletes what is older than its retention.
const NAME: &str = "cleat.retention";

/// When what has ended is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upkeep {
    /// How long things are kept.
    pub retention: Retention,
    /// How long after the start it is looked at first.
    pub first: Duration,
    /// How often then.
    pub every: Duration,
}

impl Default for Upkeep {
    /// Half a minute after the start, then every hour.
    fn default() -> Self {
        Self {
            retention: Retention::default(),
            first: Duration::from_secs(30),
            every: Duration::from_secs(3600),
        }
    }
}

impl Upkeep {
    /// The singleton that sees to it.
    pub(super) fn singleton(self, store: Arc<dyn Store>) -> Singleton {
        let group = home(store.maps());
        let upkeep = Singleton::new(NAME, move |_: Context| {
            let store = Arc::clone(&store);
            async move {
                tokio::time::sleep(self.first).await;
                loop {
                    match store.retain(&self.retention, SystemTime::now()).await {
                        Ok(deleted) => tracing::info!(deleted, "what is older than its retention is gone"),
                        Err(error) => tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "what is older than its retention is deleted the next time"
                        ),
                    }
                    tokio::time::sleep(self.every).await;
                }
                #[allow(unreachable_code, reason = "it says what the error of this future is")]
                Ok::<(), Never>(())
            }
        });
        upkeep.in_group(group)
    }
}

/// The group that it lives in: the default one, or the first of a database that other groups have for themselves.
fn home(maps: &[ShardMap]) -> GroupName {
    let default = maps.iter().find(|map| *map.group() == GroupName::default());
    default.or(maps.first()).map_or_else(GroupName::default, |map| map.group().clone())
}
