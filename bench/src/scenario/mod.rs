//! What is measured, one file each.

mod alone;
mod apiserver;
mod dbos;
mod failover;
mod growth;
mod hot;
mod idle;
mod memory;
mod persisted;
mod restate;
mod rolling;
mod start;
mod store;
mod timers;
mod volatile;
mod workflow;

use anyhow::Result;
use clap::ValueEnum;

use crate::report::Report;
use crate::world::World;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// Durable writes: plain commits, group commit, and what the disk allows.
    Store,
    /// Volatile calls, on one node and all to another one.
    Volatile,
    /// Persisted calls with effects outside and with durable state, local and remote.
    Persisted,
    /// One client alone, beside the bare commits that its calls need.
    Alone,
    /// One entity that everybody asks.
    Hot,
    /// Workflows with one activity and with ten, plain and with a SQL transaction each.
    Workflow,
    /// Workflows that wait: how punctual sleepers are, and what waiting costs.
    Timers,
    /// Beside Restate: its object call and its workflow with ten steps.
    Restate,
    /// Beside DBOS: workflows with one step and with ten.
    Dbos,
    /// What a node costs that nobody asks.
    Idle,
    /// What an entity costs that nobody asks any more.
    Memory,
    /// From the start of a process to its first answer.
    Start,
    /// After kill -9 of a node: when do its entities answer again, and what was lost?
    Failover,
    /// Every node but one is replaced under load: errors and pauses.
    Rolling,
    /// The same with ever more entities, and with many finished messages.
    Growth,
    /// The embedded Kubernetes API beside a real one: lists, watches, applies.
    Apiserver,
    /// Everything.
    All,
}

impl Scenario {
    /// The scenarios that this one stands for.
    pub fn each(self) -> Vec<Self> {
        match self {
            Self::All => Self::value_variants().iter().copied().filter(|one| *one != Self::All).collect(),
            one => vec![one],
        }
    }

    /// Its name on the command line and in the results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Volatile => "volatile",
            Self::Persisted => "persisted",
            Self::Alone => "alone",
            Self::Hot => "hot",
            Self::Workflow => "workflow",
            Self::Timers => "timers",
            Self::Restate => "restate",
            Self::Dbos => "dbos",
            Self::Idle => "idle",
            Self::Memory => "memory",
            Self::Start => "start",
            Self::Failover => "failover",
            Self::Rolling => "rolling",
            Self::Growth => "growth",
            Self::Apiserver => "apiserver",
            Self::All => "all",
        }
    }

    /// Measures.
    pub async fn run(self, world: &World, report: &mut Report) -> Result<()> {
        match self {
            Self::Store => store::run(world, report).await,
            Self::Volatile => volatile::run(world, report).await,
            Self::Persisted => persisted::run(world, report).await,
            Self::Alone => alone::run(world, report).await,
            Self::Hot => hot::run(world, report).await,
            Self::Workflow => workflow::run(world, report).await,
            Self::Timers => timers::run(world, report).await,
            Self::Restate => restate::run(world, report).await,
            Self::Dbos => dbos::run(world, report).await,
            Self::Idle => idle::run(world, report).await,
            Self::Memory => memory::run(world, report).await,
            Self::Start => start::run(world, report).await,
            Self::Failover => failover::run(world, report).await,
            Self::Rolling => rolling::run(world, report).await,
            Self::Growth => growth::run(world, report).await,
            Self::Apiserver => apiserver::run(world, report).await,
            Self::All => {
                for one in self.each() {
                    Box::pin(one.run(world, report)).await?;
                }
                Ok(())
            }
        }
    }
}
