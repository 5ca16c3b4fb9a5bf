//! Every node but the one whose clients ask is replaced by a new one, under load.

use std::time::Duration;

use anyhow::{Result, bail};
use bench_subject::protocol::{Answer, Command, Place, Watch, Watched};

use super::failover::{at, count};
use crate::report::{Measurement, Report, Target};
use crate::world::{Shape, System, World};

const SCENARIO: &str = "rolling";
const ENTITIES: usize = 200;

/// Measures.
pub async fn run(world: &World, report: &mut Report) -> Result<()> {
    eprintln!(
        "rolling: three nodes, two are replaced one after the other, {ENTITIES} entities are asked all the while"
    );
    let ours = measure(world, &System::Cleat).await?;
    let peer = world.beside(async |system| measure(world, system).await).await;
    let mut add = |metric: &str, unit, value: fn(&Watched) -> f64, target| {
        let measurement = Measurement::new(SCENARIO, metric, value(&ours), unit);
        report.add(measurement.beside_peer(&peer, value).may_want(target));
    };
    add("calls answered", "", |seen| count(seen.calls), None);
    add("errors", "", |seen| count(seen.errors), Some(Target::AtMost(0.0)));
    add("longest pause of an entity: p50", "ms", |seen| at(&seen.pauses, 0.5), None);
    let pause = world.effort.choose(500.0, 60_000.0);
    add("longest pause of an entity: p99", "ms", |seen| at(&seen.pauses, 0.99), Some(Target::AtMost(pause)));
    add("entities that lost something", "", |seen| count(seen.lost), Some(Target::AtMost(0.0)));
    add("entities that did something twice", "", |seen| count(seen.twice), Some(Target::AtMost(0.0)));
    Ok(())
}

async fn measure(world: &World, system: &System) -> Result<Watched> {
    let mut cluster = world.cluster(system, Shape::Members(3)).await?;
    let entities = world.effort.choose(ENTITIES, 20);
    let watch = Watch { place: Place::Anywhere, entities, rest_seconds: 0.25, patience_seconds: 10.0 };
    cluster.first()?.tell(&Command::Watch(watch)).await?;
    tokio::time::sleep(Duration::from_secs_f64(world.effort.seconds.min(2.0))).await;
    // As a Deployment does it that surges by one: the new one is ready before the old one goes.
    for _ in 0..world.effort.choose(2, 1) {
        cluster.add().await?;
        cluster.settle().await?;
        let old = cluster.nodes.remove(1);
        old.stop().await?;
        cluster.settle().await?;
    }
    let watched = match cluster.first()?.ask(&Command::Unwatch).await? {
        Answer::Watched(watched) => watched,
        answer => bail!("not what was watched: {answer:?}"),
    };
    world.clear(cluster).await?;
    Ok(watched)
}
