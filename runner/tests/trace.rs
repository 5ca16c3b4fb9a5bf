//! Traces through callers, entities and runners, as a collector gets them.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

#[path = "trace/collector.rs"]
mod collector;
mod nodes;

use std::time::Duration;

use cleat_runner::cluster::Node;
use cleat_runner::message::TraceContext;
use cleat_runner::prelude::*;
use cleat_runner::trace::{self, Exporter, Recorder};
use prometheus::Registry;
use tokio_util::sync::CancellationToken;

use collector::Collector;
use nodes::{World, settled, until};

/// Passes what it is asked on to others, in each of the ways that there are.
#[entity(name = "front")]
#[derive(Clone)]
struct Front {
    /// Asks without the help of the context.
    aside: Option<BackClient>,
}

#[entity_impl]
impl Front {
    #[rpc(persisted)]
    pub async fn relay(&self, context: &mut Context, to: String) -> Result<Option<String>, OrRetry<String>> {
        let backs = context.client::<Back>().map_err(OrRetry::retry)?;
        let seen = context.call(backs.seen(&to)).await.map_err(OrRetry::retry)?;
        context.send(backs.told(&to));
        if let Some(aside) = &self.aside {
            aside.noticed(&to).await.map_err(OrRetry::retry)?;
        }
        Ok(seen)
    }
}

#[entity(name = "back")]
#[derive(Clone)]
struct Back;

#[entity_impl]
impl Back {
    /// The trace that it is a part of.
    #[rpc]
    pub async fn seen(&self, context: &mut Context) -> Result<Option<String>, Never> {
        Ok(context.trace().map(ToString::to_string))
    }

    #[rpc(persisted)]
    pub async fn told(&self) -> Result<(), Never> {
        Ok(())
    }

    #[rpc]
    pub async fn noticed(&self) -> Result<(), Never> {
        Ok(())
    }
}

/// Asks from an activity.
#[workflow(name = "errand")]
struct Errand {
    backs: BackClient,
}

#[workflow_impl(key = |to: &String| to.clone())]
impl Errand {
    async fn execute(&self, to: String) -> Result<Option<String>, String> {
        self.go(to).await
    }

    #[activity]
    async fn go(&self, to: String) -> Result<Option<String>, String> {
        self.backs.seen(&to).await.map_err(|error| error.to_string())
    }
}

fn recorder(endpoint: &str) -> (Recorder, Exporter, Registry) {
    let registry = Registry::new();
    let usual = trace::Options::new(endpoint.parse().unwrap());
    let options = trace::Options { linger: Duration::from_millis(20), ..usual };
    let (recorder, exporter) = Recorder::new(options, &registry).unwrap();
    (recorder, exporter, registry)
}

/// Registers both types, and gives a client for the first.
fn serve(node: &Node) -> FrontClient {
    let aside = Back.register(node).unwrap();
    Front { aside: Some(aside) }.register(node).unwrap()
}

/// How many spans had this end.
fn counted(registry: &Registry, result: &str) -> f64 {
    let families = registry.gather();
    let metrics = families.iter().flat_map(|family| family.get_metric());
    let so = metrics.filter(|metric| metric.get_label().iter().any(|label| label.value() == result));
    so.map(|metric| metric.get_counter().get_value()).sum()
}

