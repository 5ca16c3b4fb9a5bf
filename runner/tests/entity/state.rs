//! Entities, their state and their errors.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use cleat_runner::entity::native::{Declared, Service};
use cleat_runner::entity::{Concurrency, Entity, Options};
use cleat_runner::prelude::*;
use cleat_runner::shard::GroupName;

use crate::shop::{Counter, Increment, Inventory, InventoryClient, OutOfStock, Reserve, Stock};
use crate::world::{Place, World, on_both_stores};

on_both_stores!(
    an_entity_is_made_on_its_first_call,
    an_entity_that_is_idle_leaves_memory,
    state_and_reply_are_there_together,
    instances_have_states_of_their_own,
    a_refusal_comes_back_as_it_was_and_changes_nothing,
    the_state_survives_a_restart_of_the_host,
    a_stateless_entity_keeps_what_it_knows_where_it_likes,
    a_client_can_be_had_without_registering,
    what_did_not_work_is_tried_again_until_it_does,
    what_never_works_is_given_up_and_becomes_a_dead_letter,
    a_volatile_method_is_not_tried_again,
    a_method_that_takes_too_long_is_stopped,
    an_entity_lives_in_the_shard_group_that_it_names,
);

async fn inventory(place: Place) -> (World, InventoryClient) {
    let world = World::new(place).await;
    let client = Inventory.register(&world.host).unwrap();
    (world, client)
}

async fn an_entity_is_made_on_its_first_call(place: Place) {
    let (world, client) = inventory(place).await;
    assert_eq!(world.host.active_entities(), 0);
    client.get("apples").await.unwrap();
    client.get("pears").await.unwrap();
    client.get("apples").await.unwrap();
    assert_eq!(world.host.active_entities(), 2);
}

async fn an_entity_that_is_idle_leaves_memory(place: Place) {
    let options = Options { idle: Duration::from_millis(50), ..Options::default() };
    let world = World::with(place, options).await;
    let client = Inventory.register(&world.host).unwrap();
    client.restock("apples", &5).await.unwrap();
    let gone = async {
        while world.host.active_entities() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap();
    assert_eq!(client.get("apples").await.unwrap().on_hand, 5);
}

async fn state_and_reply_are_there_together(place: Place) {
    let (_world, client) = inventory(place).await;
    assert_eq!(client.restock("apples", &10).await.unwrap(), 10);
    let reserve = Reserve { order: "o-1".into(), count: 3 };
    assert_eq!(client.reserve("apples", &reserve).await.unwrap(), 7);
    let reserved = [("o-1".to_owned(), 3)].into();
    assert_eq!(client.get("apples").await.unwrap(), Stock { on_hand: 7, reserved });
}

async fn instances_have_states_of_their_own(place: Place) {
    let (_world, client) = inventory(place).await;
    client.restock("apples", &5).await.unwrap();
    client.restock("pears", &10).await.unwrap();
    assert_eq!(client.get("apples").await.unwrap().on_hand, 5);
    assert_eq!(client.get("pears").await.unwrap().on_hand, 10);
}

async fn a_refusal_comes_back_as_it_was_and_changes_nothing(place: Place) {
    let (_world, client) = inventory(place).await;
    client.restock("apples", &2).await.unwrap();
    let reserve = Reserve { order: "o-1".into(), count: 3 };
    let error = client.reserve("apples", &reserve).await.unwrap_err();
    assert!(matches!(&error, client::Error::Refused(OutOfStock { left: 2 })), "{error:?}");
    assert_eq!(error.to_string(), "only 2 left");
    assert_eq!(client.get("apples").await.unwrap().on_hand, 2);
}

async fn the_state_survives_a_restart_of_the_host(place: Place) {
    let (world, client) = inventory(place).await;
    client.restock("apples", &10).await.unwrap();
    let world = world.restart(Options::default()).await;
    let client = Inventory.register(&world.host).unwrap();
    assert_eq!(client.restock("apples", &1).await.unwrap(), 11);
}

async fn a_stateless_entity_keeps_what_it_knows_where_it_likes(place: Place) {
    let world = World::new(place).await;
    let counter = Counter::default();
    let client = counter.clone().register(&world.host).unwrap();
    let id = cleat_runner::message::EntityId::new("counter-1").unwrap();
    let increment = Increment { counter: "counter-1".into(), amount: 5 };
    assert_eq!(client.increment(&id, &increment).await.unwrap(), 5);
    assert_eq!(client.get(&id, &"counter-1".to_owned()).await.unwrap(), 5);
    assert_eq!(counter.database.lock().unwrap().get("counter-1"), Some(&5));
}

async fn a_client_can_be_had_without_registering(place: Place) {
    let (world, client) = inventory(place).await;
    client.restock("apples", &5).await.unwrap();
    let other = InventoryClient::new(&world.host).unwrap();
    assert_eq!(other.get("apples").await.unwrap().on_hand, 5);
}

#[derive(Debug, Serialize, Deserialize)]
enum Payment {
    Declined { code: u16 },
}

impl fmt::Display for Payment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Declined { code } = self;
        write!(f, "declined with code {code}")
    }
}

