//! A host never runs out of ids while its database is there, and never loses a message for want of one.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cleat_runner::entity::{Host, Options};
use cleat_runner::message::snowflake::{Generator, LeasedSpan, Span, Tick};
use cleat_runner::prelude::*;
use cleat_runner::shard::Fence;
use cleat_runner::store::Store;
use cleat_runner::store::sqlite::{self, SqliteStore};
use sqlx::{Connection, SqliteConnection};

/// No test takes so long, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Counts what it is sent.
#[entity(state = u32)]
struct Sink;

#[entity_impl]
impl Sink {
    #[rpc(persisted)]
    async fn put(&self, count: &mut u32) -> Result<u32, Never> {
        *count += 1;
        Ok(*count)
    }

    #[rpc]
    async fn count(&self, count: &u32) -> Result<u32, Never> {
        Ok(*count)
    }
}

/// Sends three messages with each of its replies.
#[entity(state = u32)]
struct Relay(SinkClient);

#[entity_impl]
impl Relay {
    #[rpc(persisted)]
    async fn relay(&self, context: &mut Context, relayed: &mut u32) -> Result<u32, Never> {
        (0..3).for_each(|_| context.send(self.0.put("sink")));
        *relayed += 1;
        Ok(*relayed)
    }

    #[rpc]
    async fn relayed(&self, relayed: &u32) -> Result<u32, Never> {
        Ok(*relayed)
    }
}

/// A generator that has so many ids left, and no more until its lease is renewed.
async fn nearly_exhausted(store: &Arc<dyn Store>, left: usize) -> Arc<Generator> {
    let leased = store.lease_machine().await.unwrap();
    let from = Tick::new(leased.span.until.get() - 1);
    let ids = Arc::new(Generator::new(LeasedSpan { span: Span { from, ..leased.span }, ..leased }));
    for _ in left..4096 {
        ids.next_at(SystemTime::UNIX_EPOCH).unwrap();
    }
    ids
}

async fn serve(store: &Arc<dyn Store>, ids: &Arc<Generator>) -> Host {
    let mut fences = Vec::new();
    for map in store.maps() {
        let holdings = store.holdings(map.group()).await.unwrap();
        fences.extend(holdings.into_iter().map(|held| Fence { shard: held.shard, epoch: held.epoch.next() }));
    }
    for claimed in store.claim(&fences).await.unwrap() {
        claimed.unwrap();
    }
    let host = Host::new(Arc::clone(store), Arc::clone(ids), Options::default());
    host.open(&fences).await.unwrap();
    host
}

#[tokio::test]
async fn all_messages_of_a_reply_are_sent_though_the_ids_run_out() {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(sqlite::Options::memory()).await.unwrap());
    let ids = nearly_exhausted(&store, 4).await;
    let host = serve(&store, &ids).await;
    let sink = Sink.register(&host).unwrap();
    let relay = Relay(sink.clone()).register(&host).unwrap();
    assert_eq!(relay.relay("relay").await.unwrap(), 1);
    let arrived = async {
        while sink.count("sink").await.ok() != Some(3) {
            tokio::task::yield_now().await
        }
    };
    tokio::time::timeout(PATIENCE, arrived).await.unwrap();
    host.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn nothing_is_committed_of_a_reply_whose_messages_get_no_ids() {
    let file = tempfile::tempdir().unwrap();
    let location = sqlite::Location::File(file.path().join("cleat.db"));
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(sqlite::Options::at(location)).await.unwrap());
    let ids = nearly_exhausted(&store, 3).await;
    // As if a thousand other runners had all numbers, ours as well.
    let mut other =
        SqliteConnection::connect(&format!("sqlite://{}/cleat.db", file.path().display())).await.unwrap();
    sqlx::query(
        "WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 1023)
         INSERT OR REPLACE INTO cleat_machines (machine, instance, until) SELECT n, 'other', 1 << 40 FROM n",
    )
    .execute(&mut other)
    .await
    .unwrap();
    let host = serve(&store, &ids).await;
    let sink = Sink.register(&host).unwrap();
    let relay = Relay(sink.clone()).register(&host).unwrap();
    // One id is for the call itself, two are left for three messages.
    let refused = relay.relay("relay").await.unwrap_err();
    assert_eq!(refused.reason(), Some("NoMachine"), "{refused}");
    assert!(ids.next().is_err());

    sqlx::query("DELETE FROM cleat_machines").execute(&mut other).await.unwrap();
    let again = async {
        while relay.relayed("relay").await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.unwrap();
    assert_eq!((relay.relayed("relay").await.unwrap(), sink.count("sink").await.unwrap()), (0, 0));
    assert_eq!(relay.relay("relay").await.unwrap(), 1);
    host.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn a_runner_whose_machine_number_was_lost_continues_with_another() {
    let file = tempfile::tempdir().unwrap();
    let location = sqlite::Location::File(file.path().join("cleat.db"));
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(sqlite::Options::at(location)).await.unwrap());
    let ids = Arc::new(Generator::new(store.lease_machine().await.unwrap()));
    let first = ids.machine();
    let mut other =
        SqliteConnection::connect(&format!("sqlite://{}/cleat.db", file.path().display())).await.unwrap();
    sqlx::query("UPDATE cleat_machines SET instance = 'other'").execute(&mut other).await.unwrap();
    let often = Options { machine_renewal: Duration::from_millis(10), ..Options::default() };
    let host = Host::new(Arc::clone(&store), Arc::clone(&ids), often);
    let replaced = async {
        while ids.machine() == first {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, replaced).await.unwrap();
    assert_ne!(host.next_id().unwrap().machine(), first);
    host.shutdown(Duration::ZERO).await;
}
