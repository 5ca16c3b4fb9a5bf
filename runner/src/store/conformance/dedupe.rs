//! Requests that come twice, and how requests end.

use super::world::*;
use crate::message::Outcome;
use crate::shard::Slot;
use crate::store::{Change, Committed, Error, Finish, Progress, Request};

pub async fn an_id_that_is_open_is_a_duplicate_without_a_reply<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.accept(&world.message(1, "x")).await;
    let answer = desk.write("x", vec![Change::Accept(world.message(1, "x"))]).await.unwrap();
    assert_eq!(answer, duplicate(world.id(1), None));
    assert_eq!(desk.open("x").await.len(), 1);
}

pub async fn an_id_of_another_request_is_rejected_and_never_gets_its_reply<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.accept(&world.message(1, "x")).await;
    let other = world.message(1, "y");
    for ended in [false, true] {
        if ended {
            desk.apply("x", vec![world.finish(1, "42")]).await;
        }
        for change in [Change::Accept(other.clone()), finish_new(&other, "no")] {
            let answer = desk.write("y", vec![change]).await;
            assert!(
                matches!(answer, Err(Error::IdReused { request }) if request == world.id(1)),
                "ended {ended}: {answer:?}"
            );
        }
    }
    assert_eq!(desk.store.progress(world.id(1)).await.unwrap(), Progress::Done(success("42")));
}

pub async fn an_id_that_has_ended_is_a_duplicate_with_its_reply<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.accept(&world.message(1, "x")).await;
    desk.apply("x", vec![world.finish(1, "42")]).await;
    let answer = desk.write("x", vec![Change::Accept(world.message(1, "x"))]).await.unwrap();
    assert_eq!(answer, duplicate(world.id(1), Some(success("42"))));
    assert!(desk.open("x").await.is_empty());
}

pub async fn a_key_that_is_open_is_a_duplicate_of_its_first_request<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.accept(&world.keyed(1, "x", "k")).await;
    let answer = desk.write("x", vec![Change::Accept(world.keyed(2, "x", "k"))]).await.unwrap();
    assert_eq!(answer, duplicate(world.id(1), None));
    assert_eq!(desk.store.progress(world.id(2)).await.unwrap(), Progress::Unknown);
}

pub async fn a_key_that_has_ended_is_a_duplicate_with_the_first_reply<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.accept(&world.keyed(1, "x", "k")).await;
    desk.apply("x", vec![world.finish(1, "42")]).await;
    let answer = desk.write("x", vec![Change::Accept(world.keyed(2, "x", "k"))]).await.unwrap();
    assert_eq!(answer, duplicate(world.id(1), Some(success("42"))));
    assert_eq!(desk.store.keyed(&key_of("x", "k")).await.unwrap(), Some(world.id(1)));
}

pub async fn a_key_with_another_payload_is_refused<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.accept(&world.keyed_payload(1, "x", "k", "one")).await;
    let other = world.keyed_payload(2, "x", "k", "two");
    for ended in [false, true] {
        if ended {
            desk.apply("x", vec![world.finish(1, "42")]).await;
        }
        for change in [Change::Accept(other.clone()), finish_new(&other, "no")] {
            let answer = desk.write("x", vec![state("x", 0, "v"), change]).await;
            assert!(
                matches!(answer, Err(Error::KeyReused { earlier }) if earlier == world.id(1)),
                "{answer:?}"
            );
        }
    }
    assert_eq!(desk.store.progress(world.id(2)).await.unwrap(), Progress::Unknown);
    assert_eq!(desk.store.state(&address("x")).await.unwrap(), None);
}

pub async fn keys_of_different_entities_are_different<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.accept(&world.keyed(1, "x", "k")).await;
    desk.accept(&world.keyed(2, "y", "k")).await;
    assert_eq!(desk.store.keyed(&key_of("y", "k")).await.unwrap(), Some(world.id(2)));
}

pub async fn nothing_of_a_duplicate_is_done<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.accept(&world.keyed(1, "x", "k")).await;
    for request in [Change::Accept(world.keyed(2, "x", "k")), finish_new(&world.keyed(2, "x", "k"), "no")] {
        let changes = vec![
            state("x", 0, "v"),
            Change::Send(world.message(3, "y")),
            request,
            Change::SetTimer(timer("x", "t", world.now)),
            Change::Chunk { request: world.id(1), slot: Slot::of("x"), chunk: chunk(0, &["part"]) },
        ];
        assert_eq!(desk.write("x", changes).await.unwrap(), duplicate(world.id(1), None));
    }
    assert_eq!(desk.store.state(&address("x")).await.unwrap(), None);
    assert_eq!(desk.store.progress(world.id(3)).await.unwrap(), Progress::Unknown);
    assert!(desk.store.timers(&[desk.shard("x")], far(), 10).await.unwrap().is_empty());
    assert!(desk.store.chunks(world.id(1), None, 10).await.unwrap().is_empty());
}

pub async fn a_stored_request_ends_with_its_reply<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.accept(&world.message(1, "x")).await;
    desk.accept(&world.message(2, "x")).await;
    desk.apply("x", vec![world.finish(1, "42")]).await;
    assert_eq!(desk.store.progress(world.id(1)).await.unwrap(), Progress::Done(success("42")));
    assert_eq!(ids(&desk.open("x").await), [world.id(2)]);
}

