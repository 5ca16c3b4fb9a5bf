//! Steps that are taken again as a whole.

use std::time::Duration;

use cleat_runner::workflow::StepPhase;
use serde_json::json;

use crate::shop::{Shop, brief, failure, json_answer, named, output};
use crate::world::{Place, on_both_stores};

on_both_stores!(
    a_block_is_undone_before_it_is_taken_again,
    what_cannot_be_undone_is_not_done_again,
    a_block_stops_trying_when_its_time_is_over,
);

const TAKE: &str = "call: {entity: inventory, id: apples, method: reserve, input: {order: ORDER, count: 1}}, \
                    compensate: {call: {entity: inventory, id: apples, method: release, input: {order: ORDER}}}";

async fn a_block_is_undone_before_it_is_taken_again(place: Place) {
    let shop = Shop::new(place).await;
    shop.restock("apples", 10).await;
    let steps = format!(
        "steps:
- {{name: before, {}}}
- {{name: zero, set: {{tries: 0}}}}
- name: each
  forEach: {{in: [1, 2], as: n}}
  steps:
  - {{name: take, {}}}
  - {{name: count, set: {{tries: '${{vars.tries + 1}}'}}}}
  - {{name: no, when: 'vars.tries == 2', fail: {{reason: NotYet}}}}
  retry: {{attempts: 2, backoff: 1ms}}",
        TAKE.replace("ORDER", "before"),
        TAKE.replace("ORDER", "'${string(n)}'"),
    );
    let flows = shop.register("again", &steps);
    let (id, _) = flows.start(&json!({}), &named("one")).await.unwrap();
    flows.join(&id).await.unwrap();
    let report = flows.report(&id).await.unwrap();
    assert_eq!(shop.stock("apples").await, 7, "{report:?}");
    let each = report.steps.iter().find(|step| step.name == "each").unwrap();
    assert_eq!((each.phase, each.attempts), (StepPhase::Completed, 2));
    let taken: Vec<_> =
        brief(&report).into_iter().map(|(name, _)| name).filter(|name| name.contains("take")).collect();
    assert_eq!(
        taken,
        [
            "each[0].take",
            "each[1].take",
            "each[1].take:compensate",
            "each[0].take:compensate",
            "each#2[0].take",
            "each#2[1].take"
        ]
    );
    assert_eq!(report.not_undone, Vec::<String>::new());
}

async fn what_cannot_be_undone_is_not_done_again(place: Place) {
    let shop = Shop::new(place).await;
    let steps = "steps:
- name: way
  switch:
  - steps:
    - name: ship
      http: {url: 'http://carrier.shop.svc/ship'}
      compensate: {call: {entity: inventory, id: x, method: vanish}}
    - {name: no, fail: {reason: NotYet}}
  retry: {attempts: 5, backoff: 1ms}";
    let flows = shop.register("once", steps);
    let (id, _) = flows.start(&json!({}), &named("one")).await.unwrap();
    assert_eq!(failure(flows.join(&id).await.unwrap()).0, "NotYet");
    assert_eq!(shop.shipped().len(), 1);
    let report = flows.report(&id).await.unwrap();
    assert!(
        report.not_undone[0].starts_with("way.ship:compensate: UnknownMethod"),
        "{:?}",
        report.not_undone
    );
    assert_eq!(report.not_undone.len(), 1);
}

async fn a_block_stops_trying_when_its_time_is_over(place: Place) {
    let shop = Shop::new(place).await;
    let steps = "steps:
- name: way
  timeout: 200ms
  switch: [{steps: [{name: no, fail: {reason: NotYet}}]}]
  retry: {attempts: 1000000, backoff: 1ms, max: 20ms}";
    let flows = shop.register("late", steps);
    let (id, _) = flows.start(&json!({}), &named("one")).await.unwrap();
    assert_eq!(failure(flows.join(&id).await.unwrap()).0, "TimedOut");
}

/// A month passes in no time: attempts have pauses, and the step's own time is for all of them.
#[tokio::test]
async fn a_signal_is_waited_for_again() {
    let shop = Shop::with_carrier(Place::sqlite().await, |_| json_answer(&json!({}))).await;
    let hour = Duration::from_secs(3600);
    let steps =
        "steps: [{name: a, signal: {name: go, timeout: 1h}, retry: {attempts: 3, backoff: 30m, max: 30m}}]
output: '${steps.a.output}'";
    let ended = shop.test(steps).signal(2 * hour, "go", "on").unwrap().run(&json!({})).await.unwrap();
    assert_eq!(output(ended.outcome), json!("on"));
    let ended = shop.test(steps).run(&json!({})).await.unwrap();
    assert_eq!((failure(ended.outcome).0.as_str(), ended.elapsed), ("TimedOut", 4 * hour));
    let limited = steps.replace("retry:", "timeout: 2h, retry:");
    let ended = shop.test(&limited).run(&json!({})).await.unwrap();
    let (reason, message) = failure(ended.outcome);
    assert_eq!((reason.as_str(), ended.elapsed), ("TimedOut", 2 * hour), "{message}");
}
