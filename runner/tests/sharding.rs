//! What a runner offers to those who write against it, from whichever runner they do.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

#[path = "sharding/duplicates.rs"]
mod duplicates;
#[path = "sharding/errors.rs"]
mod errors;
#[path = "sharding/groups.rs"]
mod groups;
mod nodes;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cleat_runner::cluster::Upkeep;
use cleat_runner::entity::{RegistrationEvent, Request};
use cleat_runner::message::{EntityAddress, EntityType, Envelope, Outcome, codec};
use cleat_runner::prelude::*;
use cleat_runner::store::{Progress, Retention};
use futures::StreamExt;
use nodes::{PATIENCE, Runner, World, owner_of, settled, until};
use tokio::sync::Notify;

/// Waits until it is let go, or does not.
#[entity(name = "gate", state = u32)]
#[derive(Clone, Default)]
struct Gate {
    begun: Arc<AtomicUsize>,
    open: Arc<Notify>,
}

#[entity_impl]
impl Gate {
    /// Runs until somebody opens the gate.
    #[rpc(persisted)]
    pub async fn pass(&self, number: u32) -> Result<u32, Never> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.open.notified().await;
        Ok(number)
    }

    /// Counts, and tells another one to count.
    #[rpc(persisted)]
    pub async fn count(
        &self,
        context: &mut Context,
        total: &mut u32,
        other: Option<String>,
    ) -> Result<u32, Never> {
        if let Some(other) = other {
            let address = EntityAddress::new("gate", &other).unwrap();
            context.send_to(address, "count", &None::<String>, None).unwrap();
        }
        *total += 1;
        Ok(*total)
    }

    #[rpc]
    pub async fn total(&self, total: &u32) -> Result<u32, Never> {
        Ok(*total)
    }
}

fn gate() -> EntityType {
    EntityType::new("gate").unwrap()
}

/// Some id whose shard that runner serves.
fn id_on(runner: &Runner) -> String {
    id_of_type_on(runner, &gate())
}

/// The same for an entity of any type.
fn id_of_type_on(runner: &Runner, entity_type: &EntityType) -> String {
    let ids = (0..).map(|number| format!("id-{number}"));
    let is_here = |id: &String| runner.node.has_shard(&runner.node.shard_of(entity_type, id).unwrap());
    ids.into_iter().find(is_here).unwrap()
}

fn envelope(runner: &Runner, id: &str, method: &str, input: &impl Serialize) -> Envelope {
    envelope_for(runner, EntityAddress::new("gate", id).unwrap(), method, input)
}

