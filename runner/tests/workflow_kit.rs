//! The kit for tests of workflows: months pass in no time, and recorded histories meet new code.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

#[path = "workflow/flow.rs"]
#[allow(dead_code, reason = "not every program of tests needs all of it")]
mod flow;
#[path = "workflow/world.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "not every program of tests needs all of it")]
mod world;

use std::time::Duration;

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
