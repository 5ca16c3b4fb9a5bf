//! Child processes in a role: what they say, and that they end.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::Duration;

use cleat_testing::process::{self, Error, Process};

/// What a loaded machine may take; passing tests never wait that long.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn doubler() {
    process::role("doubler", async |parent| {
        print!("noise without an end of line");
        while let Some(number) = parent.receive::<u64>().await.unwrap() {
            parent.send(&(2 * number)).unwrap();
        }
    });
}

/// Says how often it was around, as fast as it can be read.
#[test]
fn ticker() {
    process::role("ticker", async |parent| {
        for tick in 0_u64.. {
            parent.send(&tick).unwrap();
        }
    });
}

#[test]
fn failure() {
    process::role("failure", async |_| {
        std::panic::set_hook(Box::new(|_| println!("as planned")));
        panic!();
    });
}

/// Starts a child, pauses it, tells its parent about it, and waits to be killed.
#[test]
fn middle() {
    process::role("middle", async |parent| {
        let mut child = Process::spawn("doubler").unwrap();
        child.pause().await.unwrap();
        parent.send(&child.id()).unwrap();
        std::future::pending().await
    });
}

#[tokio::test]
async fn a_child_answers_and_ends_when_its_input_is_closed() {
    let mut child = Process::spawn("doubler").unwrap();
    for number in 0..100_u64 {
        child.send(&number).await.unwrap();
        assert_eq!(child.receive().await.unwrap(), Some(2 * number));
    }
    child.close();
    assert_eq!(child.receive::<u64>().await.unwrap(), None);
    assert!(child.wait().await.unwrap().success());
    assert!(matches!(child.send(&1).await, Err(Error::Ended)));
}

#[tokio::test]
async fn a_role_that_panics_does_not_end_well() {
    let mut child = Process::spawn("failure").unwrap();
    assert_eq!(child.receive::<u64>().await.unwrap(), None);
    assert!(!child.wait().await.unwrap().success());
}

#[tokio::test]
async fn a_killed_child_is_gone() {
    let mut child = Process::spawn("doubler").unwrap();
    let pid = child.id().unwrap();
    assert_eq!(child.kill().await.unwrap().signal(), Some(9));
    assert!(!is_alive(pid));
    assert!(child.kill().await.is_ok(), "a second kill does no harm");
    assert!(matches!(child.pause().await, Err(Error::Ended)));
}

#[tokio::test]
async fn a_paused_child_stands_still_until_it_is_resumed() {
    let mut child = Process::spawn("ticker").unwrap();
    assert_eq!(child.receive().await.unwrap(), Some(0_u64));
    child.pause().await.unwrap();
    let threads = PathBuf::from(format!("/proc/{}/task", child.id().unwrap())).read_dir().unwrap();
    for thread in threads {
        let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
        assert_eq!(state(&stat), 'T', "{stat}");
    }
    child.resume().unwrap();
    // More than a pipe can hold of what was said before.
    for tick in 1..40_000_u64 {
        assert_eq!(child.receive().await.unwrap(), Some(tick));
    }
}

#[tokio::test]
async fn a_dropped_child_is_killed() {
    let mut child = Process::spawn("doubler").unwrap();
    let pid = child.id().unwrap();
    child.pause().await.unwrap();
    drop(child);
    until(|| !is_alive(pid)).await;
}

#[tokio::test]
async fn a_paused_child_ends_with_its_killed_parent() {
    let mut middle = Process::spawn("middle").unwrap();
    let pid = middle.receive::<Option<u32>>().await.unwrap().flatten().unwrap();
    assert!(is_alive(pid));
    middle.kill().await.unwrap();
    until(|| !is_alive(pid)).await;
}

/// Dead processes that nobody has reaped yet do not count.
fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| state(&stat) != 'Z')
}

fn state(stat: &str) -> char {
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

async fn until(goal: impl Fn() -> bool) {
    let wait = async {
        while !goal() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}
