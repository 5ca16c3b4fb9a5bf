//! Open messages: what is accepted and sent, when it is due, and how attempts go.

use bytes::Bytes;

use super::world::*;
use crate::message::{EntityAddress, TraceContext, Uninterruptible};
use crate::shard::{GroupName, ShardId};
use crate::store::{Attempt, Change, Error, Message, Page, Progress};

fn attempt<D: Database>(world: &World<D>, number: i64, attempt: i32, error: &str) -> Change {
    let due = world.at(60);
    Change::Attempt(Attempt { request: world.id(number), attempt, due, error: error.to_owned() })
}

/// Stores a message and expects it back unchanged.
async fn survives<D: Database>(world: &World<D>, message: Message) {
    let desk = world.owner("a").await;
    desk.accept(&message).await;
    let entity = message.envelope.address.id.as_str().to_owned();
    let stored = desk.open(&entity).await.pop().unwrap();
    assert_eq!(stored.message, message);
    assert_eq!((stored.attempt, stored.error), (0, None));
    assert_eq!(stored.due, message.envelope.deliver_at);
}

pub async fn an_accepted_message_comes_back_as_it_was<D: Database>(world: World<D>) {
    let message = world.message(1, "x");
    survives(&world, message).await;
}

pub async fn a_key_a_time_and_headers_come_back_as_they_were<D: Database>(world: World<D>) {
    let mut message = world.keyed(1, "x", "k");
    message.envelope.deliver_at = Some(world.at(30));
    message.envelope.uninterruptible = Uninterruptible::Both;
    message.envelope.trace = Some(TraceContext { trace_id: u128::MAX, parent_id: 7, sampled: true });
    message.envelope.headers =
        [("tenant".to_owned(), "größe\0".to_owned()), ("empty".to_owned(), String::new())].into();
    survives(&world, message).await;
}

pub async fn an_empty_payload_is_not_nothing<D: Database>(world: World<D>) {
    let mut message = world.message(1, "x");
    message.envelope.payload = Bytes::new();
    message.envelope.method = String::new();
    survives(&world, message).await;
}

pub async fn a_payload_of_a_mebibyte_comes_back_as_it_was<D: Database>(world: World<D>) {
    let mut message = world.message(1, "x");
    message.envelope.payload = (0..1u32 << 20).map(|n| n.to_be_bytes()[3]).collect::<Vec<u8>>().into();
    survives(&world, message).await;
}

pub async fn any_text_can_be_an_address<D: Database>(world: World<D>) {
    let mut message = world.message(1, "x");
    message.envelope.address = EntityAddress::new("größe", "日本/'; DROP TABLE--\u{1f980}\n\\%_").unwrap();
    message.envelope.method = "été'\"\\".to_owned();
    survives(&world, message).await;
}

pub async fn the_longest_address_can_be_stored<D: Database>(world: World<D>) {
    let mut message = world.message(1, "x");
    // Not one letter over and over: databases compress what they index.
    let long = |length: usize| -> String {
        (0..length).map(|n| char::from(b'!' + u8::try_from((n * n + n / 7) % 90).unwrap())).collect()
    };
    message.envelope.address = EntityAddress::new(&long(253), &long(1024)).unwrap();
    let desk = world.owner("a").await;
    let entity = message.envelope.address.id.as_str().to_owned();
    let mut ring = timer("x", "t", world.now);
    ring.address = message.envelope.address.clone();
    let change = Change::State(crate::store::StateChange {
        address: message.envelope.address.clone(),
        group: GroupName::default(),
        base: 0,
        value: Bytes::from_static(b"v"),
    });
    desk.apply(&entity, vec![Change::Accept(message.clone()), change, Change::SetTimer(ring.clone())]).await;
    assert_eq!(desk.open(&entity).await[0].message, message);
    assert_eq!(desk.store.timers(&[desk.shard(&entity)], far(), 1).await.unwrap(), [ring]);
    assert_eq!(desk.store.state(&message.envelope.address).await.unwrap().unwrap().version, 1);
}

pub async fn a_nul_in_a_method_is_rejected_and_fails_nobody_else<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let before = desk.submit("x", vec![Change::Accept(world.message(1, "x"))]).await;
    let mut message = world.message(2, "x");
    message.envelope.method = "a\0b".to_owned();
    for change in [
        Change::Accept(message.clone()),
        Change::Send(message.clone()),
        finish_new(&message, "ok"),
        Change::SetTimer(timer("x", "a\0b", world.now)),
    ] {
        let answer = desk.write("x", vec![state("x", 0, "v"), change]).await;
        assert!(matches!(answer, Err(Error::Rejected { .. })), "{answer:?}");
    }
    before.await.unwrap();
    assert_eq!(desk.store.progress(world.id(2)).await.unwrap(), Progress::Unknown);
    assert_eq!(desk.store.state(&address("x")).await.unwrap(), None);
}

