//! The conformance table of step kinds: each gives what it says, and still does if its process dies at any durable point.

use std::sync::Arc;
use std::time::Duration;

use cleat_runner::store::Store;
use cleat_runner::store::sqlite::{Location, Options};
use cleat_runner::workflow::StepPhase;
use serde_json::{Value, json};

use crate::doomed::{Death, Doomed, Points};
use crate::service::Service;
use crate::shop::{Shop, brief, json_answer, named, output, workflow};
use crate::world::{PATIENCE, Place, on_both_stores};

/// A kind of step, and what it gives.
struct Kind {
    name: &'static str,
    steps: &'static str,
    input: Value,
    /// What is sent to it, by name.
    signal: Option<(&'static str, Value)>,
    output: Value,
    /// What is left of ten apples.
    stock: i64,
    /// How many requests the carrier had, by their keys.
    shipped: usize,
}

fn kinds() -> Vec<Kind> {
    let kind = |name, steps, output| Kind {
        name,
        steps,
        output,
        input: json!({"item": "apples", "order": "o-1", "list": [1, 2, 3]}),
        signal: None,
        stock: 10,
        shipped: 0,
    };
    vec![
        Kind {
            stock: 7,
            ..kind(
                "call",
                "steps: [{name: a, call: {entity: inventory, id: '${input.item}', method: reserve, input: {order: '${input.order}', count: 3}}}]
output: '${steps.a.output}'",
                json!(7),
            )
        },
        kind(
            "a call of a volatile method",
            "steps: [{name: a, call: {entity: inventory, id: apples, method: get}}]
output: '${steps.a.output}'",
            json!(10),
        ),
        Kind {
            shipped: 1,
            ..kind(
                "http",
                "steps: [{name: a, http: {url: 'http://carrier.shop.svc/ship', body: {order: '${input.order}'}, headers: {x-token: {secretRef: {name: keys, key: token}}}}}]
output: {status: '${steps.a.output.status}', shipped: '${steps.a.output.body.shipped}'}",
                json!({"status": 200, "shipped": true}),
            )
        },
        kind("sleep", "steps: [{name: a, sleep: 20ms}, {name: b, sleep: '${duration(\"10ms\")}'}]\noutput: done", json!("done")),
        kind("until", "steps: [{name: a, until: '${now + duration(\"20ms\")}'}, {name: b, until: '2020-01-01T00:00:00Z'}]\noutput: done", json!("done")),
        Kind {
            signal: Some(("approved", json!({"by": "Ann"}))),
            ..kind("signal", "steps: [{name: a, signal: {name: approved, timeout: 1h}}]\noutput: '${steps.a.output.by}'", json!("Ann"))
        },
        Kind {
            stock: 7,
            shipped: 1,
            ..kind(
                "parallel",
                "steps:
- name: both
  parallel:
  - name: left
    steps: [{name: a, call: {entity: inventory, id: apples, method: reserve, input: {order: l, count: 3}}}]
  - name: right
    steps: [{name: a, sleep: 5ms}, {name: b, http: {url: 'http://carrier.shop.svc/ship'}}]
output: {left: '${steps.both.output.left}', right: '${steps.both.output.right.status}'}",
                json!({"left": 7, "right": 200}),
            )
        },
        Kind {
            stock: 4,
            ..kind(
                "forEach",
                "steps:
- name: all
  forEach: {in: '${input.list}', as: n, concurrency: 2}
  steps:
  - {name: take, call: {entity: inventory, id: apples, method: reserve, input: {order: '${\"o-\" + string(n)}', count: '${n}'}}}
  - {name: gave, set: {last: '${n}'}}
output: '${steps.all.output.map(each, each.last)}'",
                json!([1, 2, 3]),
            )
        },
        Kind {
            stock: 8,
            ..kind(
                "switch",
                "steps:
- name: way
  switch:
  - when: 'input.item == \"pears\"'
    steps: [{name: no, fail: {reason: Wrong}}]
  - when: 'size(input.list) == 3'
    steps: [{name: yes, call: {entity: inventory, id: apples, method: reserve, input: {order: s, count: 2}}}]
  - steps: [{name: no, fail: {reason: Wrong}}]
output: '${steps.way.output}'",
                json!(8),
            )
        },
        kind(
            "set",
            "steps:
- {name: a, set: {x: 1, y: '${input.list}'}}
- {name: b, set: {x: '${vars.x + 1}', z: '${vars.x}'}}
output: {x: '${vars.x}', y: '${vars.y}', z: '${steps.b.output.z}'}",
            json!({"x": 2, "y": [1, 2, 3], "z": 1}),
        ),
        Kind {
            stock: 9,
            ..kind(
                "workflow",
                "steps:
- {name: a, workflow: {type: child, input: {order: '${input.order}'}}}
output: '${steps.a.output.left}'",
                json!(9),
            )
        },
        Kind {
            // The first attempt is undone, and asks under other keys than the second.
            stock: 6,
            shipped: 2,
            ..kind(
                "parallel, tried again",
                "steps:
- {name: zero, set: {tries: 0}}
- name: both
  parallel:
  - name: left
    steps:
    - name: a
      call: {entity: inventory, id: apples, method: reserve, input: {order: again, count: 4}}
      compensate: {call: {entity: inventory, id: apples, method: release, input: {order: again}}}
  - name: right
    steps:
    - {name: wait, sleep: 5ms}
    - {name: count, set: {tries: '${vars.tries + 1}'}}
    - {name: b, http: {url: 'http://carrier.shop.svc/ship'}}
    - {name: no, when: 'vars.tries < 2', fail: {reason: NotYet}}
    - {name: last, set: {tries: '${vars.tries}'}}
  retry: {attempts: 3, backoff: 5ms}
output: {left: '${steps.both.output.left}', tries: '${steps.both.output.right.tries}'}",
                json!({"left": 6, "tries": 2}),
            )
        },
        Kind {
            stock: 7,
            ..kind(
                "forEach, tried again",
                "steps:
- {name: zero, set: {tries: 0}}
- name: all
  forEach: {in: [1, 2], as: n}
  steps:
  - {name: count, set: {tries: '${vars.tries + 1}'}}
  - name: take
    call: {entity: inventory, id: apples, method: reserve, input: {order: '${\"t-\" + string(vars.tries)}', count: '${n}'}}
    compensate: {call: {entity: inventory, id: apples, method: release, input: {order: '${\"t-\" + string(vars.tries)}'}}}
  - {name: no, when: 'vars.tries == 2', fail: {reason: NotYet}}
  retry: {attempts: 2, backoff: 5ms}
output: '${vars.tries}'",
                json!(4),
            )
        },
        kind(
            "switch, tried again in vain",
            "steps:
- name: way
  switch:
  - steps:
    - name: a
      call: {entity: inventory, id: apples, method: reserve, input: {order: in_vain, count: 2}}
      compensate: {call: {entity: inventory, id: apples, method: release, input: {order: in_vain}}}
    - {name: no, fail: {reason: NotYet, message: never}}
  retry: {attempts: 3, backoff: 1ms}",
            json!({"reason": "NotYet", "message": "never"}),
        ),
        kind(
            "signal, tried again in vain",
            "steps: [{name: a, signal: {name: never, timeout: 10ms}, retry: {attempts: 2, backoff: 1ms}}]",
            json!({"reason": "TimedOut", "message": "step a#2: nobody sent the signal never within 10ms"}),
        ),
        kind(
            "when",
            "steps:
- {name: a, when: 'input.item == \"pears\"', call: {entity: inventory, id: apples, method: reserve, input: {order: x, count: 1}}}
output: '${steps.a.skipped && steps.a.output == null}'",
            json!(true),
        ),
        Kind {
            // The last step fails, and what was done before is undone.
            shipped: 1,
            ..kind(
                "fail, with compensation",
                "steps:
- name: reserve
  call: {entity: inventory, id: apples, method: reserve, input: {order: undo, count: 3}}
  compensate: {call: {entity: inventory, id: apples, method: release, input: {order: undo}}}
- name: ship
  sleep: 5ms
  compensate: {http: {url: 'http://carrier.shop.svc/cancel'}}
- {name: end, fail: {reason: TooBad, message: 'no ${input.item}'}}",
                json!({"reason": "TooBad", "message": "no apples"}),
            )
        },
    ]
}

const CHILD: &str = "steps: [{name: one, call: {entity: inventory, id: apples, method: reserve, input: {order: '${input.order}', count: 1}}}]
output: {left: '${steps.one.output}'}";

/// What an execution gave, or why it failed.
fn told(outcome: cleat_runner::message::Outcome) -> Value {
    match outcome {
        cleat_runner::message::Outcome::Success(_) => output(outcome),
        other => {
            let (reason, message) = crate::shop::failure(other);
            json!({"reason": reason, "message": message})
        }
    }
}

on_both_stores!(each_kind_gives_what_it_says);

async fn each_kind_gives_what_it_says(place: Place) {
    let shop = Shop::new(place).await;
    shop.register("child", CHILD);
    for kind in kinds() {
        let left = 10 - shop.stock("apples").await;
        shop.restock("apples", left).await;
        let asked = shop.shipped().len();
        let flows = shop.register(&kind.name.replace(' ', "-"), kind.steps);
        let (id, _) = flows.start(&kind.input, &named("one")).await.unwrap();
        if let Some((name, payload)) = &kind.signal {
            flows.signal(&id, name, payload).await.unwrap();
        }
        assert_eq!(told(flows.join(&id).await.unwrap()), kind.output, "{}", kind.name);
        assert_eq!(shop.stock("apples").await, kind.stock, "{}", kind.name);
        assert_eq!(shop.shipped().len() - asked, kind.shipped, "{}", kind.name);
        let report = flows.report(&id).await.unwrap();
        let count = workflow(kind.steps).steps.0.len();
        let done = if report.failure.is_some() { count - 1 } else { count };
        assert_eq!(report.step, format!("{done}/{count}"), "{}: {report:?}", kind.name);
        let open = |step: &&(&str, StepPhase)| matches!(step.1, StepPhase::Running | StepPhase::Pending);
        assert_eq!(brief(&report).iter().find(open), None, "{}", kind.name);
    }
}

/// Runs a kind in a process that dies at a point, then in another one. Whether it died.
async fn run(kind: &Arc<Kind>, death: Death) -> bool {
    let location = Options::memory().location;
    // What is only in memory is kept by whoever has it open.
    let kept = Place::Sqlite(location.clone()).open().await;
    let carrier = Arc::new(Service::start(|_| json_answer(&json!({"shipped": true})), None).await);
    let first = process(&location, &carrier, kind, death).await;
    let died = first.is_none();
    let (outcome, stock) = match first {
        Some(told) => told,
        None => process(&location, &carrier, kind, Death::Never).await.expect("the second one does not die"),
    };
    let at = format!("{}, {death:?}", kind.name);
    assert_eq!(outcome, kind.output, "{at}");
    assert_eq!(stock, kind.stock, "each effect is there once: {at}");
    assert_eq!(carrier.keys().len(), kind.shipped, "each request has one key: {at}");
    kept.close().await;
    died
}

/// As good as a process: a runtime that goes with everything in it, in the middle of whatever it does.
async fn process(
    location: &Location,
    carrier: &Arc<Service>,
    kind: &Arc<Kind>,
    death: Death,
) -> Option<(Value, i64)> {
    let (place, carrier, kind) = (Place::Sqlite(location.clone()), Arc::clone(carrier), Arc::clone(kind));
    let living = move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let told = runtime.block_on(async {
            let points = Points::silent(death);
            let store: Arc<dyn Store> =
                Arc::new(Doomed { inner: place.open().await, points: points.clone() });
            let shop = Shop::over(place, store, carrier).await;
            tokio::select! {
                told = attempt(&shop, &kind) => Some(told),
                () = points.dead() => None,
            }
        });
        runtime.shutdown_timeout(Duration::from_secs(20));
        told
    };
    tokio::task::spawn_blocking(living).await.unwrap()
}

