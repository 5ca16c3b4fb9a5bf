//! What becomes of a handler's transaction when the shard is lost, a connection ends, or the server restarts.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cleat_runner::entity::{Host, Options};
use cleat_runner::message::snowflake::Generator;
use cleat_runner::shard::{Fence, GroupName, Instance};
use cleat_runner::store::Store;
use cleat_runner::store::postgres::{self, PostgresStore};
use cleat_testing::postgres::{Server, Shutdown};
use sqlx::{Connection, PgConnection};

use crate::ledger::{Ledger, LedgerClient, bookings};
use crate::world::PATIENCE;

struct Rig {
    store: Arc<PostgresStore>,
    host: Host,
    fences: Vec<Fence>,
    ledger: Ledger,
    client: LedgerClient,
}

async fn open(url: &str) -> Arc<PostgresStore> {
    let options = postgres::Options {
        groups: vec![(GroupName::default(), 4)],
        connections: 3,
        transactions: 4,
        ..postgres::Options::new(url, Instance::random())
    };
    Arc::new(PostgresStore::open(options).await.unwrap())
}

async fn claim(store: &PostgresStore) -> Vec<Fence> {
    let holdings = store.holdings(&GroupName::default()).await.unwrap();
    let fences: Vec<_> = holdings
        .into_iter()
        .map(|holding| Fence { shard: holding.shard, epoch: holding.epoch.next() })
        .collect();
    for claimed in store.claim(&fences).await.unwrap() {
        claimed.unwrap();
    }
    fences
}

impl Rig {
    async fn new(url: &str) -> Self {
        let store = open(url).await;
        let fences = claim(&store).await;
        let ids = Arc::new(Generator::new(store.lease_machine().await.unwrap()));
        let host = Host::new(Arc::<PostgresStore>::clone(&store), ids, Options::default());
        host.open(&fences).await.unwrap();
        let ledger = Ledger::default();
        let client = ledger.clone().register(&host).unwrap();
        execute(url, "CREATE TABLE IF NOT EXISTS booking (entry bigint)").await;
        Self { store, host, fences, ledger, client }
    }

    fn hold(&self, entity: &'static str, entry: i64) -> tokio::task::JoinHandle<Result<i64, String>> {
        let client = self.client.clone();
        tokio::spawn(async move { client.hold(entity, &entry).await.map_err(|error| error.to_string()) })
    }

    async fn begun(&self) {
        tokio::time::timeout(PATIENCE, self.ledger.begun.acquire()).await.unwrap().unwrap().forget();
    }
}

async fn execute(url: &str, statement: &'static str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::query(statement).execute(&mut connection).await.unwrap();
}

async fn database() -> String {
    cleat_testing::postgres::shared().await.unwrap().database().await.unwrap().url
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_whose_shard_is_claimed_before_it_ends_has_written_nothing() {
    let url = database().await;
    let rig = Rig::new(&url).await;
    let held = rig.hold("a", 3);
    rig.begun().await;
    let new = open(&url).await;
    claim(&new).await;
    rig.ledger.open.add_permits(1);
    let error = held.await.unwrap().unwrap_err();
    assert!(error.contains("is not served by this runner"), "{error}");
    assert_eq!(bookings(&*new).await, [0i64; 0]);
    let shard = rig.host.shard_of(rig.client_type(), "a").unwrap();
    assert!(rig.fences.iter().any(|fence| fence.shard == shard));
    assert!(!rig.host.serves(&shard), "the loss was noticed");
    // The new owner handles it once, when it is asked again.
    let other = Rig::new(&url).await;
    assert_eq!(other.client.book("a", &3).await.unwrap(), 3);
    assert_eq!(bookings(&*other.store).await, [3]);
}

impl Rig {
    fn client_type(&self) -> &cleat_runner::message::EntityType {
        AsRef::<cleat_runner::client::EntityClient>::as_ref(&self.client).entity_type()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_whose_connection_is_ended_is_run_again_and_counts_once() {
    let url = database().await;
    let rig = Rig::new(&url).await;
    let held = rig.hold("a", 3);
    rig.begun().await;
    execute(
        &url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'",
    )
    .await;
    rig.ledger.open.add_permits(2);
    assert_eq!(held.await.unwrap().unwrap(), 3);
    assert_eq!(rig.ledger.runs.load(Ordering::Relaxed), 2);
    assert_eq!(bookings(&*rig.store).await, [3]);
    assert_eq!(rig.client.get("a").await.unwrap(), 3);
}

/// The database ends the connection while it works on COMMIT, twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_whose_connection_is_ended_at_commit_is_run_again_and_counts_once() {
    let url = database().await;
    let rig = Rig::new(&url).await;
    for statement in [
        "CREATE SEQUENCE tries",
        "CREATE FUNCTION fail_twice() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF nextval('tries') < 3 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON booking DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail_twice()",
    ] {
        execute(&url, statement).await;
    }
    assert_eq!(rig.client.book("a", &3).await.unwrap(), 3);
    assert_eq!(rig.ledger.runs.load(Ordering::Relaxed), 3);
    assert_eq!(bookings(&*rig.store).await, [3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_hold_a_transaction_while_the_server_restarts_count_once() {
    let mut server = Server::start(cleat_testing::postgres::Options::default()).await.unwrap();
    let url = server.database().await.unwrap().url;
    let rig = Rig::new(&url).await;
    for round in 1..=3 {
        let (one, two) = (rig.hold("a", 1), rig.hold("b", 1));
        rig.begun().await;
        rig.begun().await;
        if round % 2 == 0 {
            server.restart(Shutdown::Fast).await.unwrap();
        } else {
            server.kill().await.unwrap();
            server.start_again().await.unwrap();
        }
        // Each for the run that is lost, and for the one that counts.
        rig.ledger.open.add_permits(4);
        assert_eq!(one.await.unwrap().unwrap(), round);
        assert_eq!(two.await.unwrap().unwrap(), round);
        let expected = usize::try_from(round).unwrap() * 2;
        assert_eq!(bookings(&*rig.store).await, vec![1; expected]);
        let idle = async {
            while rig.ledger.open.try_acquire_many(1).map(tokio::sync::SemaphorePermit::forget).is_ok() {}
            while rig.ledger.begun.try_acquire().map(tokio::sync::SemaphorePermit::forget).is_ok() {}
        };
        tokio::time::timeout(Duration::from_secs(5), idle).await.unwrap();
    }
}
