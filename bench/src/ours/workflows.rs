//! The workflows of Cleat as a subject.

use std::time::Duration;

use anyhow::Result;
use bench_subject::nap;
use bench_subject::protocol::Wait;
use cleat_runner::cluster::Node;
use cleat_runner::prelude::*;
use sqlx::PgConnection;

use super::NOTE;

/// Where activities insert a row each.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS steps
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

/// Activities, one after the other.
#[workflow(name = "steps")]
struct Activities;

#[workflow_impl(key = |job: &Job| job.number.to_string())]
impl Activities {
    async fn execute(&self, job: Job) -> Result<u64, String> {
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
    async fn plain(&self, part: Part) -> Result<u32, String> {
        Ok(part.step)
    }

    #[activity]
    async fn insert(&self, part: Part) -> Result<u32, String> {
        let execution = i64::try_from(part.number).map_err(|error| error.to_string())?;
        let step = i32::try_from(part.step).map_err(|error| error.to_string())?;
        let insert = sqlx::query(INSERT).bind(execution).bind(step).bind(&part.note);
        insert.execute(&self.tx).await.map_err(|error| error.to_string())?;
        Ok(part.step)
    }
}

/// Number and milliseconds.
type Sleep = (u64, u64);

/// One sleep.
#[workflow(name = "sleeper")]
struct Sleeper;

#[workflow_impl(key = |sleep: &Sleep| sleep.0.to_string())]
impl Sleeper {
    async fn execute(&self, sleep: Sleep) -> Result<(), String> {
        nap::begin(sleep.0, self.now());
        self.sleep(Duration::from_millis(sleep.1)).await;
        nap::end(sleep.0);
        Ok(())
    }
}

/// One wait for a signal.
#[workflow(name = "waiter")]
struct Waiter;

#[workflow_impl(key = |number: &u64| number.to_string())]
impl Waiter {
    async fn execute(&self, number: u64) -> Result<u64, String> {
        nap::begin(number, self.now());
        Ok(self.signal::<u64>("go").await)
    }
}

/// Clients of all of them.
pub(super) struct Workflows {
    activities: ActivitiesClient,
    sleeper: SleeperClient,
    waiter: WaiterClient,
}

impl Workflows {
    pub(super) fn register(node: &Node) -> Result<Self> {
        Ok(Self {
            activities: Activities.register(node)?,
            sleeper: Sleeper.register(node)?,
            waiter: Waiter.register(node)?,
        })
    }

    /// Makes the table that activities insert into.
    pub(super) async fn prepare(connection: &mut PgConnection) -> Result<()> {
        sqlx::raw_sql(TABLE).execute(connection).await?;
        Ok(())
    }

    pub(super) async fn run(&self, number: u64, activities: u32, transaction: bool) -> Result<u64> {
        let job = Job { number, activities, transaction, note: NOTE.to_owned() };
        Ok(self.activities.execute(&job).await?)
    }

    pub(super) async fn sleep(&self, number: u64, time: Duration) -> Result<()> {
        Ok(self.sleeper.execute(&(number, millis(time)?)).await?)
    }

    pub(super) async fn wait(&self, number: u64, wait: Wait) -> Result<()> {
        match wait {
            Wait::Signal => self.waiter.start(&number).await?,
            Wait::Day => self.sleeper.start(&(number, millis(DAY)?)).await?,
        };
        Ok(())
    }
}

fn millis(time: Duration) -> Result<u64> {
    Ok(u64::try_from(time.as_millis())?)
}
