//! What no workflow may do, however it is written.

use std::sync::atomic::Ordering;

use cleat_runner::egress::{Limits, Options};
use cleat_runner::message::Outcome;
use cleat_runner::steps::{self, MAX_INPUT, MAX_ITEMS, Reach, Written};
use cleat_runner::workflow::test::Test;
use cleat_runner::workflow::{Executions, StepPhase};
use serde_json::{Value, json};

use crate::service::{Service, answer, egress, options};
use crate::shop::{Shop, brief, failure, named, workflow};
use crate::world::Place;

/// Why steps fail, with an input.
async fn fails(shop: &Shop, steps: &str, input: Value) -> (String, String) {
    failure(shop.test(steps).run(&input).await.unwrap().outcome)
}

#[tokio::test]
async fn an_expression_without_a_value_fails_the_execution_and_is_named() {
    let shop = Shop::new(Place::sqlite().await).await;
    for (steps, says) in [
        ("[{name: a, when: 'input.missing > 1', sleep: 1s}]", "step a, when: 1:6: no such key: missing"),
        ("[{name: a, set: {x: {y: ['${1 / input.zero}']}}}]", "step a, set.x: y[0]: "),
        ("[{name: a, sleep: '${input.word}'}]", "step a, sleep: \"soon\" is not a duration"),
        ("[{name: a, until: '${input.word}'}]", "step a, until: \"soon\" is not a time"),
        (
            "[{name: a, forEach: {in: '${input.word}'}, steps: [{name: b, sleep: 1s}]}]",
            "step a, forEach.in: this is no list",
        ),
        (
            "[{name: a, forEach: {in: [1]}, steps: [{name: b, call: {entity: inventory, id: '${input.missing}', method: get}}]}]",
            "step a[0].b, call.id: ",
        ),
    ] {
        let (reason, message) =
            fails(&shop, &format!("steps: {steps}"), json!({"zero": 0, "word": "soon"})).await;
        assert_eq!(reason, "InvalidExpression", "{message}");
        assert!(message.starts_with(says), "{message:?} does not begin with {says:?}");
    }
    let (reason, message) =
        fails(&shop, "steps: [{name: a, sleep: 1s}]\noutput: '${input.missing}'", json!({})).await;
    assert_eq!((reason.as_str(), message.starts_with("output: ")), ("InvalidExpression", true), "{message}");
}

