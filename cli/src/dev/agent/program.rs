//! What runs in a pod: the stock runner on threads of its own, or a program of the user's.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use cleat_runner::Runner;
use cleat_runner::lease::kubernetes::Access;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::Command;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::dev::logs::Logs;

/// A runner that a user has written, such as `examples/orders-rust`. It is started for each pod.
#[derive(Debug, Clone)]
pub struct Program {
    /// Where it is.
    pub path: PathBuf,
    /// How it finds the API server.
    pub kubeconfig: PathBuf,
    /// Whose turn it is, if the database is for one process at a time.
    pub turn: Option<Arc<Mutex<()>>>,
}

/// What a runner is told by its environment.
pub(super) type Variables = BTreeMap<String, String>;

/// Threads that are named after a pod. Whatever runs on them ends with this.
struct Threads(Option<Runtime>);

impl Threads {
    fn new(pod: &str) -> Result<Self> {
        let mut threads = tokio::runtime::Builder::new_multi_thread();
        let threads = threads.worker_threads(2).thread_name(Logs::thread(pod)).enable_all();
        Ok(Self(Some(threads.build().context("cannot start threads")?)))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Runs the stock runner until it is told to stop and has drained.
pub(super) async fn here(
    pod: &str,
    variables: Variables,
    access: Access,
    stop: CancellationToken,
) -> Result<()> {
    let threads = Threads::new(pod)?;
    let runner = Runner::from_variables(|name| variables.get(name).cloned()).kubernetes(access);
    match &threads.0 {
        Some(runtime) => Ok(runtime.spawn(runner.run_until(stop.cancelled_owned())).await??),
        None => Ok(()),
    }
}

impl Program {
    /// The same with the user's program.
    pub(super) async fn run(
        &self,
        pod: &str,
        variables: Variables,
        logs: &Logs,
        stop: CancellationToken,
    ) -> Result<()> {
        let _turn = match self.turn.as_ref().map(|turn| turn.try_lock()) {
            Some(Err(_)) => bail!(
                "another runner has the SQLite database, which is for one process at a time; start with --database postgres://… for more"
            ),
            turn => turn,
        };
        let mut command = Command::new(&self.path);
        // Only what the pod says counts.
        let ours = std::env::vars_os().map(|(name, _)| name);
        for name in ours.filter(|name| name.to_string_lossy().starts_with("CLEAT_")) {
            command.env_remove(name);
        }
        command.env("CLEAT_LOG_FORMAT", "text").env("NO_COLOR", "1").envs(variables);
        command.env("KUBECONFIG", &self.kubeconfig).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{} cannot be run", self.path.display()))?;
        let _said = (
            child.stdout.take().map(|output| keep(output, pod, logs)),
            child.stderr.take().map(|output| keep(output, pod, logs)),
        );
        tokio::select! {
            ended = child.wait() => bail!("it has ended, {}: `kubectl logs {pod}` has what it said", ended?),
            () = stop.cancelled() => {}
        }
        if let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) {
            // It may have ended just now.
            let _ = kill_process(id, Signal::TERM);
        }
        child.wait().await?;
        Ok(())
    }
}

/// Keeps what a program says as the log of its pod.
fn keep(output: impl AsyncRead + Unpin + Send + 'static, pod: &str, logs: &Logs) -> AbortOnDropHandle<()> {
    let (pod, logs) = (pod.to_owned(), logs.clone());
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut lines = BufReader::new(output).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            logs.write(&pod, &line);
        }
    }))
}
