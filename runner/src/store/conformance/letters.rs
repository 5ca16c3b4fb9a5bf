//! Dead letters, and what retention forgets.

use std::time::{Duration, SystemTime};

use super::world::*;
use crate::message::{Outcome, Snowflake};
use crate::shard::{GroupName, Slot};
use crate::store::{Attempt, Change, DeadLetter, Finish, Message, Progress, Request, Retention, Watermark};

fn given_up() -> Outcome {
    Outcome::defect("GaveUp", "it failed too often")
}

fn bury(request: Snowflake) -> Change {
    Change::Bury { request, outcome: given_up(), error: "out of paper".to_owned() }
}

async fn dead(desk: &Desk) -> Vec<DeadLetter> {
    desk.store.dead_letters(&GroupName::default(), None, 100).await.unwrap()
}

/// A store with one dead letter, which was attempted three times.
async fn one_letter<D: Database>(world: &World<D>, message: &Message) -> Desk {
    let desk = world.owner("a").await;
    desk.accept(message).await;
    let attempt =
        Attempt { request: message.envelope.id, attempt: 3, due: world.now, error: "jam".to_owned() };
    desk.apply("x", vec![Change::Attempt(attempt)]).await;
    desk.apply("x", vec![bury(message.envelope.id)]).await;
    desk
}

pub async fn a_buried_request_is_a_dead_letter_and_its_reply_a_defect<D: Database>(world: World<D>) {
    let message = world.keyed(1, "x", "k");
    let desk = one_letter(&world, &message).await;
    assert!(desk.open("x").await.is_empty());
    assert_eq!(desk.store.progress(world.id(1)).await.unwrap(), Progress::Done(given_up()));
    let letter = dead(&desk).await.pop().unwrap();
    assert_eq!(letter.message, message);
    assert_eq!((letter.attempt, letter.error.as_str()), (3, "out of paper"));
    let age = SystemTime::now().duration_since(letter.died).unwrap_or_default();
    assert!(age < Duration::from_secs(600), "died {age:?} ago");
    let again = desk.write("x", vec![Change::Accept(world.keyed(2, "x", "k"))]).await.unwrap();
    assert_eq!(again, duplicate(world.id(1), Some(given_up())));
}

pub async fn a_request_that_is_not_open_cannot_be_buried<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    assert_eq!(reason(desk.write("x", vec![state("x", 0, "v"), bury(world.id(1))]).await), "NotOpen");
    assert_eq!(desk.store.state(&address("x")).await.unwrap(), None);
    assert!(dead(&desk).await.is_empty());
}

pub async fn dead_letters_come_newest_first_and_in_pages<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    for number in [3, 1, 5, 2, 4] {
        let entity = format!("entity-{number}");
        desk.accept(&world.message(number, &entity)).await;
        desk.apply(&entity, vec![bury(world.id(number))]).await;
    }
    let page = async |before: Option<i64>, limit| {
        let before = before.map(|number| world.id(number));
        let letters = desk.store.dead_letters(&GroupName::default(), before, limit).await.unwrap();
        letters.iter().map(|letter| letter.message.envelope.id).collect::<Vec<_>>()
    };
    assert_eq!(page(None, 2).await, [world.id(5), world.id(4)]);
    assert_eq!(page(Some(4), 2).await, [world.id(3), world.id(2)]);
    assert_eq!(page(Some(2), 2).await, [world.id(1)]);
    assert!(page(Some(1), 2).await.is_empty());
}

pub async fn dead_letters_are_listed_by_group<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let message = Message { group: other_group(), ..world.message(1, "x") };
    let fence = desk.fence_of(desk.shard_in(&other_group(), "x"));
    for change in [Change::Accept(message), bury(world.id(1))] {
        desk.store.commit(crate::store::Write::one(fence.clone(), change)).await.unwrap();
    }
    assert!(dead(&desk).await.is_empty());
    assert_eq!(desk.store.dead_letters(&other_group(), None, 9).await.unwrap().len(), 1);
}

