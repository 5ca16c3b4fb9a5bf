//! The embedded Kubernetes API beside a real kube-apiserver with etcd: ten thousand custom resources and a hundred watchers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench_subject::load;
use cleat_apiserver::store::{Backend, Memory, Sqlite};
use e2e::ControlPlane;
use futures::{StreamExt, TryStreamExt};
use hdrhistogram::Histogram;
use http::Request;
use http_body_util::{BodyDataStream, BodyExt};
use kube::Client;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::report::{Measurement, Report, Target};
use crate::world::World;

const NAME: &str = "apiserver";
const PEER: &str = "kube-apiserver, etcd";
const OBJECTS: usize = 10_000;
const WATCHERS: usize = 100;
/// Who creates, applies and patches at the same time.
const CALLERS: usize = 16;
/// Objects per page; kubectl's own.
const PAGE: usize = 500;
/// Single writes whose way to all watchers is timed.
const FAN_OUTS: usize = 200;
/// Writes in one go, whose events all watchers read.
const BURST: usize = 2_000;
/// What is expected comes within this, or the run is broken.
const PATIENCE: Duration = Duration::from_secs(120);

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const COLLECTION: &str = "/apis/bench.cleat.dev/v1/namespaces/default/loads";

/// Measures both embedded servers and the real one, one after the other.
pub async fn run(world: &World, report: &mut Report) -> Result<()> {
    let time = Duration::from_secs_f64(world.effort.seconds);
    eprintln!("{NAME}: {OBJECTS} objects and {WATCHERS} watchers on the server in memory");
    let memory = embedded(Arc::new(Memory), time).await?;
    eprintln!("{NAME}: the same on the server with SQLite");
    let folder = tempfile::tempdir()?;
    let sqlite = embedded(Arc::new(Sqlite::open(&folder.path().join("objects")).await?), time).await?;
    eprintln!("{NAME}: the same on kube-apiserver and etcd");
    let real = match ControlPlane::start(e2e::Options::default()).await {
        Ok(plane) => Some(measure(plane.client().await?, time).await?),
        Err(error) => {
            report.remark(format!("{PEER} is missing: {error}"));
            None
        }
    };
    for (name, ours) in [("memory", memory), ("SQLite", sqlite)] {
        for (place, figure) in ours.into_iter().enumerate() {
            let measured =
                Measurement::new(NAME, format!("{}, {name}", figure.what), figure.value, figure.unit);
            let measured = match real.as_ref().and_then(|real| real.get(place)) {
                Some(other) => measured.beside(PEER, other.value),
                None => measured,
            };
            report.add(measured.wants(figure.target));
        }
    }
    Ok(())
}

/// One number of one server.
struct Figure {
    what: &'static str,
    value: f64,
    unit: &'static str,
    target: Target,
}

impl Figure {
    fn rate(what: &'static str, value: f64) -> Self {
        Self { what, value, unit: "1/s", target: Target::RatioAtLeast(1.0) }
    }

    fn delay(what: &'static str, milliseconds: f64) -> Self {
        Self { what, value: milliseconds, unit: "ms", target: Target::RatioAtMost(1.0) }
    }
}

async fn embedded(backend: Arc<dyn Backend>, time: Duration) -> Result<Vec<Figure>> {
    let options = cleat_apiserver::Options { backend, ..cleat_apiserver::Options::default() };
    let server = cleat_apiserver::start(options).await?;
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let figures = measure(Client::try_from(config)?, time).await?;
    server.shutdown().await;
    Ok(figures)
}

async fn measure(client: Client, time: Duration) -> Result<Vec<Figure>> {
    define(&client).await?;
    let begun = Instant::now();
    let creating = futures::stream::iter(0..OBJECTS).map(|number| {
        let client = client.clone();
        async move { send(&client, "POST", COLLECTION, "application/json", &object(number)).await }
    });
    creating.buffer_unordered(CALLERS).try_for_each(|_| async { Ok(()) }).await?;
    let mut figures = vec![Figure::rate("creates", rate(OBJECTS, begun.elapsed()))];

    let whole = load::run(
        1,
        time,
        |_| {
            let client = client.clone();
            move || {
                let client = client.clone();
                async move {
                    let text = get(&client, COLLECTION).await?;
                    ensure!(text.matches("\"kind\":\"Load\",").count() >= OBJECTS, "the list is not whole");
                    Ok(())
                }
            }
        },
        || {},
    );
    figures.push(Figure::rate("lists of all objects", ended(&whole.await?.flawless()?)?));
    let paged = load::run(
        1,
        time,
        |_| {
            let client = client.clone();
            move || pages(client.clone())
        },
        || {},
    );
    figures.push(Figure::rate("lists of all objects, by pages", ended(&paged.await?.flawless()?)?));
    figures.push(Figure::rate("server-side applies", apply(&client, time).await?));
    figures.extend(watched(&client).await?);
    Ok(figures)
}

