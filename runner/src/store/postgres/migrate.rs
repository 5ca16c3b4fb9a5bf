//! Online schema migration: one runner migrates while all others serve or wait.
//!
//! A migration is a list of steps, each of which commits by itself and is recorded with its commit, so one that is interrupted continues
//! where it stopped. Indexes are built with `CREATE INDEX CONCURRENTLY`, which waits for every transaction that began before it: therefore
//! whoever waits for the migration polls a session-level advisory lock and holds no transaction open.

use std::future::Future;
use std::time::Duration;

use sqlx::postgres::{PgConnection, PgPool};
use sqlx::{AssertSqlSafe, Connection, Row};
use tokio::sync::watch;

use super::connect::unavailable;
use super::setup::SCHEMA_LOCK;
use crate::store::migration::{self, Migration, MigrationProgress, Schema, Step};
use crate::store::{Error, SCHEMA};

const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, oldest: 1, sql: include_str!("../../../../migrations/postgres/0001_ground.sql") },
    Migration {
        version: 2,
        oldest: 1,
        sql: include_str!("../../../../migrations/postgres/0002_workflows.sql"),
    },
    Migration { version: 3, oldest: 1, sql: include_str!("../../../../migrations/postgres/0003_holds.sql") },
    Migration { version: 4, oldest: 1, sql: include_str!("../../../../migrations/postgres/0004_enter.sql") },
    Migration { version: 5, oldest: 1, sql: include_str!("../../../../migrations/postgres/0005_slots.sql") },
    Migration { version: 6, oldest: 1, sql: include_str!("../../../../migrations/postgres/0006_vacuum.sql") },
];
const _: () = assert!(migration::leads_there(MIGRATIONS));

/// The advisory lock of the runner that migrates, held by its session. Not [`SCHEMA_LOCK`]: runners that are at work take that one
/// inside of transactions, for which building an index would wait.
const MIGRATION_LOCK: i64 = 0x0c1e_a700_5c4e_3a01;

/// How often a runner looks whether the one that migrates is done.
const POLL: Duration = Duration::from_millis(250);

/// The pause before a step that could not lock its table is tried again. While it waits for the lock, everybody else waits behind it.
const PAUSE: Duration = Duration::from_secs(1);

/// How often a step that takes long is logged.
const REPORT: Duration = Duration::from_secs(10);

/// Brings the schema of a database up to date, on a connection of its own.
pub(super) struct Migrator(PgConnection);

impl Migrator {
    pub(super) async fn connect(pool: &PgPool) -> Result<Self, Error> {
        let mut connection = pool.acquire().await.map_err(unavailable)?.detach();
        // Building an index may take longer than the role's statements may. Under another name the connection survives the migration.
        sqlx::query(
            "SELECT set_config('statement_timeout', '0', false), set_config('client_min_messages', 'warning', false),
               set_config('application_name', replace(current_setting('application_name'), ' pool', ' migrate'), false)",
        )
        .execute(&mut connection)
        .await
        .map_err(unavailable)?;
        Ok(Self(connection))
    }

    /// Waits until the schema is up to date, and migrates it if nobody else does.
    ///
    /// # Errors
    /// [`Error::TooOld`]; [`Error::DatabaseInUse`] before anything is changed in a database of another Cluster.
    pub(super) async fn run(
        mut self,
        (cluster, adopts): (Option<&str>, Option<&str>),
        progress: Option<&watch::Sender<Option<MigrationProgress>>>,
    ) -> Result<(), Error> {
        let mut found = self.create().await?;
        if !migration::pending(MIGRATIONS, found)?.is_empty() {
            self.check_owner(cluster, adopts).await?;
        }
        let mut waits = false;
        while !migration::pending(MIGRATIONS, found)?.is_empty() {
            if self.try_lock().await.map_err(unavailable)? {
                // Somebody else may have been done just before.
                found = self.schema().await.map_err(unavailable)?;
                for migration in migration::pending(MIGRATIONS, found)? {
                    self.migrate(migration, progress).await?;
                }
            } else {
                if !std::mem::replace(&mut waits, true) {
                    tracing::info!(
                        event = "migration_wait",
                        "another runner migrates the database; waiting for it"
                    );
                }
                report(progress, MigrationProgress { version: SCHEMA, step: 0, steps: 0 });
                tokio::time::sleep(POLL).await;
            }
            found = self.schema().await.map_err(unavailable)?;
        }
        if let Some(progress) = progress {
            progress.send_replace(None);
        }
        // Closing the connection releases the lock; the outcome does not matter any more.
        let _ = self.0.close().await;
        Ok(())
    }

