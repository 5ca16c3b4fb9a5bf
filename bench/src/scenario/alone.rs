//! One client alone: group commit must not make it wait.

use anyhow::Result;
use bench_subject::protocol::{Method, Place};

use crate::report::{Measurement, Report, Target};
use crate::world::{Ask, Shape, System, World};

const SCENARIO: &str = "alone";

/// Calls and bare commits take turns, because a disk is not equally fast at all times.
const ROUNDS: usize = 3;

/// How fast a call is at least, compared to the commits that it needs.
const TARGET: Target = Target::RatioAtLeast(0.7);

/// Measures.
pub async fn run(world: &World, report: &mut Report) -> Result<()> {
    eprintln!("alone: one client, turn and turn about with bare commits");
    let rounds = world.effort.choose(ROUNDS, 1);
    let seconds = world.effort.seconds / 2.0;
    let mut cluster = world.cluster(&System::Cleat, Shape::Alone).await?;
    let (mut bare, mut state, mut outside) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        bare.push(world.bare(1, seconds).await?.per_second);
        state.push(cluster.load(ask(Method::Add, seconds)).await?);
        outside.push(cluster.load(ask(Method::Outside, seconds)).await?);
    }
    world.clear(cluster).await?;
    let peer = world
        .beside(async |system| {
            let mut cluster = world.cluster(system, Shape::Alone).await?;
            let outcome = cluster.load(ask(Method::Outside, seconds)).await?;
            world.clear(cluster).await?;
            Ok(outcome)
        })
        .await;
    let bare = middle(bare);
    report.add(Measurement::new(SCENARIO, "bare commits, one writer", bare, "1/s"));
    for (name, commits, outcomes) in [("durable state", 1.0, state), ("effects outside", 2.0, outside)] {
        let rate = middle(outcomes.iter().map(|outcome| outcome.per_second).collect());
        let metric = format!("{name}, one client, beside its {commits} bare commits");
        let measurement = Measurement::new(SCENARIO, metric, rate, "1/s");
        report.add(measurement.beside("bare commits", bare / commits).wants(TARGET));
        if let Some(outcome) = outcomes.last() {
            report.add_load(SCENARIO, &format!("{name}, one client"), outcome, &peer, None);
        }
    }
    Ok(())
}

fn ask(method: Method, seconds: f64) -> Ask {
    Ask { method, place: Place::Local, clients: 1, entities: 50, seconds }
}

/// The median: a single round may have met a checkpoint.
fn middle(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(f64::NAN)
}
