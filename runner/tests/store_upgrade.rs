//! A database that an earlier release has filled is brought up to date, and nothing of it is lost.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

#[path = "workflow/world.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "not every program of tests needs all of it")]
mod world;

use std::time::Duration;

use cleat_runner::message::EntityAddress;
use cleat_runner::prelude::*;
use cleat_runner::shard::GroupName;
use cleat_runner::store::sqlite::Location;
use cleat_runner::store::{Filter, Hold, Phase, Retention, SCHEMA};
use cleat_runner::workflow::{Executions, Key, Terms};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use world::{Place, World};

#[entity(name = "shelf", state = i64)]
struct Shelf;

#[entity_impl]
impl Shelf {
    #[rpc(persisted)]
    pub async fn restock(&self, stock: &mut i64, count: i64) -> Result<i64, Never> {
        *stock += count;
        Ok(*stock)
    }
}

#[workflow(name = "order")]
struct Order;

#[workflow_impl(key = |id: &String| id.clone())]
impl Order {
    async fn execute(&self, id: String) -> Result<String, Never> {
        let by: String = self.signal("approved").await;
        Ok(format!("{id} by {by}"))
    }
}

/// What a schema consists of.
type Relations = Vec<(String, String)>;

/// A database in which an earlier release can be found.
trait Past {
    /// What later changes have brought is taken back.
    async fn go_back(&self);
    /// What the first two changes make of an empty database.
    async fn second(&self) -> Relations;
    /// What there is.
    async fn relations(&self) -> Relations;
    /// The last change, and the oldest release that still works.
    async fn version(&self) -> (i32, i32);
}

struct Postgres(String);
struct Sqlite(std::path::PathBuf);

impl Postgres {
    async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.0).await.unwrap()
    }

    async fn relations_of(connection: &mut PgConnection) -> Relations {
        let all = "SELECT relname::text, relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                   WHERE nspname = 'cleat' AND NOT relispartition AND relname NOT LIKE 'outcomes_day_%' ORDER BY 1";
        sqlx::query_as(all).fetch_all(connection).await.unwrap()
    }
}

impl Past for Postgres {
    async fn go_back(&self) {
        // As it was before the schema was migrated online: the columns, and the default collation.
        let back = "DROP FUNCTION cleat.enter(bigint, text, smallint, integer, integer, bigint, bigint, bigint, bytea);
            DROP FUNCTION cleat.enter(bigint, text, smallint, integer, integer, bigint, integer, bigint, bigint, bytea);
            DROP TABLE cleat.holds; DROP INDEX cleat.executions_open;
            DO $$ DECLARE of record; BEGIN
                FOR of IN SELECT attrelid::regclass AS name, attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
                    WHERE relnamespace = 'cleat'::regnamespace AND attname IN ('grp', 'slot') AND c.relname IN
                    ('journal', 'keys', 'chunks', 'streams', 'former_runs', 'forgotten_runs')
                LOOP EXECUTE format('ALTER TABLE %s DROP COLUMN %I', of.name, of.attname); END LOOP;
                FOR of IN SELECT attrelid::regclass AS name, attname, atttypid::regtype AS type FROM pg_attribute
                    JOIN pg_class c ON c.oid = attrelid WHERE relnamespace = 'cleat'::regnamespace AND relkind IN ('r', 'p')
                    AND attcollation = 'pg_catalog.\"C\"'::regcollation AND NOT relispartition
                LOOP EXECUTE format('ALTER TABLE %s ALTER COLUMN %I TYPE %s COLLATE pg_catalog.default', of.name, of.attname, of.type);
                END LOOP;
            END $$;
            DELETE FROM cleat.migrations WHERE version > 2";
        sqlx::raw_sql(back).execute(&mut self.connect().await).await.unwrap();
    }

    async fn second(&self) -> Relations {
        let empty = cleat_testing::postgres::shared().await.unwrap().database().await.unwrap();
        let mut connection = PgConnection::connect(&empty.url).await.unwrap();
        for change in [
            "CREATE SCHEMA cleat; CREATE TABLE cleat.migrations \
             (version integer PRIMARY KEY, oldest integer NOT NULL, applied timestamptz NOT NULL DEFAULT now())",
            include_str!("../../migrations/postgres/0001_ground.sql"),
            include_str!("../../migrations/postgres/0002_workflows.sql"),
        ] {
            sqlx::raw_sql(AssertSqlSafe(change)).execute(&mut connection).await.unwrap();
        }
        Self::relations_of(&mut connection).await
    }

    async fn relations(&self) -> Relations {
        Self::relations_of(&mut self.connect().await).await
    }

    async fn version(&self) -> (i32, i32) {
        let version = "SELECT max(version), max(oldest) FROM cleat.migrations";
        sqlx::query_as(version).fetch_one(&mut self.connect().await).await.unwrap()
    }
}

impl Sqlite {
    async fn connect(&self) -> SqliteConnection {
        SqliteConnection::connect(&format!("sqlite:{}", self.0.display())).await.unwrap()
    }

