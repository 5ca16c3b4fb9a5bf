//! Retry and reset of executions that have compensated what they did, that wait for children, or whose last outcome is unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cleat_runner::message::{Outcome, Snowflake};
use cleat_runner::store::Phase;
use cleat_runner::workflow::journal::{Entry, Event};
use cleat_runner::workflow::{Executions, Fate, Repair, StepPhase};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;

use crate::service::answer;
use crate::shop::{Shop, failure, json_answer, named, output};
use crate::world::{Place, on_both_stores, until};

on_both_stores!(
    a_retry_runs_compensated_steps_again,
    a_retry_that_fails_again_compensates_each_effect_once,
    a_retried_execution_that_is_cancelled_compensates_each_effect_once,
    a_reset_past_compensated_steps_is_rejected,
    a_retry_keeps_what_other_branches_have_done,
    a_retried_parent_starts_its_failed_child_again,
    a_retried_parent_starts_its_failed_child_with_a_key_again,
    a_retried_parent_takes_the_outcome_of_a_child_that_has_completed_meanwhile,
    a_retry_keeps_the_key_of_an_unknown_outcome_and_uses_all_attempts_again,
    a_retry_uses_a_new_key_after_a_rejection,
    a_step_whose_outcome_is_unknown_is_listed_as_not_undone,
    a_plan_says_what_a_repair_would_do,
    what_has_ended_is_neither_cancelled_nor_terminated,
    the_sum_of_all_effects_is_what_the_histories_of_all_runs_say,
);

/// A service that rejects requests until it is opened.
async fn gated(place: Place) -> (Shop, Arc<AtomicBool>) {
    let open = Arc::new(AtomicBool::new(false));
    let shop = Shop::with_carrier(place, {
        let open = Arc::clone(&open);
        move |_| match open.load(Ordering::SeqCst) {
            true => json_answer(&json!({"shipped": true})),
            false => answer(409, "closed"),
        }
    });
    (shop.await, open)
}

/// Takes 100 from the stock, compensated by adding 100.
const TAKE: &str = "call: {entity: inventory, id: apples, method: restock, input: {count: -100}}, \
                    compensate: {call: {entity: inventory, id: apples, method: restock, input: {count: 100}}}";
/// Passes the gate, if it is open.
const GATE: &str = "http: {url: 'http://carrier.shop.svc/gate', method: POST}";

fn take_and_pass() -> String {
    format!("steps: [{{name: take, {TAKE}}}, {{name: gate, {GATE}}}]")
}

async fn failed(flows: &Executions, id: &str) {
    flows.join(id).await.unwrap();
    assert_eq!(flows.describe(id).await.unwrap().phase, Phase::Failed);
}

async fn a_retry_runs_compensated_steps_again(place: Place) {
    let (shop, open) = gated(place).await;
    shop.restock("apples", 100).await;
    let flows = shop.register("pay", &take_and_pass());
    flows.start(&json!({}), &named("one")).await.unwrap();
    failed(&flows, "one").await;
    assert_eq!(shop.stock("apples").await, 100);
    open.store(true, Ordering::SeqCst);
    flows.retry("one").await.unwrap();
    output(flows.join("one").await.unwrap());
    assert_eq!(shop.stock("apples").await, 0, "it completed, so it has taken them");
    // The run that failed is still there, with its compensation.
    let report = flows.report("one").await.unwrap();
    let before = Snowflake::new(report.previous_run.unwrap().parse().unwrap());
    let history = flows.history_of_run("one", before).await.unwrap();
    let compensated =
        |entry: &Entry| matches!(&entry.event, Event::Activity { name, .. } if name == "take:compensate");
    assert_eq!(history.iter().filter(|entry| compensated(entry)).count(), 1);
    let unknown = flows.history_of_run("one", Snowflake::new(1)).await.unwrap_err();
    assert_eq!(unknown.reason(), "NoSuchRun");
}

