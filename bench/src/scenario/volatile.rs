//! Volatile calls, on one node and all to another one.

use anyhow::Result;
use bench_subject::protocol::{Method, Outcome, Place};

use crate::report::{Report, Target};
use crate::world::{Ask, Shape, System, World};

const SCENARIO: &str = "volatile";
const CLIENTS: usize = 64;

/// Measures.
pub async fn run(world: &World, report: &mut Report) -> Result<()> {
    let cases =
        [(Shape::Alone, Place::Local, "local", 2.0), (Shape::Members(2), Place::Remote, "remote", 8.0)];
    for (shape, place, name, target) in cases {
        eprintln!("volatile: {name}, {CLIENTS} clients");
        let ours = measure(world, &System::Cleat, shape, place).await?;
        let peer = world.beside(async |system| measure(world, system, shape, place).await).await;
        let what = format!("volatile call, {name}, {CLIENTS} clients");
        report.add_load(SCENARIO, &what, &ours, &peer, Some(Target::RatioAtLeast(target)));
    }
    Ok(())
}

async fn measure(world: &World, system: &System, shape: Shape, place: Place) -> Result<Outcome> {
    let mut cluster = world.cluster(system, shape).await?;
    let entities = world.effort.choose(1000, 50);
    let ask = Ask { method: Method::Echo, place, clients: CLIENTS, entities, seconds: world.effort.seconds };
    let outcome = cluster.load(ask).await?;
    world.clear(cluster).await?;
    Ok(outcome)
}
