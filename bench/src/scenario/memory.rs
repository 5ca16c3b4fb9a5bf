//! What an entity costs that nobody asks any more.

use anyhow::Result;
use bench_subject::protocol::{Command, Method, Touch};

use crate::report::{Measurement, Report, Target};
use crate::world::{Shape, System, World};

const SCENARIO: &str = "memory";
const ENTITIES: u32 = 100_000;
const CLIENTS: usize = 64;

/// Measures.
pub async fn run(world: &World, report: &mut Report) -> Result<()> {
    let entities = world.effort.choose(ENTITIES, 500);
    eprintln!("memory: {entities} idle entities");
    let ours = measure(world, &System::Cleat, Method::Echo, entities).await?;
    let peer = world.beside(async |system| measure(world, system, Method::Echo, entities).await).await;
    // A process that has done little holds less than one that has done much, which is not the entities' fault.
    let target = if world.effort.quick { None } else { Some(Target::AtMost(2.0)) };
    let measurement = Measurement::new(SCENARIO, "an idle entity without state", ours, "KiB");
    report.add(measurement.beside_peer(&peer, |kib| *kib).may_want(target));
    let state = measure(world, &System::Cleat, Method::Add, entities).await?;
    let measurement = Measurement::new(SCENARIO, "an idle entity with durable state", state, "KiB");
    report.add(measurement.may_want(target));
    Ok(())
}

/// Kibibytes for each entity.
async fn measure(world: &World, system: &System, method: Method, entities: u32) -> Result<f64> {
    let mut cluster = world.cluster(system, Shape::Alone).await?;
    let warm = 2000;
    let touch = |first, entities| Command::Touch(Touch { method, first, entities, clients: CLIENTS });
    let node = cluster.first()?;
    // Buffers and caches are there before the first look.
    node.tell(&touch(0, warm)).await?;
    let before = node.resident()?;
    node.tell(&touch(warm, usize::try_from(entities)?)).await?;
    let after = node.resident()?;
    world.clear(cluster).await?;
    Ok((after - before) / f64::from(entities))
}