async fn a_retry_that_fails_again_compensates_each_effect_once(place: Place) {
    let (shop, open) = gated(place).await;
    shop.restock("apples", 100).await;
    let flows = shop.register("pay", &take_and_pass());
    flows.start(&json!({}), &named("one")).await.unwrap();
    failed(&flows, "one").await;
    for _ in 0..2 {
        flows.retry("one").await.unwrap();
        failed(&flows, "one").await;
        assert_eq!(shop.stock("apples").await, 100);
    }
    open.store(true, Ordering::SeqCst);
    flows.retry("one").await.unwrap();
    output(flows.join("one").await.unwrap());
    assert_eq!(shop.stock("apples").await, 0);
}

async fn a_retried_execution_that_is_cancelled_compensates_each_effect_once(place: Place) {
    let (shop, open) = gated(place).await;
    shop.restock("apples", 100).await;
    let steps = format!(
        "steps: [{{name: take, {TAKE}}}, {{name: gate, {GATE}}}, {{name: wait, signal: {{name: nobody}}}}]"
    );
    let flows = shop.register("pay", &steps);
    flows.start(&json!({}), &named("one")).await.unwrap();
    failed(&flows, "one").await;
    open.store(true, Ordering::SeqCst);
    flows.retry("one").await.unwrap();
    until("it waits for the signal", || async {
        let report = flows.report("one").await.unwrap();
        report.steps.iter().any(|step| step.name == "gate" && step.phase == StepPhase::Completed)
    })
    .await;
    assert_eq!(shop.stock("apples").await, 0);
    flows.cancel("one").await.unwrap();
    flows.join("one").await.unwrap();
    assert_eq!(shop.stock("apples").await, 100);
}

async fn a_reset_past_compensated_steps_is_rejected(place: Place) {
    let (shop, open) = gated(place).await;
    shop.restock("apples", 100).await;
    let flows = shop.register("pay", &take_and_pass());
    flows.start(&json!({}), &named("one")).await.unwrap();
    failed(&flows, "one").await;
    open.store(true, Ordering::SeqCst);
    // The definition, then the step that was compensated.
    let rejected = flows.reset("one", 2).await.unwrap_err();
    assert_eq!(rejected.reason(), "AlreadyCompensated");
    assert!(rejected.to_string().contains("reset to entry 1"), "{rejected}");
    flows.reset("one", 1).await.unwrap();
    output(flows.join("one").await.unwrap());
    assert_eq!(shop.stock("apples").await, 0);
}

async fn a_retry_keeps_what_other_branches_have_done(place: Place) {
    let (shop, open) = gated(place).await;
    shop.restock("apples", 100).await;
    let steps = format!(
        "steps:
- name: both
  parallel:
  - {{name: left, steps: [{{name: gate, {GATE}}}]}}
  - {{name: right, steps: [{{name: charge, call: {{entity: payments, id: o-1, method: charge, input: {{amount: 5}}}}}}]}}"
    );
    let flows = shop.register("both", &steps);
    flows.start(&json!({}), &named("one")).await.unwrap();
    failed(&flows, "one").await;
    assert_eq!(shop.account("o-1").await, (5, 1));
    open.store(true, Ordering::SeqCst);
    flows.retry("one").await.unwrap();
    output(flows.join("one").await.unwrap());
    assert_eq!(shop.account("o-1").await, (5, 1), "what had succeeded was kept");
}

fn parent_of(child: &str) -> String {
    format!("steps: [{{name: child, workflow: {{type: {child}}}}}]")
}

async fn a_retried_parent_starts_its_failed_child_again(place: Place) {
    let (shop, open) = gated(place).await;
    shop.restock("apples", 100).await;
    shop.register("inner", &take_and_pass());
    let flows = shop.register("outer", &parent_of("inner"));
    flows.start(&json!({}), &named("one")).await.unwrap();
    failed(&flows, "one").await;
    flows.retry("one").await.unwrap();
    failed(&flows, "one").await;
    open.store(true, Ordering::SeqCst);
    flows.retry("one").await.unwrap();
    output(flows.join("one").await.unwrap());
    assert_eq!(shop.stock("apples").await, 0);
}