    /// Creates the whole schema if there is none, in one transaction. Returns what is there then.
    async fn create(&mut self) -> Result<Schema, Error> {
        let mut transaction = self.0.begin().await.map_err(unavailable)?;
        lock(&mut transaction).await.map_err(unavailable)?;
        sqlx::raw_sql(
            "CREATE SCHEMA IF NOT EXISTS cleat;
             CREATE TABLE IF NOT EXISTS cleat.migrations (
               version integer PRIMARY KEY, oldest integer NOT NULL, applied timestamptz NOT NULL DEFAULT now())",
        )
        .execute(&mut *transaction)
        .await
        .map_err(unavailable)?;
        let found = schema(&mut transaction).await.map_err(unavailable)?;
        if found.version > 0 {
            transaction.commit().await.map_err(unavailable)?;
            return Ok(found);
        }
        for migration in migration::pending(MIGRATIONS, found)? {
            for step in migration.steps().filter(|step| !step.upgrade) {
                // Tables are empty, so there is nobody to be blocked and nothing to wait for.
                let sql = step.sql.replace("INDEX CONCURRENTLY", "INDEX");
                execute(&mut transaction, sql).await.map_err(unavailable)?;
            }
            record(&mut transaction, migration).await.map_err(unavailable)?;
        }
        let found = schema(&mut transaction).await.map_err(unavailable)?;
        transaction.commit().await.map_err(unavailable)?;
        Ok(found)
    }

    async fn schema(&mut self) -> Result<Schema, sqlx::Error> {
        schema(&mut self.0).await
    }

    /// A database of another Cluster is not migrated.
    async fn check_owner(&mut self, cluster: Option<&str>, adopts: Option<&str>) -> Result<(), Error> {
        let other: Option<String> = sqlx::query_scalar(
            "SELECT value FROM cleat.facts WHERE name = 'cluster' AND value <> $1 AND value IS DISTINCT FROM $2",
        )
        .bind(cluster)
        .bind(adopts)
        .fetch_optional(&mut self.0)
        .await
        .map_err(unavailable)?;
        other.map_or(Ok(()), |owner| Err(Error::DatabaseInUse { owner }))
    }

    async fn try_lock(&mut self) -> Result<bool, sqlx::Error> {
        sqlx::query_scalar("SELECT pg_try_advisory_lock($1)")
            .bind(MIGRATION_LOCK)
            .fetch_one(&mut self.0)
            .await
    }

    /// Does the steps of a migration that are not recorded yet.
    async fn migrate(
        &mut self,
        migration: &Migration,
        progress: Option<&watch::Sender<Option<MigrationProgress>>>,
    ) -> Result<(), Error> {
        let (version, steps) = (migration.version, migration.steps().count());
        let done = self.done(version).await.map_err(unavailable)?;
        for (number, step) in (1..).zip(migration.steps()).skip(done) {
            let at = MigrationProgress { version, step: number, steps };
            report(progress, at);
            tracing::info!(
                event = "migration_step",
                version,
                step = number,
                steps,
                index = step.index,
                "migrating the database"
            );
            loop {
                let attempt = self.step(migration, step, number, steps);
                match logged(at, attempt).await {
                    Ok(()) => break,
                    Err(error) if is_blocked(&error) => {
                        tracing::info!(event = "migration_blocked", %error, "{at}: the table is in use, trying again");
                        tokio::time::sleep(PAUSE).await;
                    }
                    Err(error) => return Err(unavailable(error)),
                }
            }
        }
        Ok(())
    }

