//! Databases as an earlier release has left them.

use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// Creates the schema of the release before text was compared byte by byte and every row had a slot.
pub async fn fourth(url: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    for sql in [
        "CREATE SCHEMA cleat; CREATE TABLE cleat.migrations
         (version integer PRIMARY KEY, oldest integer NOT NULL, applied timestamptz NOT NULL DEFAULT now())",
        include_str!("../../../migrations/postgres/0001_ground.sql"),
        include_str!("../../../migrations/postgres/0002_workflows.sql"),
        include_str!("../../../migrations/postgres/0003_holds.sql"),
        include_str!("../../../migrations/postgres/0004_enter.sql"),
        "INSERT INTO cleat.migrations (version, oldest) SELECT n, 1 FROM generate_series(1, 4) AS n",
    ] {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    }
}

/// A transaction with a snapshot, as a backup has it: building an index beside writers waits for its end.
pub async fn snapshot(url: &str) -> PgConnection {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";
    sqlx::raw_sql(begin).execute(&mut connection).await.unwrap();
    connection
}

/// Waits until some session builds an index.
pub async fn building(url: &str) -> i32 {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let builds = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'active'
                  AND query LIKE '%CREATE % CONCURRENTLY %' AND pid <> pg_backend_pid() AND wait_event_type = 'Lock'";
    let wait = async {
        loop {
            let found = sqlx::query_scalar(builds).fetch_optional(&mut connection).await.unwrap();
            if let Some(pid) = found {
                return pid;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), wait).await.expect("nobody builds an index")
}