    async fn relations_of(connection: &mut SqliteConnection) -> Relations {
        let all = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY 1";
        sqlx::query_as(all).fetch_all(connection).await.unwrap()
    }
}

impl Past for Sqlite {
    async fn go_back(&self) {
        let mut back = "DROP TABLE cleat_holds; DROP INDEX cleat_executions_open; DELETE FROM cleat_migrations WHERE version > 2;".to_owned();
        for table in ["journal", "keys", "chunks", "streams", "former_runs"] {
            back += &format!(
                "ALTER TABLE cleat_{table} DROP COLUMN grp; ALTER TABLE cleat_{table} DROP COLUMN slot;"
            );
        }
        sqlx::raw_sql(AssertSqlSafe(back)).execute(&mut self.connect().await).await.unwrap();
    }

    async fn second(&self) -> Relations {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        for change in [
            "CREATE TABLE cleat_migrations (version INTEGER PRIMARY KEY, oldest INTEGER NOT NULL) STRICT",
            include_str!("../../migrations/sqlite/0001_ground.sql"),
            include_str!("../../migrations/sqlite/0002_workflows.sql"),
        ] {
            sqlx::raw_sql(AssertSqlSafe(change)).execute(&mut connection).await.unwrap();
        }
        Self::relations_of(&mut connection).await
    }

    async fn relations(&self) -> Relations {
        Self::relations_of(&mut self.connect().await).await
    }

    async fn version(&self) -> (i32, i32) {
        let version = "SELECT max(version), max(oldest) FROM cleat_migrations";
        sqlx::query_as(version).fetch_one(&mut self.connect().await).await.unwrap()
    }
}

async fn start(executions: &Executions, id: &str) {
    let terms = Terms { key: Some(Key::Raw(id.to_owned())), ..Terms::default() };
    executions.start(id, &terms).await.unwrap();
}

async fn is_upgraded(place: Place, past: impl Past) {
    let world = World::new(place).await;
    let shelves = Shelf.register(&world.host).unwrap();
    Order.register(&world.host).unwrap();
    let orders = Executions::new(&world.host, "order").unwrap();
    assert_eq!(shelves.restock("a", &3).await.unwrap(), 3);
    shelves.restock("a", &4).key("once").await.unwrap();
    for id in ["ended", "forgotten", "waits"] {
        start(&orders, id).await;
    }
    for id in ["ended", "forgotten"] {
        orders.signal(id, "approved", "Ann").await.unwrap();
        orders.join(id).await.unwrap();
    }
    // The earlier release leaves.
    let World { place, store, host } = world;
    host.abandon();
    host.entities().shutdown(Duration::ZERO).await;
    store.close().await;
    past.go_back().await;
    assert_eq!(past.relations().await, past.second().await, "this is what the earlier release had");
    assert_eq!(past.version().await, (2, 1));

    // The new one comes, and comes again.
    let world = World::new(place).await.restart().await;
    assert_eq!(past.version().await, (SCHEMA, 1), "the earlier release may come back");
    let shelves = Shelf.register(&world.host).unwrap();
    Order.register(&world.host).unwrap();
    let orders = Executions::new(&world.host, "order").unwrap();
    assert_eq!(shelves.restock("a", &4).key("once").await.unwrap(), 7, "that was done before");
    assert_eq!(shelves.restock("a", &1).await.unwrap(), 8);
    assert_eq!(orders.describe("ended").await.unwrap().phase, Phase::Completed);
    orders.signal("waits", "approved", "Bob").await.unwrap();
    orders.join("waits").await.unwrap();
    start(&orders, "new").await;

    // What it can do that the other could not works for what is older than it.
    let address = EntityAddress::new("workflow:order", "ended").unwrap();
    let hold = Hold { address, holder: "somebody".to_owned(), group: GroupName::default() };
    world.store.hold(std::slice::from_ref(&hold)).await.unwrap();
    let nothing =
        Retention { completed: Duration::ZERO, failed: Duration::ZERO, dead_letters: Duration::ZERO };
    world.store.clock().set_ahead(3600);
    let left = async || {
        world.store.retain(&nothing).await.unwrap();
        let left = world.store.executions(&Filter::default(), None, 10).await.unwrap();
        let mut left: Vec<_> =
            left.iter().map(|stored| stored.execution.address.id.as_str().to_owned()).collect();
        left.sort();
        left
    };
    assert_eq!(left().await, ["ended", "new"]);
    world.store.release(&[hold]).await.unwrap();
    assert_eq!(left().await, ["new"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_of_the_second_schema_is_upgraded_with_what_it_has() {
    let place = Place::postgres().await;
    let Place::Postgres(database) = &place else { panic!("it is one") };
    let past = Postgres(database.url.clone());
    tokio::time::timeout(world::PATIENCE, is_upgraded(place, past)).await.expect("it hangs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sqlite_of_the_second_schema_is_upgraded_with_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cleat.db");
    let place = Place::Sqlite(Location::File(path.clone()));
    tokio::time::timeout(world::PATIENCE, is_upgraded(place, Sqlite(path))).await.expect("it hangs");
}
