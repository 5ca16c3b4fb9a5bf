//! PostgreSQL does what every store does.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

use std::sync::Arc;

use async_trait::async_trait;
use cleat_runner::store::conformance::{Database, Opening};
use cleat_runner::store::postgres::{Options, PostgresStore};
use cleat_runner::store::{Error, Store};
use cleat_runner::store_conformance;
use cleat_testing::postgres;
use sqlx::{Connection, PgConnection};

struct Fresh(postgres::Database);

#[async_trait]
impl Database for Fresh {
    const CASES: u32 = 12;

    async fn fresh() -> Self {
        Self(postgres::shared().await.unwrap().database().await.unwrap())
    }

    async fn open(&self, opening: Opening) -> Result<Arc<dyn Store>, Error> {
        let Opening { instance, groups, cluster, adopts, lanes } = opening;
        // Many tests share one server, so each is modest.
        let options =
            Options { groups, cluster, adopts, lanes, connections: 3, ..Options::new(&self.0.url, instance) };
        Ok(Arc::new(PostgresStore::open(options).await?))
    }

    async fn require(&self, oldest: i32) {
        let mut connection = PgConnection::connect(&self.0.url).await.unwrap();
        sqlx::query("UPDATE cleat.migrations SET oldest = $1")
            .bind(oldest)
            .execute(&mut connection)
            .await
            .unwrap();
    }
}

store_conformance!(Fresh);
