//! What is stored of a message, by whom, and what a host makes of it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use cleat_runner::entity::{Delivered, Options, Request};
use cleat_runner::message::{EntityAddress, Envelope, Headers, Outcome, RequestId, Snowflake, codec};
use cleat_runner::prelude::*;
use cleat_runner::shard::GroupName;
use cleat_runner::store::{Change, Committed, Message, Page, Progress, Write};

use tokio::sync::Semaphore;

use crate::lifecycle::Echo;
use crate::world::{Place, World, on_both_stores};

on_both_stores!(
    the_reply_of_a_persisted_call_is_stored,
    a_request_that_comes_again_gets_the_stored_reply,
    whoever_asks_again_while_it_is_open_waits_for_the_reply,
    a_persisted_notification_is_stored_once,
    ids_of_a_runner_whose_clock_was_hours_ahead_block_nobody,
    messages_keep_their_order_after_an_owner_whose_clock_was_hours_ahead,
    nothing_is_stored_of_a_volatile_call,
    messages_that_somebody_else_stored_are_found_and_handled,
    messages_of_unregistered_types_are_left_alone,
    a_stored_message_whose_type_never_comes_is_a_dead_letter_that_can_be_replayed,
    a_stored_message_waits_for_the_first_definitions_however_long_they_take,
);

fn envelope(world: &World, entity_type: &str, method: &str, input: i32) -> Envelope {
    Envelope {
        id: world.host.next_id().unwrap(),
        address: EntityAddress::new(entity_type, "e-1").unwrap(),
        method: method.to_owned(),
        payload: codec::encode(&input).unwrap().into(),
        persisted: true,
        key: None,
        deliver_at: None,
        uninterruptible: Default::default(),
        trace: None,
        headers: Headers::default(),
    }
}

impl World {
    /// Stores a message behind the host's back, as another runner would.
    pub async fn store(&self, envelope: &Envelope) -> Committed {
        let map = self.store.maps().iter().find(|map| *map.group() == GroupName::default()).unwrap();
        let shard = map.shard_at(envelope.address.slot());
        let fence = self.fences.iter().find(|fence| fence.shard == shard).unwrap().clone();
        let message = Message {
            envelope: envelope.clone(),
            group: GroupName::default(),
            seq: envelope.id,
            resent: true,
        };
        self.store.commit(Write::one(fence, Change::Accept(message))).await.unwrap()
    }

    async fn progress(&self, id: Snowflake) -> Progress {
        self.store.progress(id).await.unwrap()
    }

    async fn join(&self, envelope: &Envelope) -> Outcome {
        let (group, slot) = (GroupName::default(), envelope.address.slot());
        self.host.join(&RequestId { group, slot, id: envelope.id }).await.unwrap()
    }
}

fn reply(value: i32) -> Outcome {
    Outcome::Success(codec::encode(&value).map(Bytes::from).unwrap())
}

async fn the_reply_of_a_persisted_call_is_stored(place: Place) {
    let world = World::new(place).await;
    Echo::default().register(&world.host).unwrap();
    let envelope = envelope(&world, "echo", "keep", 42);
    let id = envelope.id;
    assert_eq!(world.host.request(Request::new(envelope)).await.unwrap(), Delivered::Ended(reply(42)));
    assert_eq!(world.progress(id).await, Progress::Done(reply(42)));
}

async fn a_request_that_comes_again_gets_the_stored_reply(place: Place) {
    let world = World::new(place).await;
    Echo::default().register(&world.host).unwrap();
    let request = Request::new(envelope(&world, "echo", "keep", 42));
    let first = world.host.request(request.clone()).await.unwrap();
    let second = world.host.request(Request { resent: true, ..request }).await.unwrap();
    assert_eq!(first, second);
}

async fn whoever_asks_again_while_it_is_open_waits_for_the_reply(place: Place) {
    let world = World::new(place).await;
    // Stored by somebody else, and nobody can handle it yet.
    let envelope = envelope(&world, "echo", "keep", 9);
    assert_eq!(world.store(&envelope).await, Committed::Applied);
    let host = world.host.clone();
    let request = Request { resent: true, ..Request::new(envelope.clone()) };
    let again = tokio::spawn(async move { host.request(request).await });
    tokio::task::yield_now().await;
    Echo::default().register(&world.host).unwrap();
    assert_eq!(again.await.unwrap().unwrap(), Delivered::Ended(reply(9)));
    assert_eq!(world.join(&envelope).await, reply(9));
}

async fn a_persisted_notification_is_stored_once(place: Place) {
    let world = World::new(place).await;
    Echo::default().register(&world.host).unwrap();
    let envelope = envelope(&world, "echo", "keep", 1);
    let request = Request::new(envelope.clone()).one_way();
    let id = envelope.id;
    assert_eq!(world.host.request(request.clone()).await.unwrap(), Delivered::Accepted(id));
    assert_eq!(world.host.request(request).await.unwrap(), Delivered::Accepted(id));
    assert!(matches!(world.store(&envelope).await, Committed::Duplicate { request, .. } if request == id));
}

async fn nothing_is_stored_of_a_volatile_call(place: Place) {
    let world = World::new(place).await;
    Echo::default().register(&world.host).unwrap();
    let envelope = envelope(&world, "echo", "echo", 1);
    let id = envelope.id;
    assert_eq!(world.host.request(Request::new(envelope)).await.unwrap(), Delivered::Ended(reply(1)));
    assert_eq!(world.progress(id).await, Progress::Unknown);
}

