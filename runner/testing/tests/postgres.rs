//! Throwaway servers, against the PostgreSQL of this machine.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

use cleat_testing::postgres::{self, Options, Server, Shutdown};
use sqlx::{Connection, PgConnection};

async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

async fn write(url: &str) {
    let mut connection = connect(url).await;
    sqlx::raw_sql("CREATE TABLE note (text TEXT); INSERT INTO note VALUES ('kept')")
        .execute(&mut connection)
        .await
        .unwrap();
}

async fn read(url: &str) -> Vec<String> {
    sqlx::query_scalar("SELECT text FROM note").fetch_all(&mut connect(url).await).await.unwrap()
}

#[tokio::test]
async fn each_test_has_a_database_of_its_own_on_one_server() {
    let server = postgres::shared().await.unwrap();
    let (one, two) = tokio::try_join!(server.database(), server.database()).unwrap();
    assert_ne!(one, two);
    write(&one.url).await;
    write(&two.url).await;
    assert_eq!(read(&one.url).await, ["kept"]);
    assert!(std::ptr::eq(server, postgres::shared().await.unwrap()));
}

#[tokio::test]
async fn a_restart_keeps_the_data() {
    let mut server = Server::start(Options::default()).await.unwrap();
    let database = server.database().await.unwrap();
    write(&database.url).await;
    for how in [Shutdown::Smart, Shutdown::Fast, Shutdown::Immediate] {
        server.restart(how).await.unwrap();
        assert_eq!(read(&database.url).await, ["kept"], "{how:?}");
    }
}
