//! The same with PostgreSQL and real time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cleat_runner::lease::{Boot, Leases, Memory, Name, Timing};
use cleat_runner::shard::ownership::{Handle, Location, Metrics, Options, Parts, Service};
use cleat_runner::shard::{Fence, GroupName, Instance, ShardId};
use cleat_runner::store::Store;
use cleat_runner::store::postgres::{self, PostgresStore};
use cleat_runner::transport::Address;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::recorder::{History, Recorder};

const SHARDS: u16 = 40;

struct Cluster {
    url: String,
    leases: Memory,
    history: Arc<Mutex<History>>,
}

struct Runner {
    handle: Handle,
    store: Arc<PostgresStore>,
    task: JoinHandle<()>,
}

fn shards() -> Vec<ShardId> {
    (0..SHARDS).map(|id| ShardId::new(GroupName::default(), id)).collect()
}

impl Cluster {
    async fn new() -> Self {
        let database = cleat_testing::postgres::shared().await.unwrap().database().await.unwrap();
        Self { url: database.url, leases: Memory::new(), history: Arc::default() }
    }

    async fn start(&self, name: &str) -> Runner {
        let options = postgres::Options {
            groups: vec![(GroupName::default(), SHARDS)],
            ..postgres::Options::new(&self.url, Instance::random())
        };
        let store = Arc::new(PostgresStore::open(options).await.unwrap());
        let options = Options {
            timing: Timing::new(Duration::from_millis(1800), Duration::from_millis(600)).unwrap(),
            settle: Duration::from_millis(100),
            ..Options::new(Name::new(name).unwrap(), Address::new(&format!("{name}:1")).unwrap())
        };
        let leases: Arc<dyn Leases> = Arc::new(self.leases.connect());
        let door: Arc<dyn Store> = Arc::clone(&store) as Arc<dyn Store>;
        let parts = Parts {
            leases,
            epochs: Arc::new(door),
            clock: Arc::new(Boot),
            peers: None,
            metrics: Metrics::hidden().unwrap(),
        };
        let service = Service::new(options, parts);
        let handle = service.handle();
        let recorder = Recorder::new(Arc::clone(&self.history), handle.clone(), Duration::from_millis(50));
        let task = tokio::spawn(service.run(Arc::new(recorder)));
        Runner { handle, store, task }
    }

    /// Waits until these serve so many shards each, and checks that the database says the same.
    async fn settled(&self, expected: &[(&Runner, usize)]) {
        let begun = Instant::now();
        while !expected.iter().all(|(runner, count)| runner.fences().len() == *count) {
            let counts: Vec<usize> = expected.iter().map(|(runner, _)| runner.fences().len()).collect();
            assert!(begun.elapsed() < Duration::from_secs(30), "{counts:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for (runner, _) in expected {
            let fences = runner.fences();
            let standing = runner.store.standing(&fences).await.unwrap();
            assert!(standing.iter().all(|stands| *stands));
        }
        let broken = self.history.lock().unwrap().broken.clone();
        assert!(broken.is_empty(), "{broken:#?}");
    }
}

impl Runner {
    fn fences(&self) -> Vec<Fence> {
        let fence = |shard: ShardId| match self.handle.locate(&shard) {
            Location::Here(fence) => Some(fence),
            _ => None,
        };
        shards().into_iter().filter_map(fence).collect()
    }
}

#[tokio::test]
async fn shards_move_between_runners_of_one_database() {
    let cluster = Cluster::new().await;
    let all = usize::from(SHARDS);
    let a = cluster.start("a").await;
    cluster.settled(&[(&a, all)]).await;
    let first = a.fences();

    let b = cluster.start("b").await;
    cluster.settled(&[(&a, all / 2), (&b, all / 2)]).await;
    let moved = a.handle.confirm(first.clone()).await.unwrap();
    assert_eq!(
        moved.iter().filter(|stands| **stands).count(),
        all / 2,
        "the old fences of what moved are void"
    );

    b.handle.shutdown().await;
    cluster.settled(&[(&a, all)]).await;
    assert!(a.fences().iter().zip(&first).all(|(now, before)| now.epoch >= before.epoch));
    a.handle.shutdown().await;
}

#[tokio::test]
async fn a_runner_that_dies_is_fenced_in_the_database() {
    let cluster = Cluster::new().await;
    let all = usize::from(SHARDS);
    let (a, b) = (cluster.start("a").await, cluster.start("b").await);
    cluster.settled(&[(&a, all / 2), (&b, all / 2)]).await;
    let old = b.fences();
    // Its service is gone, its door to the database is not: a process that hangs somewhere else.
    b.task.abort();
    cluster.history.lock().unwrap().forget(b.handle.instance());
    cluster.settled(&[(&a, all)]).await;
    let standing = b.store.standing(&old).await.unwrap();
    assert!(standing.iter().all(|stands| !stands), "none of its writes would be accepted");
    a.handle.shutdown().await;
}

#[tokio::test]
async fn five_runners_that_start_together_share_everything() {
    let cluster = Cluster::new().await;
    let names = ["a", "b", "c", "d", "e"];
    let runners = futures::future::join_all(names.map(|name| cluster.start(name))).await;
    let share = usize::from(SHARDS) / runners.len();
    cluster.settled(&runners.iter().map(|runner| (runner, share)).collect::<Vec<_>>()).await;
    futures::future::join_all(runners.iter().map(|runner| runner.handle.shutdown())).await;
}