pub async fn a_replayed_letter_is_open_again_with_all_attempts_before_it<D: Database>(world: World<D>) {
    let message = world.keyed(1, "x", "k");
    let desk = one_letter(&world, &message).await;
    desk.accept(&world.message(2, "x")).await;
    desk.apply("x", vec![Change::Replay { request: world.id(1), seq: world.id(3) }]).await;
    assert!(dead(&desk).await.is_empty());
    assert_eq!(desk.store.progress(world.id(1)).await.unwrap(), Progress::Open);
    let open = desk.open("x").await;
    assert_eq!(ids(&open), [world.id(2), world.id(1)]);
    assert_eq!((open[1].attempt, open[1].due, open[1].error.clone()), (0, None, None));
    assert_eq!(open[1].message, Message { seq: world.id(3), ..message });
    let again = desk.write("x", vec![Change::Accept(world.keyed(4, "x", "k"))]).await.unwrap();
    assert_eq!(again, duplicate(world.id(1), None));
    desk.apply("x", vec![world.finish(1, "at last")]).await;
    assert_eq!(desk.store.progress(world.id(1)).await.unwrap(), Progress::Done(success("at last")));
}

pub async fn a_replayed_letter_can_die_again<D: Database>(world: World<D>) {
    let desk = one_letter(&world, &world.message(1, "x")).await;
    desk.apply("x", vec![Change::Replay { request: world.id(1), seq: world.id(2) }]).await;
    desk.apply("x", vec![bury(world.id(1))]).await;
    assert_eq!(dead(&desk).await[0].attempt, 0);
}

pub async fn only_a_dead_letter_can_be_replayed_or_dropped<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.accept(&world.message(1, "x")).await;
    for number in [1, 2] {
        let request = world.id(number);
        let replay = Change::Replay { request, seq: world.id(9) };
        assert_eq!(reason(desk.write("x", vec![state("x", 0, "v"), replay]).await), "NotOpen");
        let forget = Change::Drop { request };
        assert_eq!(reason(desk.write("x", vec![state("x", 0, "v"), forget]).await), "NotOpen");
    }
    assert_eq!(desk.store.progress(world.id(1)).await.unwrap(), Progress::Open);
    assert_eq!(desk.store.state(&address("x")).await.unwrap(), None);
}

pub async fn a_dropped_letter_is_gone_and_its_reply_is_kept<D: Database>(world: World<D>) {
    let desk = one_letter(&world, &world.message(1, "x")).await;
    desk.apply("x", vec![Change::Drop { request: world.id(1) }]).await;
    assert!(dead(&desk).await.is_empty());
    assert_eq!(desk.store.progress(world.id(1)).await.unwrap(), Progress::Done(given_up()));
    let replay = Change::Replay { request: world.id(1), seq: world.id(2) };
    assert_eq!(reason(desk.write("x", vec![replay]).await), "NotOpen");
}

const HOUR: Duration = Duration::from_secs(3600);

/// Each class with a retention of its own: one hour, two, three.
const STAIRS: Retention =
    Retention { completed: HOUR, failed: HOUR.saturating_mul(2), dead_letters: HOUR.saturating_mul(3) };

/// A success, a failure, a defect and a dead letter, all of them of now.
async fn four_ends<D: Database>(world: &World<D>) -> Desk {
    let desk = world.owner("a").await;
    let ends = [success("ok"), Outcome::failure("No", "no"), Outcome::defect("Bug", "bug")];
    for (number, outcome) in (1..).zip(ends) {
        desk.accept(&world.message(number, "x")).await;
        let request = Request::Stored(world.id(number));
        desk.apply("x", vec![Change::Finish(Finish { outcome, request })]).await;
    }
    desk.accept(&world.message(4, "x")).await;
    desk.apply("x", vec![bury(world.id(4))]).await;
    desk
}

async fn known<D: Database>(world: &World<D>, desk: &Desk) -> Vec<i64> {
    let mut known = Vec::new();
    for number in 1..=4 {
        if desk.store.progress(world.id(number)).await.unwrap() != Progress::Unknown {
            known.push(number);
        }
    }
    known
}

pub async fn what_is_young_enough_is_kept<D: Database>(world: World<D>) {
    let desk = four_ends(&world).await;
    assert_eq!(retain_after(&desk.store, &STAIRS, 3000).await.unwrap(), 0);
    assert_eq!(known(&world, &desk).await, [1, 2, 3, 4]);
    assert_eq!(dead(&desk).await.len(), 1);
}

