//! The implementations that need nothing else, against the conformance suite; and what is theirs alone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::conformance::Subject;
use super::remote::{Remote, serve};
use super::*;
use crate::shard::{GroupName, Instance, Member, State, Version};

mod memory_conforms {
    use super::*;

    crate::lease_conformance!({
        let memory = Memory::new();
        Subject { leases: Arc::new(memory.connect()), backstage: Arc::new(memory) }
    });
}

mod remote_conforms {
    use super::*;

    crate::lease_conformance!({
        let memory = Memory::new();
        let (remote, _server) = served(&memory).await;
        Subject { leases: Arc::new(remote), backstage: Arc::new(memory) }
    });
}

async fn served(memory: &Memory) -> (Remote, JoinHandle<std::io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let remote = Remote::new(listener.local_addr().unwrap());
    (remote, tokio::spawn(serve(Arc::new(memory.connect()), listener)))
}

fn runner(instance: &str) -> Runner {
    let member = Member {
        instance: Instance::new(instance),
        weight: 1,
        groups: BTreeSet::from([GroupName::default()]),
        version: Version::new("1"),
        state: State::Ready,
        avoids: BTreeSet::new(),
    };
    let address = "127.0.0.1:1".to_owned();
    Runner { member, address, admin: None, gateway: None, timing: Timing::default(), schema: None }
}

fn name() -> Name {
    Name::new("a").unwrap()
}

#[tokio::test]
async fn an_outage_fails_the_calls_of_one_connection_and_stalls_its_watches() {
    let memory = Memory::new();
    let other = memory.connect();
    let mut events = memory.watch();
    assert!(matches!(events.next().await, Some(Event::Snapshot(_))));
    memory.faults().outage(true);
    assert_eq!(events.next().await, Some(Event::Stalled));
    assert!(matches!(memory.register(&name(), &runner("a#1")).await, Err(Error::Unavailable(_))));
    other.register(&name(), &runner("a#2")).await.unwrap();
    memory.faults().outage(false);
    let Some(Event::Snapshot(snapshot)) = events.next().await else { panic!("a snapshot ends the outage") };
    assert_eq!(snapshot, other.snapshot());
    assert_eq!(snapshot.runners[0].holder, Some(runner("a#2")));
}

#[tokio::test(start_paused = true)]
async fn a_frozen_watch_tells_nothing_until_it_thaws_and_then_everything() {
    let memory = Memory::new();
    let mut events = memory.watch();
    events.next().await;
    memory.faults().freeze_watches(true);
    let lock = memory.register(&name(), &runner("a#1")).await.unwrap();
    let silence = tokio::time::timeout(Duration::from_secs(3600), events.next()).await;
    assert!(silence.is_err());
    memory.faults().freeze_watches(false);
    let Some(Event::Runner(record)) = events.next().await else { panic!("what it missed comes") };
    assert_eq!(record.revision, lock.revision);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_call_takes_effect_late_and_one_without_an_answer_takes_effect() {
    let memory = Memory::new();
    memory.faults().delay(Duration::from_secs(5));
    memory.faults().lose_answers(true);
    let start = tokio::time::Instant::now();
    assert!(matches!(memory.register(&name(), &runner("a#1")).await, Err(Error::Unavailable(_))));
    assert_eq!(start.elapsed(), Duration::from_secs(5));
    assert_eq!(memory.snapshot().runners[0].holder, Some(runner("a#1")));
}

#[tokio::test]
async fn reports_reach_every_watch() {
    let memory = Memory::new();
    let (remote, _server) = served(&memory).await;
    let mut events = remote.watch();
    assert!(matches!(events.next().await, Some(Event::Snapshot(_))));
    memory.report_leaving(&Instance::new("a"));
    memory.report_terminated(&Instance::new("a"));
    assert_eq!(events.next().await, Some(Event::Leaving(Instance::new("a"))));
    assert_eq!(events.next().await, Some(Event::Terminated(Instance::new("a"))));
}

#[tokio::test]
async fn a_remote_watch_stalls_when_its_server_ends_and_begins_anew_when_it_is_back() {
    let memory = Memory::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(serve(Arc::new(memory.clone()), listener));
    let remote = Remote::new(address);
    let mut events = remote.watch();
    assert!(matches!(events.next().await, Some(Event::Snapshot(_))));
    server.abort();
    assert_eq!(events.next().await, Some(Event::Stalled));
    let failed = remote.register(&name(), &runner("a#1")).await.unwrap_err();
    assert_eq!(failed.reason(), "LeasesUnavailable");

    memory.register(&name(), &runner("a#2")).await.unwrap();
    let listener = TcpListener::bind(address).await.unwrap();
    let _server = tokio::spawn(serve(Arc::new(memory.clone()), listener));
    assert_eq!(events.next().await, Some(Event::Snapshot(memory.snapshot())));
}

#[tokio::test]
async fn an_outage_of_the_service_behind_passes_through_a_server() {
    let memory = Memory::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let remote = Remote::new(listener.local_addr().unwrap());
    let _server = tokio::spawn(serve(Arc::new(memory.clone()), listener));
    let mut events = remote.watch();
    assert!(matches!(events.next().await, Some(Event::Snapshot(_))));
    memory.faults().outage(true);
    assert_eq!(events.next().await, Some(Event::Stalled));
    let failed = remote.register(&name(), &runner("a#1")).await.unwrap_err();
    assert_eq!(failed.reason(), "LeasesUnavailable");
    memory.faults().outage(false);
    assert!(matches!(events.next().await, Some(Event::Snapshot(_))));
}