/// How many ended per second; a measurement in which nothing did says nothing.
fn ended(outcome: &load::Outcome) -> Result<f64> {
    ensure!(outcome.per_second > 0.0, "nothing ended in the measured time: give it more with --seconds");
    Ok(outcome.per_second)
}

async fn apply(client: &Client, time: Duration) -> Result<f64> {
    let applied = load::run(
        CALLERS,
        time,
        |caller| {
            let (client, mut round) = (client.clone(), 0);
            move || {
                round += 1;
                let number = (caller + round * CALLERS) % OBJECTS;
                let (client, mut object) = (client.clone(), object(number));
                object["spec"]["replicas"] = json!(round);
                async move {
                    let path = format!("{COLLECTION}/load-{number}?fieldManager=bench&force=true");
                    send(&client, "PATCH", &path, "application/apply-patch+yaml", &object).await.map(drop)
                }
            }
        },
        || {},
    );
    ended(&applied.await?.flawless()?)
}

/// How long a write takes to reach all watchers, and how many events per second reach them.
async fn watched(client: &Client) -> Result<[Figure; 3]> {
    let listed: Value = serde_json::from_str(&get(client, &format!("{COLLECTION}?limit=1")).await?)?;
    let version = listed["metadata"]["resourceVersion"].as_str().context("the list has no version")?;
    let mut watchers = Vec::new();
    for _ in 0..WATCHERS {
        watchers.push(watch_from(client, version).await?);
    }
    let mut delays = Histogram::<u64>::new(3)?;
    for number in 0..FAN_OUTS {
        let begun = Instant::now();
        patch(client, number, number).await?;
        all_have(&mut watchers, number + 1).await?;
        delays.record(u64::try_from(begun.elapsed().as_micros())?)?;
    }
    let begun = Instant::now();
    let patching =
        futures::stream::iter(0..BURST).map(|number| async move { patch(client, number, OBJECTS).await });
    patching.buffer_unordered(CALLERS).try_for_each(|()| async { Ok(()) }).await?;
    all_have(&mut watchers, FAN_OUTS + BURST).await?;
    let delivered = rate(BURST * WATCHERS, begun.elapsed());
    let delay =
        |percentile| Duration::from_micros(delays.value_at_percentile(percentile)).as_secs_f64() * 1e3;
    Ok([
        Figure::delay("write until 100 watchers have it: p50", delay(50.0)),
        Figure::delay("write until 100 watchers have it: p99", delay(99.0)),
        Figure::rate("events delivered to 100 watchers", delivered),
    ])
}

async fn all_have(watchers: &mut [watch::Receiver<usize>], count: usize) -> Result<()> {
    for watcher in watchers {
        let have = tokio::time::timeout(PATIENCE, watcher.wait_for(|seen| *seen >= count)).await;
        let seen = *have.context("a watcher was not told of all writes")?.context("a watch has ended")?;
        ensure!(seen == count, "a watcher was told of {seen} writes instead of {count}");
    }
    Ok(())
}

/// A watch of all objects, and how many events it has brought. A server may end the watch of somebody who is slow to read; then, as
/// any client would, it goes on after the last event.
async fn watch_from(client: &Client, version: &str) -> Result<watch::Receiver<usize>> {
    let (told, seen) = watch::channel(0);
    let (client, mut version) = (client.clone(), version.to_owned());
    let mut events = open_watch(&client, &version).await?;
    tokio::spawn(async move {
        loop {
            let (mut line, mut last) = (Vec::new(), Vec::new());
            while let Some(Ok(piece)) = events.next().await {
                for part in piece.split_inclusive(|byte| *byte == b'\n') {
                    line.extend_from_slice(part);
                    if part.ends_with(b"\n") {
                        std::mem::swap(&mut line, &mut last);
                        line.clear();
                        told.send_modify(|count| *count += 1);
                    }
                }
            }
            if let Ok(event) = serde_json::from_slice::<Value>(&last) {
                version =
                    event["object"]["metadata"]["resourceVersion"].as_str().unwrap_or(&version).to_owned();
            }
            match open_watch(&client, &version).await {
                Ok(next) => events = next,
                Err(error) => return eprintln!("  a watch has ended and does not go on: {error:#}"),
            }
        }
    });
    Ok(seen)
}