pub async fn each_class_is_kept_for_its_own_time<D: Database>(world: World<D>) {
    let desk = four_ends(&world).await;
    assert!(retain_after(&desk.store, &STAIRS, 5000).await.unwrap() > 0);
    assert_eq!(known(&world, &desk).await, [2, 3, 4]);
    assert!(retain_after(&desk.store, &STAIRS, 9000).await.unwrap() > 0);
    assert!(known(&world, &desk).await.is_empty());
    assert_eq!(dead(&desk).await.len(), 1);
    assert!(retain_after(&desk.store, &STAIRS, 13_000).await.unwrap() > 0);
    assert!(dead(&desk).await.is_empty());
    assert_eq!(retain_after(&desk.store, &STAIRS, 13_000).await.unwrap(), 0);
}

pub async fn what_is_not_finished_is_never_forgotten<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let ring = timer("x", "t", world.at(1));
    desk.accept(&world.keyed(1, "x", "k")).await;
    let part = Change::Chunk { request: world.id(1), slot: Slot::of("x"), chunk: chunk(0, &["part"]) };
    desk.apply("x", vec![state("x", 0, "v"), Change::SetTimer(ring.clone()), part]).await;
    assert_eq!(retain_after(&desk.store, &STAIRS, 1_000_000_000).await.unwrap(), 0);
    assert_eq!(desk.store.progress(world.id(1)).await.unwrap(), Progress::Open);
    assert_eq!(desk.store.keyed(&key_of("x", "k")).await.unwrap(), Some(world.id(1)));
    assert_eq!(desk.store.chunks(world.id(1), None, 9).await.unwrap().len(), 1);
    assert_eq!(desk.store.state(&address("x")).await.unwrap().unwrap().version, 1);
    assert_eq!(desk.store.timers(&[desk.shard("x")], far(), 9).await.unwrap(), [ring]);
}

pub async fn keys_and_chunks_are_forgotten_with_their_request<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.accept(&world.keyed_payload(1, "x", "k", "one")).await;
    for sequence in 0..3 {
        let part =
            Change::Chunk { request: world.id(1), slot: Slot::of("x"), chunk: chunk(sequence, &["part"]) };
        desk.apply("x", vec![part]).await;
    }
    desk.apply("x", vec![Change::Ack { request: world.id(1), sequence: crate::message::Sequence(0) }]).await;
    desk.apply("x", vec![world.finish(1, "ok")]).await;
    assert!(retain_after(&desk.store, &STAIRS, 5000).await.unwrap() > 0);
    assert_eq!(desk.store.keyed(&key_of("x", "k")).await.unwrap(), None);
    assert!(desk.store.chunks(world.id(1), None, 9).await.unwrap().is_empty());
    assert_eq!(desk.store.watermark(world.id(1)).await.unwrap(), Watermark::default());
    desk.accept(&world.keyed_payload(2, "x", "k", "two")).await;
}

/// The reply of a dead letter may be forgotten before the letter is.
pub async fn a_letter_can_be_replayed_after_its_reply_was_forgotten<D: Database>(world: World<D>) {
    let desk = one_letter(&world, &world.keyed(1, "x", "k")).await;
    assert!(retain_after(&desk.store, &STAIRS, 9000).await.unwrap() > 0);
    desk.apply("x", vec![Change::Replay { request: world.id(1), seq: world.id(2) }]).await;
    assert_eq!(desk.store.progress(world.id(1)).await.unwrap(), Progress::Open);
    desk.apply("x", vec![world.finish(1, "at last")]).await;
    assert_eq!(desk.store.progress(world.id(1)).await.unwrap(), Progress::Done(success("at last")));
}

pub async fn much_that_is_old_is_forgotten_in_one_call<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let mut receipts = Vec::new();
    for number in 0..1200 {
        receipts.push(desk.submit("x", vec![finish_new(&world.message(number, "x"), "ok")]).await);
    }
    for receipt in receipts {
        receipt.await.unwrap();
    }
    assert!(retain_after(&desk.store, &STAIRS, 5000).await.unwrap() > 0);
    for number in [0, 499, 500, 1000, 1199] {
        assert_eq!(desk.store.progress(world.id(number)).await.unwrap(), Progress::Unknown);
    }
}