/// Stocks, starts and signals, whatever of it was done before, and waits for the end.
async fn attempt(shop: &Shop, kind: &Kind) -> (Value, i64) {
    let stocked = cleat_runner::client::EntityClient::new(
        cleat_runner::client::Runtime::router(&shop.host),
        cleat_runner::message::EntityType::new("inventory").unwrap(),
    );
    let restock =
        stocked.call::<i64, cleat_runner::prelude::Never>("apples", "restock", &json!({"count": 10}));
    restock.key("once").await.unwrap();
    shop.register("child", CHILD);
    let flows = shop.register("kind", kind.steps);
    let (id, _) = flows.start(&kind.input, &named("one")).await.unwrap();
    if let Some((name, payload)) = &kind.signal {
        // It may have ended before this process began.
        let _ = flows.signal(&id, name, payload).await;
    }
    let outcome = told(flows.join(&id).await.unwrap());
    (outcome, shop.stock("apples").await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_comes_to_the_same_end_if_its_process_dies_at_any_durable_point() {
    let mut died = 0;
    for kind in kinds().into_iter().map(Arc::new) {
        for make in [Death::Before as fn(u32) -> Death, Death::After] {
            for point in 1.. {
                let ran = tokio::time::timeout(PATIENCE, run(&kind, make(point)));
                if !ran.await.unwrap_or_else(|_| panic!("{} hangs at {:?}", kind.name, make(point))) {
                    assert!(point > 3, "{}: stock, start and end are points at least", kind.name);
                    break;
                }
                died += 1;
            }
        }
    }
    assert!(died > 100, "{died}");
    println!("died at {died} points");
}

/// Without a database and without waiting: what was recorded up to any point is replayed to the same end.
#[tokio::test]
async fn each_kind_is_replayed_from_every_prefix_of_its_journal() {
    let shop = Shop::new(Place::sqlite().await).await;
    shop.register("child", CHILD);
    for kind in kinds() {
        let left = 10 - shop.stock("apples").await;
        shop.restock("apples", left).await;
        let flows = shop.register(&kind.name.replace(' ', "-"), kind.steps);
        let (id, _) = flows.start(&kind.input, &named("one")).await.unwrap();
        if let Some((name, payload)) = &kind.signal {
            flows.signal(&id, name, payload).await.unwrap();
        }
        flows.join(&id).await.unwrap();
        let recording = flows.recording(&id).await.unwrap();
        let spec = workflow(&shop.fill(kind.steps));
        let written = cleat_runner::steps::Written::new("again", &spec, shop.reach.clone()).unwrap();
        for length in 1..=recording.len() {
            let part = recording.clone().truncated(length);
            cleat_runner::workflow::test::replay(&written, &part)
                .unwrap_or_else(|blocked| panic!("{} at {length}: {blocked}", kind.name));
        }
    }
}

#[tokio::test]
async fn a_kind_that_waits_takes_no_time_in_a_test() {
    let shop = Shop::new(Place::sqlite().await).await;
    let steps = "steps: [{name: a, sleep: 720h}, {name: b, signal: {name: go, timeout: 24h}}]\noutput: '${steps.b.output}'";
    let hour = Duration::from_secs(3600);
    let ended = shop.test(steps).signal(730 * hour, "go", "on").unwrap().run(&json!({})).await.unwrap();
    assert_eq!(output(ended.outcome), json!("on"));
    assert_eq!(ended.elapsed, 730 * hour);
    let ended = shop.test(steps).run(&json!({})).await.unwrap();
    let (reason, message) = crate::shop::failure(ended.outcome);
    assert_eq!((reason.as_str(), ended.elapsed), ("TimedOut", 744 * hour));
    assert!(message.contains("step b: nobody sent the signal go within"), "{message}");
}
