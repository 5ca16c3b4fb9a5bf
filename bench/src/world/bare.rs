//! Bare commits: one row each, one round trip each, by as many connections as there are writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::Result;
use bench_subject::load::{self, Outcome};
use sqlx::postgres::PgPoolOptions;

use crate::ours::NOTE;

pub(super) async fn run(url: &str, writers: usize, seconds: f64) -> Result<Outcome> {
    // Without the pool's own round trip before each use.
    let pool = PgPoolOptions::new()
        .max_connections(u32::try_from(writers)?)
        .test_before_acquire(false)
        .connect(url)
        .await?;
    sqlx::raw_sql("CREATE TABLE bare (id bigint PRIMARY KEY, entity text NOT NULL, payload bytea NOT NULL)")
        .execute(&pool)
        .await?;
    let next = Arc::new(AtomicI64::new(0));
    let caller = |_| {
        let (pool, next) = (pool.clone(), Arc::clone(&next));
        move || {
            let (pool, next) = (pool.clone(), Arc::clone(&next));
            async move {
                let id = next.fetch_add(1, Ordering::Relaxed);
                sqlx::query("INSERT INTO bare VALUES ($1, $2, $3)")
                    .bind(id)
                    .bind(format!("entity-{}", id % 1000))
                    .bind(NOTE.as_bytes())
                    .execute(&pool)
                    .await?;
                Ok(())
            }
        }
    };
    let outcome = load::run(writers, Duration::from_secs_f64(seconds), caller, || {}).await?.flawless()?;
    pool.close().await;
    Ok(outcome)
}
