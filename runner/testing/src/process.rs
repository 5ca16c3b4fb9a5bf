//! Copies of the test binary as child processes, to be stopped, resumed and killed.
//!
//! A child plays a [`role`], a function of the same binary, and talks with its parent in messages: any serde type,
//! one line of JSON each, over the child's standard input and output.
//!
//! ```no_run
//! use cleat_testing::process::{self, Process};
//!
//! // A test by its attribute alone: it does nothing unless this process was spawned to play it.
//! #[test]
//! fn doubler() {
//!     process::role("doubler", async |parent| {
//!         while let Some(number) = parent.receive::<u64>().await.unwrap() {
//!             parent.send(&(2 * number)).unwrap();
//!         }
//!     });
//! }
//!
//! #[tokio::test]
//! async fn the_doubler_doubles() {
//!     let mut child = Process::spawn("doubler").unwrap();
//!     child.send(&21_u64).await.unwrap();
//!     assert_eq!(child.receive::<u64>().await.unwrap(), Some(42));
//! }
//! ```
//!
//! # Guarantees
//! A child and the processes it started in its group are killed when its [`Process`] is dropped and when the parent
//! ends, be it by SIGKILL and while the child is stopped.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Mutex, mpsc};

use crate::watchdog::Watchdog;

/// Tells a process which role it was spawned to play.
const ROLE: &str = "CLEAT_TEST_ROLE";

/// Begins each line that is a message; the test harness and the role print lines of their own.
const MARK: &str = "\u{1}";

/// Kills the process group `$1` when the parent is gone.
const KILL: &str = "trap '' HUP INT QUIT TERM; while read -r _; do :; done; kill -9 -- \"-$1\"";

