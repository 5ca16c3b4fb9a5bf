//! The processes of this machine: who is whose child, and who is stopped.

use std::io;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

/// One row of the process table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) pid: Pid,
    pub(crate) parent: i32,
    /// The state's letter: `T` is stopped, `Z` is dead but not yet reaped.
    state: char,
}

impl Entry {
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Every process of this machine, from `/proc` or, where there is none, from `ps`.
pub(crate) fn processes() -> io::Result<Vec<Entry>> {
    if !Path::new("/proc/self/stat").exists() {
        let listed = Command::new("ps").args(["-A", "-o", "pid=,ppid=,state="]).output()?;
        return Ok(String::from_utf8_lossy(&listed.stdout).lines().filter_map(from_ps).collect());
    }
    // A process may end between the listing and the reading: then it is simply not in the table.
    let stats = std::fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| std::fs::read(entry.path().join("stat")).ok());
    Ok(stats.filter_map(|stat| from_stat(&String::from_utf8_lossy(&stat))).collect())
}

/// Sends `signal`; a process that is gone already is no error.
pub(crate) fn signal(pid: Pid, signal: Signal) -> io::Result<()> {
    match kill_process(pid, signal) {
        Err(rustix::io::Errno::SRCH) => Ok(()),
        sent => sent.map_err(io::Error::from),
    }
}

fn from_ps(line: &str) -> Option<Entry> {
    let mut words = line.split_whitespace();
    let pid = Pid::from_raw(words.next()?.parse().ok()?)?;
    Some(Entry { pid, parent: words.next()?.parse().ok()?, state: words.next()?.chars().next()? })
}

/// Reads `pid (name) state parent ...`; the name may hold blanks and brackets of its own.
fn from_stat(stat: &str) -> Option<Entry> {
    let (front, back) = stat.rsplit_once(')')?;
    let pid = Pid::from_raw(front.split_once(' ')?.0.parse().ok()?)?;
    let mut words = back.split_whitespace();
    let state = words.next()?.chars().next()?;
    Some(Entry { pid, parent: words.next()?.parse().ok()?, state })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_confuse_the_reader() {
        let entry = from_stat("42 (a) T 7 (b) c) Z 1 42 42 0 -1").unwrap();
        assert_eq!((entry.pid.as_raw_pid(), entry.parent, entry.state), (42, 1, 'Z'));
    }

    #[test]
    fn both_formats_say_the_same() {
        assert_eq!(from_ps("  42    7 Ss+"), from_stat("42 (postgres) S 7 42 42 0"));
    }

    #[test]
    fn the_table_holds_this_process() {
        let own = rustix::process::getpid();
        assert!(processes().unwrap().iter().any(|entry| entry.pid == own && !entry.is_dead()));
    }
}
