//! One entity that everybody asks.

use anyhow::Result;
use bench_subject::protocol::{Method, Outcome, Place};

use crate::report::{Measurement, Report, Target};
use crate::world::{Ask, Shape, System, World};

const SCENARIO: &str = "hot";
const CLIENTS: usize = 64;

/// 3,000 calls a second where the machine does 12,000 bare commits.
const TARGET: Target = Target::RatioAtLeast(0.25);

/// Measures.
pub async fn run(world: &World, report: &mut Report) -> Result<()> {
    eprintln!("hot: one entity with durable state, {CLIENTS} clients");
    let bare = world.bare(CLIENTS, world.effort.seconds).await?;
    let ours = measure(world, &System::Cleat).await?;
    let peer = world.beside(async |system| measure(world, system).await).await;
    let what = format!("one hot entity, {CLIENTS} clients");
    let measurement =
        Measurement::new(SCENARIO, format!("{what}, beside bare commits"), ours.per_second, "1/s");
    report.add(measurement.beside("bare commits, 64", bare.per_second).wants(TARGET));
    report.add_load(SCENARIO, &what, &ours, &peer, None);
    Ok(())
}

async fn measure(world: &World, system: &System) -> Result<Outcome> {
    let mut cluster = world.cluster(system, Shape::Alone).await?;
    let seconds = world.effort.seconds;
    let ask = Ask { method: Method::Add, place: Place::Local, clients: CLIENTS, entities: 1, seconds };
    let outcome = cluster.load(ask).await?;
    world.clear(cluster).await?;
    Ok(outcome)
}
