//! What two nodes cost that nobody asks.

use std::time::Duration;

use anyhow::Result;
use bench_subject::cpu;

use crate::report::{Measurement, Report, Target};
use crate::world::{Shape, System, World};

const SCENARIO: &str = "idle";
const NODES: u32 = 2;

/// How long they have been idle when the look begins: PostgreSQL's connections tell of their transactions only after 10 s of rest.
const REST: Duration = Duration::from_secs(12);
const LOOK: Duration = Duration::from_secs(20);

/// What one system costs, for each node and second.
struct Cost {
    transactions: f64,
    lease_writes: f64,
    runner_millis: f64,
    database_millis: f64,
}

/// Measures.
pub async fn run(world: &World, report: &mut Report) -> Result<()> {
    eprintln!("idle: {NODES} nodes that nobody asks");
    let ours = measure(world, &System::Cleat).await?;
    let peer = world.beside(async |system| measure(world, system).await).await;
    let mut add = |metric: &str, unit, value: fn(&Cost) -> f64, target| {
        let measurement = Measurement::new(SCENARIO, metric, value(&ours), unit);
        report.add(measurement.beside_peer(&peer, value).may_want(target));
    };
    add("transactions of one idle node", "1/s", |cost| cost.transactions, Some(Target::AtMost(1.0)));
    // One for each renewal, and those are a second apart here.
    add("lease writes of one idle node", "1/s", |cost| cost.lease_writes, Some(Target::AtMost(1.05)));
    add("CPU of one idle node", "ms/s", |cost| cost.runner_millis, None);
    add("CPU of the database for one idle node", "ms/s", |cost| cost.database_millis, None);
    Ok(())
}

async fn measure(world: &World, system: &System) -> Result<Cost> {
    let cluster = world.cluster(system, Shape::Members(usize::try_from(NODES)?)).await?;
    tokio::time::sleep(world.effort.choose(REST, Duration::from_millis(100))).await;
    let look = async || {
        let mut runners = 0.0;
        for node in &cluster.nodes {
            runners += cpu::of(node.pid())?;
        }
        let transactions = f64::from(i32::try_from(world.transactions(&cluster.database().name).await?)?);
        anyhow::Ok((transactions, cluster.lease_writes().await?, runners, world.database_cpu()?))
    };
    let (begun, before) = (std::time::Instant::now(), look().await?);
    tokio::time::sleep(world.effort.choose(LOOK, Duration::from_secs(1))).await;
    let (after, time) = (look().await?, begun.elapsed().as_secs_f64() * f64::from(NODES));
    world.clear(cluster).await?;
    Ok(Cost {
        transactions: (after.0 - before.0) / time,
        lease_writes: (after.1 - before.1) / time,
        runner_millis: (after.2 - before.2) * 1000.0 / time,
        database_millis: (after.3 - before.3) * 1000.0 / time,
    })
}
