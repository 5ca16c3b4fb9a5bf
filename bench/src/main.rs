//! The benchmark programs of Cleat: `cargo run --release -p bench -- <scenario>|all [--json FILE]`.
//!
//! Each scenario measures us and what we compare ourselves with in one run, on a private PostgreSQL with fsync on. Only the
//! ratios travel to another machine. Every node of a measured system is a process of its own; ours are this program again.

mod ours;
mod plot;
mod report;
mod scenario;
mod world;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;

use ours::Ours;
use report::Report;
use scenario::Scenario;
use world::{Effort, World};

/// The argument that makes this program one of our nodes.
const SUBJECT: &str = "subject";

#[derive(Parser)]
#[command(name = "bench", about = "Measures Cleat side by side with its peers")]
struct Arguments {
    /// What to measure.
    #[arg(value_enum, required = true)]
    scenarios: Vec<Scenario>,
    /// Also write the results to this file, as a list of JSON objects.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write the results to this file as tables of Markdown, and the plots beside it as SVG.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Seconds that each measurement takes, after a quarter of that to warm up.
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// Do so little that nothing is measured, to see that everything works.
    #[arg(long)]
    quick: bool,
    /// Measure only ourselves.
    #[arg(long)]
    no_peer: bool,
    /// How many entities the growth scenario goes to.
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000)]
    most_entities: usize,
    /// How many finished messages the growth scenario then adds.
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000_000)]
    finished: u32,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds between 0.1 and 600".to_owned()),
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    if std::env::args().nth(1).is_some_and(|argument| argument == SUBJECT) {
        return bench_subject::serve::<Ours>().await;
    }
    let arguments = Arguments::parse();
    let effort = Effort {
        seconds: if arguments.quick { 0.2 } else { arguments.seconds },
        quick: arguments.quick,
        most_entities: arguments.most_entities,
        finished: arguments.finished,
    };
    let world = World::start(effort, !arguments.no_peer).await?;
    let mut report = Report::default();
    let mut outcome = Ok(());
    for scenario in arguments.scenarios {
        outcome = scenario.run(&world, &mut report).await;
        if outcome.is_err() {
            break;
        }
    }
    for why in world.missing() {
        report.remark(why);
    }
    // What was measured before something went wrong is worth having, too.
    report.print();
    if let Some(path) = arguments.json {
        report.write(&path)?;
    }
    if let Some(path) = arguments.markdown {
        std::fs::write(&path, report.markdown())
            .with_context(|| format!("cannot write {}", path.display()))?;
        plot::write(report.measurements(), path.parent().unwrap_or(&path))?;
    }
    outcome
}