async fn open_watch(client: &Client, version: &str) -> Result<BodyDataStream<Body>> {
    let path = format!("{COLLECTION}?watch=true&resourceVersion={version}&timeoutSeconds=1800");
    let response = client.send(Request::get(path).body(Body::empty())?).await?;
    ensure!(response.status().is_success(), "a watch was refused: {}", response.status());
    Ok(response.into_body().into_data_stream())
}

async fn pages(client: Client) -> Result<()> {
    let (mut token, mut seen) = (String::new(), 0);
    loop {
        let text = get(&client, &format!("{COLLECTION}?limit={PAGE}&continue={token}")).await?;
        seen += text.matches("\"kind\":\"Load\",").count();
        // The token is looked for and not parsed for, so that the client costs little.
        let next = text.split_once("\"continue\":\"").and_then(|(_, rest)| rest.split_once('"'));
        match next {
            Some((next, _)) if !next.is_empty() => token = next.to_owned(),
            _ => break,
        }
    }
    ensure!(seen >= OBJECTS, "the pages hold {seen} objects");
    Ok(())
}

async fn patch(client: &Client, number: usize, value: usize) -> Result<()> {
    let path = format!("{COLLECTION}/load-{number}");
    let body = json!({ "spec": { "note": format!("patched {value}") } });
    send(client, "PATCH", &path, "application/merge-patch+json", &body).await.map(drop)
}

async fn get(client: &Client, path: &str) -> Result<String> {
    Ok(client.request_text(Request::get(path).body(Vec::new())?).await?)
}

async fn send(client: &Client, method: &str, path: &str, media: &str, body: &Value) -> Result<String> {
    let request = Request::builder().method(method).uri(path).header("content-type", media);
    Ok(client.request_text(request.body(serde_json::to_vec(body)?)?).await?)
}

fn rate(count: usize, time: Duration) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / time.as_secs_f64()
}

/// An object of about a kilobyte, as stored.
fn object(number: usize) -> Value {
    json!({
        "apiVersion": "bench.cleat.dev/v1",
        "kind": "Load",
        "metadata": {
            "name": format!("load-{number}"),
            "labels": { "app.kubernetes.io/name": "bench", "part": (number % 10).to_string() },
        },
        "spec": {
            "size": "M",
            "replicas": number % 5,
            "note": "0123456789".repeat(30),
            "ports": [{ "name": "http", "port": 80 }, { "name": "https", "port": 443 }],
        },
    })
}

/// Defines the resource, and returns when it is served.
async fn define(client: &Client) -> Result<()> {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "loads.bench.cleat.dev" },
        "spec": {
            "group": "bench.cleat.dev",
            "scope": "Namespaced",
            "names": { "kind": "Load", "plural": "loads" },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": {
                    "type": "object",
                    "required": ["size"],
                    "properties": {
                        "size": { "type": "string", "enum": ["S", "M", "L"] },
                        "replicas": { "type": "integer", "minimum": 0, "default": 1 },
                        "note": { "type": "string", "maxLength": 1000 },
                        "ports": {
                            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                            "items": { "type": "object", "required": ["name"], "properties": {
                                "name": { "type": "string" }, "port": { "type": "integer" },
                            } },
                        },
                    },
                    "x-kubernetes-validations": [{ "rule": "self.replicas >= 0 || self.size == 'S'" }],
                } } } },
            }],
        },
    });
    send(client, "POST", DEFINITIONS, "application/json", &definition).await?;
    let schema = "/openapi/v3/apis/bench.cleat.dev/v1";
    e2e::until("the resource is not served", || async {
        let listed = get(client, COLLECTION).await.is_ok();
        Ok(listed && get(client, schema).await.is_ok_and(|text| text.contains("\"Load\"")))
    })
    .await
}
