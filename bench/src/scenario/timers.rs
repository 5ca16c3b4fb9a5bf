//! Workflows that wait: how punctual sleepers are, and what those cost that wait for a signal or sleep for long.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bench_subject::protocol::{Answer, Command, Method, Place, Slept, Wait};

use super::failover::at;
use crate::report::{Measurement, Report, Target};
use crate::world::{Ask, Cluster, Shape, System, World};

const SCENARIO: &str = "timers";
const SLEEPERS: usize = 1000;
const WAITERS: usize = 1000;
const LONG_SLEEPERS: usize = 10_000;

/// An execution that waits leaves the memory a few seconds after it has begun to, and PostgreSQL's connections tell of their transactions
/// only after 10 s of rest.
const REST: Duration = Duration::from_secs(18);
const LOOK: Duration = Duration::from_secs(15);

/// Measures.
pub async fn run(world: &World, report: &mut Report) -> Result<()> {
    punctuality(world, report).await?;
    waiting(world, report).await?;
    memory(world, report).await
}

async fn punctuality(world: &World, report: &mut Report) -> Result<()> {
    let sleepers = world.effort.choose(SLEEPERS, 50);
    eprintln!("timers: {sleepers} sleeps of a second at the same time");
    let ours = sleep(world, &System::Cleat, sleepers).await?;
    let peer = world.beside(async |system| sleep(world, system, sleepers).await).await;
    let mut add = |metric: &str, value: fn(&Slept) -> f64, target: Option<f64>| {
        let metric = format!("{sleepers} sleeps of a second: {metric}");
        let measurement = Measurement::new(SCENARIO, metric, value(&ours), "ms").beside_peer(&peer, value);
        // A machine with no time to spare is not punctual.
        report.add(measurement.may_want(target.filter(|_| !world.effort.quick).map(Target::AtMost)));
    };
    add("overshoot p50", |slept| at(&slept.overshoot, 0.5), Some(10.0));
    add("overshoot p99", |slept| at(&slept.overshoot, 0.99), Some(50.0));
    add("overshoot of the last", |slept| at(&slept.overshoot, 1.0), None);
    add("answer late by, p50", |slept| at(&slept.late, 0.5), None);
    add("answer late by, p99", |slept| at(&slept.late, 0.99), None);
    Ok(())
}

async fn sleep(world: &World, system: &System, workflows: usize) -> Result<Slept> {
    let mut cluster = warm(world, system).await?;
    let slept = match cluster.first()?.ask(&Command::Sleep { workflows, seconds: 1.0 }).await? {
        Answer::Slept(slept) => slept,
        answer => bail!("not how workflows slept: {answer:?}"),
    };
    world.clear(cluster).await?;
    Ok(slept)
}

async fn waiting(world: &World, report: &mut Report) -> Result<()> {
    let waiters = world.effort.choose(WAITERS, 50);
    eprintln!("timers: {waiters} workflows that wait for a signal");
    let ours = wait(world, &System::Cleat, waiters).await?;
    let peer = world.beside(async |system| wait(world, system, waiters).await).await;
    let metric = format!("{waiters} workflows that wait for a signal: transactions");
    // As few as a node may need that nobody asks at all.
    let measurement = Measurement::new(SCENARIO, metric, ours, "1/s");
    report.add(measurement.beside_peer(&peer, |rate| *rate).wants(Target::AtMost(1.0)));
    Ok(())
}

/// Transactions a second while so many wait.
async fn wait(world: &World, system: &System, workflows: usize) -> Result<f64> {
    let mut cluster = warm(world, system).await?;
    cluster.first()?.tell(&Command::Wait { workflows, wait: Wait::Signal }).await?;
    let rate = transactions(world, &cluster).await?;
    world.clear(cluster).await?;
    Ok(rate)
}

/// Transactions a second, after a rest.
async fn transactions(world: &World, cluster: &Cluster) -> Result<f64> {
    let short = Duration::from_millis(200);
    let name = &cluster.database().name;
    tokio::time::sleep(world.effort.choose(REST, short)).await;
    let (begun, before) = (Instant::now(), world.transactions(name).await?);
    tokio::time::sleep(world.effort.choose(LOOK, short)).await;
    let ended = world.transactions(name).await? - before;
    Ok(f64::from(i32::try_from(ended)?) / begun.elapsed().as_secs_f64())
}

async fn memory(world: &World, report: &mut Report) -> Result<()> {
    let sleepers = world.effort.choose(LONG_SLEEPERS, 100);
    eprintln!("timers: {sleepers} workflows that sleep for a day");
    let ours = hold(world, &System::Cleat, sleepers).await?;
    let peer = world.beside(async |system| hold(world, system, sleepers).await).await;
    let target = if world.effort.quick { None } else { Some(Target::AtMost(50.0)) };
    let metric = format!("{sleepers} workflows that sleep for a day: memory above the floor");
    let measurement = Measurement::new(SCENARIO, metric, ours, "MiB");
    report.add(measurement.beside_peer(&peer, |mebibytes| *mebibytes).may_want(target));
    Ok(())
}

/// Mebibytes that sleepers add to a node that has worked before.
async fn hold(world: &World, system: &System, workflows: usize) -> Result<f64> {
    let mut cluster = warm(world, system).await?;
    let floor = cluster.first()?.resident()?;
    cluster.first()?.tell(&Command::Wait { workflows, wait: Wait::Day }).await?;
    tokio::time::sleep(world.effort.choose(REST, Duration::from_millis(200))).await;
    let held = cluster.first()?.resident()? - floor;
    world.clear(cluster).await?;
    Ok(held / 1024.0)
}

/// A node that has done some work: its connections are open, its buffers and caches are there.
async fn warm(world: &World, system: &System) -> Result<Cluster> {
    let mut cluster = world.cluster(system, Shape::Alone).await?;
    let method = Method::Workflow { activities: 1, transaction: false };
    let seconds = world.effort.seconds.min(2.0);
    cluster.load(Ask { method, place: Place::Anywhere, clients: 64, entities: 1, seconds }).await?;
    Ok(cluster)
}
