//! kubectl, as a user runs it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::binaries::{Program, program};

/// What a command came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it succeeded.
    pub success: bool,
    /// What it printed.
    pub output: String,
    /// What it said about it.
    pub errors: String,
}

/// kubectl with a kubeconfig.
#[derive(Debug, Clone)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    /// `program` is one of the kubectls.
    ///
    /// # Errors
    /// There is none and it cannot be built.
    pub async fn new(program: Program, kubeconfig: &Path) -> Result<Self> {
        Ok(Self { program: self::program(program).await?, kubeconfig: kubeconfig.to_owned() })
    }

    /// The same server, asked by somebody else: the bearer of a token, who has nothing but that. Their kubeconfig is kept in `folder`.
    ///
    /// # Errors
    /// The own kubeconfig cannot be read, or the other not written.
    pub async fn with_token(&self, token: &str, folder: &Path) -> Result<Self> {
        let config = self.run("config view --minify --raw --flatten -o json").await?;
        let mut config: Value = serde_json::from_str(&config)?;
        for user in config["users"].as_array_mut().into_iter().flatten() {
            user["user"] = json!({ "token": token });
        }
        let kubeconfig = folder.join("kubeconfig");
        std::fs::write(&kubeconfig, config.to_string())?;
        Ok(Self { program: self.program.clone(), kubeconfig })
    }

    /// Runs it with arguments that are separated by single blanks, and returns what it printed.
    ///
    /// # Errors
    /// It fails; the error holds what it said.
    pub async fn run(&self, arguments: &str) -> Result<String> {
        self.run_with(arguments, "").await
    }

    /// The same with something to read.
    ///
    /// # Errors
    /// It fails; the error holds what it said.
    pub async fn run_with(&self, arguments: &str, input: &str) -> Result<String> {
        let outcome = self.attempt(arguments, input).await?;
        ensure!(outcome.success, "kubectl {arguments}: {}{}", outcome.output, outcome.errors);
        Ok(outcome.output)
    }

    /// The same, whether it fails or not.
    ///
    /// # Errors
    /// It cannot be run.
    pub async fn attempt(&self, arguments: &str, input: &str) -> Result<Outcome> {
        let mut child =
            self.command(arguments).stdin(Stdio::piped()).spawn().context("cannot run kubectl")?;
        let mut stdin = child.stdin.take().context("kubectl takes no input")?;
        // One that does not read its input to the end breaks the pipe, which is its right.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let output = child.wait_with_output().await?;
        Ok(Outcome {
            success: output.status.success(),
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// The command itself, for what goes on for a while. It ends when it is dropped.
    #[must_use]
    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments.split(' ')).env("KUBECONFIG", &self.kubeconfig).kill_on_drop(true);
        // Its cache of what servers serve belongs to this server alone.
        command.env("HOME", self.kubeconfig.parent().unwrap_or(Path::new("/")));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}
