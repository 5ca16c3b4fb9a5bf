//! Volatile messages that are handled in the task that brings them.

use std::future::IntoFuture;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cleat_runner::client::EntityClient;
use cleat_runner::entity::{Call, Definition, Entity, Handler, HandlerError, Method};
use cleat_runner::message::{EntityAddress, EntityType};
use cleat_runner::prelude::*;
use futures::future::BoxFuture;
use futures::poll;
use proptest::prelude::*;
use tokio::sync::Semaphore;

use crate::world::{PATIENCE, Place, World, on_both_stores};

on_both_stores!(
    a_handler_that_never_waits_runs_in_the_task_that_asks,
    a_handler_that_waits_goes_on_though_its_caller_is_gone,
    a_panic_in_the_task_that_asks_is_the_callers_answer_and_no_more,
    a_panic_while_an_instance_is_made_leaves_it_usable,
    handlers_that_ask_each_other_are_answered_however_many_they_are,
    what_is_only_to_be_accepted_is_not_waited_for,
);

tokio::task_local! {
    static ASKING: ();
}

#[derive(Clone)]
struct Gate {
    entered: Arc<Semaphore>,
    leave: Arc<Semaphore>,
    left: Arc<Semaphore>,
}

impl Gate {
    fn new() -> Self {
        let semaphore = || Arc::new(Semaphore::new(0));
        Self { entered: semaphore(), leave: semaphore(), left: semaphore() }
    }
}

async fn one(semaphore: &Semaphore) {
    semaphore.acquire().await.unwrap().forget();
}

#[entity]
struct Clerk(Gate);

#[entity_impl]
impl Clerk {
    /// Whether the task that asks is the one that runs this.
    #[rpc]
    async fn here(&self) -> Result<bool, Never> {
        Ok(ASKING.try_with(|()| ()).is_ok())
    }

    #[rpc]
    async fn stay(&self) -> Result<bool, Never> {
        self.0.entered.add_permits(1);
        one(&self.0.leave).await;
        self.0.left.add_permits(1);
        Ok(ASKING.try_with(|()| ()).is_ok())
    }

    #[rpc]
    async fn fail(&self) -> Result<(), Never> {
        assert!(self.0.leave.is_closed(), "the clerk stumbles");
        Ok(())
    }

    /// Asks the next one, and so on.
    #[rpc]
    async fn count(&self, ctx: &mut Context, left: u32) -> Result<u32, Never> {
        if left == 0 {
            return Ok(0);
        }
        let next = ctx.client::<Clerk>().unwrap();
        let call = next.count(format!("clerk-{left}"), &(left - 1));
        Ok(ctx.call(call).await.unwrap() + 1)
    }
}

/// Asks until a handler has run where it was asked. One that was too slow on a busy machine is not for a while.
async fn until_at_once(clerk: &ClerkClient) {
    while !ASKING.scope((), clerk.here("a").into_future()).await.unwrap() {}
}

async fn a_handler_that_never_waits_runs_in_the_task_that_asks(place: Place) {
    let world = World::new(place).await;
    let gate = Gate::new();
    let clerk = Clerk(gate.clone()).register(&world.host).unwrap();
    until_at_once(&clerk).await;
    // Whoever comes while it is busy waits, and has nothing to do with the tasks of others.
    let stays = tokio::spawn(ASKING.scope((), clerk.stay("a").into_future()));
    one(&gate.entered).await;
    let mut waits = Box::pin(ASKING.scope((), clerk.here("a").into_future()));
    assert!(poll!(&mut waits).is_pending());
    gate.leave.add_permits(1);
    assert!(!waits.await.unwrap());
    assert!(!stays.await.unwrap().unwrap(), "what waits goes on in a task of its own");
    // Then it is at rest again.
    until_at_once(&clerk).await;
}

async fn a_handler_that_waits_goes_on_though_its_caller_is_gone(place: Place) {
    let world = World::new(place).await;
    let gate = Gate::new();
    let clerk = Clerk(gate.clone()).register(&world.host).unwrap();
    let mut call = clerk.stay("a").into_future();
    assert!(poll!(&mut call).is_pending());
    one(&gate.entered).await;
    drop(call);
    gate.leave.add_permits(1);
    one(&gate.left).await;
    clerk.here("a").await.unwrap();
}

async fn a_panic_in_the_task_that_asks_is_the_callers_answer_and_no_more(place: Place) {
    let world = World::new(place).await;
    let clerk = Clerk(Gate::new()).register(&world.host).unwrap();
    for _ in 0..3 {
        let error = clerk.fail("a").await.unwrap_err();
        assert!(error.to_string().contains("the clerk stumbles"), "{error}");
        until_at_once(&clerk).await;
    }
}

/// An entity that cannot be made the first time.
struct Broken {
    definition: Definition,
    tried: AtomicBool,
}

