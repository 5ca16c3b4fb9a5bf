//! kube-rs works on this server as on any other: its watcher, its reflector and its Controller.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use cleat_apiserver::{Handle, Options, start};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, WatchStreamExt, reflector, watcher};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

async fn client(handle: &Handle) -> kube::Client {
    let config = Kubeconfig::from_yaml(&handle.kubeconfig()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

async fn server() -> (Handle, kube::Client) {
    let handle = start(Options::default()).await.unwrap();
    let client = client(&handle).await;
    (handle, client)
}

fn map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("value".into(), value.into())])),
        ..ConfigMap::default()
    }
}

fn apply(name: &str, value: &str) -> Patch<ConfigMap> {
    Patch::Apply(map(name, value))
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("in time")
}

#[tokio::test]
async fn a_watcher_sees_what_there_is_and_then_every_change_once() {
    let (handle, client) = server().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    maps.create(&PostParams::default(), &map("before", "0")).await.unwrap();
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let mut events = std::pin::pin!(watcher(maps.clone(), config));
        let mut listed = Vec::new();
        loop {
            match within(events.try_next()).await.unwrap().unwrap() {
                watcher::Event::InitApply(one) => listed.extend(one.metadata.name),
                watcher::Event::InitDone => break,
                watcher::Event::Init => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(listed, ["before"]);
        maps.create(&PostParams::default(), &map("after", "0")).await.unwrap();
        for n in 1..=20 {
            let wanted = apply("after", &n.to_string());
            maps.patch("after", &PatchParams::apply("test").force(), &wanted).await.unwrap();
        }
        maps.delete("after", &DeleteParams::default()).await.unwrap();
        for n in 0..=20 {
            match within(events.try_next()).await.unwrap().unwrap() {
                watcher::Event::Apply(one) => assert_eq!(one.data.unwrap()["value"], n.to_string()),
                other => panic!("{other:?}"),
            }
        }
        let last = within(events.try_next()).await.unwrap().unwrap();
        assert!(matches!(last, watcher::Event::Delete(_)), "{last:?}");
    }
    handle.shutdown().await;
}

#[tokio::test]
async fn a_reflector_holds_what_the_server_holds() {
    let (handle, client) = server().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let (store, writer) = reflector::store();
    let stream = reflector(writer, watcher(maps.clone(), watcher::Config::default())).applied_objects();
    let task = tokio::spawn(stream.for_each(|_| futures::future::ready(())));
    within(store.wait_until_ready()).await.unwrap();
    for n in 0..50 {
        maps.create(&PostParams::default(), &map(&format!("m{n}"), "x")).await.unwrap();
    }
    maps.delete("m7", &DeleteParams::default()).await.unwrap();
    let count = maps.list(&ListParams::default()).await.unwrap().items.len();
    assert_eq!(count, 49);
    within(async {
        while store.state().len() != count {
            tokio::task::yield_now().await;
        }
    })
    .await;
    task.abort();
    handle.shutdown().await;
}

#[tokio::test]
async fn a_controller_brings_about_what_is_wanted() {
    let (handle, client) = server().await;
    let wanted: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let made: Api<Namespace> = Api::all(client.clone());
    let reconcile = |one: Arc<ConfigMap>, made: Arc<Api<Namespace>>| async move {
        let name = one.metadata.name.clone().unwrap_or_default();
        let body =
            serde_json::json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        made.patch(&name, &PatchParams::apply("controller"), &Patch::Apply(body)).await?;
        Ok::<_, kube::Error>(Action::await_change())
    };
    let controller = Controller::new(wanted.clone(), watcher::Config::default())
        .run(reconcile, |_, error, _| panic!("{error}"), Arc::new(made.clone()))
        .for_each(|result| async move { drop(result.expect("a reconciliation")) });
    let task = tokio::spawn(controller);
    wanted.create(&PostParams::default(), &map("made", "x")).await.unwrap();
    within(async {
        while made.get_opt("made").await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    task.abort();
    handle.shutdown().await;
}
