//! What an idle runner asks its database.

use std::sync::Arc;
use std::time::Duration;

use cleat_runner::cluster::{Node, Options, Parts};
use cleat_runner::lease::{Boot, Memory, Name};
use cleat_runner::prelude::*;
use cleat_runner::shard::{Instance, ShardMap, ownership};
use cleat_runner::store::postgres::{self, PostgresStore};
use cleat_runner::transport::{Address, SharedToken};
use cleat_testing::postgres::Server;
use tokio::net::TcpListener;

#[entity(state = u64)]
struct Counter;

#[entity_impl]
impl Counter {
    #[rpc(persisted)]
    async fn add(&self, total: &mut u64) -> Result<u64, Never> {
        *total += 1;
        Ok(*total)
    }
}

/// A runner as it comes, with the usual number of shards.
async fn node(url: &str) -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::from(listener.local_addr().unwrap());
    let store = PostgresStore::open(postgres::Options::new(url, Instance::random())).await.unwrap();
    let token = Arc::new(SharedToken::new("secret"));
    let options = Options::new(ownership::Options::new(Name::new("a").unwrap(), address), "cluster");
    let parts = Parts {
        store: Arc::new(store),
        leases: Arc::new(Memory::new()),
        clock: Arc::new(Boot),
        listener,
        credential: Arc::<SharedToken>::clone(&token),
        verify: token,
        metrics: prometheus::Registry::new(),
    };
    Node::start(options, parts).await.unwrap()
}

/// How many statements the server has logged for a database.
fn statements(server: &Server, database: &str) -> usize {
    let log = std::fs::read_to_string(server.path().join("log")).unwrap();
    let begun = |line: &&str| line.contains("statement: ") || line.contains("execute ");
    log.lines().filter(|line| line.contains(&format!("] {database} "))).filter(begun).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_runner_issues_fewer_than_one_statement_per_second() {
    let logged = cleat_testing::postgres::Options::default().set("log_statement", "all");
    let server = Server::start(logged).await.unwrap();
    let database = server.database().await.unwrap();
    let node = node(&database.url).await;
    let client = Counter.register(&node).unwrap();
    let mut status = node.ownership().status();
    let all = status.wait_for(|status| status.serving == usize::from(ShardMap::DEFAULT_SHARDS));
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("it owns all shards").unwrap();
    let before = statements(&server, &database.name);
    for number in 0..50 {
        client.add(format!("counter-{number}")).await.unwrap();
    }
    let worked = statements(&server, &database.name);
    assert!(worked - before >= 50, "the look sees statements: {}", worked - before);
    // Longer than a sweep, and than an entity stays in memory.
    let window = Duration::from_secs(35);
    let before = statements(&server, &database.name);
    tokio::time::sleep(window).await;
    let issued = statements(&server, &database.name) - before;
    eprintln!("an idle runner with {} shards: {issued} statements in {window:?}", ShardMap::DEFAULT_SHARDS);
    assert!(issued < 35, "{issued} statements in {window:?}");
    node.shutdown().await;
}
