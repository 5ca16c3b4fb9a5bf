//! The admin port of a runner: probes, metrics, and what the operator and the command line ask.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

mod nodes;
#[path = "admin/port.rs"]
mod port;
#[path = "admin/tasks.rs"]
mod tasks;

use std::time::Duration;

use cleat_proto::v1::execution_changes::What as Change;
use cleat_proto::v1::execution_report::Result as Reported;
use cleat_proto::v1::runner_status::State;
use cleat_proto::v1::tell_execution_request::{Cancel, Signal, Terminate, What};
use cleat_proto::v1::{self, ExecutionRef, RunnerStatus};
use cleat_runner::admin::{Declared, Problem};
use cleat_runner::cron::{Cron, Schedule};
use cleat_runner::health::Reason;
use cleat_runner::prelude::*;
use futures::StreamExt;
use serde_json::{Value, json};
use tonic::{Code, Streaming};

use nodes::{PATIENCE, World};
use port::{Port, reason};

#[workflow(name = "parcel")]
struct Parcel;

#[workflow_impl(key = |id: &String| id.clone())]
impl Parcel {
    async fn execute(&self, id: String) -> Result<String, String> {
        self.pack(id.clone()).await?;
        let to: String = self.signal("address").await;
        Ok(format!("{id} to {to}"))
    }

    #[activity]
    async fn pack(&self, id: String) -> Result<(), String> {
        if id == "broken" { Err("it does not fit".to_owned()) } else { Ok(()) }
    }
}

#[entity(name = "shelf", state = i64)]
struct Shelf;

#[entity_impl]
impl Shelf {
    #[rpc(persisted)]
    pub async fn restock(&self, stock: &mut i64, count: i64) -> Result<i64, Never> {
        *stock += count;
        Ok(*stock)
    }

    #[rpc(persisted, attempts = 1)]
    pub async fn collapse(&self, why: String) -> Result<(), OrRetry<String>> {
        Err(OrRetry::Retry(why))
    }
}

/// Waits for what a stream tells next.
async fn next<T>(stream: &mut Streaming<T>) -> T {
    tokio::time::timeout(PATIENCE, stream.next()).await.expect("nothing came").unwrap().unwrap()
}

