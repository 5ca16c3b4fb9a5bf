//! Durable writes: what every peer pays for a commit, what group commit makes of it, and what the disk allows.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bench_subject::load;
use bytes::Bytes;
use cleat_runner::message::snowflake::Generator;
use cleat_runner::message::{EntityAddress, Envelope, Uninterruptible};
use cleat_runner::shard::{Epoch, Fence, GroupName, Instance};
use cleat_runner::store::postgres::{Options, PostgresStore};
use cleat_runner::store::{Change, Message, Store, Write};
use sqlx::Executor;
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};

use crate::report::{Measurement, Report, Target};
use crate::world::World;

const SCENARIO: &str = "store";
const ENTITIES: usize = 1000;
const PAYLOAD: usize = 100;
const PLAIN: &str = "INSERT INTO cleat.messages (id, grp, slot, seq, entity_type, entity_id, method, payload)
    VALUES ($1, 1, $2, $1, $3, $4, $5, $6)";

/// Everything that the measurements need.
struct Bench {
    url: String,
    pool: PgPool,
    store: Arc<PostgresStore>,
    fences: Arc<Vec<Fence>>,
    ids: Arc<Generator>,
    time: Duration,
}

/// Measures.
pub async fn run(world: &World, report: &mut Report) -> Result<()> {
    eprintln!("store: {PAYLOAD} bytes of payload, {ENTITIES} entities");
    let database = world.database().await?;
    let time = Duration::from_secs_f64(world.effort.seconds);
    let bench = Bench::open(database.url.clone(), time).await?;

    let plain = bench.plain(64).await?;
    report.add(Measurement::new(SCENARIO, "plain commits, 64 writers", plain.per_second, "1/s"));
    bench.empty().await?;
    let limit = bench.raw().await?;
    report.add(Measurement::new(SCENARIO, "rows inserted in batches of 1,000", limit, "1/s"));
    for (writers, target) in [(64, 3.0), (1024, 7.0)] {
        bench.empty().await?;
        let grouped = bench.grouped(writers).await?;
        let metric = format!("group commits, {writers} waiting writers");
        report.add(
            Measurement::new(SCENARIO, &metric, grouped.per_second, "1/s")
                .beside("plain commits, 64", plain.per_second)
                .wants(Target::RatioAtLeast(target)),
        );
        let of_limit =
            Measurement::new(SCENARIO, &metric, grouped.per_second, "1/s").beside("rows in batches", limit);
        report.add(if writers == 1024 { of_limit.wants(Target::RatioAtLeast(0.5)) } else { of_limit });
        report.add(Measurement::new(SCENARIO, format!("{metric}: p50"), grouped.milliseconds(50.0), "ms"));
        report.add(Measurement::new(SCENARIO, format!("{metric}: p99"), grouped.milliseconds(99.0), "ms"));
        report.add(Measurement::new(SCENARIO, format!("{metric}: p999"), grouped.milliseconds(99.9), "ms"));
    }
    bench.empty().await?;
    bench.alone(report).await?;
    bench.claim(report).await?;
    bench.store.close().await;
    bench.pool.close().await;
    world.drop_database(&database).await
}

impl Bench {
    async fn open(url: String, time: Duration) -> Result<Self> {
        let store = Arc::new(PostgresStore::open(Options::new(&url, Instance::random())).await?);
        let fences: Vec<Fence> =
            store.maps()[0].ids().map(|shard| Fence { shard, epoch: Epoch::UNCLAIMED.next() }).collect();
        for claim in store.claim(&fences).await? {
            claim?;
        }
        let ids = Arc::new(Generator::new(store.lease_machine().await?));
        // Without the pool's own round trip before each use: the baseline is a bare commit.
        let pool = PgPoolOptions::new()
            .max_connections(64)
            .min_connections(64)
            .test_before_acquire(false)
            .connect(&url)
            .await?;
        Ok(Self { url, pool, store, fences: Arc::new(fences), ids, time })
    }

    /// A table as it was at the beginning, with nothing left to clean up.
    async fn empty(&self) -> Result<()> {
        self.pool.execute("TRUNCATE cleat.messages").await?;
        self.pool.execute("CHECKPOINT").await?;
        Ok(())
    }

    /// What every system pays that commits each message by itself.
    async fn plain(&self, writers: usize) -> Result<load::Outcome> {
        load::run(
            writers,
            self.time,
            |writer| {
                let (pool, ids) = (self.pool.clone(), Arc::clone(&self.ids));
                let mut next = writer;
                move || {
                    let (pool, ids) = (pool.clone(), Arc::clone(&ids));
                    next += 1;
                    let address = address(next);
                    async move {
                        let mut connection = pool.acquire().await?;
                        plain(&mut connection, ids.next()?.get(), &address).await
                    }
                }
            },
            || {},
        )
        .await?
        .flawless()
    }

    /// The same messages through the store, each caller waiting for its own commit.
    async fn grouped(&self, writers: usize) -> Result<load::Outcome> {
        self.writes(writers).await?.flawless()
    }

    /// The same, with failures that are counted.
    async fn writes(&self, writers: usize) -> Result<load::Outcome> {
        load::run(
            writers,
            self.time,
            |writer| {
                let (store, fences, ids) =
                    (Arc::clone(&self.store), Arc::clone(&self.fences), Arc::clone(&self.ids));
                let mut next = writer;
                move || {
                    let (store, fences, ids) = (Arc::clone(&store), Arc::clone(&fences), Arc::clone(&ids));
                    next += 1;
                    let address = address(next);
                    async move {
                        store.commit(write(&store, &fences, &ids, address)?).await?;
                        Ok(())
                    }
                }
            },
            || {},
        )
        .await
    }

