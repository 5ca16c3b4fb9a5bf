//! `cleat cron`: what happens again and again.

use anyhow::{Context, Result};
use cleat_crds::CronJob;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::output::write;
use crate::target::Target;

/// What to do with crons.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Run a cron now, besides its schedule.
    Trigger {
        /// The CronJob.
        name: String,
    },
}

/// Does it.
pub async fn run(target: &Target, command: &Command) -> Result<()> {
    let Command::Trigger { name } = command;
    let platform = target.platform().await?;
    // Whatever was not there before triggers it once.
    let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    let patch = json!({"metadata": {"annotations": {"cleat.dev/trigger": now}}});
    platform
        .api::<CronJob>()
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map_err(|error| platform.unreachable(error))
        .with_context(|| format!("CronJob {name} cannot be triggered"))?;
    write(&format!("{name} triggered at {now}\n"))
}
