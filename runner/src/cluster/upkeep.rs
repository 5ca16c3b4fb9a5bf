//! What has to be done for the database now and then, by one runner of the cluster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::{Gauge, IntCounter, Registry};

use crate::clock::Skew;
use crate::entity::Never;
use crate::health::{Health, Reason};
use crate::shard::{GroupName, ShardMap};
use crate::singleton::{Context, Singleton};
use crate::store::{Error, Retention, Store};

/// The singleton that deletes what is older than its retention.
const NAME: &str = "cleat.retention";

/// A round that deletes so many rows has left some, or has taken so long that more have expired.
const BACKLOG: u64 = 10_000;

/// The pause between rounds of a backlog. Rounds pause by themselves, too.
const AGAIN: Duration = Duration::from_millis(100);

/// How long a backlog may last before it is reported.
const TOLERATED: Duration = Duration::from_secs(3600);

/// Where it is reported how retention keeps up.
#[derive(Debug, Clone)]
pub(super) struct RetentionReports {
    deleted: IntCounter,
    behind: Gauge,
    health: Health,
}

/// Reports of the runner that does it. Another one may be next: what was reported is withdrawn.
struct OnDuty(RetentionReports);

impl Drop for OnDuty {
    fn drop(&mut self) {
        self.0.set_backlog(Duration::ZERO);
    }
}

impl RetentionReports {
    /// For how long there has been a backlog.
    fn set_backlog(&self, late: Duration) {
        self.behind.set(late.as_secs_f64());
        let message = (late >= TOLERATED).then(|| {
            "Retention has been deleting expired rows for more than an hour and has not caught up: the database grows. It continues. \
             Check the load of the database and whether something prevents vacuum; a longer retention does not help."
                .to_owned()
        });
        self.health.set(Reason::RetentionBacklog, message);
    }

    pub(super) fn new(registry: &Registry, health: Health) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            deleted: IntCounter::new(
                "cleat_retention_deleted_rows_total",
                "Rows that were deleted because their retention had passed.",
            )?,
            behind: Gauge::new(
                "cleat_retention_backlog_seconds",
                "How long there has been a backlog of rows whose retention has passed; 0 if there is none.",
            )?,
            health,
        };
        registry.register(Box::new(metrics.deleted.clone()))?;
        registry.register(Box::new(metrics.behind.clone()))?;
        Ok(metrics)
    }
}

/// When what has ended is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upkeep {
    /// How long things are kept.
    pub retention: Retention,
    /// How long after the start it is looked at first.
    pub first: Duration,
    /// How often then. While there is a backlog, rounds follow each other without a pause.
    pub every: Duration,
}

impl Default for Upkeep {
    /// Half a minute after the start, then every minute.
    fn default() -> Self {
        Self {
            retention: Retention::default(),
            first: Duration::from_secs(30),
            every: Duration::from_secs(60),
        }
    }
}

impl Upkeep {
    /// The singleton that sees to it.
    pub(super) fn singleton(self, store: Arc<dyn Store>, reports: RetentionReports) -> Singleton {
        let group = home(store.maps());
        let upkeep = Singleton::new(NAME, move |_: Context| {
            let (store, reports) = (Arc::clone(&store), reports.clone());
            async move {
                tokio::time::sleep(self.first).await;
                let reports = OnDuty(reports);
                let mut behind = None;
                loop {
                    let pause = match clean(store.as_ref(), &self.retention).await {
                        Ok(Cleaned::Deleted(deleted)) => {
                            reports.0.deleted.inc_by(deleted);
                            let begun = Instant::now();
                            behind = (deleted >= BACKLOG).then(|| behind.unwrap_or(begun));
                            reports.0.set_backlog(behind.map_or(Duration::ZERO, |since| begun - since));
                            if behind.is_some() { AGAIN } else { self.every }
                        }
                        Ok(Cleaned::Skipped(skew)) => {
                            tracing::warn!(
                                event = "retention_skipped",
                                skew_seconds = skew.seconds(),
                                "nothing was deleted because the clocks of this runner and of the database differ: \
                                 retention is tried again until they agree; check their time synchronization"
                            );
                            self.every.min(SKEWED)
                        }
                        Err(error) => {
                            tracing::warn!(
                                event = "retention_failed",
                                error = &error as &dyn std::error::Error,
                                "expired rows were not deleted; retention continues in the next round"
                            );
                            self.every
                        }
                    };
                    tokio::time::sleep(pause).await;
                }
                #[allow(unreachable_code, reason = "it says what the error of this future is")]
                Ok::<(), Never>(())
            }
        });
        upkeep.in_group(group)
    }
}

/// How soon a round is tried again that was skipped because of clock skew.
const SKEWED: Duration = Duration::from_secs(60);

/// What became of a round of retention.
#[derive(Debug, PartialEq)]
pub enum Cleaned {
    /// So many things are gone.
    Deleted(u64),
    /// Nothing was deleted, because the clocks differ so much that one of them must be wrong.
    Skipped(Skew),
}

/// Deletes what is older than its retention, if the clocks of this runner and of the database agree: one that is wrong by a month would
/// otherwise make it delete what should have been kept for as long.
///
/// # Errors
/// The store's.
pub async fn clean(store: &dyn Store, retention: &Retention) -> Result<Cleaned, Error> {
    store.read_clock().await?;
    let skew = store.clock().skew();
    if !skew.is_tolerated() {
        return Ok(Cleaned::Skipped(skew));
    }
    store.retain(retention).await.map(Cleaned::Deleted)
}

/// The group that it lives in: the default one, or the first of a database that other groups have for themselves.
fn home(maps: &[ShardMap]) -> GroupName {
    let default = maps.iter().find(|map| *map.group() == GroupName::default());
    default.or(maps.first()).map_or_else(GroupName::default, |map| map.group().clone())
}