/// Waits for a status that something holds for.
async fn status(
    statuses: &mut Streaming<RunnerStatus>,
    holds: impl Fn(&RunnerStatus) -> bool,
) -> RunnerStatus {
    let waiting = async {
        loop {
            let status = next(statuses).await;
            if holds(&status) {
                return status;
            }
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the status never came")
}

fn parcel(id: &str) -> ExecutionRef {
    ExecutionRef { r#type: "parcel".to_owned(), id: id.to_owned() }
}

fn start(key: &str, input: Value) -> v1::StartExecutionRequest {
    v1::StartExecutionRequest {
        r#type: "parcel".to_owned(),
        key: key.to_owned(),
        input: input.to_string(),
        ..Default::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_follow_the_first_assignment_and_the_drain_and_need_no_credential() {
    let world = World::new().await;
    let port = Port::start(&world, "a").await;
    assert_eq!(port.page("/livez").await, (200, "ok\n".to_owned()));
    assert_eq!(port.until_page("/readyz", 200).await, "ready\n");
    let (status, page) = port.page("/metrics").await;
    assert_eq!(status, 200);
    assert!(page.contains("cleat_shards{phase=\"serving\"} 6"), "{page}");
    assert_eq!(port.page("/").await.0, 404);
    // Another one can take the shards; until it has, this one is draining all the same.
    port.runner.node.ownership().drain();
    assert_eq!(port.until_page("/readyz", 503).await, "draining\n");
    assert_eq!(port.page("/livez").await.0, 200);
    port.runner.node.shutdown().await;
    assert_eq!(port.page("/readyz").await, (503, "draining\n".to_owned()), "it answers until it is stopped");
    port.stop.cancel();
    tokio::time::timeout(PATIENCE, port.serving).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_told_anything_without_the_credential() {
    let world = World::new().await;
    let port = Port::start(&world, "a").await;
    for credential in [None, Some(""), Some("another secret")] {
        let mut client = port.client_with(credential).await;
        let refused = client.watch(v1::WatchRequest {}).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{credential:?}");
        let refused = client.start_execution(start("k", json!("p"))).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{credential:?}");
    }
    port.client().await.watch(v1::WatchRequest {}).await.unwrap();
    port.runner.node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_watch_see_what_a_runner_owns_and_serves_and_what_is_wrong() {
    let world = World::new().await;
    let port = Port::start(&world, "a").await;
    let mut statuses = port.client().await.watch(v1::WatchRequest {}).await.unwrap().into_inner();
    let ready = status(&mut statuses, |status| status.state() == State::Ready).await;
    assert_eq!((ready.name.as_str(), ready.version.as_str(), ready.attached), ("a", "0.1.0", true));
    assert_eq!(ready.instance, port.runner.node.ownership().instance().as_str());
    assert_eq!((ready.groups[0].total, ready.groups[0].shards.len()), (6, 6));
    assert_eq!(ready.entity_types, [], "what is built in is not told");

    Shelf.register(&port.runner.node).unwrap();
    Parcel.register(&port.runner.node).unwrap();
    let problem = Problem {
        kind: "EntityType".to_owned(),
        name: "shop".to_owned(),
        generation: 3,
        reason: "UnknownField".to_owned(),
        message: "there is no stok in the state".to_owned(),
        path: "methods[0].cel.set".to_owned(),
    };
    port.definitions.send_modify(|definitions| {
        definitions.entities.insert("shelf".to_owned(), Declared { generation: 2 });
        definitions.problems.push(problem);
    });
    let told =
        status(&mut statuses, |status| !status.problems.is_empty() && !status.workflow_types.is_empty())
            .await;
    assert_eq!(told.problems[0].path, "methods[0].cel.set");
    let shelf = &told.entity_types[0];
    assert_eq!((shelf.name.as_str(), shelf.origin(), shelf.generation), ("shelf", v1::Origin::Declared, 2));
    assert_eq!(told.entity_types.len(), 1, "the front doors of workflows are no entities of users");
    assert_eq!(
        (told.workflow_types[0].name.as_str(), told.workflow_types[0].origin()),
        ("parcel", v1::Origin::Native)
    );

    // A second runner takes its part.
    let other = world.start("b").await;
    let shared = status(&mut statuses, |status| status.groups[0].shards.len() == 3).await;
    assert_eq!(shared.state(), State::Ready);
    other.node.shutdown().await;
    port.runner.node.ownership().drain();
    status(&mut statuses, |status| status.state() == State::Draining).await;
    port.runner.node.shutdown().await;
    port.stop.cancel();
    // The stream ends, so that nobody keeps the port open.
    while tokio::time::timeout(PATIENCE, statuses.next()).await.unwrap().is_some() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn executions_are_started_once_told_things_followed_and_described() {
    let world = World::new().await;
    let port = Port::start(&world, "a").await;
    Parcel.register(&port.runner.node).unwrap();
    let mut client = port.client().await;
    let following = v1::FollowExecutionsRequest { types: vec!["parcel".to_owned()] };
    let mut changes = client.follow_executions(following).await.unwrap().into_inner();
    assert!(matches!(next(&mut changes).await.what, Some(Change::Began(_))));

    let begun = client.start_execution(start("k-1", json!("p-1"))).await.unwrap().into_inner();
    let again = client.start_execution(start("k-1", json!("p-1"))).await.unwrap().into_inner();
    assert_eq!((begun.existed, again.existed), (false, true));
    assert_eq!((&begun.execution, &begun.run), (&again.execution, &again.run));
    let other = client.start_execution(start("k-1", json!("p-2"))).await.unwrap_err();
    assert_eq!((other.code(), reason(&other)), (Code::AlreadyExists, "KeyReused"));
    let execution = begun.execution.unwrap();
    let Some(Change::Changed(changed)) = next(&mut changes).await.what else { panic!("nothing changed") };
    assert_eq!(changed.executions, std::slice::from_ref(&execution));

    // Twice with the same key is one signal.
    let signal =
        Signal { name: "address".to_owned(), payload: json!("Rome").to_string(), key: "s".to_owned() };
    let tell = |what| v1::TellExecutionRequest { execution: Some(execution.clone()), what: Some(what) };
    for _ in 0..2 {
        client.tell_execution(tell(What::Signal(signal.clone()))).await.unwrap();
    }
    let report = loop {
        let asked = vec![execution.clone(), parcel("nobody")];
        let described = client.describe_executions(v1::DescribeExecutionsRequest { executions: asked }).await;
        let described = described.unwrap().into_inner().executions;
        assert!(matches!(described[1].result, Some(Reported::Unknown(_))));
        let Some(Reported::Report(report)) = &described[0].result else { panic!("{described:?}") };
        let report: Value = serde_json::from_str(report).unwrap();
        if report["phase"] == "Completed" {
            break report;
        }
        next(&mut changes).await;
    };
    assert_eq!(report["output"], "p-1 to Rome");
    assert_eq!((&report["type"], &report["id"]), (&json!("parcel"), &json!(execution.id)));
    assert_eq!(report["steps"][0]["name"], "pack");

    let doomed = client.start_execution(start("k-2", json!("p-2"))).await.unwrap().into_inner().execution;
    let terminate = What::Terminate(Terminate { message: "nobody wants it".to_owned() });
    let tell_it = v1::TellExecutionRequest { execution: doomed.clone(), what: Some(terminate) };
    client.tell_execution(tell_it).await.unwrap();
    let asked = v1::DescribeExecutionsRequest { executions: doomed.into_iter().collect() };
    let described = client.describe_executions(asked).await.unwrap().into_inner().executions.remove(0);
    let Some(Reported::Report(report)) = described.result else { panic!("there is no report") };
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["phase"], &report["failure"]["reason"]), (&json!("Failed"), &json!("Terminated")));

    let late =
        client.tell_execution(tell(What::Signal(Signal { key: String::new(), ..signal }))).await.unwrap_err();
    assert_eq!((late.code(), reason(&late)), (Code::FailedPrecondition, "Finished"));
    let nobody =
        v1::TellExecutionRequest { execution: Some(parcel("nobody")), what: Some(What::Cancel(Cancel {})) };
    let nobody = client.tell_execution(nobody).await.unwrap_err();
    assert_eq!((nobody.code(), reason(&nobody)), (Code::NotFound, "NoSuchExecution"));
    let malformed = v1::StartExecutionRequest { input: "{".to_owned(), ..start("k", json!(1)) };
    let malformed = client.start_execution(malformed).await.unwrap_err();
    assert_eq!(malformed.code(), Code::InvalidArgument);
    assert!(malformed.message().starts_with("input: it is no JSON"), "{malformed}");
    let unknown = v1::TellExecutionRequest { execution: Some(execution.clone()), what: None };
    assert_eq!(client.tell_execution(unknown).await.unwrap_err().code(), Code::InvalidArgument);
    port.runner.node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crons_are_asked_and_triggered_and_entities_and_dead_letters_are_listed() {
    let world = World::new().await;
    let port = Port::start(&world, "a").await;
    let shelves = Shelf.register(&port.runner.node).unwrap();
    port.until_page("/readyz", 200).await;
    let mut client = port.client().await;
    let nightly = Schedule::new("0 3 1 1 *").unwrap();
    let cron = Cron::new("nightly", nightly, shelves.restock("apples", &100));
    port.runner.node.register_cron(cron).await.unwrap();
    let nightly = v1::CronRef { name: "nightly".to_owned(), group: String::new() };
    for _ in 0..2 {
        let trigger = v1::TriggerCronRequest { cron: Some(nightly.clone()), key: "by hand".to_owned() };
        client.trigger_cron(trigger).await.unwrap();
    }
    let asked = v1::CronStatusRequest { cron: Some(nightly) };
    let told = client.cron_status(asked).await.unwrap().into_inner().cron.unwrap();
    assert_eq!((told.schedule.as_str(), told.fired, told.suspended), ("0 3 1 1 *", 1, false));
    assert!(told.next_ms.is_some() && told.last_ms.is_none());
    let nobody = v1::CronRef { name: "nobody".to_owned(), group: String::new() };
    let none = client.cron_status(v1::CronStatusRequest { cron: Some(nobody.clone()) }).await.unwrap();
    assert_eq!(none.into_inner().cron, None);
    let trigger = v1::TriggerCronRequest { cron: Some(nobody), key: String::new() };
    let refused = client.trigger_cron(trigger).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused)), (Code::NotFound, "NoSuchCron"));

    let collapsed = shelves.collapse("pears", &"too much".to_owned()).await;
    assert!(collapsed.is_err());
    let letters = v1::ListDeadLettersRequest::default();
    let letters = client.list_dead_letters(letters).await.unwrap().into_inner().letters;
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].entity_id.as_str(), letters[0].method.as_str()), ("pears", "collapse"));
    assert_eq!(letters[0].input, "\"too much\"");
    // The message of the tick comes after what triggered it.
    let listed = loop {
        let listed = client.list_entities(v1::ListEntitiesRequest::default()).await.unwrap().into_inner();
        if listed.total == 2 {
            break listed;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let mut ids: Vec<_> = listed.entities.iter().map(|entity| entity.id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["apples", "pears"]);
    port.runner.node.shutdown().await;
}

#[tokio::test]
async fn a_finding_reaches_readiness_metrics_and_those_who_watch() {
    let world = World::new().await;
    let port = Port::start(&world, "a").await;
    port.until_page("/readyz", 200).await;
    let mut statuses = port.client().await.watch(v1::WatchRequest {}).await.unwrap().into_inner();
    status(&mut statuses, |status| status.findings.is_empty()).await;

    let health = port.runner.node.health();
    health.report(Reason::ClockSkew, "the clock is 7 s ahead of the database's");
    assert_eq!(port.page("/readyz").await.0, 200, "others would serve no better");
    health.report(Reason::NoIds, "no request id can be issued: check the database");
    let (code, body) = port.page("/readyz").await;
    assert_eq!(
        (code, body.as_str()),
        (503, "not ready\nNoIds: no request id can be issued: check the database\n")
    );
    let told = status(&mut statuses, |status| status.findings.len() == 2).await;
    assert_eq!((told.findings[0].reason.as_str(), told.findings[0].unready), ("ClockSkew", false));
    assert_eq!((told.findings[1].reason.as_str(), told.findings[1].unready), ("NoIds", true));
    assert!(told.findings[1].since_ms > 1_600_000_000_000);
    let (_, page) = port.page("/metrics").await;
    assert!(page.contains("cleat_runner_findings{reason=\"NoIds\"} 1"), "{page}");

    health.clear(Reason::NoIds);
    health.clear(Reason::ClockSkew);
    assert_eq!(port.page("/readyz").await.0, 200);
    status(&mut statuses, |status| status.findings.is_empty()).await;
    let (_, page) = port.page("/metrics").await;
    assert!(page.contains("cleat_runner_findings{reason=\"NoIds\"} 0"), "{page}");
    port.runner.node.shutdown().await;
}