/// Why a child process could not be had or talked with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process could not be started.
    #[error("cannot start a child process")]
    Spawn(#[source] io::Error),
    /// A signal or a wait was refused.
    #[error("cannot signal the child process")]
    Signal(#[source] io::Error),
    /// The child has ended, or its input was closed.
    #[error("the child process is not there any more")]
    Ended,
    /// The pipe between parent and child broke.
    #[error("the pipe is broken")]
    Pipe(#[source] io::Error),
    /// A message is not what the receiver expects, or cannot be written as JSON.
    #[error("not the message that was expected: {line}")]
    Message {
        /// The message, where there is one.
        line: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// A child process that plays a role.
#[derive(Debug)]
pub struct Process {
    role: String,
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    watchdog: Watchdog,
}

impl Process {
    /// Starts this test binary again, in `role`: the full name of the test function that calls [`role`], such as
    /// `roles::doubler`. Environment and standard error are the parent's.
    ///
    /// Call it within a tokio runtime.
    ///
    /// # Errors
    /// When the system cannot start another process.
    pub fn spawn(role: &str) -> Result<Self, Error> {
        let mut command = Command::new(std::env::current_exe().map_err(Error::Spawn)?);
        // Arguments for the standard test harness: run this one function, and let it print.
        command.args([role, "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, role);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).kill_on_drop(true);
        let mut child = command.spawn().map_err(Error::Spawn)?;
        let group = child.id().map(|pid| pid.to_string()).ok_or(Error::Ended)?;
        let watchdog = Watchdog::spawn(KILL, &[OsStr::new(&group)]).map_err(Error::Spawn)?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().ok_or(Error::Ended)?).lines();
        Ok(Self { role: role.to_owned(), child, input, output, watchdog })
    }

    /// The process id, until the end of the process was seen.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends a message. It may wait while a stopped child does not read.
    ///
    /// # Errors
    /// [`Error::Ended`] after [`close`](Self::close), [`Error::Pipe`] when the child is gone.
    pub async fn send<T: Serialize>(&mut self, message: &T) -> Result<(), Error> {
        let line = encode(message)?;
        let input = self.input.as_mut().ok_or(Error::Ended)?;
        input.write_all(line.as_bytes()).await.map_err(Error::Pipe)?;
        input.flush().await.map_err(Error::Pipe)
    }

    /// The next message of the child, or `None` when it has closed its output, as it does when it ends.
    ///
    /// Nothing is lost when the future is dropped. Lines that are no messages are printed.
    ///
    /// # Errors
    /// [`Error::Message`] for a message that is not a `T`.
    pub async fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Error> {
        while let Some(line) = self.output.next_line().await.map_err(Error::Pipe)? {
            match line.strip_prefix(MARK) {
                Some(message) => return decode(message).map(Some),
                None => println!("{}: {line}", self.role),
            }
        }
        Ok(None)
    }

    /// Closes the child's input, which a well-behaved role takes as the wish to end.
    pub fn close(&mut self) {
        self.input = None;
    }

    /// Waits for the end of the child.
    ///
    /// # Errors
    /// When the system refuses.
    pub async fn wait(&mut self) -> Result<ExitStatus, Error> {
        self.child.wait().await.map_err(Error::Signal)
    }

    /// Kills the child with SIGKILL; when this returns, it is gone. A child that has ended already is no error.
    ///
    /// # Errors
    /// When the system refuses.
    pub async fn kill(&mut self) -> Result<ExitStatus, Error> {
        if let Some(group) = self.group() {
            signal(group, Signal::KILL)?;
        }
        self.wait().await
    }

    /// Freezes the child with SIGSTOP; when this returns, none of its threads runs.
    ///
    /// # Errors
    /// [`Error::Ended`] when it has ended.
    pub async fn pause(&mut self) -> Result<(), Error> {
        let group = self.group().ok_or(Error::Ended)?;
        signal(group, Signal::STOP)?;
        // The parent is told when the last thread has stopped. The notice is left in place (NOWAIT), as the end of
        // the child must be for the runtime, which waits for it too.
        let wanted = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let seen = tokio::task::spawn_blocking(move || waitid(WaitId::Pid(group), wanted)).await;
        let seen = seen.map_err(|error| Error::Signal(io::Error::other(error)))?;
        let seen = seen.map_err(|errno| Error::Signal(errno.into()))?;
        if seen.is_some_and(|status| status.stopped()) { Ok(()) } else { Err(Error::Ended) }
    }

    /// Lets a paused child go on.
    ///
    /// # Errors
    /// [`Error::Ended`] when it has ended.
    pub fn resume(&mut self) -> Result<(), Error> {
        signal(self.group().ok_or(Error::Ended)?, Signal::CONT)
    }

    /// The child's process group, as long as the child was not reaped and its number is its own.
    fn group(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.child.id()?).ok()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(group) = self.group() {
            // It fails only for a group that is gone, which is what is wanted.
            let _ = signal(group, Signal::KILL);
        }
        self.watchdog.dismiss();
    }
}

/// The child's end of the conversation.
#[derive(Debug)]
pub struct Parent {
    messages: Mutex<mpsc::UnboundedReceiver<io::Result<String>>>,
}

impl Parent {
    fn listen() -> Self {
        let (sender, messages) = mpsc::unbounded_channel();
        // A thread, because a runtime does not end before a read of the standard input does.
        std::thread::spawn(move || io::stdin().lines().try_for_each(|line| sender.send(line)));
        Self { messages: Mutex::new(messages) }
    }

    /// Sends a message to the parent.
    ///
    /// # Errors
    /// [`Error::Pipe`] when the parent is gone.
    pub fn send<T: Serialize>(&self, message: &T) -> Result<(), Error> {
        let line = encode(message)?;
        let mut output = io::stdout().lock();
        // On a line of its own, whatever was printed before.
        write!(output, "\n{MARK}{line}").and_then(|()| output.flush()).map_err(Error::Pipe)
    }

    /// The next message of the parent, or `None` when it has closed the conversation or is gone.
    ///
    /// Nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// [`Error::Message`] for a message that is not a `T`.
    pub async fn receive<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        match self.messages.lock().await.recv().await {
            None => Ok(None),
            Some(line) => decode(&line.map_err(Error::Pipe)?).map(Some),
        }
    }
}

/// Plays `body` and ends the process, if it was spawned in the role `name`; else does nothing.
///
/// Call it first in a test function of that name, or in the `main` of a test without harness. A role that panics
/// ends with an exit code other than zero.
#[expect(clippy::panic, reason = "a role is a test")]
pub fn role<F>(name: &str, body: F)
where
    F: AsyncFnOnce(Parent),
{
    if std::env::var_os(ROLE).is_none_or(|role| role != name) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(body(Parent::listen())),
        Err(error) => panic!("cannot start a runtime: {error}"),
    }
    std::process::exit(0);
}

fn signal(group: Pid, signal: Signal) -> Result<(), Error> {
    kill_process_group(group, signal).map_err(|errno| Error::Signal(errno.into()))
}

fn encode<T: Serialize>(message: &T) -> Result<String, Error> {
    let line = serde_json::to_string(message);
    line.map(|line| line + "\n").map_err(|source| Error::Message { line: String::new(), source })
}

fn decode<T: DeserializeOwned>(line: &str) -> Result<T, Error> {
    serde_json::from_str(line).map_err(|source| Error::Message { line: line.to_owned(), source })
}
