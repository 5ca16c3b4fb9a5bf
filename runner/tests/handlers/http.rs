//! Methods that a service answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cleat_runner::definitions::Keeper;
use cleat_runner::egress::{self, Egress, Limits};
use cleat_runner::message::TraceContext;
use http::Response;
use serde_json::{Value as Json, json};

use crate::service::{Asked, Service, answer};
use crate::world::{Place, World, on_both_stores, set};

on_both_stores!(
    a_service_gets_what_the_contract_says_and_its_answer_commits_at_once,
    what_is_worth_another_attempt_is_asked_again_under_the_same_key,
    a_no_is_passed_on_as_the_service_said_it,
    a_broken_service_leaves_a_dead_letter_and_no_trace_in_the_state,
    a_volatile_method_is_asked_once,
    an_open_circuit_delays_a_message_and_uses_up_no_attempt,
);

fn counter(url: &str) -> String {
    format!(
        r#"
state: {{schema: {{type: object, properties: {{total: {{type: integer}}}}}}, initial: {{total: 0}}}}
handler: {{http: {{url: "{url}", timeout: 5s, auth: {{hmac: {{secretRef: {{name: handler, key: key}}}}}}}}}}
methods:
- {{name: add, retry: {{attempts: 4, backoff: 10ms, max: 20ms}}}}
- {{name: look, delivery: volatile}}
- {{name: get, delivery: volatile, cel: {{output: "${{state.total}}"}}}}
- {{name: set, cel: {{set: {{total: "${{input}}"}}}}}}
"#
    )
}

fn header(asked: &Asked, name: &str) -> String {
    asked.headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
}

