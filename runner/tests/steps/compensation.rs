//! What is undone when something fails, and what is told when that is not possible.

use std::sync::{Arc, Condvar, Mutex};

use cleat_runner::store::Phase;
use cleat_runner::workflow::{StepPhase, StepReport};
use serde_json::json;

use crate::shop::{Shop, brief, failure, json_answer, named};
use crate::world::{Place, on_both_stores, until};

const RESERVE: &str = "call: {entity: inventory, id: apples, method: reserve, input: {order: ORDER, count: 1}}, \
                       compensate: {call: {entity: inventory, id: apples, method: release, input: {order: ORDER}}}";

fn reserve(order: &str) -> String {
    RESERVE.replace("ORDER", order)
}

/// Keeps answers back until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        let (is_open, opened) = &*self.0;
        *is_open.lock().unwrap() = true;
        opened.notify_all();
    }

    fn pass(&self) {
        let (is_open, opened) = &*self.0;
        tokio::task::block_in_place(|| {
            drop(opened.wait_while(is_open.lock().unwrap(), |open| !*open).unwrap())
        });
    }
}

/// A carrier that answers once the gate is open.
async fn waiting(place: Place) -> (Shop, Gate) {
    let gate = Gate::default();
    let shop = Shop::with_carrier(place, {
        let gate = gate.clone();
        move |_| {
            gate.pass();
            json_answer(&json!({"shipped": true}))
        }
    });
    (shop.await, gate)
}

on_both_stores!(
    branches_and_iterations_are_undone_in_reverse,
    what_is_under_way_beside_a_failure_is_waited_for_and_undone,
    what_is_under_way_when_it_is_cancelled_is_waited_for_and_undone,
    a_block_that_takes_too_long_is_undone,
    what_cannot_be_undone_is_told,
);

async fn branches_and_iterations_are_undone_in_reverse(place: Place) {
    let shop = Shop::new(place).await;
    shop.restock("apples", 10).await;
    let steps = format!(
        "steps:
- {{name: first, {}}}
- name: both
  parallel:
  - {{name: left, steps: [{{name: a, {}}}]}}
  - {{name: right, steps: [{{name: wait, sleep: 10ms}}, {{name: b, {}}}]}}
- name: each
  forEach: {{in: [1, 2]}}
  steps: [{{name: c, {}}}]
- {{name: end, fail: {{reason: TooBad}}}}",
        reserve("o-1"),
        reserve("o-2"),
        reserve("o-3"),
        reserve("'${string(item)}'"),
    );
    let flows = shop.register("undo", &steps);
    let (id, _) = flows.start(&json!({}), &named("one")).await.unwrap();
    assert_eq!(failure(flows.join(&id).await.unwrap()).0, "TooBad");
    assert_eq!(shop.stock("apples").await, 10);
    let report = flows.report(&id).await.unwrap();
    let undone: Vec<_> = brief(&report).into_iter().filter(|(name, _)| name.contains(':')).collect();
    let names: Vec<_> = undone.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names,
        [
            "each[1].c:compensate",
            "each[0].c:compensate",
            "both.right.b:compensate",
            "both.left.a:compensate",
            "first:compensate"
        ]
    );
    assert!(undone.iter().all(|(_, phase)| *phase == StepPhase::Completed));
}

const SHIP: &str = "http: {url: 'http://carrier.shop.svc/ship'}, compensate: {http: {url: 'http://carrier.shop.svc/cancel'}}";

