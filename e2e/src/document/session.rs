//! One page, run in a shell.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use super::{Block, Page, root};
use crate::progress;

/// How long one block may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long what was stopped may take to end.
const GRACE: Duration = Duration::from_secs(30);
/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_millis(50);

/// Each block begins with the variables that the one before has left.
const SHELL: &str = r#"set -euo pipefail
if [ -e "$SESSION/variables" ]; then . "$SESSION/variables"; fi
trap 'export -p > "$SESSION/variables"' EXIT
"#;

/// What `cargo run -p cleat` and `cargo build -p orders` build is there already, as the programs that are tested.
const CARGO: &str = r#"#!/bin/sh
case "$*" in
"run -p cleat -- "*)
    shift 4
    exec cleat "$@" ;;
"build -p orders")
    mkdir -p target/debug
    ln -sf "$(command -v orders)" target/debug/orders ;;
*)
    echo "cargo $*: cleat can be run here, and orders be built" >&2
    exit 1 ;;
esac
"#;

/// Where commands are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// With `cleat dev`, which needs nothing.
    Dev,
    /// With a real cluster.
    Cluster,
}

/// A shell in a folder that looks like a fresh checkout. Dropping it ends whatever it has started.
#[derive(Debug)]
pub struct Session {
    home: tempfile::TempDir,
    /// What was started, each in a process group of its own.
    started: Vec<Child>,
    variables: Vec<(String, String)>,
}

impl Session {
    /// A session in which `programs` are on the path, each under its name.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new(programs: &[(&str, &Path)]) -> Result<Self> {
        let home = tempfile::tempdir()?;
        let (checkout, bin) = (home.path().join("checkout"), home.path().join("bin"));
        std::fs::create_dir(&checkout)?;
        std::fs::create_dir(&bin)?;
        for entry in std::fs::read_dir(root())? {
            let entry = entry?;
            let ours = [".git", ".cleat", "target"].map(OsStr::new);
            if !ours.contains(&entry.file_name().as_os_str()) {
                symlink(entry.path().canonicalize()?, checkout.join(entry.file_name()))?;
            }
        }
        let cargo = bin.join("cargo");
        std::fs::write(&cargo, CARGO)?;
        std::fs::set_permissions(&cargo, PermissionsExt::from_mode(0o755))?;
        for (name, path) in programs {
            symlink(path.canonicalize().with_context(|| format!("no {name}"))?, bin.join(name))?;
        }
        Ok(Self { home, started: Vec::new(), variables: Vec::new() })
    }

    /// Where commands are run.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.home.path().join("checkout")
    }

    /// The user's home: nothing of the machine's user is used.
    #[must_use]
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Sets a variable for all commands.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs what a page has for a place, from top to bottom.
    ///
    /// # Errors
    /// A command fails or takes too long: says which and what it printed.
    pub fn run(&mut self, page: &Page, place: Place) -> Result<()> {
        for block in page.blocks.iter().filter(|block| block.runs_in(place)) {
            progress(format_args!("{}:{}", page.name, block.line));
            self.block(block).with_context(|| format!("{}:{}\n{}", page.name, block.line, block.text))?;
        }
        Ok(())
    }

    /// Runs a command that a page takes for granted: to its end, or until it has printed a text and then in the background.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn prepare(&mut self, command: &str, background: &str) -> Result<()> {
        let mark = (!background.is_empty()).then(|| ("background".to_owned(), background.to_owned()));
        let (line, language, text) = (0, "sh".to_owned(), command.to_owned());
        self.block(&Block { line, language, marks: mark.into_iter().collect(), text })
            .with_context(|| command.to_owned())
    }

    fn block(&mut self, block: &Block) -> Result<()> {
        let log = self.home.path().join(format!("block-{}.log", self.started.len()));
        let child = self.spawn(&block.text, &log)?;
        let wanted = block.marks.get("background").or_else(|| block.marks.get("until"));
        let begun = Instant::now();
        loop {
            let ended = child.try_wait()?;
            let printed = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
            match (wanted, ended) {
                (Some(wanted), _) if printed.contains(wanted.as_str()) => break,
                (Some(wanted), Some(status)) => bail!("{status} without {wanted:?}; it printed:\n{printed}"),
                (None, Some(status)) => {
                    ensure!(status.success(), "{status}; it printed:\n{printed}");
                    return Ok(());
                }
                (_, None) => ensure!(begun.elapsed() < PATIENCE, "it takes too long; it printed:\n{printed}"),
            }
            std::thread::sleep(PAUSE);
        }
        if block.marks.contains_key("until") {
            end(child);
        }
        Ok(())
    }

    fn spawn(&mut self, text: &str, log: &Path) -> Result<&mut Child> {
        let path = std::env::var("PATH").unwrap_or_default();
        let output = File::create(log)?;
        let mut command = Command::new("bash");
        command.arg("-c").arg(format!("{SHELL}{text}")).current_dir(self.folder());
        command.env("PATH", format!("{}:{path}", self.home.path().join("bin").display()));
        command.env("HOME", self.home.path()).env("SESSION", self.home.path()).env_remove("KUBECONFIG");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        // What it leaves in the background belongs to its group.
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
        self.started.push(command.spawn().context("cannot run bash")?);
        self.started.last_mut().context("it was started just now")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.started.iter_mut().rev().for_each(end);
    }
}

/// Ends a group of processes: kindly, and then not. One that has ended is what was wanted.
fn end(leader: &mut Child) {
    let Some(group) = i32::try_from(leader.id()).ok().and_then(Pid::from_raw) else { return };
    let _ = kill_process_group(group, Signal::TERM);
    let begun = Instant::now();
    loop {
        // As long as nobody has asked for it, a process that has ended is still there.
        let _ = leader.try_wait();
        if test_kill_process_group(group).is_err() {
            return;
        }
        if begun.elapsed() > GRACE {
            let _ = kill_process_group(group, Signal::KILL);
        }
        std::thread::sleep(PAUSE);
    }
}
