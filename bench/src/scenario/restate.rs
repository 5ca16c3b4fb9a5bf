//! Beside Restate's single node: its object call and its workflow of ten steps, each as Restate's own examples write them.

use anyhow::Result;
use bench_subject::protocol::{Method, Outcome, Place};

use super::workflow;
use crate::report::{Report, Target};
use crate::world::{Ask, Peer, Shape, System, World};

const SCENARIO: &str = "restate";
const CLIENTS: usize = 256;
const STEPS: u32 = 10;

/// How much more we do, for both.
const TARGET: Target = Target::RatioAtLeast(10.0);

/// Measures.
pub async fn run(world: &World, report: &mut Report) -> Result<()> {
    let clients = world.effort.choose(CLIENTS, 8);
    eprintln!("restate: object calls with durable state, {clients} clients");
    let ours = object(world, &System::Cleat, clients).await?;
    let peer = world.beside_of(Peer::Restate, async |system| object(world, system, clients).await).await;
    report.add_load(SCENARIO, &format!("object call, {clients} clients"), &ours, &peer, Some(TARGET));
    eprintln!("restate: workflows with {STEPS} steps, {clients} clients");
    let ours = workflow::one(world, &System::Cleat, STEPS, clients).await?;
    let peer = world
        .beside_of(Peer::Restate, async |system| workflow::one(world, system, STEPS, clients).await)
        .await;
    let what = format!("{}, {clients} clients", workflow::name(STEPS, false));
    report.add_load(SCENARIO, &what, &ours, &peer, Some(TARGET));
    Ok(())
}

async fn object(world: &World, system: &System, clients: usize) -> Result<Outcome> {
    let mut cluster = world.cluster(system, Shape::Alone).await?;
    let (entities, seconds) = (world.effort.choose(1000, 50), world.effort.seconds);
    let ask = Ask { method: Method::Add, place: Place::Local, clients, entities, seconds };
    let outcome = cluster.load(ask).await?;
    world.clear(cluster).await?;
    Ok(outcome)
}