async fn a_retried_parent_starts_its_failed_child_with_a_key_again(place: Place) {
    let (shop, open) = gated(place).await;
    shop.restock("apples", 100).await;
    shop.register("inner", &take_and_pass());
    let flows = shop.register("outer", "steps: [{name: child, workflow: {type: inner, key: mine}}]");
    flows.start(&json!({}), &named("one")).await.unwrap();
    failed(&flows, "one").await;
    open.store(true, Ordering::SeqCst);
    flows.retry("one").await.unwrap();
    output(flows.join("one").await.unwrap());
    assert_eq!(shop.stock("apples").await, 0);
}

async fn a_retried_parent_takes_the_outcome_of_a_child_that_has_completed_meanwhile(place: Place) {
    let (shop, open) = gated(place).await;
    shop.restock("apples", 100).await;
    let children = shop.register("inner", &take_and_pass());
    let flows = shop.register("outer", &parent_of("inner"));
    flows.start(&json!({}), &named("one")).await.unwrap();
    failed(&flows, "one").await;
    open.store(true, Ordering::SeqCst);
    let (listed, _) = children.list(&Default::default(), None, 10).await.unwrap();
    let child = listed[0].id.clone();
    children.retry(&child).await.unwrap();
    output(children.join(&child).await.unwrap());
    flows.retry("one").await.unwrap();
    output(flows.join("one").await.unwrap());
    assert_eq!(shop.stock("apples").await, 0);
    let (listed, _) = children.list(&Default::default(), None, 10).await.unwrap();
    assert_eq!(listed.len(), 1, "there was no need for another child");
}

async fn a_retry_keeps_the_key_of_an_unknown_outcome_and_uses_all_attempts_again(place: Place) {
    let broken = Arc::new(AtomicBool::new(true));
    let shop = Shop::with_carrier(place, {
        let broken = Arc::clone(&broken);
        // Broken again for two attempts after it was repaired: one attempt would not be enough.
        move |asked| match broken.load(Ordering::SeqCst) || (3..5).contains(&asked) {
            true => answer(503, "not now"),
            false => json_answer(&json!({"shipped": true})),
        }
    })
    .await;
    shop.restock("apples", 100).await;
    let steps = format!(
        "steps: [{{name: take, {TAKE}}}, {{name: capture, {GATE}, retry: {{attempts: 3, backoff: 10ms}}}}]"
    );
    let flows = shop.register("pay", &steps);
    flows.start(&json!({}), &named("one")).await.unwrap();
    failed(&flows, "one").await;
    let run = flows.describe("one").await.unwrap().run;
    broken.store(false, Ordering::SeqCst);
    flows.retry("one").await.unwrap();
    output(flows.join("one").await.unwrap());
    assert_eq!(shop.stock("apples").await, 0);
    assert_eq!(shop.carrier.asked().len(), 6);
    assert_eq!(
        shop.shipped(),
        [format!("{run}:capture")],
        "nobody knows whether it was captured under this key"
    );
}

async fn a_retry_uses_a_new_key_after_a_rejection(place: Place) {
    let (shop, open) = gated(place).await;
    let flows = shop.register("pass", &format!("steps: [{{name: gate, {GATE}}}]"));
    flows.start(&json!({}), &named("one")).await.unwrap();
    failed(&flows, "one").await;
    let before = flows.describe("one").await.unwrap().run;
    open.store(true, Ordering::SeqCst);
    flows.retry("one").await.unwrap();
    output(flows.join("one").await.unwrap());
    let after = flows.describe("one").await.unwrap().run;
    let mut keys = [format!("{before}:gate"), format!("{after}:gate")];
    keys.sort();
    assert_eq!(shop.shipped(), keys);
}

async fn a_step_whose_outcome_is_unknown_is_listed_as_not_undone(place: Place) {
    let shop = Shop::with_carrier(place, |_| answer(503, "not now")).await;
    let steps = format!("steps: [{{name: capture, {GATE}, retry: {{attempts: 4, backoff: 1ms}}}}]");
    let flows = shop.register("capture", &steps);
    flows.start(&json!({}), &named("one")).await.unwrap();
    assert_eq!(failure(flows.join("one").await.unwrap()).0, "Unavailable");
    let report = flows.report("one").await.unwrap();
    let [unknown] = &report.not_undone[..] else { panic!("{:?}", report.not_undone) };
    assert!(unknown.starts_with("capture: it is not known whether it was done"), "{unknown}");
}

