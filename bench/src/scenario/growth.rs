//! The same with ever more entities, and with many finished messages in the tables.
//!
//! One cluster grows, and another one beside it stays as it was. They are put under load in turn: this machine is not equally fast from
//! one minute to the next, and what is compared must not be minutes apart.

use anyhow::Result;
use bench_subject::protocol::{Command, Method, Outcome, Place, Touch};
use sqlx::{Connection, PgConnection};

use crate::report::{Measurement, Report, Target};
use crate::world::{Ask, Cluster, Shape, System, World};

const SCENARIO: &str = "growth";
const CLIENTS: usize = 64;
const FIRST: usize = 1000;

/// How many times as many entities there are each time.
const FACTORS: &[usize] = &[100, 1000];

/// How often each of the two has its turn.
const TURNS: usize = 3;

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
    let mut pair = Pair {
        small: world.cluster(&System::Cleat, Shape::Alone).await?,
        large: world.cluster(&System::Cleat, Shape::Alone).await?,
        first,
    };
    for cluster in [&mut pair.small, &mut pair.large] {
        touch(cluster, 0, first).await?;
        // The first load of a process is slower than any later one.
        measure(world, cluster, first).await?;
    }
    let mut touched = first;
    for factor in world.effort.choose(FACTORS, &[10]) {
        let entities = first * factor;
        if entities > most {
            break;
        }
        touch(&mut pair.large, touched, entities).await?;
        touched = entities;
        let what = format!("durable state, {entities} entities, {CLIENTS} clients");
        pair.compare(world, report, &what, entities).await?;
    }
    let finished = world.effort.choose(world.effort.finished, 1000);
    if finished > 0 {
        finish(&pair.large.database().url, finished).await?;
        let what = format!("durable state, {first} entities, {finished} more finished messages");
        pair.compare(world, report, &what, first).await?;
    }
    world.clear(pair.small).await?;
    world.clear(pair.large).await
}

/// A cluster that grows, beside one that does not.
struct Pair {
    small: Cluster,
    large: Cluster,
    /// How many entities the small one has.
    first: usize,
}

impl Pair {
    /// Measures both in turn, with so many entities of the large one.
    async fn compare(
        &mut self,
        world: &World,
        report: &mut Report,
        what: &str,
        entities: usize,
    ) -> Result<()> {
        let turns = world.effort.choose(TURNS, 1);
        let (mut small, mut large) = (Vec::new(), Vec::new());
        for cluster in [&self.small, &self.large] {
            tidy(&cluster.database().url).await?;
        }
        for _ in 0..turns {
            small.push(measure(world, &mut self.small, self.first).await?);
            large.push(measure(world, &mut self.large, entities).await?);
        }
        add(report, what, &mean(&large), &mean(&small), self.first);
        Ok(())
    }
}

/// What several turns have shown together: of calls and CPU time the mean, of latencies the worst.
fn mean(turns: &[Outcome]) -> Outcome {
    let calls: f64 = turns.iter().map(|turn| turn.per_second).sum();
    let per_call = |micros: fn(&Outcome) -> f64| {
        turns.iter().map(|turn| micros(turn) * turn.per_second).sum::<f64>() / calls.max(f64::MIN_POSITIVE)
    };
    let worst = |latency: fn(&Outcome) -> f64| turns.iter().map(latency).fold(0.0, f64::max);
    Outcome {
        per_second: calls / turns.iter().map(|_| 1.0).sum::<f64>(),
        p50: worst(|turn| turn.p50),
        p99: worst(|turn| turn.p99),
        p999: worst(|turn| turn.p999),
        errors: turns.iter().map(|turn| turn.errors).sum(),
        hung: turns.iter().map(|turn| turn.hung).sum(),
        first_error: turns.iter().find_map(|turn| turn.first_error.clone()),
        runner_micros: per_call(|turn| turn.runner_micros),
        database_micros: per_call(|turn| turn.database_micros),
    }
}

fn add(report: &mut Report, what: &str, outcome: &Outcome, base: &Outcome, first: usize) {
    let name = format!("{first} entities");
    let mut add = |metric: &str, value: fn(&Outcome) -> f64, unit, target: Option<Target>| {
        let measurement = Measurement::new(SCENARIO, format!("{what}{metric}"), value(outcome), unit);
        report.add(measurement.beside(name.as_str(), value(base)).may_want(target));
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
