//! After kill -9 of a node: when do its entities answer again, and what was lost?

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench_subject::protocol::{Answer, Answered, Command, Place, Watch, Watched};

use crate::report::{Measurement, Report, Target};
use crate::world::{Shape, System, World};

const SCENARIO: &str = "failover";
const ENTITIES: usize = 200;

/// How long is waited for the last entity. A peer's locks live for 30 s.
const PATIENCE: f64 = 90.0;

/// Measures.
pub async fn run(world: &World, report: &mut Report) -> Result<()> {
    eprintln!("failover: two nodes, one is killed, {ENTITIES} of its entities are asked all the while");
    let ours = measure(world, &System::Cleat).await?;
    let peer = world.beside(async |system| measure(world, system).await).await;
    let mut add = |metric: &str, unit, value: fn(&(Answered, Watched)) -> f64, target| {
        let measurement = Measurement::new(SCENARIO, metric, value(&ours), unit);
        report.add(measurement.beside_peer(&peer, value).may_want(target));
    };
    let within = world.effort.choose(2000.0, 60_000.0);
    add("after kill -9: half of the entities answer", "ms", |seen| at(&seen.0.millis, 0.5), None);
    add("the last one that answers", "ms", |seen| at(&seen.0.millis, 1.0), Some(Target::AtMost(within)));
    add("entities that do not answer", "", |seen| count(seen.0.missing), Some(Target::AtMost(0.0)));
    add("errors seen", "", |seen| count(seen.1.errors), None);
    add("entities that lost something", "", |seen| count(seen.1.lost), Some(Target::AtMost(0.0)));
    add("entities that did something twice", "", |seen| count(seen.1.twice), Some(Target::AtMost(0.0)));
    Ok(())
}

async fn measure(world: &World, system: &System) -> Result<(Answered, Watched)> {
    let mut cluster = world.cluster(system, Shape::Members(2)).await?;
    let entities = world.effort.choose(ENTITIES, 20);
    let watch = Watch { place: Place::Remote, entities, rest_seconds: 0.5, patience_seconds: 10.0 };
    cluster.first()?.tell(&Command::Watch(watch)).await?;
    tokio::time::sleep(Duration::from_secs_f64(world.effort.seconds.min(2.0))).await;
    cluster.nodes.pop().context("there is no second node")?.kill().await?;
    let first = cluster.first()?;
    first.tell(&Command::Mark).await?;
    let answered = match first.ask(&Command::Answered { seconds: PATIENCE }).await? {
        Answer::Answered(answered) => answered,
        answer => bail!("not when entities answered: {answer:?}"),
    };
    let watched = match first.ask(&Command::Unwatch).await? {
        Answer::Watched(watched) => watched,
        answer => bail!("not what was watched: {answer:?}"),
    };
    world.clear(cluster).await?;
    Ok((answered, watched))
}

/// A part of the way through sorted numbers.
pub(super) fn at(sorted: &[f64], part: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let index = (0..=last).find(|index| count(*index) >= part * count(last)).unwrap_or(last);
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

/// Small counts are exact.
pub(super) fn count(number: impl TryInto<u32>) -> f64 {
    number.try_into().map_or(f64::INFINITY, f64::from)
}