pub async fn a_nul_in_an_error_does_not_keep_it_from_being_noted<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.accept(&world.message(1, "x")).await;
    desk.apply("x", vec![attempt(&world, 1, 1, "a\0b")]).await;
    assert_eq!(desk.open("x").await[0].error.as_deref(), Some("a\u{fffd}b"));
}

pub async fn open_messages_come_in_the_order_in_which_they_were_accepted<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    for (number, place) in [(1, 30), (2, 10), (3, 20)] {
        desk.accept(&Message { seq: world.id(place), ..world.message(number, "x") }).await;
    }
    assert_eq!(ids(&desk.open("x").await), [world.id(2), world.id(3), world.id(1)]);
}

pub async fn open_messages_come_in_pages<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    for number in 0..7 {
        desk.accept(&world.message(number, "x")).await;
    }
    let (mut after, mut pages) = (None, Vec::new());
    loop {
        let page = Page { until: far(), after, limit: 3 };
        let page = desk.store.open_messages(&[desk.shard("x")], page).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some((last.message.seq, last.message.envelope.id));
        pages.push(ids(&page));
    }
    let expected: Vec<_> = (0..7).map(|number| world.id(number)).collect();
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 1]);
    assert_eq!(pages.concat(), expected);
}

pub async fn a_message_is_open_in_the_shard_of_its_entity_only<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let mut expected = vec![Vec::new(); 8];
    for number in 0..40 {
        let entity = format!("entity-{number}");
        desk.accept(&world.message(number, &entity)).await;
        expected[usize::from(desk.shard(&entity).id)].push(world.id(number));
    }
    for (id, expected) in (0..).zip(expected) {
        let shard = ShardId::new(GroupName::default(), id);
        assert_eq!(
            ids(&desk.store.open_messages(std::slice::from_ref(&shard), everything()).await.unwrap()),
            expected
        );
    }
}

pub async fn a_message_is_not_shown_before_it_is_due<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.accept(&world.message(1, "x")).await;
    let mut later = world.message(2, "x");
    later.envelope.deliver_at = Some(world.at(10));
    desk.accept(&later).await;
    let seen = async |seconds| {
        let page = Page { until: world.at(seconds), ..everything() };
        ids(&desk.store.open_messages(&[desk.shard("x")], page).await.unwrap())
    };
    assert_eq!(seen(9).await, [world.id(1)]);
    assert_eq!(seen(10).await, [world.id(1), world.id(2)]);
}

pub async fn open_messages_of_an_unknown_group_cannot_be_read<D: Database>(world: World<D>) {
    let store = world.store("a").await;
    let shard = ShardId::new(unknown_group(), 0);
    assert_eq!(reason(store.open_messages(std::slice::from_ref(&shard), everything()).await), "NoSuchGroup");
    assert_eq!(reason(store.timers(std::slice::from_ref(&shard), far(), 1).await), "NoSuchGroup");
    assert_eq!(reason(store.dead_letters(&unknown_group(), None, 1).await), "NoSuchGroup");
}

pub async fn what_was_never_stored_is_unknown<D: Database>(world: World<D>) {
    let store = world.store("a").await;
    assert_eq!(store.progress(world.id(1)).await.unwrap(), Progress::Unknown);
    assert_eq!(store.keyed(&key_of("x", "k")).await.unwrap(), None);
    assert_eq!(store.state(&address("x")).await.unwrap(), None);
    assert!(store.chunks(world.id(1), None, 10).await.unwrap().is_empty());
    assert_eq!(store.watermark(world.id(1)).await.unwrap(), Default::default());
}

pub async fn an_accepted_message_is_open_by_id_and_by_key<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.accept(&world.keyed(1, "x", "k")).await;
    assert_eq!(desk.store.progress(world.id(1)).await.unwrap(), Progress::Open);
    assert_eq!(desk.store.keyed(&key_of("x", "k")).await.unwrap(), Some(world.id(1)));
    assert_eq!(desk.store.keyed(&key_of("y", "k")).await.unwrap(), None);
}

