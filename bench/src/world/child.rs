//! A subject's process, as the bench sees it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench_subject::protocol::{Answer, Command};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{self, ChildStdin, ChildStdout};

/// How long a command may take beyond the time that it was given.
const PATIENCE: Duration = Duration::from_secs(180);

/// One node in a process of its own. It is killed when this is dropped, and ends by itself when the bench is gone.
pub struct Child {
    process: process::Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    pid: u32,
}

impl Child {
    /// Starts one with so many threads for its tasks, if it is made with tokio.
    pub(super) fn spawn(program: &Path, arguments: &[&str], threads: usize) -> Result<Self> {
        let mut process = process::Command::new(program)
            .args(arguments)
            .env("TOKIO_WORKER_THREADS", threads.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let pid = process.id().context("the process has ended at once")?;
        let input = process.stdin.take().context("no standard input")?;
        let output = BufReader::new(process.stdout.take().context("no standard output")?).lines();
        Ok(Self { process, input, output, pid })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Asks, and waits for the answer.
    pub async fn ask(&mut self, command: &Command) -> Result<Answer> {
        let mut line = serde_json::to_string(command)?;
        line.push('\n');
        self.input.write_all(line.as_bytes()).await.context("the node has gone")?;
        self.input.flush().await?;
        let answer = tokio::time::timeout(PATIENCE, self.output.next_line())
            .await
            .with_context(|| format!("no answer to {}", line.trim_end()))??
            .context("the node has ended")?;
        match serde_json::from_str(&answer).with_context(|| format!("no answer: {answer}"))? {
            Answer::Failed(error) => bail!("{error}"),
            answer => Ok(answer),
        }
    }

    /// Asks for something that has no other answer than that it is done.
    pub async fn tell(&mut self, command: &Command) -> Result<()> {
        match self.ask(command).await? {
            Answer::Done => Ok(()),
            answer => bail!("not the answer to {command:?}: {answer:?}"),
        }
    }

    /// Ends it as a power failure would.
    pub async fn kill(mut self) -> Result<()> {
        Ok(self.process.kill().await?)
    }

    /// Ends it in an orderly way.
    pub async fn stop(mut self) -> Result<()> {
        self.tell(&Command::Stop).await?;
        drop(self.input);
        tokio::time::timeout(PATIENCE, self.process.wait()).await.context("the node does not end")??;
        Ok(())
    }

    /// Kibibytes of memory that it holds.
    pub fn resident(&self) -> Result<f64> {
        let path = format!("/proc/{}/status", self.pid);
        let status = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse()?)
    }
}