    /// As many rows as the same table takes, with nobody waiting for a single one.
    async fn raw(&self) -> Result<f64> {
        const ROWS: usize = 1000;
        let outcome = load::run(2, self.time, |writer| {
            let (pool, ids) = (self.pool.clone(), Arc::clone(&self.ids));
            let mut next = writer;
            move || {
                let (pool, ids) = (pool.clone(), Arc::clone(&ids));
                next += ROWS;
                let addresses: Vec<_> = (next..next + ROWS).map(address).collect();
                async move {
                    let ids = addresses.iter().map(|_| Ok(ids.next()?.get())).collect::<Result<Vec<_>>>()?;
                    sqlx::query(
                        "INSERT INTO cleat.messages (id, grp, slot, seq, entity_type, entity_id, method, payload)
                         SELECT id, 1, slot, id, entity_type, entity_id, 'increment', payload
                         FROM unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::bytea[])
                           AS u (id, slot, entity_type, entity_id, payload)",
                    )
                    .bind(ids)
                    .bind(addresses.iter().map(|a| i32::from(a.slot().get())).collect::<Vec<_>>())
                    .bind(addresses.iter().map(|a| a.entity_type.as_str().to_owned()).collect::<Vec<_>>())
                    .bind(addresses.iter().map(|a| a.id.as_str().to_owned()).collect::<Vec<_>>())
                    .bind(vec![vec![7_u8; PAYLOAD]; ROWS])
                    .execute(&pool)
                    .await?;
                    Ok(())
                }
            }
        }, || {})
        .await?
        .flawless()?;
        Ok(outcome.per_second * f64::from(u32::try_from(ROWS)?))
    }

    /// One writer alone: group commit must not make it wait.
    async fn alone(&self, report: &mut Report) -> Result<()> {
        let (mut plain, mut grouped) = (self.plain(1).await?, self.grouped(1).await?);
        // Turn and turn about, because a disk is not equally fast at all times.
        for _ in 0..3 {
            plain.latency.add(self.plain(1).await?.latency)?;
            grouped.latency.add(self.grouped(1).await?.latency)?;
        }
        let name = |percentile: &str| format!("group commit, one writer alone: {percentile}");
        report.add(
            Measurement::new(SCENARIO, name("p50"), grouped.milliseconds(50.0), "ms")
                .beside("plain commit, one writer", plain.milliseconds(50.0))
                .wants(Target::RatioAtMost(1.1)),
        );
        report.add(
            Measurement::new(SCENARIO, name("p99"), grouped.milliseconds(99.0), "ms")
                .beside("plain commit, one writer", plain.milliseconds(99.0)),
        );
        Ok(())
    }

    /// How long a claim takes while sixteen writers keep the old owner busy.
    async fn claim(&self, report: &mut Report) -> Result<()> {
        let heir = PostgresStore::open(Options::new(&self.url, Instance::random())).await?;
        let fence = Fence { epoch: Epoch::new(2), ..self.fences[0].clone() };
        // The shard that is being claimed answers `Fenced`; that is the point.
        let load = self.writes(16);
        let claim = async {
            tokio::time::sleep(self.time / 2).await;
            let begun = std::time::Instant::now();
            for claim in heir.claim(std::slice::from_ref(&fence)).await? {
                claim?;
            }
            anyhow::Ok(begun.elapsed())
        };
        let (_, taken) = tokio::try_join!(load, claim)?;
        report.add(Measurement::new(
            SCENARIO,
            "claim under 16 busy writers",
            taken.as_secs_f64() * 1000.0,
            "ms",
        ));
        heir.close().await;
        Ok(())
    }
}

fn address(number: usize) -> EntityAddress {
    // The name is well formed by construction; the fallback only keeps the compiler content.
    EntityAddress::new("counter", &format!("entity-{}", number % ENTITIES))
        .unwrap_or_else(|_| unreachable!("a short printable name"))
}

fn write(store: &PostgresStore, fences: &[Fence], ids: &Generator, address: EntityAddress) -> Result<Write> {
    let id = ids.next()?;
    let map = store.maps().first().context("a store has at least one group")?;
    let fence = fences[usize::from(map.shard_at(address.slot()).id)].clone();
    let envelope = Envelope {
        id,
        address,
        method: "increment".to_owned(),
        payload: Bytes::from_static(&[7; PAYLOAD]),
        persisted: true,
        key: None,
        deliver_at: None,
        uninterruptible: Uninterruptible::No,
        trace: None,
        headers: Default::default(),
    };
    Ok(Write::one(
        fence,
        Change::Accept(Message { envelope, group: GroupName::default(), seq: id, resent: false }),
    ))
}

async fn plain(connection: &mut PgConnection, id: i64, address: &EntityAddress) -> Result<()> {
    sqlx::query(PLAIN)
        .bind(id)
        .bind(i32::from(address.slot().get()))
        .bind(address.entity_type.as_str())
        .bind(address.id.as_str())
        .bind("increment")
        .bind([7_u8; PAYLOAD].as_slice())
        .execute(connection)
        .await?;
    Ok(())
}
