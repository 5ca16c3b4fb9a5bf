//! SQLite does what every store does, in a file and in memory.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

use std::sync::Arc;

use async_trait::async_trait;
use cleat_runner::health::Health;
use cleat_runner::store::conformance::{Database, Opening};
use cleat_runner::store::sqlite::{Location, Options, SqliteStore};
use cleat_runner::store::{Error, Store};
use cleat_runner::store_conformance;

async fn open(location: Location, opening: Opening) -> Result<Arc<dyn Store>, Error> {
    let Opening { instance, groups, cluster, adopts, lanes } = opening;
    let options =
        Options { location, instance, groups, cluster, adopts, lanes, metrics: None, health: Health::new() };
    Ok(Arc::new(SqliteStore::open(options).await?))
}

const REQUIRE: &str =
    "UPDATE cleat_migrations SET oldest = ? WHERE version = (SELECT max(version) FROM cleat_migrations)";

mod file {
    use sqlx::ConnectOptions;
    use sqlx::sqlite::SqliteConnectOptions;

    use super::*;

    struct File(tempfile::TempDir);

    impl File {
        fn path(&self) -> std::path::PathBuf {
            self.0.path().join("cleat.db")
        }
    }

    #[async_trait]
    impl Database for File {
        const CASES: u32 = 24;

        async fn fresh() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        async fn open(&self, opening: Opening) -> Result<Arc<dyn Store>, Error> {
            open(Location::File(self.path()), opening).await
        }

        async fn require(&self, oldest: i32) {
            let mut connection = SqliteConnectOptions::new().filename(self.path()).connect().await.unwrap();
            sqlx::query(REQUIRE).bind(oldest).execute(&mut connection).await.unwrap();
        }
    }

    store_conformance!(File);
}

mod memory {
    use sqlx::ConnectOptions;
    use sqlx::sqlite::SqliteConnectOptions;

    use super::*;

    struct Memory(String);

    #[async_trait]
    impl Database for Memory {
        const CASES: u32 = 48;

        async fn fresh() -> Self {
            let Location::Memory(name) = Options::memory().location else { unreachable!() };
            Self(name)
        }

        async fn open(&self, opening: Opening) -> Result<Arc<dyn Store>, Error> {
            open(Location::Memory(self.0.clone()), opening).await
        }

        async fn require(&self, oldest: i32) {
            let options = SqliteConnectOptions::new().vfs("memdb").filename(format!("/cleat-{}", self.0));
            let mut connection = options.connect().await.unwrap();
            sqlx::query(REQUIRE).bind(oldest).execute(&mut connection).await.unwrap();
        }
    }

    store_conformance!(Memory);
}

#[tokio::test]
async fn every_row_can_be_found_by_group_and_slot() {
    use sqlx::ConnectOptions;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cleat.db");
    SqliteStore::open(Options::file(&path)).await.unwrap().close().await;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
    // Of forgotten runs only the journals count, which say it themselves.
    let without = "SELECT name FROM sqlite_master m WHERE type = 'table' AND name LIKE 'cleat_%' AND name NOT IN \
                   ('cleat_facts', 'cleat_groups', 'cleat_machines', 'cleat_migrations', 'cleat_shards', 'cleat_forgotten_runs') \
                   AND (SELECT count(*) FROM pragma_table_info(m.name) WHERE name IN ('grp', 'slot')) < 2";
    let without: Vec<String> =
        sqlx::query_scalar(without).fetch_all(&mut options.connect().await.unwrap()).await.unwrap();
    assert_eq!(without, Vec::<String>::new());
}