#[entity]
#[derive(Clone, Default)]
struct Terminal {
    tries: Arc<AtomicI32>,
}

#[entity_impl]
impl Terminal {
    /// Works from the given attempt on.
    #[rpc(persisted, retries = 3, backoff = "1ms")]
    async fn charge(&self, context: &mut Context, works_at: i32) -> Result<i32, OrRetry<Payment>> {
        self.tries.fetch_add(1, Ordering::SeqCst);
        if context.attempt() < works_at {
            return Err(OrRetry::retry("the terminal is busy"));
        }
        Err(Payment::Declined { code: 51 })?;
        Ok(0)
    }

    #[rpc]
    async fn look(&self) -> Result<(), OrRetry<Payment>> {
        Err(OrRetry::retry("nobody is here"))
    }

    #[rpc(timeout = "50ms")]
    async fn sleep(&self) -> Result<(), Never> {
        std::future::pending().await
    }
}

async fn what_did_not_work_is_tried_again_until_it_does(place: Place) {
    let world = World::new(place).await;
    let terminal = Terminal::default();
    let client = terminal.clone().register(&world.host).unwrap();
    let error = client.charge("t", &2).await.unwrap_err();
    assert!(matches!(error, client::Error::Refused(Payment::Declined { code: 51 })), "{error:?}");
    assert_eq!(terminal.tries.load(Ordering::SeqCst), 3);
}

async fn what_never_works_is_given_up_and_becomes_a_dead_letter(place: Place) {
    let world = World::new(place).await;
    let terminal = Terminal::default();
    let client = terminal.clone().register(&world.host).unwrap();
    let error = client.charge("t", &i32::MAX).await.unwrap_err();
    assert!(matches!(&error, client::Error::Entity(entity::Error::Defect(_))), "{error:?}");
    assert_eq!(error.reason(), Some("RetriesExhausted"));
    assert!(error.to_string().contains("the terminal is busy"), "{error}");
    assert_eq!(terminal.tries.load(Ordering::SeqCst), 4);
    let dead = world.store.dead_letters(&GroupName::default(), None, 10).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].message.envelope.method, "charge");
}

async fn a_volatile_method_is_not_tried_again(place: Place) {
    let world = World::new(place).await;
    let client = Terminal::default().register(&world.host).unwrap();
    let error = client.look("t").await.unwrap_err();
    assert_eq!(error.reason(), Some("Crashed"));
    assert!(error.to_string().contains("nobody is here"), "{error}");
}

async fn a_method_that_takes_too_long_is_stopped(place: Place) {
    let world = World::new(place).await;
    let client = Terminal::default().register(&world.host).unwrap();
    let error = client.sleep("t").await.unwrap_err();
    assert!(error.to_string().contains("took longer than 50ms"), "{error}");
}

#[entity(
    name = "user",
    shard_group = "premium",
    max_idle_time_secs = 300,
    mailbox_capacity = 50,
    concurrency = 4
)]
struct Configured;

#[entity_impl]
impl Configured {
    #[rpc]
    async fn name(&self) -> Result<String, Never> {
        Ok("premium".to_owned())
    }
}

async fn an_entity_lives_in_the_shard_group_that_it_names(place: Place) {
    let world = World::new(place).await;
    let client = Configured.register(&world.host).unwrap();
    let shard = world.host.shard_of(client.entity().entity_type(), "u-1").unwrap();
    assert_eq!(shard.group.as_str(), "premium");
    assert_eq!(client.name("u-1").await.unwrap(), "premium");
}

#[test]
fn every_option_of_an_entity_is_in_its_definition() {
    let service = Service::new(Configured::settings(), vec![Arc::new(Configured)]).unwrap();
    let definition = service.definition();
    assert_eq!(definition.entity_type.as_str(), "user");
    assert_eq!(definition.group.as_str(), "premium");
    assert_eq!(definition.idle, Some(Duration::from_secs(300)));
    assert_eq!(definition.mailbox.map(std::num::NonZeroUsize::get), Some(50));
    assert!(matches!(definition.concurrency, Some(Concurrency::Limited(most)) if most.get() == 4));
}

#[test]
fn an_entity_without_options_is_named_after_its_struct_and_has_the_defaults() {
    let service = Service::new(Counter::settings(), vec![Arc::new(Counter::default())]).unwrap();
    let definition = service.definition();
    assert_eq!(definition.entity_type.as_str(), "counter");
    assert_eq!(definition.group, GroupName::default());
    assert!(definition.idle.is_none() && definition.mailbox.is_none() && definition.concurrency.is_none());
    assert!(definition.state.is_none());
}
