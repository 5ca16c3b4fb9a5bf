//! States, running ahead, and who fails with whom.

use bytes::Bytes;

use super::world::*;
use crate::message::EntityAddress;
use crate::shard::GroupName;
use crate::store::{Attempt, Basis, Change, Committed, Error, Progress, State, StateChange};

async fn read(desk: &Desk, entity: &str) -> Option<(i64, String)> {
    let state = desk.store.state(&address(entity)).await.unwrap()?;
    Some((state.version, String::from_utf8(state.value.to_vec()).unwrap()))
}

pub async fn a_first_state_is_version_one<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.apply("x", vec![state("x", 0, "one")]).await;
    assert_eq!(read(&desk, "x").await, Some((1, "one".to_owned())));
}

pub async fn each_state_is_the_next_version<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    for base in 0..5 {
        desk.apply("x", vec![state("x", base, &base.to_string())]).await;
    }
    assert_eq!(read(&desk, "x").await, Some((5, "4".to_owned())));
}

pub async fn a_state_that_was_built_on_another_version_is_a_conflict<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let conflict = async |base| {
        let changes = vec![Change::Accept(world.message(1, "x")), state("x", base, "no")];
        let answer = desk.write("x", changes).await;
        assert!(
            matches!(&answer, Err(Error::Conflict { basis: Basis::State { address: of, version } }) if *of == address("x") && *version == base),
            "base {base}: {answer:?}"
        );
    };
    conflict(1).await;
    conflict(7).await;
    desk.apply("x", vec![state("x", 0, "one")]).await;
    conflict(0).await;
    conflict(2).await;
    desk.apply("x", vec![state("x", 1, "two")]).await;
    conflict(0).await;
    conflict(1).await;
    assert_eq!(read(&desk, "x").await, Some((2, "two".to_owned())));
    assert_eq!(desk.store.progress(world.id(1)).await.unwrap(), Progress::Unknown);
}

pub async fn entities_of_two_types_with_one_id_have_their_own_states<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let other = EntityAddress::new("cashier", "x").unwrap();
    desk.apply("x", vec![state("x", 0, "clerk")]).await;
    let value = Bytes::from_static(b"cashier");
    let change =
        StateChange { address: other.clone(), group: GroupName::default(), base: 0, value: value.clone() };
    desk.apply("x", vec![Change::State(change)]).await;
    assert_eq!(desk.store.state(&other).await.unwrap(), Some(State { version: 1, value }));
    assert_eq!(read(&desk, "x").await, Some((1, "clerk".to_owned())));
}

pub async fn a_state_may_be_empty_or_a_mebibyte<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let large = "0123456789abcdef".repeat(1 << 16);
    desk.apply("x", vec![state("x", 0, "")]).await;
    assert_eq!(read(&desk, "x").await, Some((1, String::new())));
    desk.apply("x", vec![state("x", 1, &large)]).await;
    assert_eq!(read(&desk, "x").await, Some((2, large)));
}

pub async fn everybody_of_many_who_read_at_once_gets_what_they_asked_for<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    for number in (0..300).step_by(2) {
        let entity = format!("entity-{number}");
        desk.apply(&entity, vec![state(&entity, 0, &number.to_string())]).await;
    }
    // More than fit into one statement, some twice, some that were never stored.
    let reads = (0..600).map(|number| {
        let desk = &desk;
        async move {
            let number = number % 300;
            let stored = (number % 2 == 0).then(|| (1, number.to_string()));
            assert_eq!(read(desk, &format!("entity-{number}")).await, stored);
        }
    });
    futures::future::join_all(reads).await;
}

pub async fn an_entity_may_run_ahead_of_its_commits<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let first = desk.submit("x", vec![state("x", 0, "one")]).await;
    let second = desk.submit("x", vec![state("x", 1, "two")]).await;
    assert_eq!(first.await.unwrap(), Committed::Applied);
    assert_eq!(second.await.unwrap(), Committed::Applied);
    assert_eq!(read(&desk, "x").await, Some((2, "two".to_owned())));
}

pub async fn an_entity_may_run_far_ahead_with_requests_of_its_own<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let mut receipts = Vec::new();
    for base in 0..100 {
        let request = finish_new(&world.message(base, "x"), "ok");
        receipts.push(desk.submit("x", vec![request, state("x", base, &base.to_string())]).await);
    }
    for receipt in receipts {
        assert_eq!(receipt.await.unwrap(), Committed::Applied);
    }
    assert_eq!(read(&desk, "x").await, Some((100, "99".to_owned())));
    for number in 0..100 {
        assert_eq!(desk.store.progress(world.id(number)).await.unwrap(), Progress::Done(success("ok")));
    }
}

