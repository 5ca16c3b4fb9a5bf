//! `cleat cron`: what happens again and again.

use anyhow::{Context, Result};
use cleat_crds::CronJob;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::output::{Format, waiting};
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
pub async fn run(target: &Target, command: &Command, format: Format) -> Result<()> {
    let Command::Trigger { name } = command;
    let platform = target.platform().await?;
    // Whatever was not there before triggers it once.
    let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    let patch = json!({"metadata": {"annotations": {"cleat.dev/trigger": now}}});
    let (api, how, patch) = (platform.api::<CronJob>(), PatchParams::default(), Patch::Merge(&patch));
    waiting("asking the API server", api.patch(name, &how, &patch))
        .await
        .map_err(|error| platform.unreachable(error))
        .with_context(|| format!("CronJob {name} cannot be triggered"))?;
    format.print(&json!({"name": name, "triggered": now}), |_| format!("{name} triggered at {now}\n"))
}
