//! How many messages are handled at once, and for how long.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::join_all;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value as Json, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::world::{Place, World, on_both_stores, until};

on_both_stores!(
    as_many_are_handled_at_once_as_the_type_says,
    a_method_that_changes_the_state_is_alone_all_the_same,
    an_expression_waits_behind_others_and_its_time_runs_only_then,
    a_service_that_takes_longer_than_its_method_allows_is_asked_again,
);

/// A service that counts, and answers as many requests as it is let.
#[derive(Clone)]
struct Held {
    url: String,
    gate: Arc<Semaphore>,
    asked: Arc<AtomicUsize>,
    answered: Arc<AtomicUsize>,
    /// How many it was asked at once, at most.
    most: Arc<AtomicUsize>,
}

impl Held {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let gate = Arc::new(Semaphore::new(0));
        let held = Self { url, gate, asked: Arc::default(), answered: Arc::default(), most: Arc::default() };
        let service = held.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let service = service.clone();
                tokio::spawn(async move {
                    let answering = service_fn(|request: http::Request<hyper::body::Incoming>| {
                        let service = service.clone();
                        async move { Ok::<_, Infallible>(service.answer(request).await) }
                    });
                    let builder = auto::Builder::new(TokioExecutor::new());
                    // A client that goes away in the middle is part of some tests.
                    let _ = builder.serve_connection(TokioIo::new(stream), answering).await;
                });
            }
        });
        held
    }

    async fn answer(&self, request: http::Request<hyper::body::Incoming>) -> http::Response<Full<Bytes>> {
        let body: Json =
            serde_json::from_slice(&request.into_body().collect().await.unwrap().to_bytes()).unwrap();
        let asked = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(asked - self.answered.load(Ordering::SeqCst), Ordering::SeqCst);
        self.gate.acquire().await.unwrap().forget();
        self.answered.fetch_add(1, Ordering::SeqCst);
        let total = body["state"]["total"].as_i64();
        let said = match total {
            Some(total) => json!({"output": body["input"], "state": {"total": total + 1}}),
            None => json!({"output": body["input"]}),
        };
        http::Response::new(Full::new(Bytes::from(said.to_string())))
    }

    async fn asked(&self, times: usize) {
        until("the service is asked", || self.asked.load(Ordering::SeqCst) >= times).await;
    }

    /// Answers so many requests one by one, each when as many are under way as there can be.
    async fn answer_all(&self, requests: usize, at_once: usize) {
        for answered in 0..requests {
            self.asked(requests.min(answered + at_once)).await;
            self.gate.add_permits(1);
            until("one is answered", || self.answered.load(Ordering::SeqCst) > answered).await;
        }
        assert_eq!(self.most.load(Ordering::SeqCst), at_once);
    }
}

async fn as_many_are_handled_at_once_as_the_type_says(place: Place) {
    let world = World::new(place).await;
    for (concurrency, at_once) in
        [("", 1), ("concurrency: 1", 1), ("concurrency: 2", 2), ("concurrency: 0", 5)]
    {
        for delivery in ["persisted", "volatile"] {
            let service = Held::start().await;
            let held = format!(
                "{concurrency}\nmethods: [{{name: hold, delivery: {delivery}, http: {{url: '{}', timeout: 100s}}}}]",
                service.url
            );
            world.serve(&[("held", held.trim())]).await;
            let calls = join_all((0..5).map(|number| world.ask("held/a", "hold", json!(number))));
            let (said, ()) = tokio::join!(calls, service.answer_all(5, at_once));
            let said: Vec<_> = said.into_iter().map(Result::unwrap).collect();
            assert_eq!(said, [0, 1, 2, 3, 4].map(|number| json!(number)), "{concurrency} {delivery}");
        }
    }
}

async fn a_method_that_changes_the_state_is_alone_all_the_same(place: Place) {
    let world = World::new(place).await;
    let service = Held::start().await;
    let held = format!(
        r#"
concurrency: 0
state: {{initial: {{total: 0}}}}
methods:
- {{name: add, http: {{url: "{}", timeout: 100s}}}}
- {{name: get, delivery: volatile, cel: {{output: "${{state.total}}"}}}}
"#,
        service.url
    );
    world.serve(&[("held", &held)]).await;
    let calls = join_all((0..5).map(|number| world.ask("held/a", "add", json!(number))));
    let (said, ()) = tokio::join!(calls, service.answer_all(5, 1));
    said.into_iter().for_each(|said| drop(said.unwrap()));
    assert_eq!(world.ask("held/a", "get", Json::Null).await.unwrap(), json!(5));
}

