//! SQLite does what every store does, in a file and in memory.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

use std::sync::Arc;

use async_trait::async_trait;
use cleat_runner::store::conformance::{Database, Opening};
use cleat_runner::store::sqlite::{Location, Options, SqliteStore};
use cleat_runner::store::{Error, Store};
use cleat_runner::store_conformance;

async fn open(location: Location, opening: Opening) -> Result<Arc<dyn Store>, Error> {
    let Opening { instance, groups, cluster, adopts, lanes } = opening;
    let options = Options { location, instance, groups, cluster, adopts, lanes, metrics: None };
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