#[tokio::test]
async fn a_trace_goes_from_the_edge_through_all_that_is_asked_on_whatever_runner() {
    let (collector, endpoint) = Collector::start().await;
    let (recorder, exporter, _) = recorder(&endpoint);
    let stop = CancellationToken::new();
    let exporting = tokio::spawn(exporter.run(stop.clone()));
    let world = World::new().await;
    let a = world.start_with("a", |options| options.traces = recorder.clone()).await;
    let b = world.start_with("b", |options| options.traces = recorder.clone()).await;
    settled(&[&a, &b]).await;
    let (fronts, _) = (serve(&a.node), serve(&b.node));

    // Whatever the ids are, some are here and some are there.
    for id in 0..8 {
        let (span, context) = recorder.edge("POST /v1/entities", None);
        fronts.relay(format!("f{id}"), &format!("b{id}")).trace(context.unwrap()).await.unwrap();
        drop(span);
    }
    let all = [
        ("POST /v1/entities", 8),
        ("front.relay", 8),
        ("back.seen", 8),
        ("back.told", 8),
        ("back.noticed", 8),
    ];
    until("all spans came", || all.iter().all(|(name, count)| collector.named(name).len() == *count)).await;

    let edges = collector.named("POST /v1/entities");
    for relay in collector.named("front.relay") {
        let edge = edges.iter().find(|edge| relay.is_within(edge)).expect("the edge is what it is within");
        assert_eq!(edge.text("parentSpanId"), "");
        for name in ["back.seen", "back.told", "back.noticed"] {
            let within = collector.named(name).iter().filter(|span| span.is_within(&relay)).count();
            assert_eq!(within, 1, "{name} is within the relay that asked for it");
        }
        assert!(relay.attribute("cleat.entity").unwrap().starts_with("front"));
        assert!(relay.attribute("cleat.shard").is_some() && relay.attribute("cleat.epoch").is_some());
    }
    a.node.shutdown().await;
    b.node.shutdown().await;
    stop.cancel();
    exporting.await.unwrap();
}

#[tokio::test]
async fn an_activity_is_a_part_of_the_trace_that_its_execution_was_started_in() {
    let (collector, endpoint) = Collector::start().await;
    let (recorder, exporter, _) = recorder(&endpoint);
    tokio::spawn(exporter.run(CancellationToken::new()));
    let world = World::new().await;
    let a = world.start_with("a", |options| options.traces = recorder.clone()).await;
    let backs = Back.register(&a.node).unwrap();
    let errands = Errand { backs }.register(&a.node).unwrap();
    let (span, context) = recorder.edge("POST /v1/workflows", None);
    let seen = trace::within(context.clone(), errands.execute(&"b".to_owned())).await.unwrap();
    drop(span);
    let all = ["POST /v1/workflows", "workflow:errand.start", "errand.go", "back.seen"];
    until("all spans came", || all.iter().all(|name| collector.named(name).len() == 1)).await;
    let [edge, start, go, back] = all.map(|name| collector.named(name).remove(0));
    assert!(start.is_within(&edge) && go.is_within(&start) && back.is_within(&go));
    assert!(go.attribute("cleat.execution").unwrap().contains("errand"));
    assert!(seen.unwrap().contains(back.text("spanId")), "it knows the span that it is seen as");
    a.node.shutdown().await;
}

#[tokio::test]
async fn what_nobody_samples_is_passed_on_and_not_recorded() {
    let (collector, endpoint) = Collector::start().await;
    let (recorder, exporter, registry) = recorder(&endpoint);
    let stop = CancellationToken::new();
    let exporting = tokio::spawn(exporter.run(stop.clone()));
    let world = World::new().await;
    let a = world.start_with("a", |options| options.traces = recorder.clone()).await;
    let fronts = serve(&a.node);
    let unsampled = TraceContext { trace_id: 7, parent_id: 8, sampled: false };
    let seen = fronts.relay("f", &"b".to_owned()).trace(unsampled.clone()).await.unwrap();
    assert_eq!(seen, Some(unsampled.to_string()));
    assert_eq!(fronts.relay("f", &"b".to_owned()).await.unwrap(), None, "a trace begins at the edge");
    a.node.shutdown().await;
    // What waits is taken along.
    stop.cancel();
    exporting.await.unwrap();
    assert_eq!(collector.spans().len(), 0);
    assert_eq!(counted(&registry, "exported"), 0.0);
}

#[tokio::test]
async fn a_collector_that_is_gone_costs_spans_and_nothing_else() {
    let (recorder, exporter, registry) = recorder("http://127.0.0.1:1");
    tokio::spawn(exporter.run(CancellationToken::new()));
    let world = World::new().await;
    let a = world.start_with("a", |options| options.traces = recorder.clone()).await;
    let fronts = serve(&a.node);
    let (span, context) = recorder.edge("edge", None);
    fronts.relay("f", &"b".to_owned()).trace(context.unwrap()).await.unwrap();
    drop(span);
    until("the spans are given up", || counted(&registry, "failed") >= 5.0).await;
    a.node.shutdown().await;
}