async fn a_service_gets_what_the_contract_says_and_its_answer_commits_at_once(place: Place) {
    let said = json!({
        "output": {"ok": true},
        "state": {"total": 7},
        "send": [{"entity": "counter", "id": "other", "method": "set", "input": 9}],
    });
    let service = Service::start(move |_| answer(200, said.to_string()), None).await;
    let world = World::new(place).await;
    world.serve(&[("counter", &counter(&service.url()))]).await;
    let trace: TraceContext = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().unwrap();
    let call = world.client("counter").call::<Json, Json>("a/b", "add", &json!({"n": 7}));
    assert_eq!(call.trace(trace).await.unwrap(), json!({"ok": true}));
    assert_eq!(world.ask("counter/a/b", "get", Json::Null).await.unwrap(), json!(7));

    let asked = service.asked();
    assert_eq!(asked.len(), 1);
    let body: Json = serde_json::from_slice(&asked[0].body).unwrap();
    assert_eq!(body, json!({"input": {"n": 7}, "state": {"total": 0}}));
    assert_eq!(header(&asked[0], "cleat-entity"), "counter/a%2Fb");
    assert_eq!(header(&asked[0], "cleat-method"), "add");
    assert_eq!(header(&asked[0], "cleat-attempt"), "1");
    assert_eq!(header(&asked[0], "content-type"), "application/json");
    assert!(header(&asked[0], "cleat-fence").parse::<i64>().unwrap() > 0);
    assert!(header(&asked[0], "cleat-request-id").starts_with("default-"));
    assert_eq!(header(&asked[0], "cleat-request-id"), header(&asked[0], "cleat-idempotency-key"));
    assert!(header(&asked[0], "traceparent").starts_with("00-0af7651916cd43dd8448eb211c80319c-"));
    assert!(header(&asked[0], "cleat-signature").starts_with("t="));
    let arrived = async {
        while world.ask("counter/other", "get", Json::Null).await.unwrap() != json!(9) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    arrived.await;
}

async fn what_is_worth_another_attempt_is_asked_again_under_the_same_key(place: Place) {
    let script = |number| match number {
        0 => answer(500, "oops"),
        1 => Response::builder().status(429).header("retry-after", "1").body(Default::default()).unwrap(),
        2 => answer(200, "<html>not what was agreed</html>"),
        _ => answer(200, r#"{"state": {"total": 1}}"#),
    };
    let service = Service::start(script, None).await;
    let world = World::new(place).await;
    world.serve(&[("counter", &counter(&service.url()))]).await;
    let began = std::time::Instant::now();
    assert_eq!(world.ask("counter/a", "add", json!(1)).await.unwrap(), Json::Null);
    assert!(began.elapsed() >= std::time::Duration::from_secs(1), "Retry-After was not honoured");
    let asked = service.asked();
    let attempts: Vec<_> = asked.iter().map(|asked| header(asked, "cleat-attempt")).collect();
    assert_eq!(attempts, ["1", "2", "3", "4"]);
    let key = header(&asked[0], "cleat-idempotency-key");
    assert!(asked.iter().all(|asked| header(asked, "cleat-idempotency-key") == key));
    assert_eq!(world.ask("counter/a", "get", Json::Null).await.unwrap(), json!(1));
}

async fn a_no_is_passed_on_as_the_service_said_it(place: Place) {
    let service = Service::start(
        |_| {
            let problem = json!({"reason": "OutOfStock", "detail": "no pears", "left": 0});
            let answer = Response::builder().status(409).header("content-type", "application/problem+json");
            answer.body(problem.to_string().into()).unwrap()
        },
        None,
    )
    .await;
    let world = World::new(place).await;
    world.serve(&[("counter", &counter(&service.url()))]).await;
    let call = world.client("counter").call::<Json, Json>("a", "add", &json!(1));
    let problem = call.await.unwrap_err().refused().unwrap();
    assert_eq!(problem, json!({"reason": "OutOfStock", "detail": "no pears", "left": 0, "status": 409}));
    assert_eq!(service.asked().len(), 1);
}

async fn a_broken_service_leaves_a_dead_letter_and_no_trace_in_the_state(place: Place) {
    let mended = Arc::new(AtomicBool::new(false));
    let good = Arc::clone(&mended);
    let service = Service::start(
        move |number| match number {
            _ if good.load(Ordering::SeqCst) => answer(200, r#"{"state": {"total": 3}}"#),
            0 => answer(200, r#"{"sate": {"total": 1}}"#),
            1 => answer(200, r#"{"state": {"total": "many"}}"#),
            2 => answer(200, vec![b' '; 100 << 10]),
            _ => answer(503, ""),
        },
        None,
    )
    .await;
    let world = World::new(place).await;
    world.serve(&[("counter", &counter(&service.url()))]).await;
    let (reason, words) = world.ask("counter/a", "add", json!(1)).await.unwrap_err();
    assert_eq!(reason, "RetriesExhausted");
    assert!(words.contains("503"), "{words}");
    assert_eq!(service.asked().len(), 4);
    assert_eq!(world.ask("counter/a", "get", Json::Null).await.unwrap(), json!(0));
    // The entity is free again.
    mended.store(true, Ordering::SeqCst);
    world.ask("counter/a", "add", json!(1)).await.unwrap();
    assert_eq!(world.ask("counter/a", "get", Json::Null).await.unwrap(), json!(3));
}

async fn a_volatile_method_is_asked_once(place: Place) {
    let script =
        |number| if number == 0 { answer(500, "") } else { answer(200, r#"{"output": 1, "state": 2}"#) };
    let service = Service::start(script, None).await;
    let world = World::new(place).await;
    world.serve(&[("counter", &counter(&service.url()))]).await;
    let (reason, _) = world.ask("counter/a", "look", Json::Null).await.unwrap_err();
    assert_eq!(reason, "Crashed");
    let (_, words) = world.ask("counter/a", "look", Json::Null).await.unwrap_err();
    assert!(words.contains("state"), "{words}");
    assert_eq!(service.asked().len(), 2);
}

async fn an_open_circuit_delays_a_message_and_uses_up_no_attempt(place: Place) {
    let script = |number| match number {
        0..=2 => answer(503, "down for maintenance"),
        _ => answer(200, r#"{"state": {"total": 1}}"#),
    };
    let service = Service::start(script, None).await;
    let world = World::new(place).await;
    // It opens with the first failure, so that there is an open circuit between any two of the four attempts.
    let breaker = Limits { failures: 1, pause: Duration::from_millis(300) };
    let options = egress::Options {
        addresses: egress::Addresses { loopback: true, refused: Vec::new() },
        breaker,
        ..egress::Options::default()
    };
    let secrets = Arc::new(egress::Fixed::default().with("handler", "key", "s3cret"));
    let keeper = Keeper::new(world.node.clone(), Egress::new(options, secrets));
    keeper.apply(&set(&[("counter", &counter(&service.url()))])).await;
    assert_eq!(world.ask("counter/a", "add", json!(1)).await.unwrap(), Json::Null);
    let attempts: Vec<_> = service.asked().iter().map(|asked| header(asked, "cleat-attempt")).collect();
    assert_eq!(attempts, ["1", "2", "3", "4"]);
    assert_eq!(world.ask("counter/a", "get", Json::Null).await.unwrap(), json!(1));
}
