//! Beside DBOS on the same PostgreSQL: workflows with one step and with ten.

use anyhow::Result;

use super::workflow;
use crate::report::Report;
use crate::world::{Peer, System, World};

const SCENARIO: &str = "dbos";
const CLIENTS: usize = 64;

/// Measures.
pub async fn run(world: &World, report: &mut Report) -> Result<()> {
    let clients = world.effort.choose(CLIENTS, 8);
    for steps in [1, 10] {
        let what = format!("{}, {clients} clients", workflow::name(steps, false));
        eprintln!("dbos: {what}");
        let ours = workflow::one(world, &System::Cleat, steps, clients).await?;
        let peer = world
            .beside_of(Peer::Dbos, async |system| workflow::one(world, system, steps, clients).await)
            .await;
        report.add_load(SCENARIO, &what, &ours, &peer, None);
    }
    Ok(())
}
