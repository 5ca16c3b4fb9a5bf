//! Activities whose own statements commit with the journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cleat_runner::store::sqlite::{self, Location, SqliteStore};
use cleat_runner::workflow::activity::{self, Backoff, Failed};
use futures::FutureExt;
use sqlx::{Connection, PgConnection, Row};
use std::time::Duration;

use crate::flow::{flow, give, text};
use crate::proxy::Proxy;
use crate::world::{Place, World};

/// Three attempts, each of which writes something; only the last succeeds.
fn options() -> activity::Options {
    activity::Options {
        attempts: Some(3),
        backoff: Backoff::Constant(Duration::from_millis(5)),
        ..activity::Options::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_on_postgres_commit_once_with_the_journal() {
    let place = Place::postgres().await;
    let Place::Postgres(database) = &place else { panic!("it is PostgreSQL") };
    let mut connection = PgConnection::connect(&database.url).await.unwrap();
    sqlx::query("CREATE TABLE payments (id text NOT NULL)").execute(&mut connection).await.unwrap();
    let world = World::new(place).await;
    let client = flow(&world.host, |context, _| async move {
        let done = context.activity("pay", options(), |activity| {
            async move {
                let insert = sqlx::query("INSERT INTO payments VALUES ($1)").bind("p");
                insert.execute(&activity.tx).await.map_err(Failed::retry)?;
                let seen = sqlx::query("SELECT count(*) AS n FROM payments").fetch_one(&activity.tx).await;
                let seen: i64 = seen.map_err(Failed::retry)?.get("n");
                if activity.attempt < 2 { Err(Failed::retry("not yet")) } else { give(&seen.to_string()) }
            }
            .boxed()
        });
        Ok(text(done.await))
    });
    assert_eq!(client.execute(&"a".into()).await.unwrap(), "1", "what failed was taken back");
    let count: i64 =
        sqlx::query_scalar("SELECT count(*) FROM payments").fetch_one(&mut connection).await.unwrap();
    assert_eq!(count, 1);
}

/// The connection of an activity breaks at its COMMIT, which the server has seen or not.
async fn cut_at_commit(seen: bool) -> u32 {
    let mut place = Place::postgres().await;
    let Place::Postgres(database) = &mut place else { panic!("it is PostgreSQL") };
    let mut connection = PgConnection::connect(&database.url).await.unwrap();
    sqlx::query("CREATE TABLE payments (id text NOT NULL)").execute(&mut connection).await.unwrap();
    // With the end of the statement, since the isolation level is called READ COMMITTED.
    let proxy = Proxy::counting(&database.url, seen, b"COMMIT;").await;
    database.url = proxy.url.clone();
    let world = World::new(place).await;
    let tries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let client = flow(&world.host, move |context, _| {
        let tries = Arc::clone(&counted);
        async move {
            let done = context.activity("pay", activity::Options::default(), move |activity| {
                tries.fetch_add(1, Ordering::SeqCst);
                async move {
                    let insert = sqlx::query("INSERT INTO payments VALUES ('p')");
                    insert.execute(&activity.tx).await.map_err(Failed::retry)?;
                    give("paid")
                }
                .boxed()
            });
            Ok(text(done.await))
        }
    });
    let id = "a".to_owned();
    let ((), executed) = tokio::join!(proxy.cut(1), client.execute(&id));
    assert_eq!(executed.unwrap(), "paid");
    let paid: i64 =
        sqlx::query_scalar("SELECT count(*) FROM payments").fetch_one(&mut connection).await.unwrap();
    assert_eq!(paid, 1, "once, whether the server has seen the COMMIT or not");
    tries.load(Ordering::SeqCst)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_reached_the_server_is_done_again() {
    assert_eq!(cut_at_commit(false).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_was_lost_is_not_done_again() {
    assert_eq!(cut_at_commit(true).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_the_database_refuses_is_a_failed_attempt() {
    let place = Place::postgres().await;
    let Place::Postgres(database) = &place else { panic!("it is PostgreSQL") };
    let mut connection = PgConnection::connect(&database.url).await.unwrap();
    let table = "CREATE TABLE payments (id text NOT NULL)";
    sqlx::query(table).execute(&mut connection).await.unwrap();
    let world = World::new(place).await;
    let tries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let client = flow(&world.host, move |context, _| {
        let tries = Arc::clone(&counted);
        async move {
            let done = context.activity("pay", options(), move |activity| {
                let tries = Arc::clone(&tries);
                async move {
                    let insert = sqlx::query("INSERT INTO payments VALUES ('p')");
                    insert.execute(&activity.tx).await.map_err(Failed::retry)?;
                    if tries.fetch_add(1, Ordering::SeqCst) == 0 {
                        // An error that the activity passes over: the database does not.
                        let _ = sqlx::query("SELECT * FROM nowhere").execute(&activity.tx).await;
                    }
                    give("paid")
                }
                .boxed()
            });
            Ok(text(done.await))
        }
    });
    assert_eq!(client.execute(&"a".into()).await.unwrap(), "paid");
    assert_eq!(tries.load(Ordering::SeqCst), 2);
    let count: i64 =
        sqlx::query_scalar("SELECT count(*) FROM payments").fetch_one(&mut connection).await.unwrap();
    assert_eq!(count, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_on_sqlite_commit_once_with_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let location = Location::File(folder.path().join("cleat.db"));
    // Made by the store, so that both agree how it is kept.
    drop(SqliteStore::open(sqlite::Options::at(location.clone())).await.unwrap());
    let world = World::new(Place::Sqlite(location)).await;
    let client = flow(&world.host, |context, _| async move {
        let done = context.activity("pay", options(), |activity| {
            async move {
                let table = sqlx::query("CREATE TABLE IF NOT EXISTS payments (id text NOT NULL)");
                table.execute(activity.tx.sqlite()).await.map_err(Failed::retry)?;
                let insert = sqlx::query("INSERT INTO payments VALUES (?)").bind("p");
                insert.execute(activity.tx.sqlite()).await.map_err(Failed::retry)?;
                let seen = sqlx::query("SELECT count(*) AS n FROM payments").fetch_one(activity.tx.sqlite());
                let seen: i64 = seen.await.map_err(Failed::retry)?.get("n");
                if activity.attempt < 2 { Err(Failed::retry("not yet")) } else { give(&seen.to_string()) }
            }
            .boxed()
        });
        Ok(text(done.await))
    });
    assert_eq!(client.execute(&"a".into()).await.unwrap(), "1", "what failed was taken back");
}
