//! The same with ever more entities, and with many finished messages in the tables.

use anyhow::Result;
use bench_subject::protocol::{Command, Method, Outcome, Place, Touch};
use sqlx::{Connection, PgConnection};

use crate::report::{Measurement, Report, Target};
use crate::world::{Ask, Cluster, Shape, System, World};

const SCENARIO: &str = "growth";
const CLIENTS: usize = 64;
const FIRST: usize = 1000;

/// How many times as many entities there are each time.
const FACTORS: &[usize] = &[1, 100, 1000];

/// How many finished messages are added in one statement.
const ROWS: u32 = 500_000;

/// Finished messages like those that are there, with ids just below the oldest.
const FINISHED: &str =
    "INSERT INTO cleat.outcomes (id, grp, slot, entity_type, entity_id, method, epoch, status, reply, done)
    SELECT o.id - n, o.grp, o.slot, o.entity_type, o.entity_id, o.method, o.epoch, o.status, o.reply, o.done
    FROM (SELECT * FROM cleat.outcomes ORDER BY id LIMIT 1) o, generate_series(1, $1) n";

/// Measures.
pub async fn run(world: &World, report: &mut Report) -> Result<()> {
    let first = world.effort.choose(FIRST, 50);
    let most = world.effort.most_entities.max(first);
    eprintln!(
        "growth: from {first} to {most} entities with durable state, then {} finished messages",
        world.effort.finished
    );
    let mut cluster = world.cluster(&System::Cleat, Shape::Alone).await?;
    touch(&mut cluster, 0, first).await?;
    // The first load of a process is slower than any later one, and would flatter those.
    measure(world, &mut cluster, first).await?;
    let mut touched = first;
    let mut base: Option<Outcome> = None;
    for factor in world.effort.choose(FACTORS, &[1, 10]) {
        let entities = first * factor;
        if entities > most {
            break;
        }
        touch(&mut cluster, touched, entities).await?;
        touched = entities;
        tidy(&cluster.database().url).await?;
        let outcome = measure(world, &mut cluster, entities).await?;
        let what = format!("durable state, {entities} entities, {CLIENTS} clients");
        add(report, &what, &outcome, base.as_ref(), first);
        base.get_or_insert(outcome);
    }
    let finished = world.effort.choose(world.effort.finished, 1000);
    if finished > 0 {
        finish(&cluster.database().url, finished).await?;
        tidy(&cluster.database().url).await?;
        let outcome = measure(world, &mut cluster, first).await?;
        let what = format!("durable state, {first} entities, {finished} more finished messages");
        add(report, &what, &outcome, base.as_ref(), first);
    }
    world.clear(cluster).await
}

fn add(report: &mut Report, what: &str, outcome: &Outcome, base: Option<&Outcome>, first: usize) {
    let name = format!("{first} entities");
    let mut add = |metric: &str, value: fn(&Outcome) -> f64, unit, target: Option<Target>| {
        let measurement = Measurement::new(SCENARIO, format!("{what}{metric}"), value(outcome), unit);
        let measurement = match base {
            Some(base) => measurement.beside(name.as_str(), value(base)).may_want(target),
            None => measurement,
        };
        report.add(measurement);
    };
    add("", |it| it.per_second, "1/s", Some(Target::RatioAtLeast(0.8)));
    add(": p99", |it| it.p99, "ms", None);
    add(": CPU of the runner", |it| it.runner_micros, "us/op", None);
    add(": CPU of the database", |it| it.database_micros, "us/op", None);
    let failures =
        Measurement::new(SCENARIO, format!("{what}: errors and hung calls"), outcome.failures(), "");
    report.add(failures.wants(Target::AtMost(0.0)));
}

async fn touch(cluster: &mut Cluster, first: usize, end: usize) -> Result<()> {
    /// So that no command takes long.
    const AT_ONCE: usize = 100_000;
    let mut next = first;
    while next < end {
        let entities = AT_ONCE.min(end - next);
        let touch = Touch { method: Method::Add, first: next, entities, clients: 512 };
        cluster.first()?.tell(&Command::Touch(touch)).await?;
        next += entities;
        if end - first > AT_ONCE {
            eprintln!("  {next} of {end} entities are there");
        }
    }
    Ok(())
}

async fn measure(world: &World, cluster: &mut Cluster, entities: usize) -> Result<Outcome> {
    let seconds = world.effort.seconds;
    let ask = Ask { method: Method::Add, place: Place::Local, clients: CLIENTS, entities, seconds };
    cluster.load(ask).await
}

async fn finish(url: &str, count: u32) -> Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    let mut left = count;
    while left > 0 {
        let rows = ROWS.min(left);
        sqlx::query(FINISHED).bind(i64::from(rows)).execute(&mut connection).await?;
        left -= rows;
        eprintln!("  {} of {count} finished messages are there", count - left);
    }
    connection.close().await?;
    Ok(())
}

/// Does what PostgreSQL would do sooner or later, so that it does not do it in one measurement and not in the other.
async fn tidy(url: &str) -> Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    for statement in ["VACUUM ANALYZE cleat.outcomes, cleat.states, cleat.messages", "CHECKPOINT"] {
        sqlx::raw_sql(statement).execute(&mut connection).await?;
    }
    connection.close().await?;
    Ok(())
}
