//! Which of several replicas works.

use cleat_crds::Cluster;
use cleat_operator::Options;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use crate::rig::Rig;

#[tokio::test]
async fn one_replica_works_and_another_takes_over_when_it_stops() {
    let rig = Rig::bare().await;
    let options = |name: &str| Options {
        name: name.to_owned(),
        lease: Some("cleat-operator".to_owned()),
        ..Options::default()
    };
    let holder =
        |lease: &Lease| lease.spec.as_ref()?.holder_identity.clone().filter(|holder| !holder.is_empty());
    let (first, second) = (CancellationToken::new(), CancellationToken::new());
    let one = tokio::spawn(cleat_operator::run(rig.client.clone(), options("one"), first.clone()));
    let led = rig.until("cleat-operator", "is held", holder).await;
    assert!(led.starts_with("one_"), "{led}");
    let two = tokio::spawn(cleat_operator::run(rig.client.clone(), options("two"), second.clone()));
    let spec = json!({"database": {"secretRef": {"name": "db", "key": "url"}}});
    let _: Cluster = rig.create("default", spec).await;
    rig.until("default", "is seen to", |cluster: &Cluster| cluster.status.clone()).await;
    first.cancel();
    one.await.unwrap().unwrap();
    let other = |lease: &Lease| holder(lease).filter(|holder| holder.starts_with("two_"));
    rig.until("cleat-operator", "is held by the other", other).await;
    let spec = json!({"database": {"secretRef": {"name": "db2", "key": "url"}}});
    let _: Cluster = rig.create("second", spec).await;
    rig.until("second", "is seen to", |cluster: &Cluster| cluster.status.clone()).await;
    second.cancel();
    two.await.unwrap().unwrap();
    rig.stop().await.unwrap();
}

#[tokio::test]
async fn a_replica_tells_whether_it_is_ready_and_what_it_measures() {
    let mut rig = Rig::bare().await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    rig.operate(Options { listen: Some(free), ..Options::default() });
    let spec = json!({"database": {"secretRef": {"name": "db", "key": "url"}}});
    let _: Cluster = rig.create("default", spec).await;
    rig.until("default", "is seen to", |cluster: &Cluster| cluster.status.clone()).await;
    for (path, wanted) in [
        ("/livez", "ok"),
        ("/readyz", "ready"),
        ("/metrics", "cleat_operator_reconciles_total{kind=\"Cluster\",result=\"Success\"}"),
        ("/else", "404"),
    ] {
        let mut stream = tokio::net::TcpStream::connect(free).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains(wanted), "{path}: {answer}");
    }
    rig.stop().await.unwrap();
}

/// Replicas that agree by a Lease.
fn replica(name: &str) -> Options {
    Options { name: name.to_owned(), lease: Some("cleat-operator".to_owned()), ..Options::default() }
}

fn held_by(name: &'static str) -> impl Fn(&Lease) -> Option<String> {
    move |lease| lease.spec.as_ref()?.holder_identity.clone().filter(|holder| holder.starts_with(name))
}

#[tokio::test]
async fn another_replica_takes_over_from_one_that_died_and_misses_nothing() {
    let rig = Rig::bare().await;
    let stop = CancellationToken::new();
    let one = tokio::spawn(cleat_operator::run(rig.client.clone(), replica("one"), CancellationToken::new()));
    rig.until("cleat-operator", "is held", held_by("one_")).await;
    let two = tokio::spawn(cleat_operator::run(rig.client.clone(), replica("two"), stop.clone()));
    // It has no time to give anything back.
    one.abort();
    assert!(one.await.unwrap_err().is_cancelled());
    let spec = json!({"database": {"secretRef": {"name": "db", "key": "url"}}});
    let _: Cluster = rig.create("meanwhile", spec).await;
    assert!(
        rig.api::<Lease>().get("cleat-operator").await.is_ok_and(|lease| held_by("one_")(&lease).is_some())
    );
    rig.until("cleat-operator", "is taken over", held_by("two_")).await;
    rig.until("meanwhile", "is seen to", |cluster: &Cluster| cluster.status.clone()).await;
    stop.cancel();
    two.await.unwrap().unwrap();
    rig.stop().await.unwrap();
}

#[tokio::test]
async fn a_replica_whose_lease_is_stolen_stops_before_anybody_else_begins() {
    let rig = Rig::bare().await;
    let stop = CancellationToken::new();
    let one = tokio::spawn(cleat_operator::run(rig.client.clone(), replica("one"), CancellationToken::new()));
    rig.until("cleat-operator", "is held", held_by("one_")).await;
    let theft = Patch::Merge(json!({"spec": {"holderIdentity": "thief"}}));
    rig.api::<Lease>().patch("cleat-operator", &PatchParams::default(), &theft).await.unwrap();
    let ended = tokio::time::timeout(crate::rig::PATIENCE, one).await.expect("it notices").unwrap();
    assert!(ended.is_err(), "it works on without a Lease");
    let lease = rig.api::<Lease>().get("cleat-operator").await.unwrap();
    assert_eq!(held_by("thief")(&lease).as_deref(), Some("thief"), "it takes nothing back");
    // Nobody works now, until somebody has waited the thief out.
    let spec = json!({"database": {"secretRef": {"name": "db", "key": "url"}}});
    let _: Cluster = rig.create("later", spec).await;
    let two = tokio::spawn(cleat_operator::run(rig.client.clone(), replica("two"), stop.clone()));
    rig.until("cleat-operator", "is held", held_by("two_")).await;
    rig.until("later", "is seen to", |cluster: &Cluster| cluster.status.clone()).await;
    stop.cancel();
    two.await.unwrap().unwrap();
    rig.stop().await.unwrap();
}
