//! Helm, as a user runs it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use crate::binaries::{Program, program};
use crate::kubectl::Outcome;

/// Helm with a kubeconfig.
#[derive(Debug, Clone)]
pub struct Helm {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Helm {
    /// Where the chart of this repository is.
    #[must_use]
    pub fn chart() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../helm/cleat")
    }

    /// Helm for the cluster that a kubeconfig leads to.
    ///
    /// # Errors
    /// There is none and it cannot be built.
    pub async fn new(kubeconfig: &Path) -> Result<Self> {
        Ok(Self { program: program(Program::Helm).await?, kubeconfig: kubeconfig.to_owned() })
    }

    /// Runs it in the folder of the chart, with arguments that are separated by single blanks, and returns what it printed.
    ///
    /// # Errors
    /// It fails; the error holds what it said.
    pub async fn run(&self, arguments: &str) -> Result<String> {
        let outcome = self.attempt(arguments).await?;
        ensure!(outcome.success, "helm {arguments}: {}{}", outcome.output, outcome.errors);
        Ok(outcome.output)
    }

    /// The same, whether it fails or not.
    ///
    /// # Errors
    /// It cannot be run.
    pub async fn attempt(&self, arguments: &str) -> Result<Outcome> {
        let mut command = Command::new(&self.program);
        command.args(arguments.split(' ')).current_dir(Self::chart()).env("KUBECONFIG", &self.kubeconfig);
        // What it remembers belongs to this cluster alone.
        command.env("HOME", self.kubeconfig.parent().unwrap_or(Path::new("/")));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let output = command.output().await.context("cannot run helm")?;
        Ok(Outcome {
            success: output.status.success(),
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}
