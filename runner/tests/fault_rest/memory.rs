//! What entities cost while they rest, and what is left of them.

use std::sync::Arc;
use std::time::Duration;

use cleat_runner::entity::{Host, Options};
use cleat_runner::message::snowflake::Generator;
use cleat_runner::prelude::*;
use cleat_runner::shard::Fence;
use cleat_runner::store::Store;
use cleat_runner::store::sqlite::{self, SqliteStore};
use cleat_testing::process::{self, Parent, Process};
use serde::{Deserialize, Serialize};

const MEBIBYTE: usize = 1 << 20;

#[entity(state = u64)]
struct Sleeper;

#[entity_impl]
impl Sleeper {
    /// Wakes it up: its state is loaded, and it stays in memory.
    #[rpc]
    async fn wake(&self, times: &u64) -> Result<u64, Never> {
        Ok(*times)
    }
}

/// One without a state: to wake it up costs no look at the database.
#[entity]
struct Guest;

#[entity_impl]
impl Guest {
    #[rpc]
    async fn wake(&self) -> Result<(), Never> {
        Ok(())
    }
}

/// What is done to them, in a process that does nothing else.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Orders {
    /// Whether they have a state.
    stateful: bool,
    /// How many at a time.
    entities: usize,
    /// How often, each time others.
    waves: usize,
    /// How long they stay in memory.
    idle: Duration,
    /// Whether to wait for them to be gone after each wave.
    evict: bool,
}

/// What there was after each wave.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Measured {
    resident: usize,
    active: usize,
}

#[test]
fn a_host_of_sleepers() {
    process::role("memory::a_host_of_sleepers", host);
}

async fn host(parent: Parent) {
    let Some(orders) = parent.receive::<Orders>().await.unwrap() else { return };
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(sqlite::Options::memory()).await.unwrap());
    let fences: Vec<Fence> = store
        .holdings(store.maps()[0].group())
        .await
        .unwrap()
        .into_iter()
        .map(|holding| Fence { shard: holding.shard, epoch: holding.epoch.next() })
        .collect();
    store.claim(&fences).await.unwrap();
    let ids = Arc::new(Generator::new(store.lease_machine().await.unwrap()));
    let host = Host::new(store, ids, Options { idle: orders.idle, ..Options::default() });
    host.open(&fences).await.unwrap();
    let (sleepers, guests) = (Sleeper.register(&host).unwrap(), Guest.register(&host).unwrap());
    let wake = async move |id: String| match orders.stateful {
        true => drop(sleepers.wake(id).await.unwrap()),
        false => guests.wake(id).await.unwrap(),
    };
    let wake = Arc::new(wake);
    // What everything needs that is needed once is there before the first look.
    wake("first".to_owned()).await;
    parent.send(&Measured { resident: resident(), active: host.active_entities() }).unwrap();
    for wave in 0..orders.waves {
        let first = wave * orders.entities;
        let callers = (0..32).map(|caller| {
            let wake = Arc::clone(&wake);
            tokio::spawn(async move {
                for number in (first + caller..first + orders.entities).step_by(32) {
                    wake(format!("sleeper-{number}")).await;
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
        while orders.evict && host.active_entities() > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        parent.send(&Measured { resident: resident(), active: host.active_entities() }).unwrap();
    }
}

/// The memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<usize>().unwrap() * 1024
}

async fn measure(orders: Orders) -> Vec<Measured> {
    let mut child = Process::spawn("memory::a_host_of_sleepers").unwrap();
    child.send(&orders).await.unwrap();
    let mut measured = Vec::new();
    while let Some(next) = child.receive::<Measured>().await.unwrap() {
        eprintln!("{} MiB with {} entities", next.resident / MEBIBYTE, next.active);
        measured.push(next);
    }
    assert_eq!(measured.len(), orders.waves + 1);
    measured
}

#[tokio::test]
async fn a_hundred_thousand_idle_entities_fit_in_300_megabytes() {
    let (entities, hour) = (100_000, Duration::from_secs(3600));
    let measured = measure(Orders { stateful: true, entities, waves: 1, idle: hour, evict: false }).await;
    assert!(measured[1].active > entities, "{measured:?}");
    assert!(measured[1].resident < 300_000_000, "{measured:?}");
}

#[tokio::test]
async fn a_million_entities_that_were_addressed_and_evicted_leave_nothing_behind() {
    let orders = Orders {
        stateful: false,
        entities: 100_000,
        waves: 10,
        idle: Duration::from_millis(200),
        evict: true,
    };
    let measured = measure(orders).await;
    assert!(measured[1..].iter().all(|measured| measured.active == 0), "{measured:?}");
    // The allocator keeps what the first wave needed at once. Another nine hundred thousand add nothing to it.
    let (first, last) = (measured[1].resident, measured[10].resident);
    assert!(last < first + 16 * MEBIBYTE, "{measured:?}");
}
