//! Time limits of users' transactions.

use std::time::Duration;

use cleat_runner::store::postgres::{Options, PostgresStore};
use cleat_runner::store::{Error, Store};
use sqlx::PgConnection;

use crate::store_postgres_rig::*;

/// An error with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

async fn gone(admin: &mut PgConnection, pid: i32) {
    let waiting = async {
        loop {
            let there: bool = sqlx::query_scalar("SELECT count(*) > 0 FROM pg_stat_activity WHERE pid = $1")
                .bind(pid)
                .fetch_one(&mut *admin)
                .await
                .unwrap();
            if !there {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the server ends the transaction");
}

#[tokio::test]
async fn a_transaction_that_is_idle_for_too_long_ends_and_says_which_setting_it_was() {
    let url = database().await;
    let options =
        Options { transactions: 1, transaction_idle: Duration::from_millis(200), ..options(&url, "a") };
    let store = PostgresStore::open(options).await.unwrap();
    claim(&store, 0, 1).await;
    let mut admin = connect(&url).await;
    // The second finds the limit, too, although what a transaction sets is reset after it.
    for _ in 0..2 {
        let mut transaction = store.begin().await.unwrap();
        let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
            .fetch_one(transaction.postgres().unwrap())
            .await
            .unwrap();
        gone(&mut admin, pid).await;
        let error = transaction.commit(accept(&fence(0, 1), id())).await.unwrap_err();
        assert!(matches!(error, Error::Rejected { .. }), "{error:?}");
        assert!(chain(&error).contains("CLEAT_TRANSACTION_IDLE_TIMEOUT"), "{}", chain(&error));

        let transaction = store.begin().await.unwrap();
        transaction.commit(accept(&fence(0, 1), id())).await.unwrap();
    }
    store.close().await;
}

#[tokio::test]
async fn a_transaction_that_takes_too_long_ends_and_says_which_setting_it_was() {
    let url = database().await;
    let limit = Duration::from_millis(300);
    let options =
        Options { transaction_timeout: limit, patience: Duration::from_secs(3), ..options(&url, "a") };
    let store = PostgresStore::open(options).await.unwrap();
    claim(&store, 0, 1).await;
    let mut transaction = store.begin().await.unwrap();
    // It would take an hour; the server cancels it after twice the patience.
    let slept = sqlx::query("SELECT pg_sleep(3600)").execute(transaction.postgres().unwrap()).await;
    assert!(slept.unwrap_err().to_string().contains("statement timeout"));
    let error = transaction.postgres().unwrap_err();
    assert!(error.to_string().contains("CLEAT_TRANSACTION_TIMEOUT"), "{error}");
    let error = transaction.commit(accept(&fence(0, 1), id())).await.unwrap_err();
    assert!(chain(&error).contains("CLEAT_TRANSACTION_TIMEOUT"), "{}", chain(&error));
    let transaction = store.begin().await.unwrap();
    transaction.commit(accept(&fence(0, 1), id())).await.unwrap();
    store.close().await;
}