fn envelope_for(
    runner: &Runner,
    address: EntityAddress,
    method: &str,
    input: &(impl Serialize + ?Sized),
) -> Envelope {
    Envelope {
        id: runner.node.next_id().unwrap(),
        address,
        method: method.to_owned(),
        payload: codec::encode(input).unwrap().into(),
        persisted: false,
        key: None,
        deliver_at: None,
        uninterruptible: Default::default(),
        trace: None,
        headers: Default::default(),
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it hangs")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_joined_and_interrupted_from_every_runner() {
    let world = World::new().await;
    let runners = [world.start("a").await, world.start("b").await, world.start("c").await];
    let gates = Gate::default();
    for runner in &runners {
        gates.clone().register(&runner.node).unwrap();
    }
    settled(&runners.iter().collect::<Vec<_>>()).await;
    let id = id_on(&runners[0]);
    let request = runners[1].node.notify(envelope(&runners[1], &id, "pass", &7_u32)).await.unwrap();
    until("it runs", || gates.begun.load(Ordering::SeqCst) == 1).await;
    assert_eq!(runners[2].node.reply(&request).await.unwrap(), Progress::Open);

    let joins: Vec<_> = runners
        .iter()
        .map(|runner| {
            let (node, request) = (runner.node.clone(), request.clone());
            tokio::spawn(async move { node.await_reply(&request).await })
        })
        .collect();
    // Whoever waits and goes away stops nothing.
    let gone = tokio::time::timeout(Duration::from_millis(200), runners[2].node.await_reply(&request)).await;
    assert!(gone.is_err());
    gates.open.notify_one();
    for join in joins {
        let outcome = within(join).await.unwrap().unwrap();
        assert_eq!(outcome, Outcome::Success(codec::encode(&7_u32).unwrap().into()));
    }
    assert!(matches!(runners[1].node.reply(&request).await.unwrap(), Progress::Done(_)));
    // What has ended is told at once, also by those who never had to do with it.
    within(runners[2].node.await_reply(&request)).await.unwrap();

    let request = runners[1].node.notify(envelope(&runners[1], &id, "pass", &8_u32)).await.unwrap();
    until("it runs", || gates.begun.load(Ordering::SeqCst) == 2).await;
    assert!(runners[2].node.interrupt(&request).await.unwrap());
    let Outcome::Failure(failure) = within(runners[1].node.await_reply(&request)).await.unwrap() else {
        panic!("it was not interrupted")
    };
    assert_eq!(failure.kind, "Interrupted");
    assert!(!runners[0].node.interrupt(&request).await.unwrap(), "it has ended");
    let unknown = cleat_runner::message::RequestId { id: runners[0].node.next_id().unwrap(), ..request };
    let error = within(runners[1].node.await_reply(&unknown)).await.unwrap_err();
    assert_eq!(error.reason(), "NoSuchRequest");
    for runner in runners {
        runner.node.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_for_a_reply_follows_the_request_to_its_next_owner() {
    let world = World::new().await;
    let (a, b) = (
        world.start_with("a", |options| options.ownership.close_within = Duration::from_secs(1)).await,
        world.start("b").await,
    );
    let gates = Gate::default();
    for runner in [&a, &b] {
        gates.clone().register(&runner.node).unwrap();
    }
    settled(&[&a, &b]).await;
    let id = id_on(&a);
    let request = b.node.notify(envelope(&b, &id, "pass", &9_u32)).await.unwrap();
    until("it runs", || gates.begun.load(Ordering::SeqCst) == 1).await;
    let join = tokio::spawn({
        let (node, request) = (b.node.clone(), request.clone());
        async move { node.await_reply(&request).await }
    });
    a.node.shutdown().await;
    assert!(a.node.is_shut_down());
    until("it runs again", || gates.begun.load(Ordering::SeqCst) == 2).await;
    gates.open.notify_one();
    let outcome = within(join).await.unwrap().unwrap();
    assert_eq!(outcome, Outcome::Success(codec::encode(&9_u32).unwrap().into()));
    a.node.shutdown().await;
    assert!(!b.node.is_shut_down());
    b.node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rest_of_the_surface_does_what_it_says() {
    let world = World::new().await;
    let a = world.start_with("a", |options| options.entities.registration = Duration::from_millis(300)).await;
    let mut events = Box::pin(a.node.registration_events());
    Gate::default().register(&a.node).unwrap();
    assert_eq!(within(events.next()).await, Some(RegistrationEvent::Entity(gate())));
    until("it serves", || a.node.ownership().status().borrow().ready).await;

    let shard = a.node.shard_of(&gate(), "x").unwrap();
    assert!(a.node.has_shard(&shard));
    let ids: HashSet<_> = (0..1000).map(|_| a.node.next_id().unwrap()).collect();
    assert_eq!(ids.len(), 1000);
    assert_eq!(a.node.active_entities(), 0);
    let outcome = a.node.send(envelope(&a, "x", "count", &None::<String>)).await.unwrap();
    assert_eq!(outcome, Outcome::Success(codec::encode(&1_u32).unwrap().into()));
    assert_eq!(a.node.active_entities(), 1);
    let total = a.node.client(gate()).call::<u32, Never>("x", "total", &()).await.unwrap();
    assert_eq!(total, 1);
    a.node.poll_storage().await.unwrap();

    // A type that nobody registers is waited for, and then it is said which one it is.
    let mut unknown = envelope(&a, "x", "count", &());
    unknown.address = EntityAddress::new("gait", "x").unwrap();
    let error = within(a.node.send(unknown)).await.unwrap_err();
    assert_eq!(error.reason(), "UnknownType");
    assert!(error.to_string().contains("gait"), "{error}");
    assert!(!a.node.is_shut_down());
    a.node.shutdown().await;
    a.node.shutdown().await;
    assert!(a.node.is_shut_down());
    let late = Request::new(envelope(&a, "x", "count", &None::<String>));
    assert!(within(a.node.host().request(late)).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_elsewhere_is_told_of_messages_without_the_database() {
    let world = World::new().await;
    let slow =
        |options: &mut cleat_runner::cluster::Options| options.entities.sweep = Duration::from_secs(3600);
    let (a, b) = (world.start_with("a", slow).await, world.start_with("b", slow).await);
    let (from_a, _) =
        (Gate::default().register(&a.node).unwrap(), Gate::default().register(&b.node).unwrap());
    settled(&[&a, &b]).await;
    let (here, there) = (id_on(&a), id_on(&b));
    // The first request brings the connection about.
    from_a.total(&there).await.unwrap();
    let mut listener = sqlx::postgres::PgListener::connect(&world.database.url).await.unwrap();
    listener.listen("cleat_wake").await.unwrap();
    from_a.count(&here, &Some(there.clone())).await.unwrap();
    within(async {
        while from_a.total(&there).await.unwrap() != 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let woken = tokio::time::timeout(Duration::from_millis(300), listener.recv()).await;
    assert!(woken.is_err(), "{woken:?}");
    a.node.shutdown().await;
    b.node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_ended_long_ago_is_deleted_by_one_of_the_runners() {
    let world = World::new().await;
    let upkeep = Upkeep {
        retention: Retention { completed: Duration::ZERO, ..Retention::default() },
        first: Duration::from_millis(10),
        every: Duration::from_millis(200),
    };
    let with = |options: &mut cleat_runner::cluster::Options| options.upkeep = Some(upkeep);
    let (a, b) = (world.start_with("a", with).await, world.start_with("b", with).await);
    let _ = (Gate::default().register(&a.node).unwrap(), Gate::default().register(&b.node).unwrap());
    settled(&[&a, &b]).await;
    let request = a.node.notify(envelope(&a, "x", "count", &None::<String>)).await.unwrap();
    within(async {
        while a.node.reply(&request).await.unwrap() != Progress::Unknown {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let running = [&a, &b].map(|runner| runner.node.running_singletons().len());
    assert_eq!(running.iter().sum::<usize>(), 1, "{running:?}");
    a.node.shutdown().await;
    b.node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_whose_commits_do_not_move_is_released_and_one_with_a_slow_handler_is_not() {
    let world = World::new().await;
    let quick = |options: &mut cleat_runner::cluster::Options| {
        options.ownership.wedge.after = Duration::from_secs(2);
        options.ownership.close_within = Duration::from_secs(1);
    };
    let (a, b) = (world.start_with("a", quick).await, world.start_with("b", quick).await);
    let gates = Gate::default();
    let from_a = gates.clone().register(&a.node).unwrap();
    gates.clone().register(&b.node).unwrap();
    settled(&[&a, &b]).await;
    let id = id_on(&a);
    let shard = a.node.shard_of(&gate(), &id).unwrap();

    // Slow, and others wait behind it: four times as long as a wedge may last.
    let slow = tokio::spawn(from_a.pass(&id, &1).into_future());
    let behind = tokio::spawn(from_a.count(&id, &None).into_future());
    until("it runs", || gates.begun.load(Ordering::SeqCst) == 1).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(a.node.has_shard(&shard));
    assert!(a.node.ownership().status().borrow().avoided.is_empty());
    gates.open.notify_one();
    assert_eq!(within(slow).await.unwrap().unwrap(), 1);
    assert_eq!(within(behind).await.unwrap().unwrap(), 1);

    // Somebody locks the row that the next commit has to change.
    let pool = sqlx::PgPool::connect(&world.database.url).await.unwrap();
    let mut lock = pool.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM cleat.states WHERE entity_type = 'gate' AND entity_id = $1 FOR UPDATE")
        .bind(&id)
        .execute(&mut *lock)
        .await
        .unwrap();
    let stuck = tokio::spawn(from_a.count(&id, &None).into_future());
    let avoided = || a.node.ownership().status().borrow().avoided.contains(&shard);
    until("the shard is released", avoided).await;
    lock.rollback().await.unwrap();
    assert_eq!(owner_of(&shard, &[&b]).await, 0);
    assert_eq!(within(stuck).await.unwrap().unwrap(), 2, "and whoever waited gets the reply, of one count");
    a.node.shutdown().await;
    b.node.shutdown().await;
}