async fn a_plan_says_what_a_repair_would_do(place: Place) {
    let (shop, _) = gated(place).await;
    shop.restock("apples", 100).await;
    let charge = "call: {entity: payments, id: o-1, method: charge, input: {amount: 5}}";
    let steps = format!(
        "steps: [{{name: before, {charge}}}, {{name: take, {TAKE}}}, {{name: after, {charge}}}, {{name: gate, {GATE}}}]"
    );
    let flows = shop.register("pay", &steps);
    flows.start(&json!({}), &named("one")).await.unwrap();
    failed(&flows, "one").await;
    let plan = flows.plan("one", Repair::Retry).await.unwrap();
    let steps: Vec<_> =
        plan.steps.iter().map(|step| (step.name.as_str(), step.fate, step.compensated)).collect();
    let expected = [
        ("before", Fate::Kept, false),
        ("take", Fate::RunsAgain, true),
        ("after", Fate::Repeated, false),
        ("gate", Fate::RunsAgain, false),
    ];
    assert_eq!(steps, expected);
    assert_eq!(plan.entries, 2);
    assert_eq!(
        flows.plan("one", Repair::Reset { entries: 3 }).await.unwrap_err().reason(),
        "AlreadyCompensated"
    );
    assert_eq!(flows.describe("one").await.unwrap().run.to_string(), plan.run, "nothing has changed");
}

async fn what_has_ended_is_neither_cancelled_nor_terminated(place: Place) {
    let (shop, open) = gated(place).await;
    open.store(true, Ordering::SeqCst);
    let flows = shop.register("pass", &format!("steps: [{{name: gate, {GATE}}}]"));
    flows.start(&json!({}), &named("one")).await.unwrap();
    output(flows.join("one").await.unwrap());
    for rejected in [flows.cancel("one").await, flows.terminate("one", "a mistake").await] {
        let rejected = rejected.unwrap_err();
        assert_eq!(rejected.reason(), "Finished");
        assert!(rejected.to_string().contains("pass:one has already ended as Completed"), "{rejected}");
    }
}

/// What a step of a random workflow is.
#[derive(Debug, Clone, Copy)]
enum Made {
    /// Takes so many from the stock; whether it can be compensated.
    Take(i64, bool),
    /// Passes the gate, if it is open.
    Gate,
}

/// What is done to a random execution.
#[derive(Debug, Clone, Copy)]
enum Done {
    Retry,
    Reset(usize),
    /// Retries and cancels at once.
    Cancel,
    Open,
    Close,
}

fn made() -> impl Strategy<Value = Vec<Made>> {
    let made = prop_oneof![3 => (1..9i64, any::<bool>()).prop_map(|(count, undo)| Made::Take(count, undo)), 1 => Just(Made::Gate)];
    proptest::collection::vec(made, 1..5)
}

fn done() -> impl Strategy<Value = Vec<Done>> {
    let done = prop_oneof![
        3 => Just(Done::Retry),
        2 => (0..9usize).prop_map(Done::Reset),
        1 => Just(Done::Cancel),
        1 => Just(Done::Open),
        1 => Just(Done::Close),
    ];
    proptest::collection::vec(done, 1..6)
}

fn written(made: &[Made], parallel: bool) -> String {
    let step = |(n, made): (usize, &Made)| match made {
        Made::Gate => format!("{{name: s{n}, {GATE}}}"),
        Made::Take(count, undo) => {
            let call = |count: i64| {
                format!("call: {{entity: inventory, id: apples, method: restock, input: {{count: {count}}}}}")
            };
            let compensate =
                if *undo { format!(", compensate: {{{}}}", call(*count)) } else { String::new() };
            format!("{{name: s{n}, {}{compensate}}}", call(-count))
        }
    };
    let mut steps: Vec<_> = made.iter().enumerate().map(step).collect();
    if parallel {
        let branch = |(n, step)| format!("{{name: b{n}, steps: [{step}]}}");
        steps = vec![format!(
            "{{name: all, parallel: [{}]}}",
            steps.into_iter().enumerate().map(branch).collect::<Vec<_>>().join(", ")
        )];
    }
    steps.push(format!("{{name: last, {GATE}}}"));
    format!("steps: [{}]", steps.join(", "))
}

