//! What is declared keeps its promises when its runner is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::RwLock;

use crate::place::{PATIENCE, Place, Runner, patiently};
use crate::service::{Service, answer};

const DEATHS: usize = 3;

const COUNTER: &str = "
state: {schema: {type: object, properties: {total: {type: integer}}}, initial: {total: 0}}
methods:
- {name: add, delivery: persisted, cel: {set: {total: '${state.total + 1}'}, output: '${state.total}'}}
- {name: get, delivery: volatile, cel: {output: '${state.total}'}}";

/// Whoever is asked while runners come and go.
struct House {
    place: Place,
    runner: RwLock<Option<Runner>>,
}

impl House {
    async fn new(place: Place) -> Arc<Self> {
        let runner = place.start("runner-0").await;
        Arc::new(Self { place, runner: RwLock::new(Some(runner)) })
    }

    /// Asks under a key until there is an answer, whoever gives it.
    async fn ask(&self, path: &str, key: Option<&str>, input: &Value) -> Value {
        let headers: Vec<_> = key.iter().map(|key| ("idempotency-key", *key)).collect();
        let mut last = None;
        let asking = async {
            loop {
                // Only a look, so that the runner can be killed while it is asked.
                let gateway = self.runner.read().await.as_ref().map(|runner| runner.gateway);
                if let Some(gateway) = gateway {
                    let answer = self.place.ask_at(gateway, Method::POST, path, &headers, Some(input)).await;
                    match answer {
                        Some((status, output)) if status == 200 => return output,
                        answer => last = answer,
                    }
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        match tokio::time::timeout(PATIENCE, asking).await {
            Ok(output) => output,
            Err(_) => panic!("{path} is never answered, at last {last:?}"),
        }
    }

    /// Kills the runner and starts another one.
    async fn die(&self, number: usize) {
        if let Some(runner) = self.runner.write().await.take() {
            runner.kill().await;
        }
        let next = self.place.start(&format!("runner-{number}")).await;
        *self.runner.write().await = Some(next);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expressions_and_services_keep_their_state_and_crons_their_ticks_through_deaths() {
    // Slow enough that it is asked while its runner dies, and not where the API server is, which nobody may ask.
    let service = Service::start_on(
        "127.0.0.2:0",
        |_| {
            std::thread::sleep(Duration::from_millis(20));
            answer(200, "{}")
        },
        None,
    )
    .await;
    let place = Place::new().await;
    place.apply("EntityType", "counter", COUNTER).await;
    let pricing = format!(
        "handler: {{http: {{url: '{}', timeout: 5s}}}}\nmethods: [{{name: note, delivery: persisted}}]",
        service.url()
    );
    place.apply("EntityType", "pricing", &pricing).await;
    let cron = "schedule: '* * * * * *'\ncatchUp: {window: 1h, policy: All}
target: {call: {entity: counter, id: ticks, method: add}}";
    place.apply("CronJob", "beat", cron).await;
    let house = House::new(place).await;
    let status = async || {
        patiently("the cron says how it is", async || {
            let runner = house.runner.read().await;
            house.place.cron(runner.as_ref()?, "beat").await.filter(|status| status.fired > 0)
        })
        .await
    };
    let before = status().await;

    let asking = |worker: usize| {
        let house = Arc::clone(&house);
        tokio::spawn(async move {
            let mut totals = Vec::new();
            for number in 0..40 {
                let key = format!("k-{worker}-{number}");
                let total = house.ask("/v1/entities/counter/c/add", Some(&key), &Value::Null).await;
                totals.push(total.as_i64().unwrap());
                house.ask(&format!("/v1/entities/pricing/p{worker}/note"), Some(&key), &json!(number)).await;
            }
            totals
        })
    };
    let workers: Vec<_> = (0..3).map(asking).collect();
    for number in 1..=DEATHS {
        tokio::time::sleep(Duration::from_millis(700)).await;
        house.die(number).await;
    }
    let mut totals = Vec::new();
    for worker in workers {
        let own = worker.await.unwrap();
        assert!(own.is_sorted(), "each sees what it has done: {own:?}");
        totals.extend(own);
    }
    totals.sort_unstable();
    assert_eq!(totals, (1..=120).collect::<Vec<i64>>(), "each request changed the state once");

    // A service is asked at least once for each request, and always under the same key.
    let mut keys: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for asked in service.asked() {
        let header = |name: &str| asked.headers[name].to_str().unwrap().to_owned();
        let request = (header("cleat-entity"), header("cleat-request-id"));
        keys.entry(request).or_default().insert(header("cleat-idempotency-key"));
    }
    assert_eq!(keys.len(), 120, "each request was asked under its own id, however often");
    assert!(keys.values().all(|keys| keys.len() == 1));

    // The cron rests, and then each tick has been one call.
    house.place.apply("CronJob", "beat", &format!("{cron}\nsuspend: true")).await;
    let after = patiently("the cron rests", async || {
        let runner = house.runner.read().await;
        let status = house.place.cron(runner.as_ref()?, "beat").await?;
        (status.suspended && status.active == 0).then_some(status)
    })
    .await;
    let seconds = (after.last_ms.unwrap() - before.last_ms.unwrap()) / 1000;
    let fired = i64::try_from(after.fired - before.fired).unwrap();
    assert_eq!(fired, seconds, "no tick is lost or doubled: {before:?}, {after:?}");
    assert_eq!(after.skipped, before.skipped);
    let counted = patiently("each tick is a call", async || {
        let total = house.ask("/v1/entities/counter/ticks/get", None, &Value::Null).await.as_i64()?;
        (total >= i64::try_from(after.fired).unwrap()).then_some(total)
    })
    .await;
    assert_eq!(counted, i64::try_from(after.fired).unwrap());
    assert_eq!(after.last_successful_ms, after.last_ms, "the last run has told of its end");
    let last = house.runner.write().await.take();
    last.unwrap().kill().await;
}