async fn what_is_under_way_beside_a_failure_is_waited_for_and_undone(place: Place) {
    let (shop, gate) = waiting(place).await;
    let steps = format!(
        "steps:
- name: both
  parallel:
  - {{name: bad, steps: [{{name: wait, sleep: 1ms}}, {{name: no, fail: {{reason: TooBad}}}}]}}
  - {{name: good, steps: [{{name: ship, {SHIP}}}, {{name: never, {SHIP}}}]}}
  - {{name: idle, steps: [{{name: wait, signal: {{name: nobody}}}}]}}"
    );
    let flows = shop.register("beside", &steps);
    let (id, _) = flows.start(&json!({}), &named("one")).await.unwrap();
    until("one failed while the other is under way", || async {
        let report = flows.report(&id).await.unwrap();
        let failed = |step: &StepReport| step.name == "both.bad.no" && step.phase == StepPhase::Failed;
        !shop.carrier.asked().is_empty() && report.steps.iter().any(failed)
    })
    .await;
    gate.open();
    assert_eq!(failure(flows.join(&id).await.unwrap()).0, "TooBad");
    let run = flows.describe(&id).await.unwrap().run;
    assert_eq!(shop.shipped(), [format!("{run}:both.good.ship"), format!("{run}:both.good.ship:compensate")]);
    let report = flows.report(&id).await.unwrap();
    let idle = report.steps.iter().find(|step| step.name == "both.idle.wait").unwrap();
    assert_eq!(idle.phase, StepPhase::Cancelled);
}

async fn what_is_under_way_when_it_is_cancelled_is_waited_for_and_undone(place: Place) {
    let (shop, gate) = waiting(place).await;
    let flows =
        shop.register("cancelled", &format!("steps: [{{name: ship, {SHIP}}}, {{name: never, {SHIP}}}]"));
    let (id, _) = flows.start(&json!({}), &named("one")).await.unwrap();
    until("it is under way", || async { !shop.carrier.asked().is_empty() }).await;
    flows.cancel(&id).await.unwrap();
    until("it knows", || async { flows.describe(&id).await.unwrap().phase == Phase::Cancelling }).await;
    gate.open();
    flows.join(&id).await.unwrap();
    let described = flows.describe(&id).await.unwrap();
    assert_eq!(described.phase, Phase::Cancelled);
    let run = described.run;
    assert_eq!(shop.shipped(), [format!("{run}:ship"), format!("{run}:ship:compensate")]);
}

async fn a_block_that_takes_too_long_is_undone(place: Place) {
    let shop = Shop::new(place).await;
    shop.restock("apples", 10).await;
    let steps = format!(
        "steps:
- name: block
  timeout: 100ms
  parallel:
  - {{name: done, steps: [{{name: a, {}}}]}}
  - {{name: never, steps: [{{name: wait, signal: {{name: nobody}}}}]}}",
        reserve("o-1")
    );
    let flows = shop.register("late", &steps);
    let (id, _) = flows.start(&json!({}), &named("one")).await.unwrap();
    let (reason, message) = failure(flows.join(&id).await.unwrap());
    assert_eq!((reason.as_str(), message.as_str()), ("TimedOut", "step block took longer than 100ms"));
    assert_eq!(shop.stock("apples").await, 10);
}

async fn what_cannot_be_undone_is_told(place: Place) {
    let shop = Shop::with_carrier(place, |_| crate::service::answer(500, "no")).await;
    let steps = "steps:
- {name: a, sleep: 1ms, compensate: {call: {entity: inventory, id: x, method: vanish}}}
- {name: b, sleep: 1ms, compensate: {call: {entity: inventory, id: '${input.missing}', method: get}}}
- {name: c, http: {url: 'http://carrier.shop.svc/ship'}, retry: {attempts: 2, backoff: 10ms}, compensate: {http: {url: 'http://carrier.shop.svc/cancel'}}}";
    let flows = shop.register("stuck", steps);
    let (id, _) = flows.start(&json!({}), &named("one")).await.unwrap();
    let (reason, message) = failure(flows.join(&id).await.unwrap());
    assert_eq!(reason, "Unavailable");
    assert!(message.contains("step c: answered 500"), "{message}");
    let report = flows.report(&id).await.unwrap();
    let [doubtful, expression, unknown] = &report.not_undone[..] else { panic!("{:?}", report.not_undone) };
    assert!(doubtful.starts_with("c: it is not known"), "{doubtful}");
    assert!(expression.starts_with("b:compensate: InvalidExpression"), "{expression}");
    assert!(unknown.starts_with("a:compensate: UnknownMethod"), "{unknown}");
    assert_eq!(report.steps.iter().find(|step| step.name == "c").unwrap().attempts, 2);
}