impl Entity for Broken {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn activate<'a>(&'a self, _: &'a EntityAddress) -> BoxFuture<'a, Result<Arc<dyn Handler>, HandlerError>> {
        assert!(self.tried.swap(true, Ordering::SeqCst), "it cannot be made");
        let handler: Arc<dyn Handler> = Arc::new(Made);
        Box::pin(std::future::ready(Ok(handler)))
    }
}

struct Made;

impl Handler for Made {
    fn handle<'a>(&'a self, call: &'a mut Call) -> BoxFuture<'a, Result<Bytes, HandlerError>> {
        Box::pin(async move { call.answer(Ok::<_, Never>(7)) })
    }
}

async fn a_panic_while_an_instance_is_made_leaves_it_usable(place: Place) {
    let world = World::new(place).await;
    let entity_type = EntityType::new("broken").unwrap();
    let definition = Definition::new(entity_type.clone()).method("ask", Method::volatile());
    world.host.register(Arc::new(Broken { definition, tried: AtomicBool::new(false) })).unwrap();
    let client = EntityClient::new(Arc::new(world.host.clone()), entity_type);
    let ask = || client.call::<i32, Never>("a", "ask", &());
    let error = ask().await.unwrap_err();
    assert!(error.to_string().contains("it cannot be made"), "{error}");
    assert_eq!(ask().await.unwrap(), 7);
}

async fn handlers_that_ask_each_other_are_answered_however_many_they_are(place: Place) {
    let world = World::new(place).await;
    let clerk = Clerk(Gate::new()).register(&world.host).unwrap();
    for _ in 0..3 {
        assert_eq!(clerk.count("first", &20).await.unwrap(), 20);
    }
}

async fn what_is_only_to_be_accepted_is_not_waited_for(place: Place) {
    let world = World::new(place).await;
    let gate = Gate::new();
    let clerk = Clerk(gate.clone()).register(&world.host).unwrap();
    ASKING.scope((), clerk.stay("a").notify()).await.unwrap();
    one(&gate.entered).await;
    gate.leave.add_permits(1);
    one(&gate.left).await;
}

#[entity(name = "blocking")]
struct Blocking {
    entered: Arc<Semaphore>,
    leave: Arc<Mutex<std::sync::mpsc::Receiver<()>>>,
    left: Arc<AtomicBool>,
}

#[entity_impl]
impl Blocking {
    #[rpc]
    async fn stay(&self) -> Result<(), Never> {
        self.entered.add_permits(1);
        self.leave.lock().unwrap().recv().unwrap();
        self.left.store(true, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_shard_is_not_closed_while_a_handler_runs_in_the_task_that_asks() {
    let world = World::new(Place::sqlite().await).await;
    let (leave, waits) = std::sync::mpsc::channel();
    let (entered, left) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicBool::new(false)));
    let entity =
        Blocking { entered: entered.clone(), leave: Arc::new(Mutex::new(waits)), left: left.clone() };
    let client = entity.register(&world.host).unwrap();
    let shard = world.host.shard_of(&EntityType::new("blocking").unwrap(), "a").unwrap();
    let call = tokio::spawn(client.stay("a").into_future());
    one(&entered).await;
    let host = world.host.clone();
    let closing = tokio::spawn(async move { host.close(&shard, PATIENCE).await });
    while world.host.serves(&world.host.shard_of(&EntityType::new("blocking").unwrap(), "a").unwrap()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    leave.send(()).unwrap();
    closing.await.unwrap();
    assert!(left.load(Ordering::SeqCst), "what was closed runs nothing any more");
    call.await.unwrap().unwrap();
}

#[entity]
struct Notes(Arc<Mutex<Vec<u32>>>);

#[entity_impl]
impl Notes {
    /// Waits so many times before it is written down, so that some are done at once and some are not.
    #[rpc]
    async fn note(&self, note: (u32, u8)) -> Result<(), Never> {
        let (number, waits) = note;
        for _ in 0..waits {
            tokio::task::yield_now().await;
        }
        self.0.lock().unwrap().push(number);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn messages_are_handled_in_the_order_in_which_they_came_whether_at_once_or_not(
        waits in proptest::collection::vec(0u8..3, 1..40),
        pauses in proptest::collection::vec(any::<bool>(), 40),
    ) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let noted = runtime.block_on(async {
            let world = World::new(Place::sqlite().await).await;
            let notes = Arc::new(Mutex::new(Vec::new()));
            let client = Notes(notes.clone()).register(&world.host).unwrap();
            let mut calls = Vec::new();
            for ((number, waits), pause) in (0..).zip(waits.iter()).zip(pauses) {
                let mut call = client.note("a", &(number, *waits)).into_future();
                // From here on it is under way.
                let _ = poll!(&mut call).map(Result::unwrap);
                calls.push(call);
                if pause {
                    tokio::task::yield_now().await;
                }
            }
            drop(calls);
            // Whatever came before this one comes before it.
            client.note("a", &(u32::MAX, 0)).await.unwrap();
            notes.lock().unwrap().clone()
        });
        let count = u32::try_from(waits.len()).unwrap();
        prop_assert_eq!(noted, (0..count).chain([u32::MAX]).collect::<Vec<_>>());
    }
}
