//! Many Workflow objects at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use cleat_crds::Workflow;
use cleat_crds::workflow::Phase;
use cleat_operator::Options;
use cleat_runner::prelude::*;
use cleat_runner::workflow::Executions;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use kube::Client;
use kube::ResourceExt;
use kube::api::ListParams;
use kube::client::Body;
use serde_json::json;
use tower_service::Service;

use crate::nodes::{self, World};
use crate::rig::{Rig, reason};

const OBJECTS: u64 = 1000;
/// How many requests the whole life of one object may cost: taking and giving back the finalizer, the statuses of its start, its wait and
/// its end, an Event, and one more for each that came at a bad moment.
const EACH: u64 = 10;
/// How many requests there may be in ten seconds in which nothing happens, for all objects together.
const IDLE: u64 = 200;
/// No test waits so long, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(600);

#[workflow(name = "waiting")]
struct Waiting;

#[workflow_impl(key = |number: &u64| number.to_string())]
impl Waiting {
    async fn execute(&self, number: u64) -> Result<u64, String> {
        let more: u64 = self.signal("more").await;
        Ok(number + more)
    }
}

/// A client that counts.
#[derive(Clone)]
struct Counting {
    client: Client,
    asked: Arc<Asked>,
}

#[derive(Default)]
struct Asked {
    /// Requests for Workflows, and Events about them.
    workflows: AtomicU64,
    all: AtomicU64,
}

impl Service<http::Request<Body>> for Counting {
    type Response = http::Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.asked.all.fetch_add(1, Ordering::SeqCst);
        let path = request.uri().path();
        if path.contains("/workflows") || path.ends_with("/events") {
            self.asked.workflows.fetch_add(1, Ordering::SeqCst);
        }
        let client = self.client.clone();
        async move { client.send(request).await }.boxed()
    }
}

async fn all(rig: &Rig, what: &str, holds: impl Fn(&Workflow) -> bool) -> Vec<Workflow> {
    let began = tokio::time::Instant::now();
    loop {
        let seen = rig.api::<Workflow>().list(&ListParams::default()).await.unwrap().items;
        let right = seen.iter().filter(|one| holds(one)).count();
        if right as u64 == OBJECTS {
            return seen;
        }
        assert!(began.elapsed() < PATIENCE, "{right} of {OBJECTS} are {what}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn is(phase: Phase) -> impl Fn(&Workflow) -> bool {
    move |one| one.status.as_ref().is_some_and(|status| status.phase == phase)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_running_workflows_do_not_trouble_the_api_server() {
    let mut rig = Rig::bare().await;
    let asked: Arc<Asked> = Arc::default();
    let counting = Client::new(Counting { client: rig.client.clone(), asked: Arc::clone(&asked) }, "default");
    rig.operator = Some(tokio::spawn(cleat_operator::run(counting, Options::default(), rig.stop.clone())));
    rig.cluster(1).await;
    let world = World::new().await;
    let runner = world.start("r1").await;
    Waiting.register(&runner.node).unwrap();
    nodes::settled(&[&runner]).await;
    let _served = rig.serve(&runner, "r1").await;

    let create = async |number: u64| -> Workflow {
        rig.create(&format!("w{number}"), json!({"type": "waiting", "input": number})).await
    };
    let made: Vec<_> = futures::stream::iter(0..OBJECTS).map(create).buffer_unordered(16).collect().await;
    assert_eq!(made.len() as u64, OBJECTS);
    let running = all(&rig, "running", is(Phase::Running)).await;
    let ids: BTreeSet<_> =
        running.iter().map(|one| one.status.as_ref().unwrap().execution_id.clone()).collect();
    assert_eq!(ids.len() as u64, OBJECTS, "each has an execution of its own");

    // When all has been said, nothing more is.
    let count = || asked.workflows.load(Ordering::SeqCst);
    let settled = async {
        loop {
            let before = count();
            tokio::time::sleep(Duration::from_secs(5)).await;
            if count() == before {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, settled).await.expect("requests for objects at rest never end");
    let (objects, before) = (count(), asked.all.load(Ordering::SeqCst));
    tokio::time::sleep(Duration::from_secs(10)).await;
    let idle = asked.all.load(Ordering::SeqCst) - before;
    println!("{objects} requests until all ran, {} for objects at rest, {idle} in all", count() - objects);
    assert_eq!(count(), objects, "objects at rest need no requests");
    assert!(idle < IDLE, "{idle} requests in ten seconds in which nothing happens");

    let executions = Executions::new(&runner.node, "waiting").unwrap();
    let signal =
        async |id: &Option<String>| executions.signal(id.as_ref().unwrap(), "more", &5u64).await.unwrap();
    futures::stream::iter(&ids).map(signal).buffer_unordered(16).collect::<Vec<_>>().await;
    let done = all(&rig, "completed", is(Phase::Completed)).await;
    for one in &done {
        let status = one.status.as_ref().unwrap();
        let number: u64 = one.name_any()[1..].parse().unwrap();
        assert_eq!(status.output.as_ref().unwrap().0, json!(number + 5));
        assert!(reason(&status.conditions, "Completed", "True").is_some(), "{status:?}");
        assert!(reason(&status.conditions, "Finished", "True").is_some(), "{status:?}");
    }
    let let_go = |one: &Workflow| one.finalizers().is_empty();
    all(&rig, "let go", let_go).await;
    println!("{} requests for {OBJECTS} objects", count());
    assert!(count() <= EACH * OBJECTS, "{} requests for {OBJECTS} objects", count());
    rig.stop().await.unwrap();
}
