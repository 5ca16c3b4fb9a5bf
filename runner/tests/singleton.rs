//! Of a singleton the cluster runs exactly one, whatever happens to its runners.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

mod nodes;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use cleat_runner::entity::RegistrationEvent;
use cleat_runner::lease::remote::{self, Remote};
use cleat_runner::prelude::*;
use cleat_runner::shard::GroupName;
use cleat_runner::singleton::{Context, Error, Singleton};
use cleat_testing::process::{self, Process};
use nodes::{Runner, World, settled, until};
use sqlx::PgPool;

#[entity(name = "counter", state = i64)]
struct Counter;

#[entity_impl]
impl Counter {
    #[rpc(persisted)]
    pub async fn add(&self, total: &mut i64, count: i64) -> Result<i64, Never> {
        *total += count;
        Ok(*total)
    }
}

/// Counts how many run now, and how many ever ran at the same time.
#[derive(Clone, Default)]
struct Census {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    starts: Arc<AtomicUsize>,
}

/// One that runs, until it is dropped.
struct Present(Census);

impl Census {
    fn enter(&self) -> Present {
        self.starts.fetch_add(1, Ordering::SeqCst);
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        Present(self.clone())
    }

    /// A singleton that runs until it is dropped, or until it is asked to end.
    fn singleton(&self, name: &str, listens: bool) -> Singleton {
        let census = self.clone();
        Singleton::new(name, move |context: Context| {
            let present = census.enter();
            async move {
                let _present = present;
                if listens {
                    context.cancellation().cancelled().await;
                } else {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Never>(())
            }
        })
    }

    fn now(&self) -> usize {
        self.now.load(Ordering::SeqCst)
    }

    fn starts(&self) -> usize {
        self.starts.load(Ordering::SeqCst)
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn runs_on(runners: &[&Runner], name: &str) -> usize {
    let find = || runners.iter().position(|r| r.node.running_singletons().iter().any(|n| n == name));
    until("it runs somewhere", || find().is_some()).await;
    find().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_runs_at_a_time_while_its_runners_stop_one_after_the_other() {
    let world = World::new().await;
    let census = Census::default();
    let mut runners = Vec::new();
    for name in ["a", "b", "c"] {
        let runner = world.start(name).await;
        runner.node.register_singleton(census.singleton("leader", true)).unwrap();
        runners.push(runner);
    }
    settled(&runners.iter().collect::<Vec<_>>()).await;
    while runners.len() > 1 {
        let place = runs_on(&runners.iter().collect::<Vec<_>>(), "leader").await;
        let runner = runners.remove(place);
        runner.node.shutdown().await;
        // Nothing of it runs there any more, and it is started elsewhere.
        assert!(runner.node.running_singletons().is_empty());
        runs_on(&runners.iter().collect::<Vec<_>>(), "leader").await;
    }
    until("it runs", || census.now() == 1).await;
    assert_eq!(census.most(), 1);
    assert!(census.starts() >= 3);
    runners.remove(0).node.shutdown().await;
    assert_eq!(census.now(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_cannot_renew_stops_its_singletons_before_another_starts_them() {
    let world = World::new().await;
    let (polite, stubborn) = (Census::default(), Census::default());
    let (a, b) = (world.start("a").await, world.start("b").await);
    settled(&[&a, &b]).await;
    for runner in [&a, &b] {
        runner.node.register_singleton(polite.singleton("polite", true)).unwrap();
        runner.node.register_singleton(stubborn.singleton("stubborn", false)).unwrap();
    }
    for name in ["polite", "stubborn"] {
        let place = runs_on(&[&a, &b], name).await;
        let (cut, other) = if place == 0 { (&a, &b) } else { (&b, &a) };
        cut.leases.faults().outage(true);
        // It still has its database and its connections: only the lock is not renewed.
        runs_on(&[other], name).await;
        assert!(!cut.node.running_singletons().iter().any(|running| running == name));
        cut.leases.faults().outage(false);
        settled(&[&a, &b]).await;
    }
    until("both run", || polite.now() == 1 && stubborn.now() == 1).await;
    assert_eq!((polite.most(), stubborn.most()), (1, 1));
    a.node.shutdown().await;
    b.node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_outage_stops_it_and_it_starts_again_where_it_was() {
    let world = World::new().await;
    let census = Census::default();
    let a = world.start("a").await;
    a.node.register_singleton(census.singleton("leader", true)).unwrap();
    until("it runs", || census.now() == 1).await;
    a.leases.faults().outage(true);
    until("it is stopped", || census.now() == 0).await;
    a.leases.faults().outage(false);
    until("it runs again", || census.now() == 1).await;
    assert_eq!((census.most(), census.starts()), (1, 2));
    a.node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_listens_has_time_to_clean_up() {
    let world = World::new().await;
    let a = world.start("a").await;
    let (started, cleaned) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let flags = (Arc::clone(&started), Arc::clone(&cleaned));
    let singleton = Singleton::new("careful", move |context: Context| {
        let (started, cleaned) = flags.clone();
        async move {
            let cancelled = context.cancellation();
            started.store(true, Ordering::SeqCst);
            cancelled.cancelled().await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            cleaned.store(true, Ordering::SeqCst);
            Ok::<_, Never>(())
        }
    });
    a.node.register_singleton(singleton).unwrap();
    until("it runs", || started.load(Ordering::SeqCst)).await;
    a.node.shutdown().await;
    assert!(cleaned.load(Ordering::SeqCst));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_listen_does_not_hold_up_a_shutdown() {
    let world = World::new().await;
    let census = Census::default();
    let a = world.start("a").await;
    a.node.register_singleton(census.singleton("deaf", false)).unwrap();
    until("it runs", || census.now() == 1).await;
    let began = std::time::Instant::now();
    a.node.shutdown().await;
    assert_eq!(census.now(), 0);
    // A shard that moves has ten seconds.
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_fails_or_panics_is_started_again_and_one_that_ends_is_not() {
    let world = World::new().await;
    let a = world.start("a").await;
    let counter = Counter.register(&a.node).unwrap();
    let starts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&starts);
    let singleton = Singleton::new("flaky", move |context: Context| {
        let start = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            assert_eq!(usize::try_from(context.crashes()).unwrap(), start);
            match start {
                0 => Err(std::io::Error::other("not yet")),
                1 => panic!("a defect"),
                _ => {
                    let counter = CounterClient::new(&context).unwrap();
                    counter.add("crashes", &i64::from(context.crashes())).await.unwrap();
                    Ok(())
                }
            }
        }
    });
    a.node.register_singleton(singleton).unwrap();
    until("it has started three times", || starts.load(Ordering::SeqCst) == 3).await;
    until("it has ended", || a.node.running_singletons().is_empty()).await;
    assert_eq!(counter.add("crashes", &0).await.unwrap(), 2);
    assert_eq!(starts.load(Ordering::SeqCst), 3);
    a.node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_registered_is_told_why() {
    let world = World::new().await;
    let a = world.start("a").await;
    let mut events = a.node.host().registration_events();
    let census = Census::default();
    a.node.register_singleton(census.singleton("one", true)).unwrap();
    assert_eq!(events.recv().await.unwrap(), RegistrationEvent::Singleton("one".to_owned()));
    let twice = a.node.register_singleton(census.singleton("one", true)).unwrap_err();
    assert_eq!(twice, Error::Duplicate("one".to_owned()));
    let elsewhere = census.singleton("two", true).in_group(GroupName::new("nowhere").unwrap());
    let error = a.node.register_singleton(elsewhere).unwrap_err();
    assert!(error.to_string().contains("nowhere"), "{error}");
    assert_eq!(a.node.register_singleton(census.singleton("", true)), Err(Error::NoName));
    a.node.shutdown().await;
}

/// As many as it takes for each runner to have some.
const STEPPERS: usize = 24;

/// Notes each of its steps in the database, with the epoch of its shard.
fn stepper(number: usize, pool: &PgPool) -> Singleton {
    let pool = pool.clone();
    Singleton::new(&format!("stepper-{number}"), move |context: Context| {
        let pool = pool.clone();
        async move {
            loop {
                let step = sqlx::query("INSERT INTO steps (name, epoch) VALUES ($1, $2)");
                step.bind(context.name()).bind(context.fence().epoch.get()).execute(&pool).await?;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            #[allow(unreachable_code, reason = "it says what the error of this future is")]
            Ok::<(), sqlx::Error>(())
        }
    })
}

/// A runner in a process of its own.
#[test]
fn member() {
    process::role("member", async |parent| {
        let (url, leases) = parent.receive::<(String, SocketAddr)>().await.unwrap().unwrap();
        let pool = PgPool::connect(&url).await.unwrap();
        let node = nodes::start("child", &url, Arc::new(Remote::new(leases)), |_| ()).await;
        for number in 0..STEPPERS {
            node.register_singleton(stepper(number, &pool)).unwrap();
        }
        // Until the parent closes the pipe.
        while parent.receive::<()>().await.unwrap().is_some() {}
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_stopped_takes_no_step_when_it_wakes_up() {
    let world = World::new().await;
    let pool = PgPool::connect(&world.database.url).await.unwrap();
    let table = "CREATE TABLE steps (id bigserial PRIMARY KEY, name text NOT NULL, epoch bigint NOT NULL)";
    sqlx::query(table).execute(&pool).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let leases = remote::serve(Arc::new(world.leases.connect()), listener);
    let _leases = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(leases));
    let mut child = Process::spawn("member").unwrap();
    child.send(&(world.database.url.clone(), address)).await.unwrap();
    let here = world.start("parent").await;
    for number in 0..STEPPERS {
        here.node.register_singleton(stepper(number, &pool)).unwrap();
    }
    let running = || here.node.running_singletons().len();
    let serving = || here.node.ownership().status().borrow().serving;
    until("each runner has some", || {
        serving() == usize::from(nodes::SHARDS) / 2 && (1..STEPPERS).contains(&running())
    })
    .await;

    child.pause().await.unwrap();
    until("all run here", || running() == STEPPERS).await;
    child.resume().unwrap();
    until("the other one is back", || serving() == usize::from(nodes::SHARDS) / 2).await;
    here.node.shutdown().await;

    let steps: Vec<(String, i64)> =
        sqlx::query_as("SELECT name, epoch FROM steps ORDER BY name, id").fetch_all(&pool).await.unwrap();
    let names: HashSet<&str> = steps.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names.len(), STEPPERS);
    let back = steps.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].1 > pair[1].1);
    assert_eq!(back, None, "a step of an earlier epoch after one of a later");
}
