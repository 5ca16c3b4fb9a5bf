//! The kit for tests of workflows: months pass in no time, and recorded histories meet new code.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

#[path = "workflow/flow.rs"]
#[allow(dead_code, reason = "not every program of tests needs all of it")]
mod flow;
#[path = "workflow/world.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "not every program of tests needs all of it")]
mod world;

use std::time::{Duration, SystemTime};

use cleat_runner::prelude::*;
use cleat_runner::workflow::test::{Error, Test, replay};
use cleat_runner::workflow::{Either, select};
use flow::Ledger;
use world::{Place, World};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Reminds somebody every day until they answer, for at most a month.
#[workflow]
struct Reminder {
    ledger: Ledger,
}

#[workflow_impl]
impl Reminder {
    async fn execute(&self, who: String) -> Result<String, String> {
        for day in 1..=30 {
            match select(self.signal::<String>("answer"), self.sleep(DAY)).await {
                Either::First(answer) => return Ok(format!("{answer} on day {day}")),
                Either::Second(()) => self.remind(who.clone()).await?,
            }
        }
        self.child::<Escalation>(&who).await
    }

    #[activity(retries = 5, interval = "1h", backoff = "constant")]
    async fn remind(&self, who: String) -> Result<(), String> {
        self.ledger.note(who);
        if self.attempt() == 0 { Err("the line is busy".to_owned()) } else { Ok(()) }
    }
}

#[workflow]
struct Escalation;

#[workflow_impl]
impl Escalation {
    async fn execute(&self, who: String) -> Result<String, String> {
        self.sleep(7 * DAY).await;
        Err(format!("{who} never answered"))
    }
}

fn reminder() -> (Test, Ledger) {
    let ledger = Ledger::default();
    let test = Test::new(Reminder { ledger: ledger.clone() }.service().unwrap());
    (test.child(Escalation.service().unwrap()), ledger)
}

#[tokio::test]
async fn a_month_passes_in_no_time() {
    let begun = std::time::Instant::now();
    let (test, ledger) = reminder();
    let ended = test.signal(10 * DAY, "answer", "yes").unwrap().run("Ann").await.unwrap();
    assert_eq!(ended.output::<String>().unwrap(), "yes on day 10");
    assert_eq!(ended.elapsed, 10 * DAY);
    assert_eq!(ledger.count("Ann"), 18, "two attempts on each of nine days");
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn a_child_takes_its_time_too() {
    let (test, _) = reminder();
    let ended = test.run("Bob").await.unwrap();
    assert!(format!("{:?}", ended.output::<String>().unwrap_err()).contains("Bob never answered"));
    // A busy line costs an hour a day.
    assert_eq!(ended.elapsed, 37 * DAY + Duration::from_secs(30 * 3600));
}

#[tokio::test]
async fn what_never_comes_is_told() {
    let test = Test::new(Waiting.service().unwrap());
    assert_eq!(test.run(&()).await.unwrap_err(), Error::Stuck(Duration::ZERO));
    let ended = Test::new(Waiting.service().unwrap()).cancel(DAY).run(&()).await.unwrap();
    assert!(format!("{:?}", ended.outcome).contains("Cancelled"));
}

/// Counts what it did in a table of its own.
#[workflow]
struct Bookkeeper;

#[workflow_impl]
impl Bookkeeper {
    async fn execute(&self, day: String) -> Result<i64, String> {
        self.sleep(DAY / 2).await;
        self.book(day).await
    }

    #[activity(retries = 2, interval = "1h", backoff = "constant")]
    async fn book(&self, day: String) -> Result<i64, String> {
        let done = async {
            let table = sqlx::query("CREATE TABLE IF NOT EXISTS days (day text NOT NULL)");
            table.execute(self.tx.sqlite()).await?;
            sqlx::query("INSERT INTO days VALUES (?)").bind(day).execute(self.tx.sqlite()).await?;
            sqlx::query_scalar("SELECT count(*) FROM days").fetch_one(self.tx.sqlite()).await
        };
        let count = done.await.map_err(|error: sqlx::Error| error.to_string())?;
        // What an attempt that fails has written is taken back.
        if self.attempt() == 0 { Err("not yet".to_owned()) } else { Ok(count) }
    }
}

#[tokio::test]
async fn a_cron_starts_it_for_a_week_and_its_statements_are_committed() {
    let store = Place::sqlite().await.open().await;
    let monday = SystemTime::UNIX_EPOCH + 4 * DAY;
    let schedule = Schedule::new("0 3 * * 1-5").unwrap();
    let test = Test::new(Bookkeeper.service().unwrap()).starting_at(monday).store(store);
    let days = test.ticks(&schedule, 7 * DAY, |tick| tick.format("%a").to_string()).await.unwrap();
    let booked: Vec<_> = days
        .iter()
        .map(|(tick, ended)| (tick.format("%a %H").to_string(), ended.output::<i64>().unwrap()))
        .collect();
    let expected = ["Mon 03", "Tue 03", "Wed 03", "Thu 03", "Fri 03"].map(str::to_owned);
    assert_eq!(booked, expected.into_iter().zip(1..).collect::<Vec<_>>());
    assert_eq!(days[0].1.elapsed, DAY / 2 + Duration::from_secs(3600));
    // Without a database there is no transaction.
    let ended = Test::new(Bookkeeper.service().unwrap()).run("Mon").await.unwrap();
    assert!(format!("{:?}", ended.outcome).contains("there is no database here"), "{:?}", ended.outcome);
}

#[workflow]
struct Waiting;

#[workflow_impl]
impl Waiting {
    async fn execute(&self, (): ()) -> Result<(), Never> {
        self.signal::<()>("never").await;
        Ok(())
    }
}

/// The same workflow after a careless change.
#[workflow(name = "reminder")]
struct Careless;

#[workflow_impl]
impl Careless {
    async fn execute(&self, who: String) -> Result<String, String> {
        self.greet().await?;
        Ok(who)
    }

    #[activity]
    async fn greet(&self) -> Result<(), String> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorded_history_is_run_against_new_code() {
    let world = World::new(Place::sqlite().await).await;
    let client = Reminder { ledger: Ledger::default() }.register(&world.host).unwrap();
    let id = client.start(&"Eve".into()).await.unwrap();
    client.signal(&id, "answer", "no").await.unwrap();
    assert_eq!(client.join(&id).await.unwrap(), "no on day 1");
    let recording = client.recording(&id).await.unwrap();
    let same = Reminder { ledger: Ledger::default() }.service().unwrap();
    replay(&same, &recording).unwrap();

    let other = world::World::new(Place::sqlite().await).await;
    let careless = Careless.register(&other.host).unwrap();
    let id = careless.start(&"Eve".into()).await.unwrap();
    careless.join(&id).await.unwrap();
    let recording = careless.recording(&id).await.unwrap();
    let service = Reminder { ledger: Ledger::default() }.service().unwrap();
    let blocked = replay(&service, &recording).unwrap_err();
    assert_eq!(blocked.reason(), "NonDeterministic");
    assert!(blocked.to_string().contains("activity `greet`"), "{blocked}");
}
