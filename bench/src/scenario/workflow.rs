//! Workflows from start to end: with one activity and with ten, plain and with a SQL transaction each.

use anyhow::{Context, Result};
use bench_subject::protocol::{Method, Outcome, Place};

use crate::report::{Measurement, Report, Target};
use crate::world::{Ask, Shape, System, World};

const SCENARIO: &str = "workflow";
const CLIENTS: [usize; 2] = [64, 256];

/// Activities, whether each has a transaction, and the ratio to the peer.
const KINDS: [(u32, bool, f64); 4] = [(1, false, 10.0), (10, false, 10.0), (1, true, 3.0), (10, true, 3.0)];

/// Measures.
pub async fn run(world: &World, report: &mut Report) -> Result<()> {
    let numbers = world.effort.choose(CLIENTS, [4, 8]);
    let bare = world.bare(CLIENTS[0], world.effort.seconds).await?;
    report.add(Measurement::new(SCENARIO, "bare commits, 64 writers", bare.per_second, "1/s"));
    for (activities, transaction, ratio) in KINDS {
        let name = name(activities, transaction);
        eprintln!("workflow: {name}");
        let ours = measure(world, &System::Cleat, activities, transaction, &numbers).await?;
        let peer = world
            .beside(async |system| measure(world, system, activities, transaction, &numbers).await)
            .await;
        for (index, clients) in numbers.into_iter().enumerate() {
            let what = format!("{name}, {clients} clients");
            let theirs = peer.as_ref().map(|outcomes| outcomes[index].clone());
            report.add_load(SCENARIO, &what, &ours[index], &theirs, Some(Target::RatioAtLeast(ratio)));
        }
    }
    Ok(())
}

/// What such a workflow is called in the results.
pub(super) fn name(activities: u32, transaction: bool) -> String {
    let plural = if activities == 1 { "activity" } else { "activities" };
    let kind = if transaction { "a SQL transaction each" } else { "plain" };
    format!("workflow, {activities} {plural}, {kind}")
}

/// One system with each number of clients.
async fn measure(
    world: &World,
    system: &System,
    activities: u32,
    transaction: bool,
    clients: &[usize],
) -> Result<Vec<Outcome>> {
    let mut cluster = world.cluster(system, Shape::Alone).await?;
    let method = Method::Workflow { activities, transaction };
    let mut outcomes = Vec::new();
    for clients in clients {
        let seconds = world.effort.seconds;
        // A workflow is no entity: its key is new each time, and it lives where that is.
        let ask = Ask { method, place: Place::Anywhere, clients: *clients, entities: 1, seconds };
        outcomes.push(cluster.load(ask).await?);
    }
    world.clear(cluster).await?;
    Ok(outcomes)
}

/// One system with one number of clients, and plain activities.
pub(super) async fn one(world: &World, system: &System, activities: u32, clients: usize) -> Result<Outcome> {
    let outcomes = measure(world, system, activities, false, &[clients]).await?;
    outcomes.into_iter().next().context("nothing was measured")
}
