//! What is deleted goes, undoes what it has to, and never hangs.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::load::Load;
use super::shop::{PATIENCE, Shop};
use super::world::{SYSTEM, Turn};

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_that_is_deleted_while_it_runs_is_undone() -> Result<()> {
    let turn = Turn::take("a_workflow_that_is_deleted_while_it_runs_is_undone").await?;
    let shop = Shop::open(turn.world, "undone", 1).await?;
    let gateway = shop.gateway().await?;
    gateway.call("inventory/apples", "restock", &json!({ "count": 10 }), None).await?;
    shop.order("o-1", 4, "1h").await?;
    e2e::within(PATIENCE, "nothing is reserved", || async {
        Ok((shop.stock(&gateway).await? == 6).then_some(()))
    })
    .await?;
    let begun = Instant::now();
    shop.run("delete cwf o-1 --timeout=120s").await?;
    turn.tell(format_args!("gone after {:.1} s", begun.elapsed().as_secs_f64()));
    ensure!(shop.stock(&gateway).await? == 10, "what was reserved is released before the object goes");
    shop.close().await?;
    turn.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_with_running_workflows_is_deleted() -> Result<()> {
    let turn = Turn::take("a_namespace_with_running_workflows_is_deleted").await?;
    let shop = Shop::open(turn.world, "namespace", 1).await?;
    let gateway = shop.gateway().await?;
    gateway.call("inventory/apples", "restock", &json!({ "count": 100 }), None).await?;
    for number in 0..5 {
        shop.order(&format!("o-{number}"), 1, "1h").await?;
    }
    let running = "get cwf -n namespace -o jsonpath={.items[*].status.phase}";
    turn.world.wait_for(PATIENCE, running, |text| text.matches("Running").count() == 5).await?;
    let begun = Instant::now();
    shop.close().await?;
    turn.tell(format_args!("gone after {:.1} s", begun.elapsed().as_secs_f64()));
    turn.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_applied_again_replaces_the_runners_that_were_left() -> Result<()> {
    let turn = Turn::take("a_cluster_that_is_applied_again_replaces_the_runners_that_were_left").await?;
    let shop = Shop::open(turn.world, "orphans", 2).await?;
    let gateway = shop.gateway().await?;
    gateway.call("inventory/apples", "restock", &json!({ "count": 10 }), None).await?;
    let before = shop.runners().await?;
    // The garbage collector may be as late as this: nobody tells the runners to end.
    let uid = shop.run("get ccl default -o jsonpath={.metadata.uid}").await?;
    shop.run("delete ccl default --cascade=orphan --timeout=60s").await?;
    shop.declare(2).await?;
    shop.run(&format!("annotate ccl default cleat.dev/adopt-database={uid}")).await?;
    turn.tell(format_args!("ready again after {:.1} s", shop.ready().await?.as_secs_f64()));
    let gateway = shop.gateway().await?;
    ensure!(shop.stock(&gateway).await? == 10, "the database is the same");
    e2e::within(PATIENCE, "the runners of the earlier Cluster stay", || async {
        let now = shop.runners().await?;
        Ok((now.len() == 2 && !now.iter().any(|runner| before.contains(runner))).then_some(()))
    })
    .await?;
    shop.close().await?;
    turn.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_deleted_and_applied_again_and_leaves_nothing_behind() -> Result<()> {
    let turn = Turn::take("everything_is_deleted_and_applied_again_and_leaves_nothing_behind").await?;
    let shop = Shop::open(turn.world, "again", 2).await?;
    let gateway = shop.gateway().await?;
    gateway.call("inventory/apples", "restock", &json!({ "count": 10 }), None).await?;
    shop.order("o-1", 4, "1s").await?;
    shop.order("o-2", 1, "1h").await?;
    shop.run("wait --for=condition=Completed cwf/o-1 --timeout=60s").await?;
    shop.run("wait --for=jsonpath={.status.phase}=Running cwf/o-2 --timeout=60s").await?;
    // Whoever wants to have undone what runs, deletes that first: without Cluster and types nobody could.
    shop.run("delete cwf --all --timeout=120s").await?;
    shop.order("o-3", 2, "1s").await?;
    shop.run("wait --for=condition=Completed cwf/o-3 --timeout=60s").await?;
    let all = "delete cwf,ccj,cwt,cet,ccl --all --timeout=120s";
    shop.run(all).await?;

    // Nobody waits for the runners of the earlier Cluster to end. Its database is its own until somebody says otherwise.
    shop.declare(2).await?;
    let degraded =
        "get ccl default -n again -o jsonpath={.status.conditions[?(@.type==\"Degraded\")].message}";
    turn.world.wait_for(PATIENCE, degraded, |text| text.contains("adopt-database=")).await?;
    let message = turn.world.kubectl.run(degraded).await?;
    let adopt =
        message.split([' ', ',', ';', ':']).find(|word| word.starts_with("cleat.dev/adopt-database="));
    let adopt = adopt.with_context(|| message.clone())?;
    shop.run(&format!("annotate ccl default {adopt}")).await?;
    turn.tell(format_args!("ready again after {:.1} s", shop.ready().await?.as_secs_f64()));
    shop.run("wait --for=condition=Ready cet/inventory cwt/order --timeout=120s").await?;
    let gateway = shop.gateway().await?;
    let stock = shop.stock(&gateway).await?;
    ensure!(stock == 4, "what was sold is sold, and what ran was undone: {stock}");
    shop.order("o-1", 1, "1s").await?;
    shop.run("wait --for=condition=Completed cwf/o-1 --timeout=60s").await?;
    ensure!(shop.stock(&gateway).await? == 3, "another object is another order");

    shop.run(all).await?;
    let begun = Instant::now();
    let kinds = turn.world.kubectl.run("api-resources --verbs=list --namespaced -o name").await?;
    // Events stay for an hour. Endpoints are told by their slices, and kubectl warns of them.
    let kinds = kinds.lines().filter(|kind| !kind.starts_with("events") && *kind != "endpoints");
    let kinds: Vec<&str> = kinds.collect();
    let left = format!("get {} -n again --ignore-not-found -o name", kinds.join(","));
    let given = [
        "configmap/kube-root-ca.crt",
        "rolebinding.rbac.authorization.k8s.io/caller",
        "secret/cleat-database",
        "serviceaccount/caller",
        "serviceaccount/default",
    ];
    let given = |name: &str| given.contains(&name);
    turn.world.wait_for(PATIENCE, &left, |names| names.lines().all(given)).await?;
    let subjects = "get clusterrolebinding cleat-gateway -o jsonpath={.subjects[*].namespace}";
    turn.world.wait_for(PATIENCE, subjects, |text| !text.contains("again")).await?;
    turn.tell(format_args!("nothing was left after {:.1} s", begun.elapsed().as_secs_f64()));
    shop.close().await?;
    turn.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_release_is_uninstalled_and_installed_again_under_another_name() -> Result<()> {
    let turn = Turn::take("the_release_is_uninstalled_and_installed_again_under_another_name").await?;
    let world = turn.world;
    let shop = Shop::open(world, "kept", 1).await?;
    let other = Shop::open(world, "dropped", 1).await?;
    let gateway = shop.gateway().await?;
    let load = Load::start(&gateway);
    load.answered(50).await?;
    other.gateway().await?.call("inventory/apples", "restock", &json!({ "count": 9 }), None).await?;
    gateway.call("inventory/apples", "restock", &json!({ "count": 9 }), None).await?;
    for shop in [&shop, &other] {
        shop.order("o-1", 1, "1h").await?;
        shop.run("wait --for=jsonpath={.status.phase}=Running cwf/o-1 --timeout=60s").await?;
    }

    world.helm.run(&format!("uninstall cleat --namespace {SYSTEM} --wait --timeout 5m")).await?;
    let left = world
        .kubectl
        .run(&format!("get all,configmaps,secrets,leases,roles,rolebindings -n {SYSTEM} -o name"))
        .await?;
    let ours: Vec<&str> = left.lines().filter(|name| !name.contains("kube-root-ca.crt")).collect();
    ensure!(ours.is_empty(), "left behind in {SYSTEM}: {ours:?}");
    // Clusters are kept with their definitions and go on, and so do those who may use them; whoever wants to drop theirs, can.
    shop.run(
        "auth can-i create entitytypes.cleat.dev --subresource=call --as=system:serviceaccount:kept:caller",
    )
    .await?;
    load.answered(50).await?;
    other.close().await?;
    load.answered(50).await?;

    let begun = Instant::now();
    world.install("install again . --take-ownership").await?;
    shop.ready().await?;
    shop.run("scale ccl default --replicas=2").await?;
    shop.ready().await?;
    turn.tell(format_args!("another release served it after {:.1} s", begun.elapsed().as_secs_f64()));
    let phase = shop.run("get cwf o-1 -o jsonpath={.status.phase}").await?;
    ensure!(phase == "Running", "{phase}");
    let report = load.finish().await?;
    turn.tell(&report);
    report.without_failures()?;
    shop.close().await?;

    world.helm.run(&format!("uninstall again --namespace {SYSTEM} --wait --timeout 5m")).await?;
    world.install("install cleat . --take-ownership").await?;
    turn.passed();
    Ok(())
}
