//! Executions of workflows, over HTTP and gRPC.

use std::sync::atomic::Ordering;

use cleat_proto::gateway::v1::workflows_client::WorkflowsClient;
use cleat_proto::gateway::v1::{
    CancelRequest, Control, ControlRequest, DescribeRequest, HistoryRequest, ListRequest, QueryRequest,
    ResultRequest, SignalRequest, StartRequest,
};
use cleat_runner::message::codec;
use cleat_runner::workflow::Executions;
use cleat_runner::workflow::journal::Event;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use tonic::Code;

use crate::client::Http;
use crate::flow::{Order, Stocktaking, Wanted};
use crate::grpc::{channel, reason};
use crate::nodes::{self, PATIENCE};
use crate::world::{Runner, World};

async fn two(world: &World) -> ([Runner; 2], Order) {
    let order = Order::default();
    let runners = world.two().await;
    for runner in &runners {
        order.clone().register(&runner.node).unwrap();
    }
    (runners, order)
}

async fn until(http: &Http, path: &str, field: &str, value: &str) -> Value {
    let look = async {
        loop {
            let report = http.get(path).await.json();
            if report[field] == value {
                return report;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, look).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_execution_is_started_once_asked_signalled_and_waited_for_from_any_runner() {
    let world = World::new().await;
    let (runners, order) = two(&world).await;
    let start = json!({ "key": "o/1: x", "input": { "item": "apples", "count": 3 } });
    let started = runners[0].http.post("/v1/workflows/order", start.clone()).await;
    assert_eq!((started.status.as_u16(), started.json()), (201, json!({ "id": "order:o/1: x" })));
    let path = started.header("location").to_owned();
    assert_eq!(path, "/v1/workflows/order:o%2F1:%20x");
    let again = runners[1].http.post("/v1/workflows/order", start).await;
    assert_eq!((again.status.as_u16(), again.json()), (200, json!({ "id": "order:o/1: x" })));
    let other = json!({ "key": "o/1: x", "input": { "item": "pears", "count": 3 } });
    let reused = runners[1].http.post("/v1/workflows/order", other).await;
    assert_eq!(reused.problem(), (409, "KeyReused".to_owned()));
    // What it shows, how far it is, and that it has not ended.
    let shows = async |http: &Http| http.post(&format!("{path}/queries/status"), json!(null)).await.json();
    let waiting = async {
        while shows(&runners[1].http).await != "waiting" {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
    assert_eq!(shows(&runners[0].http).await, "waiting");
    for runner in &runners {
        let report = runner.http.get(&path).await.json();
        assert_eq!((&report["id"], &report["type"]), (&json!("order:o/1: x"), &json!("order")));
        assert_eq!((&report["phase"], &report["input"]["item"]), (&json!("Running"), &json!("apples")));
        let result = runner.http.get(&format!("{path}/result")).await;
        assert_eq!((result.status.as_u16(), result.json()["state"].clone()), (202, json!("Pending")));
    }
    let waits = tokio::spawn({
        let (http, path) = (runners[1].http.clone(), format!("{path}/result?wait=50s"));
        async move { http.get(&path).await }
    });
    let signalled = runners[0].http.post(&format!("{path}/signals/approved"), json!("Ann")).await;
    assert_eq!(signalled.status, 202);
    let result = waits.await.unwrap();
    assert_eq!((result.status.as_u16(), result.json()), (200, json!("3 apples for Ann")));
    let report = runners[0].http.get(&path).await.json();
    assert_eq!((&report["phase"], &report["output"]), (&json!("Completed"), &json!("3 apples for Ann")));
    let history = runners[1].http.get(&format!("{path}/history")).await.json();
    let events: Vec<_> =
        history["entries"].as_array().unwrap().iter().map(|it| it["event"].clone()).collect();
    assert!(events.starts_with(&[json!("Activity"), json!("Signal")]), "{history}");
    assert_eq!(
        (&history["entries"][0]["name"], &history["entries"][0]["output"]),
        (&json!("reserve"), &json!(3))
    );
    assert_eq!(history["entries"][1]["payload"], "Ann");
    let late = runners[0].http.post(&format!("{path}/signals/approved"), json!("Bob")).await;
    assert_eq!(late.problem(), (409, "Finished".to_owned()));
    assert_eq!(order.reserved.load(Ordering::SeqCst), 1);
    // Executions are not asked as entities are.
    let closed = runners[0].http.post("/v1/entities/workflow:order/o-1/cancel", json!(null)).await;
    assert_eq!(closed.problem(), (404, "UnknownType".to_owned()));
    for runner in runners {
        runner.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn executions_fail_and_are_steered() {
    let world = World::new().await;
    let (runners, order) = two(&world).await;
    let http = &runners[1].http;
    let post = async |path: &str, input: Value| http.post(&format!("/v1/workflows/{path}"), input).await;
    let start = async |key: &str| {
        let start = json!({ "key": key, "input": { "item": "apples", "count": 1 }, "timeout": "1h" });
        assert_eq!(post("order", start).await.status, 201);
        format!("/v1/workflows/order:{key}")
    };
    // One that failed is a problem with its own word, and goes on once that is mended.
    order.empty.store(true, Ordering::SeqCst);
    let path = start("f").await;
    let failed = http.get(&format!("{path}/result?wait=50s")).await;
    assert_eq!(failed.problem(), (409, "SoldOut".to_owned()));
    assert_eq!(failed.json()["details"], json!({ "item": "apples" }));
    order.empty.store(false, Ordering::SeqCst);
    let plan = post("order:f/retry?dryRun=true", json!(null)).await;
    assert_eq!((plan.status.as_u16(), &plan.json()["id"]), (200, &json!("order:f")));
    assert!(plan.json()["steps"].as_array().unwrap().iter().all(|step| step["fate"] != "Repeated"));
    let no_plan = post("order:f/cancel?dryRun=true", json!(null)).await;
    assert_eq!(no_plan.problem(), (400, "InvalidParameter".to_owned()));
    assert_eq!(post("order:f/cancel", json!(null)).await.problem(), (409, "Finished".to_owned()));
    assert_eq!(post("order:f/terminate", json!(null)).await.problem(), (409, "Finished".to_owned()));
    assert_eq!(post("order:f/retry", json!(null)).await.status, 202);
    assert_eq!(post("order:f/signals/approved", json!("Ann")).await.status, 202);
    assert_eq!(http.get(&format!("{path}/result?wait=50s")).await.json(), "1 apples for Ann");
    assert_eq!(post("order:f/retry", json!(null)).await.problem(), (409, "NotFailed".to_owned()));
    // Back to the beginning.
    assert_eq!(post("order:f/reset", json!({})).await.problem(), (400, "InvalidParameter".to_owned()));
    assert_eq!(post("order:f/reset", json!({ "entries": 0 })).await.status, 202);
    assert_eq!(http.get(&format!("{path}/result?wait=50s")).await.json(), "1 apples for Ann");
    // Resting.
    let path = start("s").await;
    assert_eq!(post("order:s/suspend", json!(null)).await.status, 202);
    until(http, &path, "phase", "Suspended").await;
    assert_eq!(post("order:s/resume", json!(null)).await.status, 202);
    until(http, &path, "phase", "Running").await;
    assert_eq!(post("order:s/cancel", json!(null)).await.status, 202);
    let cancelled = http.get(&format!("{path}/result?wait=50s")).await;
    assert_eq!(cancelled.problem(), (409, "Cancelled".to_owned()));
    let path = start("t").await;
    assert_eq!(post("order:t/terminate", json!({ "reason": "a mistake" })).await.status, 202);
    assert_eq!(http.get(&format!("{path}/result?wait=50s")).await.problem().0, 409);
    // Nothing there, and what cannot be.
    assert_eq!(post("nothing", json!({})).await.problem(), (404, "UnknownWorkflow".to_owned()));
    assert_eq!(post("order", json!({ "keys": "x" })).await.problem(), (400, "InvalidStart".to_owned()));
    let timeless = json!({ "key": "x", "timeout": "1d" });
    assert_eq!(post("order", timeless).await.problem(), (400, "InvalidParameter".to_owned()));
    for path in ["order:none", "order:none/history", "order:none/result"] {
        assert_eq!(
            http.get(&format!("/v1/workflows/{path}")).await.problem(),
            (404, "NoSuchExecution".to_owned())
        );
    }
    assert_eq!(http.get("/v1/workflows/order").await.problem(), (400, "InvalidParameter".to_owned()));
    assert_eq!(post("order:none/signals/x", json!(1)).await.problem(), (404, "NoSuchExecution".to_owned()));
    assert_eq!(post("order:f/queries/weather", json!(1)).await.problem(), (404, "NoSuchQuery".to_owned()));
    for runner in runners {
        runner.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compiled_workflow_makes_its_own_key() {
    let world = World::new().await;
    let runner = world.one().await;
    let client = Stocktaking.register(&runner.node).unwrap();
    let start = json!({ "input": { "item": "apples", "count": 3 } });
    let started = runner.http.post("/v1/workflows/stocktaking", start.clone()).await;
    assert_eq!(started.status, 201);
    let again = runner.http.post("/v1/workflows/stocktaking", start).await;
    assert_eq!((again.status.as_u16(), again.json()), (200, started.json()));
    let other = json!({ "input": { "item": "apples", "count": 4 } });
    let other = runner.http.post("/v1/workflows/stocktaking", other).await;
    assert_eq!(other.problem(), (409, "KeyReused".to_owned()));
    // Whoever starts it in Rust means the same execution.
    let (id, begun) = client.begin(&Wanted { item: "apples".to_owned(), count: 3 }).await.unwrap();
    assert!(begun.existing);
    assert_eq!(started.json()["id"], format!("stocktaking:{id}"));
    // What it cannot read has no key of its own, and fails.
    let wrong = runner.http.post("/v1/workflows/stocktaking", json!({ "input": 7 })).await;
    assert_eq!(wrong.status, 201);
    let result = runner.http.get(&format!("{}/result?wait=50s", wrong.header("location"))).await;
    assert_eq!(result.problem().0, 409);
    runner.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_with_a_key_is_delivered_once() {
    let world = World::new().await;
    let ([first, second], _) = two(&world).await;
    let start = json!({ "key": "k", "input": { "item": "apples", "count": 3 } });
    assert_eq!(first.http.post("/v1/workflows/order", start).await.status, 201);
    let path = "/v1/workflows/order:k/signals/unread";
    let key = [("idempotency-key", "one")];
    assert_eq!(first.http.post_with(path, &key, json!("a")).await.status, 202);
    assert_eq!(second.http.post_with(path, &key, json!("a")).await.status, 202);
    let other = first.http.post_with(path, &key, json!("b")).await;
    assert_eq!(other.problem(), (409, "KeyReused".to_owned()));
    let empty = first.http.post_with(path, &[("idempotency-key", " ")], json!("a")).await;
    assert_eq!(empty.problem(), (400, "InvalidParameter".to_owned()));
    // Whoever owns the execution afterwards knows it, too.
    first.shutdown().await;
    let mut grpc = WorkflowsClient::new(channel(&second.http).await);
    let signal = |key: &str| SignalRequest {
        id: "order:k".to_owned(),
        name: "unread".to_owned(),
        payload: "\"a\"".into(),
        idempotency_key: key.to_owned(),
        ..SignalRequest::default()
    };
    grpc.signal(signal("one")).await.unwrap();
    grpc.signal(signal("two")).await.unwrap();
    let history = second.http.get("/v1/workflows/order:k/history").await.json();
    let signals = history["entries"].as_array().unwrap().iter().filter(|it| it["event"] == "Signal").count();
    assert_eq!(signals, 2, "{history}");
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn executions_are_listed_page_by_page() {
    let world = World::new().await;
    let (runners, _) = two(&world).await;
    let http = &runners[0].http;
    for number in 0..5 {
        let start = json!({ "key": format!("l-{number}"), "input": { "item": "apples", "count": number } });
        assert_eq!(http.post("/v1/workflows/order", start).await.status, 201);
        // They are listed by the time at which they began.
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    http.post("/v1/workflows/order:l-0/cancel", json!(null)).await;
    http.get("/v1/workflows/order:l-0/result?wait=50s").await;
    let mut listed = Vec::new();
    let mut next = String::new();
    loop {
        let page =
            runners[1].http.get(&format!("/v1/workflows?type=order&limit=2&continue={next}")).await.json();
        listed.extend(page["workflows"].as_array().unwrap().clone());
        match page["continue"].as_str() {
            Some(place) => next = place.to_owned(),
            None => break,
        }
    }
    let ids: Vec<_> = listed.iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["order:l-4", "order:l-3", "order:l-2", "order:l-1", "order:l-0"]);
    let count = async |query: &str| {
        http.get(&format!("/v1/workflows?{query}")).await.json()["workflows"].as_array().unwrap().len()
    };
    assert_eq!(count("phase=Running").await, 4);
    assert_eq!(count("phase=Cancelled,Failed").await, 1);
    assert_eq!(count("phase=Cancelled&phase=Running").await, 5);
    assert_eq!(count("type=other").await, 0);
    assert_eq!(count("since=2020-01-01T00:00:00Z").await, 5);
    assert_eq!(count("since=2120-01-01T00:00:00Z").await, 0);
    for query in ["phase=Sleeping", "since=noon", "continue=x", "limit=0"] {
        let reply = http.get(&format!("/v1/workflows?{query}")).await;
        assert_eq!(reply.problem(), (400, "InvalidParameter".to_owned()), "{query}");
    }
    for runner in runners {
        runner.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_goes_over_grpc() {
    let world = World::new().await;
    let (runners, _) = two(&world).await;
    let mut client = WorkflowsClient::new(channel(&runners[1].http).await);
    let input = json!({ "item": "apples", "count": 2 }).to_string();
    let start = StartRequest {
        r#type: "order".to_owned(),
        key: "g".to_owned(),
        input: input.into(),
        ..StartRequest::default()
    };
    let started = client.start(start.clone()).await.unwrap().into_inner();
    assert_eq!((started.id.as_str(), started.existing), ("order:g", false));
    assert!(client.start(start.clone()).await.unwrap().into_inner().existing);
    let id = || "order:g".to_owned();
    let result = ResultRequest { id: id(), ..ResultRequest::default() };
    assert!(!client.result(result.clone()).await.unwrap().into_inner().ended);
    let control =
        |control: Control| ControlRequest { id: id(), control: control.into(), ..ControlRequest::default() };
    client.control(control(Control::Suspend)).await.unwrap();
    let described = client.describe(DescribeRequest { id: id() }).await.unwrap().into_inner();
    assert_eq!((described.r#type.as_str(), described.phase.as_str()), ("order", "Suspended"));
    client.control(control(Control::Resume)).await.unwrap();
    let signal = SignalRequest {
        id: id(),
        name: "approved".to_owned(),
        payload: "\"Ann\"".into(),
        ..SignalRequest::default()
    };
    client.signal(signal).await.unwrap();
    let waited = ResultRequest { wait: "50s".to_owned(), ..result };
    let ended = client.result(waited).await.unwrap().into_inner();
    assert_eq!((ended.ended, ended.output.as_ref()), (true, b"\"2 apples for Ann\"".as_slice()));
    let query = QueryRequest { id: id(), name: "status".to_owned(), ..QueryRequest::default() };
    assert_eq!(client.query(query).await.unwrap().into_inner().output, "\"waiting\"");
    let history = client.history(HistoryRequest { id: id() }).await.unwrap().into_inner();
    assert!(history.entries.len() >= 2);
    client.start(StartRequest { key: "h".to_owned(), ..start }).await.unwrap();
    client.cancel(CancelRequest { id: "order:h".to_owned() }).await.unwrap();
    let cancelled =
        ResultRequest { id: "order:h".to_owned(), wait: "50s".to_owned(), ..ResultRequest::default() };
    assert_eq!(reason(&client.result(cancelled).await.unwrap_err()), (Code::Cancelled, "Cancelled"));
    let page = client.list(ListRequest { limit: 1, ..ListRequest::default() }).await.unwrap().into_inner();
    assert_eq!((page.executions[0].id.as_str(), page.r#continue.is_empty()), ("order:h", false));
    let unknown = client.describe(DescribeRequest { id: "order:x".to_owned() }).await.unwrap_err();
    assert_eq!(reason(&unknown), (Code::NotFound, "NoSuchExecution"));
    let nothing = client.control(control(Control::Unspecified)).await.unwrap_err();
    assert_eq!(reason(&nothing), (Code::InvalidArgument, "InvalidParameter"));
    for runner in runners {
        runner.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_signals_an_execution_when_too_much_waits_for_it_is_told_to_come_back() {
    let world = World::new().await;
    let (runners, _) = two(&world).await;
    let start = json!({ "key": "o-1", "input": { "item": "apples", "count": 1 } });
    assert_eq!(runners[0].http.post("/v1/workflows/order", start).await.status, 201);
    let path = "/v1/workflows/order:o-1";
    let waits = async {
        while runners[0].http.post(&format!("{path}/queries/status"), json!(null)).await.json() != "waiting" {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waits).await.unwrap();
    // While this is open nobody can write to a journal, and what comes waits. Whoever is no user is never sent away.
    let mut gate = PgConnection::connect(&world.nodes.database.url).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE cleat.journal IN EXCLUSIVE MODE").execute(&mut gate).await.unwrap();
    let executions = Executions::new(&runners[0].node, "order").unwrap();
    // One of them is being written and does not wait.
    let signals: Vec<_> = (0..1001)
        .map(|number| {
            let executions = executions.clone();
            tokio::spawn(async move { executions.signal("o-1", "noted", &number).await })
        })
        .collect();
    nodes::until("all of them wait", || {
        let work = runners.iter().flat_map(|runner| runner.node.host().work().into_values());
        work.map(|work| work.open).sum::<usize>() == signals.len()
    })
    .await;
    for runner in &runners {
        let signal = format!("{path}/signals/noted");
        for key in [&[][..], &[("idempotency-key", "one too many")]] {
            let refused = runner.http.post_with(&signal, key, json!("no")).await;
            assert_eq!(refused.problem(), (429, "MailboxFull".to_owned()));
            assert_eq!(refused.header("retry-after"), "1");
        }
        let mut client = WorkflowsClient::new(channel(&runner.http).await);
        let request = SignalRequest {
            id: "order:o-1".to_owned(),
            name: "noted".to_owned(),
            payload: "\"no\"".into(),
            ..SignalRequest::default()
        };
        let refused = client.signal(request).await.unwrap_err();
        assert_eq!(reason(&refused), (Code::ResourceExhausted, "MailboxFull"));
        assert_eq!(refused.metadata().get("cleat-retry-after").unwrap(), "1");
    }
    sqlx::raw_sql("COMMIT").execute(&mut gate).await.unwrap();
    for signal in signals {
        signal.await.unwrap().unwrap();
    }
    // There is room again, also under a key that was refused; what was taken is all there, and nothing of what was not.
    let key = [("idempotency-key", "one too many")];
    for _ in 0..2 {
        let taken = runners[1].http.post_with(&format!("{path}/signals/noted"), &key, json!("yes")).await;
        assert_eq!(taken.status, 202);
    }
    let history = executions.history("o-1").await.unwrap();
    let noted = history.iter().filter_map(|entry| match &entry.event {
        Event::Signal { payload, .. } => Some(codec::decode::<Value>(payload).unwrap()),
        _ => None,
    });
    let mut noted: Vec<Value> = noted.collect();
    assert_eq!(noted.pop(), Some(json!("yes")));
    noted.sort_by_key(Value::as_u64);
    assert_eq!(noted, (0..1001).map(|number| json!(number)).collect::<Vec<_>>());
    for runner in runners {
        runner.shutdown().await;
    }
}
