//! Retry and reset of workflows in Rust that have compensated what they did, or whose last outcome is unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cleat_runner::prelude::*;
use cleat_runner::store::Phase;
use cleat_runner::workflow::{Fate, Repair};

use crate::flow::Ledger;
use crate::world::{Place, World, on_both_stores};

on_both_stores!(
    a_retry_of_a_compensated_workflow_begins_at_its_first_step,
    a_retried_activity_whose_outcome_is_unknown_keeps_its_key_and_has_all_its_attempts,
);

/// Takes, and pays if that is possible; otherwise gives back.
#[workflow]
struct Purchase {
    ledger: Ledger,
    open: Arc<AtomicBool>,
}

#[workflow_impl(key = |id: &String| id.clone())]
impl Purchase {
    async fn execute(&self, id: String) -> Result<String, String> {
        self.note("take".to_owned()).await?;
        self.compensate(|me| me.note("give back".to_owned()));
        if id.starts_with("broken") { self.broken().await } else { self.pay().await }
    }

    #[activity]
    async fn note(&self, what: String) -> Result<(), String> {
        self.ledger.note(what);
        Ok(())
    }

    #[activity]
    async fn pay(&self) -> Result<String, String> {
        if self.open.load(Ordering::SeqCst) { Ok("paid".to_owned()) } else { Err("closed".to_owned()) }
    }

    #[activity(retries = 2, interval = "1ms")]
    async fn broken(&self) -> Result<String, String> {
        self.ledger.note(self.key());
        // Works with the last attempt only, once it works.
        assert!(self.open.load(Ordering::SeqCst) && self.attempt() == 2, "nobody knows");
        Ok("paid".to_owned())
    }
}

async fn a_retry_of_a_compensated_workflow_begins_at_its_first_step(place: Place) {
    let world = World::new(place).await;
    let (ledger, open) = (Ledger::default(), Arc::<AtomicBool>::default());
    let client = Purchase { ledger: ledger.clone(), open: Arc::clone(&open) }.register(&world.host).unwrap();
    client.execute(&"a".into()).await.unwrap_err();
    client.retry("a").await.unwrap();
    client.join("a").await.unwrap_err();
    assert_eq!(ledger.all(), ["take", "give back", "take", "give back"]);
    let plan = client.plan("a", Repair::Retry).await.unwrap();
    let steps: Vec<_> = plan.steps.iter().map(|step| (step.name.as_str(), step.fate)).collect();
    assert_eq!((plan.entries, steps), (0, vec![("note", Fate::RunsAgain), ("pay", Fate::RunsAgain)]));
    // Whoever keeps what was compensated would never take it again.
    assert_eq!(client.reset("a", 2).await.unwrap_err().reason(), "AlreadyCompensated");
    open.store(true, Ordering::SeqCst);
    client.retry("a").await.unwrap();
    assert_eq!(client.join("a").await.unwrap(), "paid");
    assert_eq!((ledger.count("take"), ledger.count("give back")), (3, 2));
}

async fn a_retried_activity_whose_outcome_is_unknown_keeps_its_key_and_has_all_its_attempts(place: Place) {
    let world = World::new(place).await;
    let (ledger, open) = (Ledger::default(), Arc::<AtomicBool>::default());
    let client = Purchase { ledger: ledger.clone(), open: Arc::clone(&open) }.register(&world.host).unwrap();
    client.execute(&"broken".into()).await.unwrap_err();
    let described = client.describe("broken").await.unwrap();
    assert_eq!(described.phase, Phase::Failed);
    assert_eq!(described.not_undone, ["broken: it is not known whether it was done, so it was not undone"]);
    let key = format!("{}:1", described.run);
    let before = ledger.count(&key);
    assert!(before > 1, "{:?}", ledger.all());
    open.store(true, Ordering::SeqCst);
    client.retry("broken").await.unwrap();
    assert_eq!(client.join("broken").await.unwrap(), "paid");
    assert_eq!(ledger.count(&key), before + 3, "{:?}", ledger.all());
}
