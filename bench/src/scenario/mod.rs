//! What is measured, one file each.

mod alone;
mod apiserver;
mod failover;
mod growth;
mod hot;
mod idle;
mod memory;
mod persisted;
mod rolling;
mod start;
mod store;
mod volatile;

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
    /// Measures.
    pub async fn run(self, world: &World, report: &mut Report) -> Result<()> {
        match self {
            Self::Store => store::run(world, report).await,
            Self::Volatile => volatile::run(world, report).await,
            Self::Persisted => persisted::run(world, report).await,
            Self::Alone => alone::run(world, report).await,
            Self::Hot => hot::run(world, report).await,
            Self::Idle => idle::run(world, report).await,
            Self::Memory => memory::run(world, report).await,
            Self::Start => start::run(world, report).await,
            Self::Failover => failover::run(world, report).await,
            Self::Rolling => rolling::run(world, report).await,
            Self::Growth => growth::run(world, report).await,
            Self::Apiserver => apiserver::run(world, report).await,
            Self::All => {
                for scenario in Self::value_variants().iter().filter(|scenario| **scenario != Self::All) {
                    Box::pin(scenario.run(world, report)).await?;
                }
                Ok(())
            }
        }
    }
}
