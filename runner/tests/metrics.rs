//! What is measured is what `docs/metrics.md` says.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

mod nodes;

use std::collections::BTreeMap;
use std::time::Duration;

use cleat_runner::admin::measure_process;
use cleat_runner::egress::{self, Egress};
use cleat_runner::message::EntityType;
use cleat_runner::prelude::*;
use cleat_runner::trace::{self, Recorder};
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{Gauge, Registry};

use nodes::{World, settled, until};

const PAGE: &str = include_str!("../../docs/metrics.md");

#[entity(name = "shelf", state = i64)]
struct Shelf;

#[entity_impl]
impl Shelf {
    #[rpc(persisted)]
    pub async fn restock(&self, stock: &mut i64, count: i64) -> Result<i64, Never> {
        *stock += count;
        Ok(*stock)
    }

    #[rpc]
    pub async fn stock(&self, stock: &i64) -> Result<i64, Never> {
        Ok(*stock)
    }

    #[rpc(persisted, attempts = 2, backoff = "1ms")]
    pub async fn collapse(&self) -> Result<(), OrRetry<String>> {
        Err(OrRetry::Retry("too much".to_owned()))
    }
}

#[workflow(name = "nap")]
struct Nap;

#[workflow_impl(key = |id: &String| id.clone())]
impl Nap {
    async fn execute(&self, id: String) -> Result<(), String> {
        self.lie_down(id).await?;
        self.sleep(Duration::from_millis(10)).await;
        Ok(())
    }

    #[activity]
    async fn lie_down(&self, _: String) -> Result<(), String> {
        Ok(())
    }
}

/// A line of the page.
struct Line {
    kind: String,
    labels: String,
}

/// The lines of the page's tables: `| name | type | labels | meaning |`.
fn lines() -> BTreeMap<String, Line> {
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().replace('`', "")).collect::<Vec<_>>();
    let rows = PAGE.lines().filter(|line| line.starts_with("| `")).map(cells);
    rows.map(|cells| (cells[1].clone(), Line { kind: cells[2].clone(), labels: cells[3].clone() })).collect()
}

fn kind(family: &MetricFamily) -> &'static str {
    match family.get_field_type() {
        MetricType::COUNTER => "counter",
        MetricType::GAUGE => "gauge",
        MetricType::HISTOGRAM => "histogram",
        other => panic!("{} is {other:?}", family.name()),
    }
}

fn labels(family: &MetricFamily) -> String {
    let labels = family.get_metric()[0].get_label().iter().map(|label| label.name().to_owned());
    labels.collect::<Vec<_>>().join(", ")
}

fn value(registry: &Registry, name: &str) -> f64 {
    let families = registry.gather();
    let family = families.iter().filter(|family| family.name() == name);
    let metrics = family.flat_map(|family| family.get_metric().iter());
    metrics.map(|metric| metric.get_counter().get_value() + metric.get_gauge().get_value()).sum()
}

fn count(registry: &Registry, name: &str) -> u64 {
    let families = registry.gather();
    let family = families.iter().filter(|family| family.name() == name);
    family
        .flat_map(|family| family.get_metric().iter())
        .map(|metric| metric.get_histogram().get_sample_count())
        .sum()
}

fn egress(registry: &Registry) -> Egress {
    let options = egress::Options {
        addresses: egress::Addresses { loopback: true, refused: Vec::new() },
        breaker: egress::Limits { failures: 1, pause: Duration::from_secs(600) },
        metrics: Some(egress::Metrics::new(registry).unwrap()),
        ..egress::Options::default()
    };
    Egress::new(options, std::sync::Arc::new(egress::Fixed::default()))
}

