//! Users' statements that commit with a write.

use super::world::*;
use crate::store::{Change, Committed, Error, Progress, Transaction, Write};

/// Runs a statement that both databases understand.
async fn run(transaction: &mut Transaction, statement: &'static str) -> Result<(), sqlx::Error> {
    if transaction.is_postgres() {
        sqlx::query(statement).execute(transaction.postgres()?).await?;
    } else {
        sqlx::query(statement).execute(transaction.sqlite()?).await?;
    }
    Ok(())
}

const TABLE: &str = "CREATE TABLE ledger (entry integer PRIMARY KEY)";

/// Makes the users' own table.
async fn prepare(desk: &Desk) {
    let mut transaction = desk.store.begin().await.unwrap();
    run(&mut transaction, TABLE).await.unwrap();
    let nothing = Write { fence: desk.fence("x"), changes: vec![] };
    assert_eq!(transaction.commit(nothing).await.unwrap(), Committed::Applied);
}

/// What is in the users' own table.
async fn entries(desk: &Desk) -> i64 {
    let mut transaction = desk.store.begin().await.unwrap();
    let count = "SELECT count(*) FROM ledger";
    let entries = if transaction.is_postgres() {
        sqlx::query_scalar(count).fetch_one(transaction.postgres().unwrap()).await.unwrap()
    } else {
        sqlx::query_scalar(count).fetch_one(transaction.sqlite().unwrap()).await.unwrap()
    };
    transaction.rollback().await;
    entries
}

/// A transaction that has written something.
async fn begun(desk: &Desk) -> Transaction {
    let mut transaction = desk.store.begin().await.unwrap();
    run(&mut transaction, "INSERT INTO ledger (entry) VALUES (1)").await.unwrap();
    transaction
}

async fn commit(desk: &Desk, transaction: Transaction, changes: Vec<Change>) -> Result<Committed, Error> {
    transaction.commit(Write { fence: desk.fence("x"), changes }).await
}

pub async fn statements_and_write_commit_together<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    prepare(&desk).await;
    desk.accept(&world.message(1, "x")).await;
    let transaction = begun(&desk).await;
    let changes =
        vec![world.finish(1, "done"), state("x", 0, "one"), Change::Send(world.message(2, "elsewhere"))];
    assert_eq!(commit(&desk, transaction, changes).await.unwrap(), Committed::Applied);
    assert_eq!(entries(&desk).await, 1);
    assert_eq!(desk.store.progress(world.id(1)).await.unwrap(), Progress::Done(success("done")));
    assert_eq!(desk.store.state(&address("x")).await.unwrap().unwrap().version, 1);
    assert_eq!(ids(&desk.open("elsewhere").await), [world.id(2)]);
}

pub async fn a_transaction_that_is_dropped_has_done_nothing<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    prepare(&desk).await;
    drop(begun(&desk).await);
    assert_eq!(entries(&desk).await, 0);
    begun(&desk).await.rollback().await;
    assert_eq!(entries(&desk).await, 0);
    // And is in nobody's way.
    desk.apply("x", vec![state("x", 0, "one")]).await;
    let transaction = begun(&desk).await;
    assert_eq!(commit(&desk, transaction, vec![]).await.unwrap(), Committed::Applied);
    assert_eq!(entries(&desk).await, 1);
}

pub async fn a_transaction_whose_fence_has_fallen_is_taken_back<D: Database>(world: World<D>) {
    let desk = world.owner("old").await;
    prepare(&desk).await;
    let new = world.owner("new").await;
    let transaction = begun(&desk).await;
    let answer = commit(&desk, transaction, vec![state("x", 0, "one")]).await;
    assert!(matches!(answer, Err(Error::Fenced { shard }) if shard == desk.shard("x")));
    assert_eq!(entries(&new).await, 0);
    assert_eq!(new.store.state(&address("x")).await.unwrap(), None);
}

pub async fn the_statements_of_a_duplicate_are_taken_back<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    prepare(&desk).await;
    desk.accept(&world.message(1, "x")).await;
    desk.apply("x", vec![finish_new(&world.message(2, "x"), "first")]).await;
    let transaction = begun(&desk).await;
    let accepted = commit(&desk, transaction, vec![Change::Accept(world.message(1, "x"))]).await.unwrap();
    assert_eq!(accepted, duplicate(world.id(1), None));
    let transaction = begun(&desk).await;
    let again = vec![finish_new(&world.message(2, "x"), "again"), state("x", 0, "no")];
    let ended = commit(&desk, transaction, again).await.unwrap();
    assert_eq!(ended, duplicate(world.id(2), Some(success("first"))));
    assert_eq!(entries(&desk).await, 0);
    assert_eq!(desk.store.state(&address("x")).await.unwrap(), None);
}

