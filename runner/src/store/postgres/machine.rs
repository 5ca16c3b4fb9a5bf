//! The database's clock, and leases of machine numbers, which follow it.

use std::time::{Duration, SystemTime};

use sqlx::postgres::{PgConnection, PgPool};

use super::connect::unavailable;
use super::setup::SCHEMA_LOCK;
use crate::clock::DatabaseClock;
use crate::lease::{Boot, Clock};
use crate::message::codec::time::from_millis;
use crate::message::snowflake::{Machine, Span, Tick};
use crate::shard::Instance;
use crate::store::Error;

/// How long a machine number is leased. It is renewed long before, so a longer one only delays its reuse after a crash.
const LEASE: Duration = Duration::from_secs(3600);

/// The database's time in milliseconds of Unix time.
macro_rules! now {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    };
}
pub(super) use now;

/// Reads the database's time, and sets the clock by it.
pub(super) async fn read_clock(pool: &PgPool, clock: &DatabaseClock) -> Result<SystemTime, Error> {
    // Otherwise the time until the pool has a connection would count as half of it.
    let mut connection = pool.acquire().await.map_err(unavailable)?;
    read_clock_on(&mut connection, clock).await
}

/// The same on a connection.
pub(super) async fn read_clock_on(
    connection: &mut PgConnection,
    clock: &DatabaseClock,
) -> Result<SystemTime, Error> {
    let asked = Boot.now();
    let now: i64 =
        sqlx::query_scalar(concat!("SELECT ", now!())).fetch_one(connection).await.map_err(unavailable)?;
    clock.set_between(from_millis(now), asked, Boot.now());
    Ok(from_millis(now))
}

/// Prolongs the lease of a number that this instance has, or else leases one that nobody has.
pub(super) async fn lease(
    pool: &PgPool,
    clock: &DatabaseClock,
    instance: &Instance,
    held: Option<Machine>,
) -> Result<Span, Error> {
    let mut transaction = pool.begin().await.map_err(unavailable)?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(SCHEMA_LOCK)
        .execute(&mut *transaction)
        .await
        .map_err(unavailable)?;
    let asked = Boot.now();
    // First our own, then one that has run out, then one that nobody ever had.
    let found: Option<(i64, i16, i64, bool)> = sqlx::query_as(concat!(
        "WITH clock AS MATERIALIZED (SELECT ",
        now!(),
        " AS now)
         SELECT clock.now, free.machine, free.until, free.held FROM clock CROSS JOIN LATERAL (
           SELECT machine, until, coalesce(machine = $2 AND instance = $1, false) AS held FROM cleat.machines
           WHERE (machine = $2 AND instance = $1) OR until <= clock.now - $3
           UNION ALL
           SELECT n::smallint, 0, false FROM generate_series(0, $4) AS n
           WHERE NOT EXISTS (SELECT 1 FROM cleat.machines WHERE machine = n)
         ) AS free ORDER BY free.held DESC, free.until > 0 DESC, free.machine LIMIT 1",
    ))
    .bind(instance.as_str())
    .bind(held.map(|machine| i32::from(machine.get())))
    .bind(Tick::EPOCH)
    .bind(i32::from(Machine::MAX))
    .fetch_optional(&mut *transaction)
    .await
    .map_err(unavailable)?;
    let Some((now, number, before, held)) = found else { return Err(Error::NoMachine) };
    let now = from_millis(now);
    clock.set_between(now, asked, Boot.now());
    let (from, until) = (Tick::at(now), Tick::at(now + LEASE).max(Tick::new(before)));
    sqlx::query(
        "INSERT INTO cleat.machines (machine, instance, until) VALUES ($1, $2, $3)
         ON CONFLICT (machine) DO UPDATE SET instance = excluded.instance, until = excluded.until",
    )
    .bind(number)
    .bind(instance.as_str())
    .bind(until.get())
    .execute(&mut *transaction)
    .await
    .map_err(unavailable)?;
    transaction.commit().await.map_err(unavailable)?;
    let machine = u16::try_from(number).ok().and_then(Machine::new).ok_or(Error::NoMachine)?;
    // A prolonged span continues; a new one begins where the last lessee's ended.
    let from = if held { from } else { from.max(Tick::new(before)) };
    Ok(Span { machine, from, until })
}