fn request(url: &str) -> egress::Request {
    egress::Request {
        method: http::Method::GET,
        url: url.to_owned(),
        headers: Default::default(),
        auth: None,
        tls: None,
        own: Default::default(),
        body: Default::default(),
        timeout: Duration::from_secs(30),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_names_exactly_what_is_measured() {
    let world = World::new().await;
    let (a, b) = (world.start("a").await, world.start("b").await);
    let registry = &a.metrics;
    measure_process(registry, "0.1.0").unwrap();
    let (_recorder, _exporter) =
        Recorder::new(trace::Options::new("http://127.0.0.1:1".parse().unwrap()), registry).unwrap();
    cleat_runner::gateway::Metrics::new(registry).unwrap();
    let egress = egress(registry);
    settled(&[&a, &b]).await;
    for runner in [&a, &b] {
        Shelf.register(&runner.node).unwrap();
        Nap.register(&runner.node).unwrap();
    }
    let shelves = ShelfClient::new(&a.node).unwrap();
    let naps = NapClient::new(&a.node).unwrap();
    let shelf = EntityType::new("shelf").unwrap();
    let here = |id: &String| a.node.host().serves(&a.node.host().shard_of(&shelf, id).unwrap());
    let id = (0..1000).map(|n| format!("s{n}")).find(here).unwrap();
    // One of everything, some of it on the other runner.
    assert_eq!(shelves.restock(&id, &2).await.unwrap(), 2);
    assert_eq!(shelves.stock(&id).await.unwrap(), 2);
    shelves.collapse(&id).await.unwrap_err();
    shelves.restock(&id, &1).after(Duration::from_millis(20)).await.unwrap();
    for n in 0..8 {
        shelves.stock(format!("o{n}")).await.unwrap();
        naps.execute(&format!("n{n}")).await.unwrap();
    }
    let (node, shelf) = (a.node.clone(), id.clone());
    let told = |name: &str| value(registry, name);
    assert!(count(registry, "cleat_call_seconds") >= 4);
    assert_eq!((told("cleat_failed_attempts_total"), told("cleat_dead_letters_total")), (2.0, 1.0));
    assert!(told("cleat_executions_started_total") >= 1.0 && told("cleat_execution_phases_total") >= 1.0);
    assert!(
        count(registry, "cleat_activity_seconds") >= 1 && count(registry, "cleat_timer_lag_seconds") >= 1
    );
    assert_eq!(count(registry, "cleat_scheduled_message_lag_seconds"), 1);
    assert!(told("cleat_entities_active") >= 1.0);
    assert!(
        count(registry, "cleat_store_commit_seconds") > 0
            && count(registry, "cleat_lease_renewal_seconds") > 0
    );
    // Nobody listens there, and once is too often.
    egress.send(request("http://127.0.0.1:1/")).await.unwrap_err();
    egress.send(request("http://127.0.0.1:1/")).await.unwrap_err();
    assert_eq!(
        (count(registry, "cleat_egress_request_seconds"), told("cleat_egress_circuits_open")),
        (2, 1.0)
    );
    until("nothing is left to do", || value(registry, "cleat_open_messages") == 0.0).await;
    assert_eq!(told("cleat_mailbox_messages"), 0.0, "what was taken is counted once");
    b.node.shutdown().await;
    until("all shards are here", || node.ownership().status().borrow().serving == usize::from(nodes::SHARDS))
        .await;
    assert_eq!(shelves.stock(&shelf).await.unwrap(), 3);

    let page = lines();
    for family in registry.gather() {
        let (name, kind, labels) = (family.name(), kind(&family), labels(&family));
        let Some(line) = page.get(name) else {
            panic!(
                "docs/metrics.md has no line for it:\n| `{name}` | {kind} | {labels} | {} |",
                family.help()
            )
        };
        assert_eq!((line.kind.as_str(), line.labels.as_str()), (kind, labels.as_str()), "the line of {name}");
    }
    for name in page.keys() {
        // What has not happened is not shown. But the name is taken if it is measured.
        let free =
            registry.register(Box::new(Gauge::new(name.as_str(), "whether the name is free").unwrap()));
        assert!(free.is_err(), "docs/metrics.md has a line for {name}, which nobody measures");
    }
    a.node.shutdown().await;
}
