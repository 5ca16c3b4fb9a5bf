//! The server's first process, the parent of all its others.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::account::Account;
use super::binaries::Binaries;
use super::error::{Context, Error};
use super::home::Home;
use crate::os::{self, Entry};

/// What a loaded machine may take for anything that normally takes far below a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often the state of processes is looked at; the system has no event to wait for.
pub(super) const GLANCE: Duration = Duration::from_millis(5);

/// How PostgreSQL is told to shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// Waits until all clients have gone.
    Smart,
    /// Ends the sessions, rolls their transactions back and writes a checkpoint.
    Fast,
    /// Ends at once without a checkpoint: the next start recovers from the log.
    Immediate,
}

impl Shutdown {
    fn signal(self) -> Signal {
        match self {
            Self::Smart => Signal::TERM,
            Self::Fast => Signal::INT,
            Self::Immediate => Signal::QUIT,
        }
    }
}

/// A running postmaster; dropping it kills it.
#[derive(Debug)]
pub(super) struct Postmaster {
    child: Child,
    pid: Pid,
}

/// How a start ended.
#[derive(Debug)]
pub(super) enum Launch {
    Ready(Postmaster),
    /// Another program has the port.
    PortTaken,
}

impl Postmaster {
    /// Starts the server on `port` and waits until it accepts connections, recovery included.
    pub(super) async fn launch(
        binaries: &Binaries,
        account: Account,
        home: &Home,
        port: u16,
    ) -> Result<Launch, Error> {
        let log = File::options().append(true).create(true).open(home.log()).to("open the server's log")?;
        let before = log.metadata().to("look at the server's log")?.len();
        let errors = log.try_clone().to("share the server's log")?;
        let mut command = command(&binaries.postgres, account, home);
        command.arg("-D").arg(home.data()).arg("-p").arg(port.to_string());
        // A group of its own: Ctrl-C is for the test, and the test's end is for the watchdog.
        command.process_group(0).stdout(log).stderr(errors);
        let child = command.spawn().to("start postgres")?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("not a process id")).to("start postgres")?;
        let mut postmaster = Self { child, pid };

        let since = Instant::now();
        loop {
            if postmaster.child.try_wait().to("wait for postgres")?.is_some() {
                let log = read_log(home, before);
                let taken = log.contains("Address already in use");
                return if taken { Ok(Launch::PortTaken) } else { Err(Error::Start { log }) };
            }
            if postmaster.is_ready(home) {
                return Ok(Launch::Ready(postmaster));
            }
            moment(since, "start", home).await?;
        }
    }

    /// The lock file's first line names its process, the eighth says how far the start is.
    fn is_ready(&self, home: &Home) -> bool {
        let lock = std::fs::read_to_string(home.data().join("postmaster.pid")).unwrap_or_default();
        let mut lines = lock.lines().map(str::trim);
        lines.next() == Some(&self.pid.to_string()) && lines.nth(6) == Some("ready")
    }

    pub(super) async fn shut_down(&mut self, how: Shutdown, home: &Home) -> Result<(), Error> {
        self.resume(None)?;
        os::signal(self.pid, how.signal()).to("signal postgres")?;
        let since = Instant::now();
        while self.child.try_wait().to("wait for postgres")?.is_none() {
            moment(since, "shut down", home).await?;
        }
        Ok(())
    }

    /// SIGKILL for the postmaster and all its children, who get no chance to do anything any more.
    pub(super) async fn kill(&mut self, home: &Home) -> Result<(), Error> {
        // Stopped first, so that it has no child that the list does not have.
        os::signal(self.pid, Signal::STOP).to("stop postgres")?;
        self.until(home, "stop", |table| table.iter().all(Entry::is_stopped), |entry| entry.pid == self.pid)
            .await?;
        let children = self.children()?;
        os::signal(self.pid, Signal::KILL).to("kill postgres")?;
        for child in &children {
            os::signal(child.pid, Signal::KILL).to("kill a backend")?;
        }
        self.child.wait().to("wait for postgres")?;
        let is_child = |entry: &Entry| children.iter().any(|child| child.pid == entry.pid);
        self.until(home, "die", |table| table.iter().all(Entry::is_dead), is_child).await
    }

    /// SIGSTOP for `backend`, or for the whole server; returns when they have stopped.
    pub(super) async fn pause(&self, backend: Option<i32>, home: &Home) -> Result<(), Error> {
        let targets = self.targets(backend)?;
        for pid in &targets {
            os::signal(*pid, Signal::STOP).to("stop a backend")?;
        }
        let stopped = |table: &[Entry]| table.iter().all(|entry| entry.is_stopped() || entry.is_dead());
        self.until(home, "stop", stopped, |entry| targets.contains(&entry.pid)).await
    }

    pub(super) fn resume(&self, backend: Option<i32>) -> Result<(), Error> {
        for pid in self.targets(backend)? {
            os::signal(pid, Signal::CONT).to("continue a backend")?;
        }
        Ok(())
    }

    /// The backend if it is ours, or the postmaster (first, so that it starts no more) and all its children.
    fn targets(&self, backend: Option<i32>) -> Result<Vec<Pid>, Error> {
        let children = self.children()?.into_iter().map(|entry| entry.pid);
        match backend {
            None => Ok(std::iter::once(self.pid).chain(children).collect()),
            Some(pid) => {
                let found: Vec<Pid> = children.filter(|child| child.as_raw_pid() == pid).collect();
                if found.is_empty() { Err(Error::Foreign { pid }) } else { Ok(found) }
            }
        }
    }

    fn children(&self) -> Result<Vec<Entry>, Error> {
        let mut table = os::processes().to("list processes")?;
        table.retain(|entry| entry.parent == self.pid.as_raw_pid());
        Ok(table)
    }

    /// Waits until `goal` is true of those rows of the process table that are `of_interest`.
    async fn until(
        &self,
        home: &Home,
        name: &'static str,
        goal: impl Fn(&[Entry]) -> bool,
        of_interest: impl Fn(&Entry) -> bool,
    ) -> Result<(), Error> {
        let since = Instant::now();
        loop {
            let mut table = os::processes().to("list processes")?;
            table.retain(&of_interest);
            if goal(&table) {
                return Ok(());
            }
            moment(since, name, home).await?;
        }
    }
}

impl Drop for Postmaster {
    fn drop(&mut self) {
        // An error means that it was waited for already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command of PostgreSQL's in its folder and as its account, free of the caller's PostgreSQL settings.
pub(super) fn command(program: &std::path::Path, account: Account, home: &Home) -> Command {
    let mut command = Command::new(program);
    account.run(&mut command).current_dir(home.path()).env("LC_ALL", "C").stdin(Stdio::null());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
        command.env_remove(name);
    }
    command
}

/// Lets a moment pass, unless the goal should have been reached long ago.
async fn moment(since: Instant, goal: &'static str, home: &Home) -> Result<(), Error> {
    if since.elapsed() > PATIENCE {
        return Err(Error::Late { goal, seconds: PATIENCE.as_secs(), log: read_log(home, 0) });
    }
    tokio::time::sleep(GLANCE).await;
    Ok(())
}

/// What was logged from byte `start` on; a log that cannot be read must not hide the error it belongs to.
fn read_log(home: &Home, start: u64) -> String {
    let log = std::fs::read(home.log()).unwrap_or_default();
    let start = usize::try_from(start).unwrap_or(usize::MAX).min(log.len());
    String::from_utf8_lossy(&log[start..]).into_owned()
}