pub async fn a_failed_attempt_is_noted_and_the_message_waits<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.accept(&world.message(1, "x")).await;
    desk.apply("x", vec![attempt(&world, 1, 3, "out of paper")]).await;
    let stored = desk.open("x").await.pop().unwrap();
    assert_eq!((stored.attempt, stored.due), (3, Some(world.at(60))));
    assert_eq!(stored.error.as_deref(), Some("out of paper"));
    assert_eq!(stored.message.envelope.payload, world.message(1, "x").envelope.payload);
    let page = Page { until: world.at(59), ..everything() };
    assert!(desk.store.open_messages(&[desk.shard("x")], page).await.unwrap().is_empty());
}

pub async fn an_attempt_on_a_request_that_is_not_open_is_refused<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    assert_eq!(reason(desk.write("x", vec![attempt(&world, 1, 1, "no")]).await), "NotOpen");
    desk.accept(&world.message(1, "x")).await;
    desk.apply("x", vec![world.finish(1, "done")]).await;
    let answer = desk.write("x", vec![state("x", 0, "v"), attempt(&world, 1, 1, "no")]).await;
    assert!(matches!(answer, Err(Error::NotOpen { request }) if request == world.id(1)), "{answer:?}");
    assert_eq!(desk.store.state(&address("x")).await.unwrap(), None);
}

pub async fn a_sent_message_is_open_for_any_entity_of_any_group<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let far_away = (0..).map(|n| format!("y{n}")).find(|y| desk.shard(y) != desk.shard("x")).unwrap();
    let there = Message { group: other_group(), ..world.message(2, &far_away) };
    desk.apply("x", vec![Change::Send(world.message(1, &far_away)), Change::Send(there.clone())]).await;
    assert_eq!(ids(&desk.open(&far_away).await), [world.id(1)]);
    let shard = desk.shard_in(&other_group(), &far_away);
    let open = desk.store.open_messages(std::slice::from_ref(&shard), everything()).await.unwrap();
    assert_eq!(open.into_iter().map(|stored| stored.message).collect::<Vec<_>>(), [there]);
}

/// Only the sender's fence counts: it need not own the shard that it sends to.
pub async fn whoever_owns_one_shard_may_send_to_any_other<D: Database>(world: World<D>) {
    let a = world.owner("a").await;
    let away = (0..).map(|n| format!("y{n}")).find(|y| a.shard(y) != a.shard("x")).unwrap();
    let b = world.store("b").await;
    let mut fence = a.fence(&away);
    fence.epoch = fence.epoch.next();
    b.claim(&[fence]).await.unwrap().pop().unwrap().unwrap();
    a.apply("x", vec![Change::Send(world.message(1, &away))]).await;
    assert_eq!(ids(&b.open_messages(&[a.shard(&away)], everything()).await.unwrap()), [world.id(1)]);
}

pub async fn a_message_that_is_sent_again_is_left_as_it_is<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let mut again = world.message(1, "y");
    again.envelope.payload = Bytes::from_static(b"another");
    desk.apply("x", vec![Change::Send(world.message(1, "y"))]).await;
    desk.apply("x", vec![Change::Send(again.clone()), state("x", 0, "sent")]).await;
    assert_eq!(desk.open("y").await[0].message, world.message(1, "y"));
    desk.apply("y", vec![world.finish(1, "done")]).await;
    desk.apply("x", vec![Change::Send(again)]).await;
    assert_eq!(desk.store.progress(world.id(1)).await.unwrap(), Progress::Done(success("done")));
    assert!(desk.open("y").await.is_empty());
    assert_eq!(desk.store.state(&address("x")).await.unwrap().unwrap().version, 1);
}

pub async fn a_key_that_is_sent_again_is_left_as_it_is<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.apply("x", vec![Change::Send(world.keyed(1, "y", "k"))]).await;
    desk.apply("x", vec![Change::Send(world.keyed(2, "y", "k"))]).await;
    assert_eq!(ids(&desk.open("y").await), [world.id(1)]);
    assert_eq!(desk.store.progress(world.id(2)).await.unwrap(), Progress::Unknown);
}

pub async fn a_write_that_names_an_unknown_group_is_not_done<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let lost = Message { group: unknown_group(), ..world.message(1, "y") };
    let answer = desk.write("x", vec![state("x", 0, "v"), Change::Send(lost)]).await;
    assert_eq!(reason(answer), "NoSuchGroup");
    assert_eq!(desk.store.state(&address("x")).await.unwrap(), None);
}

pub async fn a_write_of_nothing_is_applied<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.apply("x", Vec::new()).await;
}
