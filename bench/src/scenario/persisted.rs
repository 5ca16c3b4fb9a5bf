//! Persisted calls: with effects outside, which takes two commits, and with durable state, which takes one; local and remote.

use anyhow::Result;
use bench_subject::protocol::{Method, Outcome, Place};

use crate::report::{Measurement, Report, Target};
use crate::world::{Ask, Beside, Shape, System, World};

const SCENARIO: &str = "persisted";
const CLIENTS: [usize; 2] = [64, 256];

/// Ratios to the peer for each number of clients. Remote calls shall have at least two thirds of that.
const OUTSIDE: [f64; 2] = [8.0, 15.0];
const STATE: [f64; 2] = [12.0, 25.0];
const REMOTE: f64 = 2.0 / 3.0;

/// What one system does with each number of clients.
struct Calls {
    outside: Vec<Outcome>,
    state: Vec<Outcome>,
}

/// Measures.
pub async fn run(world: &World, report: &mut Report) -> Result<()> {
    eprintln!("persisted: bare commits");
    let bare = world.bare(CLIENTS[0], world.effort.seconds).await?;
    report.add(Measurement::new(SCENARIO, "bare commits, 64 writers", bare.per_second, "1/s"));
    let places =
        [(Shape::Alone, Place::Local, "local", 1.0), (Shape::Members(2), Place::Remote, "remote", REMOTE)];
    for (shape, place, name, part) in places {
        eprintln!("persisted: {name}");
        let ours = measure(world, &System::Cleat, shape, place).await?;
        let peer = world.beside(async |system| measure(world, system, shape, place).await).await;
        for (index, clients) in CLIENTS.into_iter().enumerate() {
            let bare_peer = peer.as_ref().map(|calls| calls.outside[index].clone());
            let what = format!("effects outside, {name}, {clients} clients");
            let target = Target::RatioAtLeast(round(OUTSIDE[index] * part));
            report.add_load(SCENARIO, &what, &ours.outside[index], &bare_peer, Some(target));
            let what = format!("durable state, {name}, {clients} clients");
            let target = Target::RatioAtLeast(round(STATE[index] * part));
            report.add_load(SCENARIO, &what, &ours.state[index], &bare_peer, Some(target));
            extra(report, &what, &ours.state[index], &peer, index, bare.per_second);
        }
    }
    Ok(())
}

/// The peer has no durable state. Above we stand beside its bare persisted call, which does less; here beside the counter of its
/// README, which keeps its state in a table by itself, and beside bare commits.
fn extra(report: &mut Report, what: &str, ours: &Outcome, peer: &Beside<Calls>, index: usize, bare: f64) {
    let metric = format!("{what}, beside a table of the user's");
    let measurement = Measurement::new(SCENARIO, metric, ours.per_second, "1/s");
    report.add(measurement.beside_peer(peer, |calls| calls.state[index].per_second));
    let metric = format!("{what}, beside bare commits");
    report.add(Measurement::new(SCENARIO, metric, ours.per_second, "1/s").beside("bare commits, 64", bare));
}

async fn measure(world: &World, system: &System, shape: Shape, place: Place) -> Result<Calls> {
    let mut cluster = world.cluster(system, shape).await?;
    let (entities, seconds) = (world.effort.choose(1000, 50), world.effort.seconds);
    let mut calls = Calls { outside: Vec::new(), state: Vec::new() };
    for clients in CLIENTS {
        let ask = Ask { method: Method::Outside, place, clients, entities, seconds };
        calls.outside.push(cluster.load(ask).await?);
        calls.state.push(cluster.load(Ask { method: Method::Add, ..ask }).await?);
    }
    world.clear(cluster).await?;
    Ok(calls)
}

fn round(target: f64) -> f64 {
    (target * 10.0).round() / 10.0
}
