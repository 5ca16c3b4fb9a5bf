//! Connections to the database: the password changes while runners run, poolers, limits and the monitor.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

#[path = "store_postgres_rotation/limits.rs"]
mod limits;
#[path = "store_postgres_rotation/monitor.rs"]
mod monitor;
#[path = "store_postgres_rotation/pooler.rs"]
mod pooler;
mod store_postgres_rig;

use cleat_runner::shard::{Epoch, Fence, GroupName, Instance, ShardId};
use cleat_runner::store::Store;
use cleat_runner::store::postgres::{Options, PostgresStore};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

#[tokio::test]
async fn new_connections_use_the_new_url() {
    // A server of its own: roles belong to all its databases.
    let server =
        cleat_testing::postgres::Server::start(cleat_testing::postgres::Options::default()).await.unwrap();
    let database = server.database().await.unwrap();
    let mut admin = PgConnection::connect(&database.url).await.unwrap();
    let make = "CREATE ROLE later SUPERUSER LOGIN PASSWORD 'later'";
    sqlx::raw_sql(AssertSqlSafe(make)).execute(&mut admin).await.unwrap();
    let store = PostgresStore::open(Options::new(&database.url, Instance::new("a"))).await.unwrap();
    assert!(store.move_to("nowhere").is_err());

    let (_, rest) = database.url.split_once('@').unwrap();
    store.move_to(&format!("postgres://later:later@{rest}")).unwrap();
    let me: String = sqlx::query_scalar("SELECT current_user::text").fetch_one(&mut admin).await.unwrap();
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE usename = $1 AND application_name LIKE 'cleat %' AND pid <> pg_backend_pid()";
    let ended: i64 = sqlx::query_scalar(end).bind(&me).fetch_one(&mut admin).await.unwrap();
    assert!(ended > 0);

    let fence = Fence { shard: ShardId::new(GroupName::default(), 0), epoch: Epoch::new(1) };
    store.claim(&[fence]).await.unwrap().remove(0).unwrap();
    // A claim has a connection of its own; this reads through the pool.
    store.holdings(&GroupName::default()).await.unwrap();
    let users =
        "SELECT DISTINCT usename::text FROM pg_stat_activity WHERE application_name LIKE 'cleat % pool%'";
    let users: Vec<String> = sqlx::query_scalar(users).fetch_all(&mut admin).await.unwrap();
    assert_eq!(users, ["later"]);
    store.close().await;
}
