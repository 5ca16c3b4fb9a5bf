//! The benchmark programs of Cleat: `cargo run --release -p bench -- <scenario>|all [--json FILE]`.
//!
//! Each scenario measures us and what we compare ourselves with in one run, on a private PostgreSQL with fsync on. Only the
//! ratios travel to another machine.

mod apiserver;
mod load;
mod report;
mod store;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use report::Report;

#[derive(Parser)]
#[command(name = "bench", about = "Measures Cleat side by side with its peers")]
struct Arguments {
    /// What to measure.
    #[arg(value_enum)]
    scenario: Scenario,
    /// Also write the results to this file, as a list of JSON objects.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seconds that each measurement takes, after a quarter of that to warm up.
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds between 0.1 and 600".to_owned()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// Durable writes: plain commits, group commit, and what the disk allows.
    Store,
    /// The embedded Kubernetes API beside a real one: lists, watches, applies.
    Apiserver,
    /// Everything.
    All,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut report = Report::default();
    let time = std::time::Duration::from_secs_f64(arguments.seconds);
    if matches!(arguments.scenario, Scenario::Store | Scenario::All) {
        store::run(&mut report, time).await?;
    }
    if matches!(arguments.scenario, Scenario::Apiserver | Scenario::All) {
        apiserver::run(&mut report, time).await?;
    }
    report.print();
    if let Some(path) = arguments.json {
        report.write(&path)?;
    }
    Ok(())
}