/// How much all runs of an execution have added to the stock, by their own histories.
async fn told(shop: &Shop, made: &[Made], mut run: Snowflake) -> i64 {
    let mut sum = 0;
    loop {
        let entries = shop.store.journal(run, 0, 1000).await.unwrap();
        let entries: Vec<_> = entries.iter().map(|entry| Entry::decode(entry).unwrap()).collect();
        let fork = entries.iter().rposition(|entry| matches!(entry.event, Event::Forked { .. }));
        for entry in &entries[fork.map_or(0, |fork| fork + 1)..] {
            let Event::Activity { name, outcome: Outcome::Success(_), .. } = &entry.event else { continue };
            let step = name.rsplit('.').next().unwrap();
            let (step, sign) = step.strip_suffix(":compensate").map_or((step, -1), |step| (step, 1));
            let place = step.strip_prefix('s').and_then(|place| place.parse::<usize>().ok());
            if let Some(Made::Take(count, _)) = place.map(|place| made[place]) {
                sum += sign * count;
            }
        }
        let Some(Event::Forked { from, .. }) = fork.map(|fork| &entries[fork].event) else { return sum };
        run = *from;
    }
}

async fn the_sum_of_all_effects_is_what_the_histories_of_all_runs_say(place: Place) {
    let (shop, open) = gated(place).await;
    shop.restock("apples", 1_000_000).await;
    let mut cases = TestRunner::new(Config::default());
    for case in 0..12 {
        let made: Vec<Made> = made().new_tree(&mut cases).unwrap().current();
        let (done, parallel): (Vec<Done>, bool) =
            (done(), any::<bool>()).new_tree(&mut cases).unwrap().current();
        let before = shop.stock("apples").await;
        open.store(false, Ordering::SeqCst);
        let flows = shop.register(&format!("random{case}"), &written(&made, parallel));
        flows.start(&json!({}), &named("one")).await.unwrap();
        flows.join("one").await.unwrap();
        for &what in &done {
            let repaired = match what {
                Done::Open | Done::Close => {
                    open.store(matches!(what, Done::Open), Ordering::SeqCst);
                    Ok(())
                }
                Done::Retry => flows.retry("one").await,
                Done::Cancel => match flows.retry("one").await {
                    Ok(()) => flows.cancel("one").await,
                    Err(error) => Err(error),
                },
                Done::Reset(entries) => flows.reset("one", entries).await.map(drop),
            };
            if let Err(error) = repaired {
                let known = ["NotFailed", "AlreadyCompensated", "NoSuchStep", "Finished"];
                assert!(known.contains(&error.reason()), "{error}");
            }
            flows.join("one").await.unwrap();
        }
        let described = flows.describe("one").await.unwrap();
        let stock = shop.stock("apples").await - before;
        assert_eq!(stock, told(&shop, &made, described.run).await, "{made:?} {parallel} {done:?}");
        // One that completed has each of its own effects, and one that failed none that it can compensate.
        let left: i64 =
            made.iter().map(|made| if let Made::Take(count, true) = made { *count } else { 0 }).sum();
        if described.phase == Phase::Completed
            && !made.iter().any(|made| matches!(made, Made::Take(_, false)))
        {
            let resets = done.iter().any(|done| matches!(done, Done::Reset(_)));
            assert!(stock == -left || resets, "{stock} {made:?} {parallel} {done:?}");
        }
        if described.phase == Phase::Failed
            && made.iter().all(|made| matches!(made, Made::Take(_, true) | Made::Gate))
        {
            let resets = done.iter().any(|done| matches!(done, Done::Reset(_)));
            assert!(stock == 0 || resets, "{stock} {made:?} {parallel} {done:?}");
        }
    }
}
