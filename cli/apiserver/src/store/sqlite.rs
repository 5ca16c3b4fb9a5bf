//! Objects in an SQLite file.

use super::backend::{Backend, Error, Loaded, Record, Write};
use async_trait::async_trait;
use bytes::Bytes;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, Row};
use std::path::Path;

/// The layout of the tables below.
const LAYOUT: i64 = 1;

const TABLES: &str = "
    create table if not exists object (
        bucket text not null, key text not null, revision integer not null, body blob not null,
        primary key (bucket, key)
    ) without rowid;
    create table if not exists head (only integer primary key check (only = 1), revision integer not null);
    insert or ignore into head values (1, 0);";

/// Keeps objects in one file, which one server at a time may use.
#[derive(Debug, Clone)]
pub struct Sqlite {
    pool: SqlitePool,
}

impl Sqlite {
    /// Opens the file, and creates it if it does not exist.
    ///
    /// # Errors
    /// A file that cannot be opened, is no database, or was written by a newer version.
    pub async fn open(path: &Path) -> Result<Self, Error> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full);
        // One connection: the store writes one batch at a time and reads once.
        let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await?;
        let found: i64 = sqlx::query_scalar("pragma user_version").fetch_one(&pool).await?;
        if found > LAYOUT {
            return Err(Error::Layout { found, known: LAYOUT });
        }
        sqlx::raw_sql(TABLES).execute(&pool).await?;
        let mark = format!("pragma user_version = {LAYOUT}");
        sqlx::raw_sql(AssertSqlSafe(mark)).execute(&pool).await?;
        Ok(Self { pool })
    }
}

fn from_column(revision: i64) -> Result<u64, Error> {
    u64::try_from(revision).map_err(|_| Error::Revision(i128::from(revision)))
}

fn to_column(revision: u64) -> Result<i64, Error> {
    i64::try_from(revision).map_err(|_| Error::Revision(i128::from(revision)))
}

#[async_trait]
impl Backend for Sqlite {
    async fn load(&self) -> Result<Loaded, Error> {
        let head: i64 = sqlx::query_scalar("select revision from head").fetch_one(&self.pool).await?;
        let rows =
            sqlx::query("select bucket, key, revision, body from object").fetch_all(&self.pool).await?;
        let mut records = Vec::with_capacity(rows.len());
        for row in rows {
            records.push(Record {
                bucket: row.try_get(0)?,
                key: row.try_get(1)?,
                revision: from_column(row.try_get(2)?)?,
                body: Bytes::from(row.try_get::<Vec<u8>, _>(3)?),
            });
        }
        Ok(Loaded { revision: from_column(head)?, records })
    }

    async fn commit(&self, writes: &[Write]) -> Result<(), Error> {
        let mut transaction = self.pool.begin().await?;
        let mut head = 0;
        for write in writes {
            let revision = to_column(write.revision)?;
            head = head.max(revision);
            match &write.body {
                Some(body) => {
                    sqlx::query(
                        "insert into object (bucket, key, revision, body) values (?1, ?2, ?3, ?4)
                         on conflict (bucket, key) do update set revision = ?3, body = ?4",
                    )
                    .bind(&write.bucket)
                    .bind(&write.key)
                    .bind(revision)
                    .bind(body.as_ref())
                    .execute(&mut *transaction)
                    .await?
                }
                None => {
                    sqlx::query("delete from object where bucket = ?1 and key = ?2")
                        .bind(&write.bucket)
                        .bind(&write.key)
                        .execute(&mut *transaction)
                        .await?
                }
            };
        }
        sqlx::query("update head set revision = max(revision, ?1)")
            .bind(head)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(())
    }
}
