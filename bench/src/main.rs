//! The benchmark programs of Cleat: `cargo run --release -p bench -- <scenario>|all [--json FILE]`.
//!
//! Each scenario measures us and what we compare ourselves with in one run, on a private PostgreSQL with fsync on. Only the
//! ratios travel to another machine. Every node of a measured system is a process of its own; ours are this program again.

mod markdown;
mod ours;
mod plot;
mod report;
mod scenario;
mod world;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use markdown::Setting;
use ours::Ours;
use report::Report;
use scenario::Scenario;
use world::{Effort, World};

/// As the stock runner has it.
#[global_allocator]
static ALLOCATOR: cleat_runner::Allocator = cleat_runner::Allocator;

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
    /// Also write the results to this file as a page of Markdown, and the plots beside it as SVG.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Seconds that each measurement takes, after a quarter of that to warm up.
    #[arg(long, default_value_t = 4.0, value_parser = seconds)]
    seconds: f64,
    /// Do so little that nothing is measured, to see that everything works.
    #[arg(long)]
    quick: bool,
    /// Measure only ourselves.
    #[arg(long)]
    no_peer: bool,
    /// A setting of PostgreSQL that is not to be its default, such as `shared_buffers=1GB`. Can be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
    /// How many entities the growth scenario goes to.
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000)]
    most_entities: usize,
    /// How many finished messages the growth scenario then adds.
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000_000)]
    finished: u32,
}

impl Arguments {
    /// Writes the files that were asked for.
    fn write(&self, setting: &Setting, report: &Report) -> Result<()> {
        if let Some(path) = &self.json {
            report.write(path)?;
        }
        if let Some(path) = &self.markdown {
            let page = markdown::page(setting, report.measurements(), report.remarks());
            std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
            plot::write(report.measurements(), path.parent().unwrap_or(path))?;
        }
        Ok(())
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
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
    let begun = Instant::now();
    let arguments = Arguments::parse();
    let effort = Effort {
        seconds: if arguments.quick { 0.2 } else { arguments.seconds },
        quick: arguments.quick,
        most_entities: arguments.most_entities,
        finished: arguments.finished,
    };
    let world = World::start(effort, &arguments.set, !arguments.no_peer).await?;
    let setting = Setting::look(&world.version().await?, &arguments.set, effort.seconds);
    let mut report = Report::default();
    let scenarios: Vec<Scenario> = arguments.scenarios.iter().flat_map(|scenario| scenario.each()).collect();
    let mut failed = 0;
    for (index, scenario) in scenarios.iter().enumerate() {
        eprintln!("[{}/{}] {} ({:.0?} so far)", index + 1, scenarios.len(), scenario.name(), begun.elapsed());
        if let Err(error) = scenario.run(&world, &mut report).await {
            // The others are worth having all the same.
            failed += 1;
            report.fail(scenario.name(), &error);
        }
        // Written each time: a run takes a while, and may be cut short.
        arguments.write(&setting, &report)?;
    }
    for why in world.missing() {
        report.remark(why);
    }
    report.remark(format!("this run took {:.0?}", begun.elapsed()));
    report.print();
    arguments.write(&setting, &report)?;
    ensure!(failed == 0, "{failed} of {} scenarios failed", scenarios.len());
    Ok(())
}