pub async fn a_failed_write_fails_those_built_on_it_and_nobody_else<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.apply("x", vec![state("x", 0, "one")]).await;
    let neighbour = desk.submit("y", vec![state("y", 0, "mine")]).await;
    let first = desk.submit("x", vec![state("x", 1, "two")]).await;
    let broken = desk.submit("x", vec![state("x", 2, "three"), world.finish(99, "no")]).await;
    let built_on_it = desk.submit("x", vec![state("x", 3, "four")]).await;
    let built_on_that = desk.submit("x", vec![state("x", 4, "five")]).await;
    let message = desk.submit("x", vec![Change::Accept(world.message(1, "x"))]).await;
    let later = desk.submit("y", vec![state("y", 1, "still mine")]).await;
    assert_eq!(first.await.unwrap(), Committed::Applied);
    assert_eq!(reason(broken.await), "NotOpen");
    assert_eq!(reason(built_on_it.await), "Conflict");
    assert_eq!(reason(built_on_that.await), "Conflict");
    for unharmed in [neighbour, message, later] {
        assert_eq!(unharmed.await.unwrap(), Committed::Applied);
    }
    assert_eq!(read(&desk, "x").await, Some((2, "two".to_owned())));
    assert_eq!(read(&desk, "y").await, Some((2, "still mine".to_owned())));
    desk.apply("x", vec![state("x", 2, "three again")]).await;
}

pub async fn a_duplicate_fails_the_states_that_were_built_on_it<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.apply("x", vec![finish_new(&world.message(1, "x"), "first"), state("x", 0, "one")]).await;
    let again =
        desk.submit("x", vec![finish_new(&world.message(1, "x"), "again"), state("x", 1, "no")]).await;
    let ahead = desk.submit("x", vec![finish_new(&world.message(2, "x"), "two"), state("x", 2, "no")]).await;
    assert_eq!(again.await.unwrap(), duplicate(world.id(1), Some(success("first"))));
    assert_eq!(reason(ahead.await), "Conflict");
    assert_eq!(read(&desk, "x").await, Some((1, "one".to_owned())));
    assert_eq!(desk.store.progress(world.id(2)).await.unwrap(), Progress::Unknown);
}

pub async fn one_of_many_writes_that_fails_takes_nobody_with_it<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.accept(&world.message(1000, "taken")).await;
    let mut receipts = Vec::new();
    for number in 0..60 {
        let entity = format!("entity-{number}");
        let changes = match number % 5 {
            0 => vec![state(&entity, 3, "conflict")],
            1 => vec![world.finish(2000 + number, "not open")],
            2 => vec![state(&entity, 0, "v"), Change::Accept(world.message(1000, "taken"))],
            _ => vec![state(&entity, 0, "v"), Change::Accept(world.message(number, &entity))],
        };
        receipts.push((number, entity.clone(), desk.submit(&entity, changes).await));
    }
    for (number, entity, receipt) in receipts {
        let answer = receipt.await;
        match number % 5 {
            0 => assert_eq!(reason(answer), "Conflict"),
            1 => assert_eq!(reason(answer), "NotOpen"),
            2 => assert_eq!(answer.unwrap(), duplicate(world.id(1000), None)),
            _ => assert_eq!(answer.unwrap(), Committed::Applied),
        }
        assert_eq!(read(&desk, &entity).await.is_some(), number % 5 > 2, "{entity}");
    }
}

pub async fn writes_of_one_shard_commit_in_the_order_in_which_they_were_submitted<D: Database>(
    world: World<D>,
) {
    let desk = world.owner("a").await;
    let failed = |number| {
        let (request, due) = (world.id(number), world.now);
        Change::Attempt(Attempt { request, attempt: 1, due, error: "again".to_owned() })
    };
    let mut receipts = Vec::new();
    for number in 0..30 {
        for change in [
            Change::Accept(world.message(number, "x")),
            failed(number),
            world.finish(number, "ok"),
            failed(number),
        ] {
            receipts.push(desk.submit("x", vec![change]).await);
        }
    }
    let answers = futures::future::join_all(receipts).await;
    for life in answers.chunks(4) {
        assert!(life[..3].iter().all(|answer| matches!(answer, Ok(Committed::Applied))), "{life:?}");
        assert!(matches!(life[3], Err(Error::NotOpen { .. })), "{life:?}");
    }
}

pub async fn many_writers_each_get_their_own_commit<D: Database>(world: World<D>) {
    let desk = std::sync::Arc::new(world.owner("a").await);
    let writers = (0..32).map(|writer| {
        let desk = std::sync::Arc::clone(&desk);
        tokio::spawn(async move {
            let entity = format!("entity-{writer}");
            for base in 0..20 {
                desk.apply(&entity, vec![state(&entity, base, &base.to_string())]).await;
                assert_eq!(read(&desk, &entity).await, Some((base + 1, base.to_string())));
            }
        })
    });
    for writer in futures::future::join_all(writers).await {
        writer.unwrap();
    }
}