pub async fn a_request_ends_once<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.accept(&world.message(1, "x")).await;
    desk.apply("x", vec![world.finish(1, "first")]).await;
    let answer = desk.write("x", vec![state("x", 0, "v"), world.finish(1, "second")]).await.unwrap();
    assert_eq!(answer, duplicate(world.id(1), Some(success("first"))));
    assert_eq!(desk.store.progress(world.id(1)).await.unwrap(), Progress::Done(success("first")));
    assert_eq!(desk.store.state(&address("x")).await.unwrap(), None);
}

pub async fn a_request_that_was_never_stored_cannot_end<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let answer = desk.write("x", vec![world.finish(1, "42")]).await;
    assert!(matches!(answer, Err(Error::NotOpen { request }) if request == world.id(1)), "{answer:?}");
}

pub async fn every_kind_of_end_comes_back_as_it_was<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let ends = [
        success(""),
        Outcome::failure("OutOfStock", "no apples\0left: größe"),
        Outcome::defect("Panicked", ""),
    ];
    for (number, outcome) in (1..).zip(ends) {
        desk.accept(&world.message(number, "x")).await;
        let request = Request::Stored(world.id(number));
        desk.apply("x", vec![Change::Finish(Finish { outcome: outcome.clone(), request })]).await;
        assert_eq!(desk.store.progress(world.id(number)).await.unwrap(), Progress::Done(outcome));
    }
}

pub async fn a_new_request_can_end_in_the_write_that_stores_it<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let request = world.keyed(1, "x", "k");
    let send = Change::Send(world.message(2, "y"));
    desk.apply("x", vec![finish_new(&request, "42"), state("x", 0, "v"), send]).await;
    assert_eq!(desk.store.progress(world.id(1)).await.unwrap(), Progress::Done(success("42")));
    assert_eq!(desk.store.keyed(&key_of("x", "k")).await.unwrap(), Some(world.id(1)));
    assert!(!ids(&desk.open("x").await).contains(&world.id(1)));
    assert_eq!(ids(&desk.open("y").await), [world.id(2)]);
    assert_eq!(desk.store.state(&address("x")).await.unwrap().unwrap().version, 1);
}

pub async fn a_new_request_that_has_ended_before_is_a_duplicate_by_id<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.apply("x", vec![finish_new(&world.message(1, "x"), "first")]).await;
    let again = desk.write("x", vec![finish_new(&world.message(1, "x"), "second")]).await.unwrap();
    assert_eq!(again, duplicate(world.id(1), Some(success("first"))));
    let accepted = desk.write("x", vec![Change::Accept(world.message(1, "x"))]).await.unwrap();
    assert_eq!(accepted, duplicate(world.id(1), Some(success("first"))));
}

pub async fn a_new_request_that_has_ended_before_is_a_duplicate_by_key<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.apply("x", vec![finish_new(&world.keyed(1, "x", "k"), "first")]).await;
    for change in [finish_new(&world.keyed(2, "x", "k"), "second"), Change::Accept(world.keyed(2, "x", "k"))]
    {
        let again = desk.write("x", vec![change]).await.unwrap();
        assert_eq!(again, duplicate(world.id(1), Some(success("first"))));
    }
}

pub async fn a_new_request_that_is_open_is_a_duplicate_without_a_reply<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.accept(&world.message(1, "x")).await;
    let answer = desk.write("x", vec![finish_new(&world.message(1, "x"), "no")]).await.unwrap();
    assert_eq!(answer, duplicate(world.id(1), None));
    assert_eq!(desk.store.progress(world.id(1)).await.unwrap(), Progress::Open);
}

pub async fn of_many_requests_with_one_key_exactly_one_is_stored<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let mut receipts = Vec::new();
    for number in 1..=20 {
        let message = world.keyed(number, "x", "k");
        let change = if number % 2 == 0 { Change::Accept(message) } else { finish_new(&message, "42") };
        receipts.push(desk.submit("x", vec![change]).await);
    }
    let mut answers = Vec::new();
    for receipt in receipts {
        answers.push(receipt.await.unwrap());
    }
    // Order within a shard: the first one is the one.
    assert_eq!(answers.remove(0), Committed::Applied);
    assert!(
        answers.iter().all(|answer| *answer == duplicate(world.id(1), Some(success("42")))),
        "{answers:?}"
    );
}

pub async fn one_request_that_is_submitted_many_times_is_stored_once<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let mut receipts = Vec::new();
    for _ in 0..20 {
        receipts.push(desk.submit("x", vec![Change::Accept(world.message(1, "x"))]).await);
    }
    let answers = futures::future::join_all(receipts).await;
    let applied = answers.iter().filter(|answer| matches!(answer, Ok(Committed::Applied))).count();
    let doubles = answers.iter().filter(|answer| matches!(answer, Ok(Committed::Duplicate { .. }))).count();
    assert_eq!((applied, doubles), (1, 19));
    assert_eq!(desk.open("x").await.len(), 1);
}
