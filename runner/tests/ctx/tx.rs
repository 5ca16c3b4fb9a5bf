//! What a handler does in its transaction.

use std::sync::atomic::Ordering;

use cleat_runner::entity::Options;

use crate::ledger::{Ledger, LedgerClient, Refused, bookings, prepare, run};
use crate::world::{Place, World, on_both_stores};

on_both_stores!(
    a_transaction_commits_with_reply_state_and_sends,
    a_handler_that_fails_has_written_nothing,
    a_handler_that_panics_is_run_again_and_counts_once,
    a_request_that_comes_twice_is_booked_once,
    transactions_of_an_entity_that_runs_ahead_keep_their_place,
    what_the_database_refuses_at_the_end_is_the_end_of_its_request_alone,
    a_volatile_method_has_no_transaction,
    an_interrupted_handler_has_written_nothing,
    what_was_booked_is_there_after_a_restart,
);

async fn open(place: Place) -> (World, Ledger, LedgerClient) {
    let world = World::new(place).await;
    prepare(&world).await;
    let ledger = Ledger::default();
    let client = ledger.clone().register(&world.host).unwrap();
    (world, ledger, client)
}

async fn a_transaction_commits_with_reply_state_and_sends(place: Place) {
    let (world, _, client) = open(place).await;
    assert_eq!(client.book("a", &3).await.unwrap(), 3);
    assert_eq!(client.book("a", &4).await.unwrap(), 7);
    assert_eq!(bookings(&*world.store).await, [3, 4]);
    assert_eq!(client.forward("a", &"b".to_owned()).await.unwrap(), 8);
    while client.get("b").await.unwrap() != 10 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    client.note("c", &9).await.unwrap();
    assert_eq!(bookings(&*world.store).await, [1, 3, 4, 9]);
}

async fn a_handler_that_fails_has_written_nothing(place: Place) {
    let (world, _, client) = open(place).await;
    client.book("a", &3).await.unwrap();
    let refused = client.book("a", &-5).await.unwrap_err().refused();
    assert_eq!(refused, Some(Refused::Overdrawn { by: 2 }));
    assert_eq!(client.get("a").await.unwrap(), 3);
    assert_eq!(bookings(&*world.store).await, [3]);
}

async fn a_handler_that_panics_is_run_again_and_counts_once(place: Place) {
    let (world, ledger, client) = open(place).await;
    assert_eq!(client.panic_once("a").await.unwrap(), 7);
    assert_eq!(ledger.runs.load(Ordering::Relaxed), 2);
    assert_eq!(bookings(&*world.store).await, [7]);
}

async fn a_request_that_comes_twice_is_booked_once(place: Place) {
    let (world, _, client) = open(place).await;
    for _ in 0..3 {
        assert_eq!(client.book("a", &3).key("one").await.unwrap(), 3);
        client.note("a", &5).key("two").await.unwrap();
    }
    assert_eq!(bookings(&*world.store).await, [3, 5]);
}

/// States that are committed by group commit and by transactions follow each other without a gap.
async fn transactions_of_an_entity_that_runs_ahead_keep_their_place(place: Place) {
    let (world, ledger, client) = open(place).await;
    let asked: Vec<_> = (0..60)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                match number % 3 {
                    0 => client.book("a", &1).await.unwrap(),
                    _ => client.add("a", &1).await.unwrap(),
                }
            })
        })
        .collect();
    let mut totals = Vec::new();
    for asked in asked {
        totals.push(asked.await.unwrap());
    }
    totals.sort_unstable();
    assert_eq!(totals, (1..=60).collect::<Vec<i64>>());
    assert_eq!(bookings(&*world.store).await, [1; 20]);
    assert_eq!(ledger.runs.load(Ordering::Relaxed), 20, "nothing had to be run again");
    assert_eq!(client.get("a").await.unwrap(), 60);
}

async fn what_the_database_refuses_at_the_end_is_the_end_of_its_request_alone(place: Place) {
    let (world, _, client) = open(place).await;
    client.book("a", &3).await.unwrap();
    let (refused, after) = tokio::join!(client.transfer("a", &99), client.book("a", &4));
    let error = refused.unwrap_err();
    assert_eq!(error.reason(), Some("Rejected"), "{error}");
    assert_eq!(after.unwrap(), 7);
    assert_eq!(bookings(&*world.store).await, [3, 4]);
    let mut transaction = world.store.begin().await.unwrap();
    run(&mut transaction, "INSERT INTO account (id) VALUES ($1)", 99).await.unwrap();
    let nothing = cleat_runner::store::Write { fence: world.fences[0].clone(), changes: vec![] };
    transaction.commit(nothing).await.unwrap();
    assert_eq!(client.transfer("a", &99).await.unwrap(), 8);
    assert_eq!(bookings(&*world.store).await, [3, 4, 99]);
}

async fn a_volatile_method_has_no_transaction(place: Place) {
    let (_world, _, client) = open(place).await;
    let error = client.peek("a").await.unwrap();
    assert!(error.starts_with("method peek of ledger is volatile"), "{error}");
}

async fn an_interrupted_handler_has_written_nothing(place: Place) {
    let (world, ledger, client) = open(place).await;
    let pending = client.hold("a", &3).start().await.unwrap();
    ledger.begun.acquire().await.unwrap().forget();
    assert!(pending.interrupt().await.unwrap());
    let error = pending.await.unwrap_err();
    assert_eq!(error.reason(), Some("Interrupted"), "{error}");
    assert_eq!(bookings(&*world.store).await, [0i64; 0]);
    assert_eq!(client.book("a", &1).await.unwrap(), 1);
}

async fn what_was_booked_is_there_after_a_restart(place: Place) {
    let (world, ledger, client) = open(place).await;
    for _ in 0..5 {
        client.book("a", &1).await.unwrap();
    }
    drop(client);
    let world = world.restart(Options::default()).await;
    let client = ledger.register(&world.host).unwrap();
    assert_eq!(client.book("a", &1).await.unwrap(), 6);
    assert_eq!(bookings(&*world.store).await, [1; 6]);
}
