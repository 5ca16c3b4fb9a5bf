//! What stays in memory, what does not, and what is kept there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cleat_runner::client::EntityClient;
use cleat_runner::entity::{Call, Definition, Entity, Handler, HandlerError, Method, Options, Resources};
use cleat_runner::message::{EntityAddress, EntityType};
use cleat_runner::prelude::*;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::world::{Place, World, on_both_stores};

on_both_stores!(
    an_instance_that_asks_for_it_stays_in_memory,
    resources_outlive_a_crash_of_the_handler,
    a_request_whose_time_has_not_come_can_be_interrupted,
);

#[entity]
struct Guest;

#[entity_impl]
impl Guest {
    #[rpc]
    async fn stay(&self, context: &Context, milliseconds: u64) -> Result<(), Never> {
        context.keep_alive(Duration::from_millis(milliseconds));
        Ok(())
    }

    #[rpc(persisted)]
    async fn leave(&self) -> Result<(), Never> {
        Ok(())
    }
}

async fn active(world: &World, count: usize) {
    while world.host.active_entities() != count {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn an_instance_that_asks_for_it_stays_in_memory(place: Place) {
    let options = Options { idle: Duration::from_millis(50), ..Options::default() };
    let world = World::with(place, options).await;
    let guest = Guest.register(&world.host).unwrap();
    guest.stay("long", &3_600_000).await.unwrap();
    guest.stay("short", &0).await.unwrap();
    active(&world, 1).await;
    // Others come and go meanwhile.
    for _ in 0..3 {
        guest.stay("other", &0).await.unwrap();
        active(&world, 1).await;
    }
    guest.stay("long", &0).await.unwrap();
    active(&world, 0).await;
}

/// Counts what is made of it.
#[derive(Default)]
struct Counts {
    resources: AtomicUsize,
    handlers: AtomicUsize,
}

struct Fragile {
    definition: Definition,
    counts: Arc<Counts>,
}

/// Panics whenever it is asked to.
struct Shell {
    hits: Arc<AtomicUsize>,
}

impl Entity for Fragile {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn acquire<'a>(&'a self, _: &'a EntityAddress) -> BoxFuture<'a, Result<Resources, HandlerError>> {
        self.counts.resources.fetch_add(1, Ordering::SeqCst);
        let hits: Resources = Arc::new(AtomicUsize::new(0));
        std::future::ready(Ok(hits)).boxed()
    }

    fn activate_with<'a>(
        &'a self,
        _: &'a EntityAddress,
        resources: Resources,
    ) -> BoxFuture<'a, Result<Arc<dyn Handler>, HandlerError>> {
        self.counts.handlers.fetch_add(1, Ordering::SeqCst);
        let handler: Arc<dyn Handler> = Arc::new(Shell { hits: resources.downcast().unwrap() });
        std::future::ready(Ok(handler)).boxed()
    }

    fn activate<'a>(&'a self, _: &'a EntityAddress) -> BoxFuture<'a, Result<Arc<dyn Handler>, HandlerError>> {
        unreachable!("it is made with its resources")
    }
}

impl Handler for Shell {
    fn handle<'a>(&'a self, call: &'a mut Call) -> BoxFuture<'a, Result<Bytes, HandlerError>> {
        async move {
            let hits = self.hits.fetch_add(1, Ordering::SeqCst) + 1;
            assert!(!call.input::<bool>()?, "it was hit");
            call.answer::<_, Never>(Ok(hits))
        }
        .boxed()
    }
}

async fn resources_outlive_a_crash_of_the_handler(place: Place) {
    let world = World::new(place).await;
    let entity_type = EntityType::new("fragile").unwrap();
    let counts = Arc::new(Counts::default());
    let definition = Definition::new(entity_type.clone()).method("hit", Method::volatile());
    world.host.register(Arc::new(Fragile { definition, counts: Arc::clone(&counts) })).unwrap();
    let client = EntityClient::new(Arc::new(world.host.clone()), entity_type);
    let hit = |hard: bool| client.call::<usize, Never>("f", "hit", &hard);
    assert_eq!(hit(false).await.unwrap(), 1);
    for _ in 0..2 {
        assert_eq!(hit(true).await.unwrap_err().reason(), Some("Crashed"));
    }
    assert_eq!(hit(false).await.unwrap(), 4, "the same resources, of another handler");
    assert_eq!(counts.handlers.load(Ordering::SeqCst), 3);
    assert_eq!(counts.resources.load(Ordering::SeqCst), 1);
}

async fn a_request_whose_time_has_not_come_can_be_interrupted(place: Place) {
    let world = World::new(place).await;
    let guest = Guest.register(&world.host).unwrap();
    let pending = guest.leave("g").after(Duration::from_secs(24 * 3600)).start().await.unwrap();
    // The next owner does not load what is so far away.
    let world = world.restart(Options::default()).await;
    let guest = Guest.register(&world.host).unwrap();
    let pending = guest.entity().pending::<(), Never>(pending.id().clone());
    let joined = tokio::spawn(pending.clone().into_future());
    while world.host.open_requests(&world.host.shard_of(guest.entity().entity_type(), "g").unwrap())
        != Some(1)
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(pending.poll().await.unwrap(), None);
    assert!(pending.interrupt().await.unwrap());
    assert_eq!(joined.await.unwrap().unwrap_err().reason(), Some("Interrupted"));
    assert_eq!(pending.poll().await.unwrap_err().reason(), Some("Interrupted"));
    assert!(!pending.interrupt().await.unwrap(), "it has ended");
}
