//! The workflows of cruster as a subject: the same as ours.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use bench_subject::nap;
use bench_subject::protocol::Wait;
use cruster::__internal::DeferredKey;
use cruster::prelude::*;
use cruster::sharding_impl::ShardingImpl;
use serde::{Deserialize, Serialize};

use super::{NOTE, failure};

/// Where activities insert a row each.
pub const TABLE: &str = "CREATE TABLE IF NOT EXISTS steps
    (execution bigint NOT NULL, step integer NOT NULL, note text NOT NULL, PRIMARY KEY (execution, step))";
const INSERT: &str = "INSERT INTO steps (execution, step, note) VALUES ($1, $2, $3)";

/// A day: longer than any measurement.
const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Serialize, Deserialize)]
struct Job {
    number: u64,
    activities: u32,
    transaction: bool,
    note: String,
}

#[derive(Clone, Serialize, Deserialize)]
struct Part {
    number: u64,
    step: u32,
    note: String,
}

#[workflow]
#[derive(Clone)]
struct Activities;

#[workflow_impl(key = |job: &Job| job.number.to_string(), hash = false)]
impl Activities {
    async fn execute(&self, job: Job) -> Result<u64, ClusterError> {
        for step in 0..job.activities {
            let part = Part { number: job.number, step, note: job.note.clone() };
            if job.transaction {
                self.insert(part).await?;
            } else {
                self.plain(part).await?;
            }
        }
        Ok(job.number)
    }

    #[activity]
    async fn plain(&self, part: Part) -> Result<u32, ClusterError> {
        Ok(part.step)
    }

    #[activity]
    async fn insert(&self, part: Part) -> Result<u32, ClusterError> {
        sqlx::query(INSERT)
            .bind(part.number as i64)
            .bind(part.step as i32)
            .bind(&part.note)
            .execute(&self.tx)
            .await
            .map_err(failure)?;
        Ok(part.step)
    }
}

#[derive(Clone, Serialize, Deserialize)]
struct Nap {
    number: u64,
    millis: u64,
}

#[workflow]
#[derive(Clone)]
struct Sleeper;

#[workflow_impl(key = |sleep: &Nap| sleep.number.to_string(), hash = false)]
impl Sleeper {
    async fn execute(&self, sleep: Nap) -> Result<(), ClusterError> {
        nap::begin(sleep.number, SystemTime::now());
        self.sleep(Duration::from_millis(sleep.millis)).await?;
        nap::end(sleep.number);
        Ok(())
    }
}

#[workflow]
#[derive(Clone)]
struct Waiter;

/// cruster has no signals; a deferred value that somebody else resolves is what comes closest.
const GO: DeferredKey<u64> = DeferredKey::new("go");

#[workflow_impl(key = |number: &u64| number.to_string(), hash = false)]
impl Waiter {
    async fn execute(&self, number: u64) -> Result<u64, ClusterError> {
        nap::begin(number, SystemTime::now());
        self.await_deferred(GO).await
    }
}

/// Clients of all of them.
pub struct Workflows {
    activities: ActivitiesClient,
    sleeper: SleeperClient,
    waiter: WaiterClient,
}

impl Workflows {
    pub async fn register(sharding: &Arc<ShardingImpl>) -> Result<Self> {
        Ok(Self {
            activities: Activities.register(sharding.clone()).await?,
            sleeper: Sleeper.register(sharding.clone()).await?,
            waiter: Waiter.register(sharding.clone()).await?,
        })
    }

    pub async fn run(&self, number: u64, activities: u32, transaction: bool) -> Result<u64> {
        let job = Job { number, activities, transaction, note: NOTE.to_owned() };
        Ok(self.activities.execute(&job).await?)
    }

    pub async fn sleep(&self, number: u64, time: Duration) -> Result<()> {
        Ok(self.sleeper.execute(&Nap { number, millis: time.as_millis() as u64 }).await?)
    }

    pub async fn wait(&self, number: u64, wait: Wait) -> Result<()> {
        match wait {
            Wait::Signal => self.waiter.start(&number).await?,
            Wait::Day => self.sleeper.start(&Nap { number, millis: DAY.as_millis() as u64 }).await?,
        };
        Ok(())
    }
}