#[tokio::test]
async fn no_expression_takes_long() {
    let shop = Shop::new(Place::sqlite().await).await;
    let list: Vec<_> = (0..1000).collect();
    let steps =
        "steps: [{name: a, set: {x: '${input.l.map(x, input.l.map(y, input.l.map(z, x * y * z)))}'}}]";
    let begun = std::time::Instant::now();
    let (reason, message) = fails(&shop, steps, json!({"l": list})).await;
    assert_eq!(reason, "InvalidExpression");
    assert!(message.contains("steps"), "{message}");
    // Many that are allowed are too much together.
    let items: Vec<_> = (0..5000).collect();
    let steps = "steps: [{name: a, forEach: {in: '${input.i}', concurrency: 100}, steps: [{name: b, set: {x: '${input.l.filter(x, input.l.filter(y, x == y).size() > 0).size()}'}}]}]";
    let list: Vec<_> = (0..100).collect();
    let (reason, message) = fails(&shop, steps, json!({"l": list, "i": items})).await;
    assert_eq!(reason, "TooLarge", "{message}");
    assert!(begun.elapsed() < std::time::Duration::from_secs(100), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn what_is_too_large_is_refused() {
    let shop = Shop::with_carrier(Place::sqlite().await, |_| answer(200, vec![b'x'; 2 << 20])).await;
    let items: Vec<_> = (0..=MAX_ITEMS).collect();
    let each = "steps: [{name: a, forEach: {in: '${input}'}, steps: [{name: b, sleep: 1s}]}]";
    let (reason, message) = fails(&shop, each, json!(items)).await;
    assert_eq!(reason, "TooLarge");
    assert!(message.contains("10001 items"), "{message}");
    let (reason, _) =
        fails(&shop, "steps: [{name: a, http: {url: 'http://carrier.shop.svc/'}}]", json!({})).await;
    assert_eq!(reason, "OutputTooLarge");
    let flows = shop.register("large", "steps: [{name: a, sleep: 1ms}]");
    let refused = flows.start(&json!("x".repeat(MAX_INPUT)), &named("one")).await.unwrap_err();
    assert_eq!(refused.reason(), "InputTooLarge");
}

#[tokio::test]
async fn refusals_are_final_and_trouble_is_not() {
    let shop = Shop::with_carrier(Place::sqlite().await, |number| match number {
        0 => answer(503, "not now"),
        1 => answer(409, "no"),
        _ => answer(200, ""),
    })
    .await;
    let steps =
        "steps: [{name: a, http: {url: 'http://carrier.shop.svc/'}, retry: {attempts: 5, backoff: 1ms}}]";
    let (reason, message) = fails(&shop, steps, json!({})).await;
    assert_eq!(reason, "Conflict", "{message}");
    assert_eq!(shop.carrier.asked().len(), 2);
    assert_eq!(shop.shipped().len(), 1, "the same question under the same key");
    let steps = "steps: [{name: a, call: {entity: inventory, id: none, method: reserve, input: {order: x, count: 1}}, retry: {attempts: 5}}]";
    let ended = shop.test(steps).run(&json!({})).await.unwrap();
    assert_eq!(failure(ended.outcome).0, "OutOfStock");
    assert_eq!(ended.elapsed, std::time::Duration::ZERO, "asked once");
    let steps = "steps: [{name: a, call: {entity: nobody, id: x, method: y}, timeout: 1h}]";
    let ended = shop.test(steps).run(&json!({})).await.unwrap();
    let (reason, message) = failure(ended.outcome);
    assert_eq!(reason, "TimedOut", "{message}");
    assert!(message.contains("no entity type nobody"), "{message}");
}

#[tokio::test]
async fn a_step_asks_only_whom_the_egress_rules_allow() {
    let shop = Shop::new(Place::sqlite().await).await;
    let steps =
        "steps: [{name: a, http: {url: 'http://carrier.shop.svc/'}, retry: {attempts: 5, backoff: 1ms}}]";
    let listed = Options { allow: "*.shop.example".parse().unwrap(), ..options() };
    // The machine itself is nobody's to ask, unless it is said so.
    for (rules, says) in [(listed, "add it to egress.allow"), (Options::default(), "127.0.0.1 is ")] {
        let reach = Reach::new(&shop.host, egress(rules));
        let test = Test::new(Written::new("test", &workflow(&shop.fill(steps)), reach.clone()).unwrap());
        let ended = test.run(&json!({})).await.unwrap();
        let (reason, message) = failure(ended.outcome);
        assert_eq!(reason, "EgressRefused", "{message}");
        assert!(message.contains("may not be asked") && message.contains(says), "{message}");
        assert_eq!(ended.elapsed, std::time::Duration::ZERO, "asking again would not help");
        // The same with a stored execution, whose report says it of the step.
        let name = format!("refused{}", says.len());
        steps::register(&shop.host, &reach, &name, &workflow(&shop.fill(steps))).unwrap();
        let flows = Executions::new(&shop.host, &name).unwrap();
        flows.start(&json!({}), &named("one")).await.unwrap();
        assert_eq!(failure(flows.join("one").await.unwrap()).0, "EgressRefused");
        let report = flows.report("one").await.unwrap();
        assert_eq!(brief(&report), [("a", StepPhase::Failed)]);
        assert!(report.steps[0].message.as_ref().unwrap().contains(says), "{report:?}");
        assert_eq!(report.steps[0].attempts, 1);
    }
    assert_eq!(shop.carrier.connections.load(Ordering::SeqCst), 0);
    // With the rules of the others it is asked.
    shop.test(steps).run(&json!({})).await.unwrap();
    assert_eq!(shop.carrier.asked().len(), 1);
}

#[tokio::test]
async fn an_open_circuit_delays_a_step_and_uses_up_no_attempt() {
    let shop = Shop::new(Place::sqlite().await).await;
    let script = |number| if number < 2 { answer(503, "") } else { answer(200, "{}") };
    let service = Service::start(script, None).await;
    let breaker = Limits { failures: 1, pause: std::time::Duration::from_millis(200) };
    let reach = Reach::new(&shop.host, egress(Options { breaker, ..options() }));
    let url = service.url();
    let steps = format!("steps: [{{name: a, http: {{url: '{url}'}}, retry: {{attempts: 3, backoff: 1ms}}}}]");
    let test = Test::new(Written::new("test", &workflow(&steps), reach).unwrap());
    let ended = test.run(&json!({})).await.unwrap();
    assert!(matches!(ended.outcome, Outcome::Success(_)), "{:?}", ended.outcome);
    assert_eq!(service.asked().len(), 3);
}
