//! One process of the cluster, in a process group of its own.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::home::Home;
use crate::sandbox::Sandbox;

/// A component that is asked to end has so long to do so, and is killed then: an API server with open watches takes a minute.
const GRACE: Duration = Duration::from_secs(5);

/// One that is killed is gone long before this.
const LIMIT: Duration = Duration::from_secs(30);

/// Where components run.
#[derive(Debug)]
pub(crate) enum Place {
    /// On the machine, on loopback.
    Machine,
    /// In namespaces.
    Sandbox(Sandbox),
}

impl Place {
    fn command(&self, program: &Path) -> Command {
        match self {
            Self::Machine => Command::new(program),
            Self::Sandbox(sandbox) => sandbox.command(program),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Component {
    name: &'static str,
    log: String,
    child: Child,
    group: Option<Pid>,
}

impl Component {
    /// Starts a program that logs to `log/NAME.log`, after what an earlier start has logged.
    pub(crate) fn start<I: AsRef<OsStr>>(
        home: &Home,
        place: &Place,
        name: &'static str,
        program: &Path,
        arguments: impl IntoIterator<Item = I>,
    ) -> Result<Self> {
        let path = home.path("log").join(format!("{name}.log"));
        let log = File::options().create(true).append(true).open(&path)?;
        let mut command = place.command(program);
        command.args(arguments).current_dir(home.root()).process_group(0);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(Self { name, log: path.to_string_lossy().into_owned(), child, group })
    }

    /// Fails if it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(20)..].join("\n");
        bail!("{} has ended with {status}; its last words:\n{last}", self.name)
    }

    /// Waits until `ready` is so, and fails if the component ends before.
    pub(crate) async fn ready<F: Future<Output = bool>>(&mut self, ready: impl Fn() -> F) -> Result<()> {
        let name = self.name;
        crate::until(format_args!("{name} does not answer"), || {
            let alive = self.check();
            let looking = ready();
            async {
                alive?;
                Ok(looking.await)
            }
        })
        .await
    }

    /// Asks it to end, insists after a moment, and returns when it has ended.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.signal(Signal::TERM);
        let begun = Instant::now();
        while self.is_there()? {
            if begun.elapsed() > LIMIT {
                bail!("{} did not end in {} s", self.name, LIMIT.as_secs());
            }
            if begun.elapsed() > GRACE {
                self.signal(Signal::KILL);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.group = None;
        Ok(())
    }

    /// Whether anybody of the group is left: the program and, in a sandbox, who led it there.
    fn is_there(&mut self) -> Result<bool> {
        let left = self.child.try_wait()?.is_none();
        Ok(left || self.group.is_some_and(|group| test_kill_process_group(group).is_ok()))
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // It fails only for a group that is gone, which is what is wanted.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}