pub async fn what_the_write_was_not_built_on_takes_the_statements_back<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    prepare(&desk).await;
    desk.apply("x", vec![state("x", 0, "one")]).await;
    for (changes, expected) in [
        (vec![state("x", 0, "stale")], "Conflict"),
        (vec![state("x", 1, "two"), world.finish(9, "never stored")], "NotOpen"),
        (vec![Change::ClearTimer { address: address("x"), name: "a\0b".to_owned() }], "Rejected"),
    ] {
        let transaction = begun(&desk).await;
        assert_eq!(reason(commit(&desk, transaction, changes).await), expected);
        assert_eq!(entries(&desk).await, 0);
    }
    assert_eq!(desk.store.state(&address("x")).await.unwrap().unwrap().version, 1);
}

pub async fn a_transaction_that_its_user_ended_is_not_committed<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    prepare(&desk).await;
    for (end, left) in [("ROLLBACK", 0), ("COMMIT", 1)] {
        let mut transaction = begun(&desk).await;
        run(&mut transaction, end).await.unwrap();
        let error = commit(&desk, transaction, vec![state("x", 0, "no")]).await.unwrap_err();
        assert_eq!(error.reason(), "Rejected");
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("leave COMMIT and ROLLBACK to the runtime"), "{source}");
        assert_eq!(desk.store.state(&address("x")).await.unwrap(), None);
        assert_eq!(entries(&desk).await, left);
    }
}

pub async fn a_savepoint_that_is_taken_back_leaves_the_rest<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    prepare(&desk).await;
    let mut transaction = begun(&desk).await;
    let insert = "INSERT INTO ledger (entry) VALUES (2)";
    if transaction.is_postgres() {
        let mut nested = sqlx::Connection::begin(transaction.postgres().unwrap()).await.unwrap();
        sqlx::query(insert).execute(&mut *nested).await.unwrap();
    } else {
        let mut nested = sqlx::Connection::begin(transaction.sqlite().unwrap()).await.unwrap();
        sqlx::query(insert).execute(&mut *nested).await.unwrap();
    }
    assert_eq!(commit(&desk, transaction, vec![state("x", 0, "one")]).await.unwrap(), Committed::Applied);
    assert_eq!(entries(&desk).await, 1);
}

pub async fn a_statement_for_another_database_is_refused_by_name<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let mut transaction = desk.store.begin().await.unwrap();
    let error = if transaction.is_postgres() {
        transaction.sqlite().err().unwrap()
    } else {
        transaction.postgres().err().unwrap()
    };
    let text = error.to_string();
    assert!(text.contains("PostgreSQL") && text.contains("SQLite"), "{text}");
    transaction.rollback().await;
}

/// Money moves between two rows that all transactions share, while states move by group commit beside them.
pub async fn many_transactions_beside_group_commits_keep_what_they_share_whole<D: Database>(world: World<D>) {
    let desk = std::sync::Arc::new(world.owner("a").await);
    prepare(&desk).await;
    let mut table = desk.store.begin().await.unwrap();
    run(&mut table, "CREATE TABLE account (name text PRIMARY KEY, balance integer)").await.unwrap();
    run(&mut table, "INSERT INTO account VALUES ('a', 1000), ('b', 1000)").await.unwrap();
    assert_eq!(commit(&desk, table, vec![]).await.unwrap(), Committed::Applied);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..24 {
        let (desk, message) = (std::sync::Arc::clone(&desk), world.message(number, "x"));
        tasks.spawn(async move {
            let entity = format!("mover-{number}");
            desk.apply(&entity, vec![state(&entity, 0, "asked")]).await;
            let mut transaction = desk.store.begin().await.unwrap();
            run(&mut transaction, "UPDATE account SET balance = balance - 1 WHERE name = 'a'").await.unwrap();
            run(&mut transaction, "UPDATE account SET balance = balance + 1 WHERE name = 'b'").await.unwrap();
            // Every third is taken back.
            let base = if number % 3 == 0 { 7 } else { 1 };
            let changes = vec![finish_new(&message, "moved"), state(&entity, base, "moved")];
            let write = Write { fence: desk.fence(&entity), changes };
            assert_eq!(transaction.commit(write).await.is_ok(), number % 3 != 0);
            desk.apply(&entity, vec![Change::ClearTimer { address: address(&entity), name: "t".to_owned() }])
                .await;
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let mut transaction = desk.store.begin().await.unwrap();
    let moved = "SELECT balance FROM account ORDER BY name";
    let balances: Vec<i32> = if transaction.is_postgres() {
        sqlx::query_scalar(moved).fetch_all(transaction.postgres().unwrap()).await.unwrap()
    } else {
        sqlx::query_scalar(moved).fetch_all(transaction.sqlite().unwrap()).await.unwrap()
    };
    transaction.rollback().await;
    assert_eq!(balances, [984, 1016]);
    for number in 0..24 {
        let ended = desk.store.progress(world.id(number)).await.unwrap();
        assert_eq!(ended == Progress::Done(success("moved")), number % 3 != 0, "{number}: {ended:?}");
    }
}

pub async fn a_closed_store_begins_no_transaction<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.store.close().await;
    assert_eq!(reason(desk.store.begin().await), "Closed");
}
