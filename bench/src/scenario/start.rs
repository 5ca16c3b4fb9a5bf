//! From the start of a process to its first answer, on a database that was used before.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bench_subject::protocol::{Command, Method, Touch};

use crate::report::{Measurement, Report};
use crate::world::{Shape, System, World};

const SCENARIO: &str = "start";

/// How long a node may take for its first answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Measures.
pub async fn run(world: &World, report: &mut Report) -> Result<()> {
    eprintln!("start: from the start of a process to its first answer");
    let ours = measure(world, &System::Cleat).await?;
    let peer = world.beside(async |system| measure(world, system).await).await;
    let metric = "from the start of a lone node to the first answer of a persisted call";
    report.add(Measurement::new(SCENARIO, metric, ours, "ms").beside_peer(&peer, |millis| *millis));
    Ok(())
}

/// Milliseconds.
async fn measure(world: &World, system: &System) -> Result<f64> {
    let mut cluster = world.cluster(system, Shape::Members(1)).await?;
    // It has gone in an orderly way, so nothing is left to wait for.
    cluster.nodes.remove(0).stop().await?;
    let begun = Instant::now();
    cluster.add().await?;
    let ask = Command::Touch(Touch { method: Method::Add, first: 0, entities: 1, clients: 1 });
    let node = cluster.first()?;
    let answer = async {
        while node.tell(&ask).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, answer).await.context("the node does not answer")?;
    let taken = begun.elapsed();
    world.clear(cluster).await?;
    Ok(taken.as_secs_f64() * 1000.0)
}
