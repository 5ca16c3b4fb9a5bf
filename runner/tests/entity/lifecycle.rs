//! Registration, activation, calls and shutdown.

use std::sync::Arc;
use std::time::Duration;

use cleat_runner::entity::RegistrationEvent;
use cleat_runner::message::EntityType;
use cleat_runner::prelude::*;
use tokio::sync::Notify;

use crate::world::{Place, World, on_both_stores};

on_both_stores!(
    a_registered_entity_answers,
    an_entity_remembers_its_state_between_messages,
    instances_of_one_type_have_states_of_their_own,
    a_notification_is_handled_without_anybody_waiting,
    several_types_live_side_by_side,
    a_method_that_is_not_there_is_an_error,
    a_shutdown_can_be_repeated,
    a_message_waits_for_its_type_to_be_registered,
    a_message_to_a_type_that_is_never_registered_fails_clearly,
    whoever_listens_is_told_of_registrations,
);

#[entity]
#[derive(Default, Clone)]
pub struct Echo {
    pub pinged: Arc<Notify>,
}

#[entity_impl]
impl Echo {
    #[rpc]
    pub async fn echo(&self, value: i32) -> Result<i32, Never> {
        Ok(value)
    }

    #[rpc(persisted)]
    pub async fn keep(&self, value: i32) -> Result<i32, Never> {
        Ok(value)
    }

    #[rpc]
    pub async fn ping(&self) -> Result<(), Never> {
        self.pinged.notify_one();
        Ok(())
    }
}

#[entity(state = usize)]
struct Counter;

#[entity_impl]
impl Counter {
    #[rpc(persisted)]
    async fn increment(&self, count: &mut usize, amount: usize) -> Result<usize, Never> {
        *count += amount;
        Ok(*count)
    }

    #[rpc]
    async fn get(&self, count: &usize) -> Result<usize, Never> {
        Ok(*count)
    }
}

async fn a_registered_entity_answers(place: Place) {
    let world = World::new(place).await;
    let echo = Echo::default().register(&world.host).unwrap();
    assert_eq!(echo.echo("e-1", &42).await.unwrap(), 42);
}

async fn an_entity_remembers_its_state_between_messages(place: Place) {
    let world = World::new(place).await;
    let counter = Counter.register(&world.host).unwrap();
    assert_eq!(counter.increment("c-1", &3).await.unwrap(), 3);
    assert_eq!(counter.increment("c-1", &7).await.unwrap(), 10);
    assert_eq!(counter.get("c-1").await.unwrap(), 10);
}

async fn instances_of_one_type_have_states_of_their_own(place: Place) {
    let world = World::new(place).await;
    let counter = Counter.register(&world.host).unwrap();
    counter.increment("a", &5).await.unwrap();
    counter.increment("b", &10).await.unwrap();
    assert_eq!(counter.get("a").await.unwrap(), 5);
    assert_eq!(counter.get("b").await.unwrap(), 10);
}

async fn a_notification_is_handled_without_anybody_waiting(place: Place) {
    let world = World::new(place).await;
    let echo = Echo::default();
    let client = echo.clone().register(&world.host).unwrap();
    client.ping("e-notify").notify().await.unwrap();
    echo.pinged.notified().await;
    assert_eq!(world.host.active_entities(), 1);
}

async fn several_types_live_side_by_side(place: Place) {
    let world = World::new(place).await;
    let echo = Echo::default().register(&world.host).unwrap();
    let counter = Counter.register(&world.host).unwrap();
    // Equal ids of several types are different entities.
    assert_eq!(echo.echo("x", &1).await.unwrap(), 1);
    assert_eq!(counter.increment("x", &1).await.unwrap(), 1);
    assert_eq!(world.host.active_entities(), 2);
}

async fn a_method_that_is_not_there_is_an_error(place: Place) {
    let world = World::new(place).await;
    let echo = Echo::default().register(&world.host).unwrap();
    let error = echo.entity().call::<(), Never>("e-1", "nonexistent", &()).await.unwrap_err();
    assert_eq!(error.to_string(), "entity type echo has no method nonexistent");
}

async fn a_shutdown_can_be_repeated(place: Place) {
    let world = World::new(place).await;
    let echo = Echo::default().register(&world.host).unwrap();
    echo.echo("e-1", &1).await.unwrap();
    assert!(!world.host.is_shut_down());
    world.host.shutdown(Duration::from_secs(1)).await;
    assert!(world.host.is_shut_down());
    world.host.shutdown(Duration::from_secs(1)).await;
    assert!(world.host.is_shut_down());
    assert_eq!(echo.echo("e-1", &1).await.unwrap_err().reason(), Some("NotHere"));
}

async fn a_message_waits_for_its_type_to_be_registered(place: Place) {
    let world = World::new(place).await;
    let early = EchoClient::new(&world.host).unwrap();
    let call = tokio::spawn(early.echo("e-1", &42).into_future());
    // It is under way before the type is there: tasks of one thread run in the order in which they were spawned.
    tokio::task::yield_now().await;
    Echo::default().register(&world.host).unwrap();
    assert_eq!(call.await.unwrap().unwrap(), 42);
}

async fn a_message_to_a_type_that_is_never_registered_fails_clearly(place: Place) {
    let options =
        cleat_runner::entity::Options { registration: Duration::from_millis(50), ..Default::default() };
    let world = World::with(place, options).await;
    let client = EchoClient::new(&world.host).unwrap();
    let error = client.echo("e-1", &42).await.unwrap_err();
    assert_eq!(error.reason(), Some("UnknownType"));
    assert!(error.to_string().contains("echo"), "{error}");
}

async fn whoever_listens_is_told_of_registrations(place: Place) {
    let world = World::new(place).await;
    let mut events = world.host.registration_events();
    Echo::default().register(&world.host).unwrap();
    let echo = EntityType::new("echo").unwrap();
    assert_eq!(events.recv().await.unwrap(), RegistrationEvent::Entity(echo));
}