async fn an_expression_waits_behind_others_and_its_time_runs_only_then(place: Place) {
    let world = World::new(place).await;
    let service = Held::start().await;
    let held = |concurrency: u32| {
        format!(
            r#"
concurrency: {concurrency}
methods:
- {{name: hold, delivery: volatile, http: {{url: "{}", timeout: 100s}}}}
- {{name: twice, delivery: volatile, timeout: 1ms, cel: {{output: "${{input * 2}}"}}}}
- {{name: note, timeout: 1ms, cel: {{output: "${{input * 2}}"}}}}
- {{name: long, timeout: 1ms, cel: {{output: "${{input.map(a, input.map(b, input.map(c, [a, b, c])))}}"}}}}
"#,
            service.url
        )
    };
    world.serve(&[("alone", &held(1)), ("pair", &held(2))]).await;
    // With room for two it does not wait.
    let first = world.ask("pair/a", "hold", json!(1)).shared();
    let answered = async {
        service.asked(1).await;
        assert_eq!(world.ask("pair/a", "twice", json!(4)).await.unwrap(), json!(8));
        assert_eq!(world.ask("pair/a", "note", json!(4)).await.unwrap(), json!(8));
        assert!(first.peek().is_none());
        service.gate.add_permits(1);
    };
    tokio::join!(first.clone(), answered).0.unwrap();
    // Alone it does, for longer than one attempt of it may take.
    let first = world.ask("alone/a", "hold", json!(1));
    let waiting = async {
        service.asked(2).await;
        let calls =
            ["twice", "note"].map(|method| world.ask("alone/a", method, json!(4)).boxed_local().shared());
        let long = async {
            // Others of its type are asked and answered meanwhile.
            for number in 0..20 {
                let said = world.ask("alone/b", "note", json!(number)).await.unwrap();
                assert_eq!(said, json!(number * 2));
            }
            assert!(calls.iter().all(|call| call.peek().is_none()), "it did not wait for its turn");
            service.gate.add_permits(1);
        };
        let (said, ()) = tokio::join!(join_all(calls.clone()), long);
        said.into_iter().for_each(|said| assert_eq!(said.unwrap(), json!(8)));
    };
    tokio::join!(first, waiting).0.unwrap();
    // What takes too long is ended by its budget, and is no attempt that failed.
    let large: Json = (0..1000).collect::<Vec<i64>>().into();
    let (reason, words) = world.ask("alone/a", "long", large).await.unwrap_err();
    assert!(reason.ends_with("BudgetExceeded"), "{reason}: {words}");
}

async fn a_service_that_takes_longer_than_its_method_allows_is_asked_again(place: Place) {
    let world = World::new(place).await;
    let service = Held::start().await;
    let held = format!(
        r#"
state: {{initial: {{total: 0}}}}
methods:
- {{name: add, timeout: 200ms, retry: {{attempts: 1000, backoff: 1ms, max: 1ms}}, http: {{url: "{url}", timeout: 100s}}}}
- {{name: give, timeout: 100ms, retry: {{attempts: 2, backoff: 1ms}}, http: {{url: "{url}", timeout: 100s}}}}
- {{name: look, delivery: volatile, timeout: 100ms, http: {{url: "{url}", timeout: 100s}}}}
- {{name: get, delivery: volatile, cel: {{output: "${{state.total}}"}}}}
"#,
        url = service.url
    );
    world.serve(&[("held", &held)]).await;
    // It never answers: a volatile question was asked once, the other as often as it may be.
    let (reason, words) = world.ask("held/a", "look", Json::Null).await.unwrap_err();
    assert_eq!(reason, "Crashed");
    assert!(words.contains("took longer than 100ms"), "{words}");
    service.asked(1).await;
    let (reason, words) = world.ask("held/a", "give", Json::Null).await.unwrap_err();
    assert_eq!(reason, "RetriesExhausted");
    assert!(words.contains("took longer than 100ms"), "{words}");
    assert_eq!(world.ask("held/a", "get", Json::Null).await.unwrap(), json!(0));
    // It answers after one attempt was given up.
    let asked = service.asked.load(Ordering::SeqCst);
    let mended = async {
        service.asked(asked + 2).await;
        service.gate.add_permits(Semaphore::MAX_PERMITS / 2);
    };
    let (said, ()) = tokio::join!(world.ask("held/a", "add", json!(7)), mended);
    assert_eq!(said.unwrap(), json!(7));
    assert_eq!(world.ask("held/a", "get", Json::Null).await.unwrap(), json!(1));
}
