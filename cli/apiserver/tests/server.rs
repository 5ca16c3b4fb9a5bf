//! What the server promises beyond its answers: who gets in, what lasts, what is bounded.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use async_trait::async_trait;
use bytes::Bytes;
use cleat_apiserver::store::{History, Sqlite};
use cleat_apiserver::{Handle, Logs, LogsError, LogsRequest, Options, start};
use futures::stream::BoxStream;
use futures::{AsyncReadExt, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, LogParams, ObjectMeta, PostParams,
    WatchEvent, WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

async fn client(kubeconfig: &str) -> kube::Client {
    let config = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

async fn maps(handle: &Handle) -> Api<ConfigMap> {
    Api::default_namespaced(client(&handle.kubeconfig()).await)
}

fn map(name: &str, value: String) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("value".into(), value)])),
        ..ConfigMap::default()
    }
}

fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn nobody_gets_in_without_the_token_but_health_is_public() {
    let handle = start(Options::default()).await.unwrap();
    let stranger = client(&handle.kubeconfig().replace(handle.token(), "wrong")).await;
    let refused = Api::<ConfigMap>::default_namespaced(stranger.clone()).get("x").await.unwrap_err();
    assert_eq!(code(&refused), 401);
    let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
    assert_eq!(stranger.request_text(request).await.unwrap(), "ok");
    handle.shutdown().await;
}

#[tokio::test]
async fn a_start_takes_milliseconds() {
    let started = Instant::now();
    let handle = start(Options::default()).await.unwrap();
    // Unoptimized, on a busy machine: it is a handful of milliseconds otherwise.
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    handle.shutdown().await;
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused() {
    let handle = start(Options::default()).await.unwrap();
    let large = map("large", "x".repeat(4 << 20));
    let refused = maps(&handle).await.create(&PostParams::default(), &large).await.unwrap_err();
    assert_eq!(code(&refused), 413);
    handle.shutdown().await;
}

#[tokio::test]
async fn objects_definitions_and_versions_outlive_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.db");
    let kubeconfig = folder.path().join("nested/kubeconfig");
    let options = || async {
        let backend = Arc::new(Sqlite::open(&file).await.unwrap());
        Options { backend, kubeconfig: Some(kubeconfig.clone()), ..Options::default() }
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": "things.example.com" },
        "spec": { "group": "example.com", "scope": "Namespaced", "names": { "kind": "Thing", "plural": "things" }, "versions": [{
            "name": "v1", "served": true, "storage": true,
            "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": { "type": "object", "properties": {
                "size": { "type": "integer", "default": 3 } } } } } },
        }] },
    });
    let thing =
        json!({ "apiVersion": "example.com/v1", "kind": "Thing", "metadata": { "name": "a" }, "spec": {} });
    let post = |path: &str, body: &serde_json::Value| {
        let request = http::Request::post(path).header("content-type", "application/json");
        request.body(body.to_string().into_bytes()).unwrap()
    };
    let path = "/apis/example.com/v1/namespaces/default/things";
    let handle = start(options().await).await.unwrap();
    let written = std::fs::read_to_string(&kubeconfig).unwrap();
    let first = client(&written).await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    first.request::<serde_json::Value>(post(definitions, &definition)).await.unwrap();
    let made: serde_json::Value = first.request(post(path, &thing)).await.unwrap();
    assert_eq!(made["spec"]["size"], 3);
    handle.shutdown().await;

    let handle = start(options().await).await.unwrap();
    let second = client(&handle.kubeconfig()).await;
    let get = http::Request::get(format!("{path}/a")).body(Vec::new()).unwrap();
    let kept: serde_json::Value = second.request(get).await.unwrap();
    assert_eq!(kept, made);
    let mut other = thing.clone();
    other["metadata"]["name"] = json!("b");
    let next: serde_json::Value = second.request(post(path, &other)).await.unwrap();
    let version = |object: &serde_json::Value| -> u64 {
        object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
    };
    assert!(version(&next) > version(&made));
    handle.shutdown().await;
}

#[tokio::test]
async fn a_watch_from_before_the_kept_history_is_told_that_it_is_gone() {
    let history = History { events: 10, bytes: 1 << 20 };
    let handle = start(Options { history, ..Options::default() }).await.unwrap();
    let maps = maps(&handle).await;
    let first = maps.create(&PostParams::default(), &map("m0", "x".into())).await.unwrap();
    for n in 1..=20 {
        maps.create(&PostParams::default(), &map(&format!("m{n}"), "x".into())).await.unwrap();
    }
    let version = first.metadata.resource_version.unwrap();
    let mut events = maps.watch(&WatchParams::default(), &version).await.unwrap().boxed();
    match events.try_next().await.unwrap().unwrap() {
        WatchEvent::Error(status) => assert_eq!((status.code, status.reason.as_str()), (410, "Expired")),
        other => panic!("{other:?}"),
    }
    assert!(events.try_next().await.unwrap().is_none());
    handle.shutdown().await;
}

#[tokio::test]
async fn a_quiet_watch_gets_bookmarks_that_move_on() {
    let bookmark_interval = Duration::from_millis(50);
    let handle = start(Options { bookmark_interval, ..Options::default() }).await.unwrap();
    let maps = maps(&handle).await;
    let mut events = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    let pods: Api<Pod> = Api::default_namespaced(client(&handle.kubeconfig()).await);
    let pod = serde_json::from_value(
        json!({ "metadata": { "name": "p" }, "spec": { "containers": [{ "name": "c", "image": "i" }] } }),
    )
    .unwrap();
    let made = pods.create(&PostParams::default(), &pod).await.unwrap();
    let wanted: u64 = made.metadata.resource_version.unwrap().parse().unwrap();
    loop {
        match events.try_next().await.unwrap().unwrap() {
            WatchEvent::Bookmark(mark)
                if mark.metadata.resource_version.parse::<u64>().unwrap() >= wanted =>
            {
                break;
            }
            WatchEvent::Bookmark(_) => {}
            other => panic!("{other:?}"),
        }
    }
    handle.shutdown().await;
}