async fn messages_that_somebody_else_stored_are_found_and_handled(place: Place) {
    let world = World::new(place).await;
    Echo::default().register(&world.host).unwrap();
    let envelope = envelope(&world, "echo", "keep", 7);
    world.store(&envelope).await;
    assert_eq!(world.host.active_entities(), 0);
    world.host.poll_storage().await.unwrap();
    assert_eq!(world.join(&envelope).await, reply(7));
    assert_eq!(world.host.active_entities(), 1);
}

async fn messages_of_unregistered_types_are_left_alone(place: Place) {
    let world = World::new(place).await;
    let envelope = envelope(&world, "unknown", "x", 0);
    world.store(&envelope).await;
    world.host.poll_storage().await.unwrap();
    assert_eq!(world.host.active_entities(), 0);
    assert_eq!(world.progress(envelope.id).await, Progress::Open);
}

async fn a_stored_message_whose_type_never_comes_is_a_dead_letter_that_can_be_replayed(place: Place) {
    let options = Options { registration: Duration::from_millis(50), ..Options::default() };
    let world = World::with(place, options).await;
    let envelope = envelope(&world, "echo", "keep", 7);
    world.store(&envelope).await;
    world.host.poll_storage().await.unwrap();
    let Outcome::Defect(defect) = world.join(&envelope).await else { unreachable!("nobody handled it") };
    assert_eq!(defect.kind, "UnknownType");
    assert!(defect.message.contains("echo"), "{}", defect.message);
    let dead = world.store.dead_letters(&GroupName::default(), None, 10).await.unwrap();
    assert_eq!(dead.len(), 1, "its payload is kept");
    assert_eq!(dead[0].message.envelope.payload, envelope.payload);
    assert!(dead[0].error.contains("echo") && dead[0].error.contains("replay"), "{}", dead[0].error);
    // Once the type is there, it is handled as if nothing had happened.
    Echo::default().register(&world.host).unwrap();
    let (group, slot) = (GroupName::default(), envelope.address.slot());
    assert!(world.host.replay(&RequestId { group, slot, id: envelope.id }).await.unwrap());
    assert_eq!(world.join(&envelope).await, reply(7));
}

async fn a_stored_message_waits_for_the_first_definitions_however_long_they_take(place: Place) {
    let options = Options { registration: Duration::from_millis(50), ..Options::default() };
    let world = World::with(place, options).await;
    let unread = world.host.expect_definitions();
    let (declared, unknown) = (envelope(&world, "echo", "keep", 7), envelope(&world, "unknown", "keep", 7));
    world.store(&declared).await;
    world.store(&unknown).await;
    world.host.poll_storage().await.unwrap();
    // Many times as long as a message waits for its type once definitions are known.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(world.progress(declared.id).await, Progress::Open);
    Echo::default().register(&world.host).unwrap();
    drop(unread);
    assert_eq!(world.join(&declared).await, reply(7));
    assert!(matches!(world.join(&unknown).await, Outcome::Defect(defect) if defect.kind == "UnknownType"));
}

/// Notes numbers in the order in which they come, once it may.
#[entity(state = Vec<i32>)]
struct Notes(Arc<Semaphore>);

#[entity_impl]
impl Notes {
    #[rpc(persisted)]
    async fn note(&self, notes: &mut Vec<i32>, number: i32) -> Result<Vec<i32>, Never> {
        self.0.acquire().await.unwrap().forget();
        notes.push(number);
        Ok(notes.clone())
    }
}

/// An envelope that a runner made whose clock was three hours ahead.
fn ahead(world: &World, entity_type: &str, method: &str, input: i32) -> Envelope {
    let id = Snowflake::first_at(SystemTime::now() + Duration::from_secs(3 * 3600));
    Envelope { id, ..envelope(world, entity_type, method, input) }
}

async fn ids_of_a_runner_whose_clock_was_hours_ahead_block_nobody(place: Place) {
    let world = World::new(place).await;
    let earlier = ahead(&world, "echo", "keep", 1);
    world.store(&earlier).await;
    let world = world.restart(Options::default()).await;
    Echo::default().register(&world.host).unwrap();
    let later = envelope(&world, "echo", "keep", 2);
    assert_eq!(world.host.request(Request::new(later)).await.unwrap(), Delivered::Ended(reply(2)));
    assert_eq!(world.join(&earlier).await, reply(1));
}

async fn messages_keep_their_order_after_an_owner_whose_clock_was_hours_ahead(place: Place) {
    let world = World::new(place).await;
    let earlier = ahead(&world, "notes", "note", 1);
    world.store(&earlier).await;
    let world = world.restart(Options::default()).await;
    let notes = Notes(Arc::new(Semaphore::new(0))).register(&world.host).unwrap();
    let mut order = vec![earlier.id];
    for number in [2, 3] {
        order.push(notes.note("e-1", &number).notify().await.unwrap().id);
    }
    // In this order the next owner finds them.
    let shard = world.host.shard_of(&earlier.address.entity_type, "e-1").unwrap();
    let page = Page { until: SystemTime::now(), after: None, limit: 10 };
    let open = world.store.open_messages(&[shard], page).await.unwrap();
    assert_eq!(open.iter().map(|stored| stored.message.envelope.id).collect::<Vec<_>>(), order);
}