    /// How many steps of a migration are recorded as done.
    async fn done(&mut self, version: i32) -> Result<usize, sqlx::Error> {
        let done: Option<i64> = sqlx::query_scalar(
            "SELECT split_part(value, '.', 2)::bigint FROM cleat.facts
             WHERE name = 'migration' AND split_part(value, '.', 1) = $1::text",
        )
        .bind(version)
        .fetch_optional(&mut self.0)
        .await?;
        Ok(done.and_then(|done| usize::try_from(done).ok()).unwrap_or(0))
    }

    /// Does a step and records it; in one transaction, unless it builds an index.
    async fn step(
        &mut self,
        migration: &Migration,
        step: Step<'_>,
        number: usize,
        steps: usize,
    ) -> Result<(), sqlx::Error> {
        if let Some(index) = step.index {
            self.build(index, step.sql).await?;
        }
        let mut transaction = self.0.begin().await?;
        // All others wait behind whoever waits for a table, so not for long.
        sqlx::query("SET LOCAL lock_timeout = '1s'").execute(&mut *transaction).await?;
        lock(&mut transaction).await?;
        if step.index.is_none() {
            execute(&mut transaction, step.sql.to_owned()).await?;
        }
        if number == steps {
            record(&mut transaction, migration).await?;
            sqlx::query("DELETE FROM cleat.facts WHERE name = 'migration'")
                .execute(&mut *transaction)
                .await?;
        } else {
            sqlx::query(
                "INSERT INTO cleat.facts (name, value) VALUES ('migration', $1)
                 ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            )
            .bind(format!("{}.{number}", migration.version))
            .execute(&mut *transaction)
            .await?;
        }
        transaction.commit().await
    }

    /// Builds an index, unless it is there. One that was interrupted is there and not valid: it is built again.
    async fn build(&mut self, name: &str, create: &str) -> Result<(), sqlx::Error> {
        let valid: Option<bool> = sqlx::query_scalar(
            "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('cleat.' || $1)",
        )
        .bind(name)
        .fetch_optional(&mut self.0)
        .await?;
        match valid {
            Some(true) => return Ok(()),
            Some(false) => execute(&mut self.0, format!("DROP INDEX CONCURRENTLY cleat.{name}")).await?,
            None => {}
        }
        execute(&mut self.0, create.to_owned()).await
    }
}

async fn lock(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(SCHEMA_LOCK).execute(connection).await.map(drop)
}

async fn execute(connection: &mut PgConnection, sql: String) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(drop)
}

async fn schema(connection: &mut PgConnection) -> Result<Schema, sqlx::Error> {
    let row = sqlx::query("SELECT coalesce(max(version), 0), coalesce(max(oldest), 0) FROM cleat.migrations")
        .fetch_one(connection)
        .await?;
    Ok(Schema { version: row.try_get(0)?, oldest: row.try_get(1)? })
}

async fn record(connection: &mut PgConnection, migration: &Migration) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO cleat.migrations (version, oldest) VALUES ($1, $2)")
        .bind(migration.version)
        .bind(migration.oldest)
        .execute(connection)
        .await
        .map(drop)
}

fn report(progress: Option<&watch::Sender<Option<MigrationProgress>>>, at: MigrationProgress) {
    if let Some(progress) = progress {
        progress.send_replace(Some(at));
    }
}

/// Whether somebody else had a lock for too long, or waited for one of ours.
fn is_blocked(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| code == "55P03" || code == "40P01")
}

/// Logs that a step is still being done.
async fn logged<T>(at: MigrationProgress, step: impl Future<Output = T>) -> T {
    let began = tokio::time::Instant::now();
    let mut step = std::pin::pin!(step);
    loop {
        match tokio::time::timeout(REPORT, &mut step).await {
            Ok(done) => return done,
            Err(_) => {
                let seconds = began.elapsed().as_secs();
                tracing::info!(event = "migration_progress", seconds, "{at}: still at work");
            }
        }
    }
}