#[tokio::test]
async fn a_hundred_watchers_see_every_one_of_many_writes_in_order() {
    let handle = start(Options::default()).await.unwrap();
    let maps = maps(&handle).await;
    let mut watchers = Vec::new();
    for _ in 0..100 {
        let mut events = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        watchers.push(tokio::spawn(async move {
            let mut seen = Vec::new();
            while seen.len() < 100 {
                match events.try_next().await.unwrap().unwrap() {
                    WatchEvent::Added(one) => seen.push(one.metadata.name.unwrap()),
                    WatchEvent::Bookmark(_) => {}
                    other => panic!("{other:?}"),
                }
            }
            seen
        }));
    }
    let names: Vec<String> = (0..100).map(|n| format!("m{n:03}")).collect();
    for name in &names {
        maps.create(&PostParams::default(), &map(name, "x".into())).await.unwrap();
    }
    for watcher in watchers {
        assert_eq!(watcher.await.unwrap(), names);
    }
    handle.shutdown().await;
}

#[tokio::test]
async fn a_watch_ends_with_the_definition_of_its_resource() {
    let handle = start(Options::default()).await.unwrap();
    let client = client(&handle.kubeconfig()).await;
    let definition = serde_json::from_value(json!({
        "metadata": { "name": "things.example.com" },
        "spec": { "group": "example.com", "scope": "Namespaced", "names": { "kind": "Thing", "plural": "things" }, "versions": [{
            "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object" } },
        }] },
    }));
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition.unwrap()).await.unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Thing"));
    let things: Api<DynamicObject> = Api::default_namespaced_with(client, &kind);
    things.create(&PostParams::default(), &DynamicObject::new("a", &kind)).await.unwrap();
    let events = things.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    definitions.delete("things.example.com", &DeleteParams::default()).await.unwrap();
    let seen: Vec<_> =
        tokio::time::timeout(Duration::from_secs(20), events.try_collect()).await.unwrap().unwrap();
    assert!(matches!(seen.as_slice(), [WatchEvent::Added(_), WatchEvent::Deleted(_)]), "{seen:?}");
    handle.shutdown().await;
}

#[derive(Debug)]
struct Lines;

#[async_trait]
impl Logs for Lines {
    async fn logs(&self, request: LogsRequest) -> Result<BoxStream<'static, Bytes>, LogsError> {
        let text =
            format!("{}/{}/{} {:?}\n", request.namespace, request.pod, request.container, request.tail_lines);
        Ok(futures::stream::iter([Bytes::from(text), Bytes::from("end\n")]).boxed())
    }
}

#[tokio::test]
async fn the_embedding_process_supplies_the_logs_of_pods() {
    let handle = start(Options { logs: Some(Arc::new(Lines)), ..Options::default() }).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client(&handle.kubeconfig()).await);
    let pod =
        json!({ "metadata": { "name": "p" }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let parameters = LogParams { tail_lines: Some(3), ..LogParams::default() };
    assert_eq!(pods.logs("p", &parameters).await.unwrap(), "default/p/c Some(3)\nend\n");
    let mut text = String::new();
    let mut stream = pods.log_stream("p", &LogParams { follow: true, ..parameters }).await.unwrap();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.ends_with("end\n"));
    let wrong = LogParams { container: Some("other".into()), ..LogParams::default() };
    assert_eq!(code(&pods.logs("p", &wrong).await.unwrap_err()), 400);
    handle.shutdown().await;
}

#[tokio::test]
async fn definitions_of_whoever_runs_it_are_there_from_the_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("api.db");
    let definition = |sizes: &[&str]| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "properties": {"size": {"type": "string", "enum": sizes}},
                }}}],
            },
        })
    };
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let widget = |name: &str, size: &str| {
        let mut widget = DynamicObject::new(name, &kind);
        widget.data = json!({"size": size});
        widget
    };
    // Twice the same, and then another one: what is stored stays, and what is new counts.
    let rounds: [(&str, &[&str], &str, bool, i64); 3] =
        [("a", &["S"], "S", true, 1), ("b", &["S"], "M", false, 1), ("c", &["S", "M"], "M", true, 2)];
    for (name, sizes, size, taken, generation) in rounds {
        let backend = Arc::new(Sqlite::open(&file).await.unwrap());
        let options = Options { backend, definitions: vec![definition(sizes)], ..Options::default() };
        let handle = start(options).await.unwrap();
        let client = client(&handle.kubeconfig()).await;
        let widgets: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &kind);
        let created = widgets.create(&PostParams::default(), &widget(name, size)).await;
        assert_eq!(created.is_ok(), taken, "{name}: {created:?}");
        let definitions: Api<CustomResourceDefinition> = Api::all(client);
        let stored = definitions.get("widgets.example.com").await.unwrap();
        assert_eq!(stored.metadata.generation, Some(generation), "{name}");
        assert_eq!(stored.spec.names.list_kind.as_deref(), Some("WidgetList"));
        handle.shutdown().await;
    }
}
