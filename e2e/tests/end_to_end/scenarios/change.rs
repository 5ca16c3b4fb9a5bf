//! Clusters are scaled, upgraded and drained while they are asked; nobody notices.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::load::Load;
use super::shop::{PATIENCE, Shop};
use super::world::{NEXT, SYSTEM, Turn};

#[tokio::test(flavor = "multi_thread")]
async fn runners_come_and_go_under_load_and_no_call_fails() -> Result<()> {
    let turn = Turn::take("runners_come_and_go_under_load_and_no_call_fails").await?;
    let shop = Shop::open(turn.world, "scale", 1).await?;
    let load = Load::start(&shop.gateway().await?);
    load.answered(100).await?;
    for (runners, was) in [(3, 1), (2, 3)] {
        shop.run(&format!("scale ccl default --replicas={runners}")).await?;
        let took = shop.ready().await?;
        turn.tell(format_args!("from {was} to {runners} runners: ready after {:.1} s", took.as_secs_f64()));
        let clusters = shop.run("get ccl").await?;
        ensure!(clusters.contains(&format!("{runners}/{runners}")), "{clusters}");
        load.answered(100).await?;
    }
    let report = load.finish().await?;
    turn.tell(&report);
    report.without_failures()?;
    shop.close().await?;
    turn.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_autoscaler_scales_a_cluster() -> Result<()> {
    let turn = Turn::take("an_autoscaler_scales_a_cluster").await?;
    let shop = Shop::open(turn.world, "autoscale", 1).await?;
    // What it measures is its own affair; its limits hold whatever it measures.
    shop.apply(
        "apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: runners}
spec:
  scaleTargetRef: {apiVersion: cleat.dev/v1alpha1, kind: Cluster, name: default}
  minReplicas: 2
  maxReplicas: 4
",
    )
    .await?;
    let wanted = "get ccl default -n autoscale -o jsonpath={.spec.replicas}";
    turn.world.wait_for(PATIENCE, wanted, |text| text == "2").await?;
    shop.ready().await?;
    ensure!(shop.run("get ccl").await?.contains("2/2"));
    shop.run("patch hpa runners --type=merge -p {\"spec\":{\"minReplicas\":1,\"maxReplicas\":1}}").await?;
    turn.world.wait_for(PATIENCE, wanted, |text| text == "1").await?;
    shop.ready().await?;
    shop.close().await?;
    turn.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn another_image_rolls_out_under_load_and_no_call_fails() -> Result<()> {
    let turn = Turn::take("another_image_rolls_out_under_load_and_no_call_fails").await?;
    let shop = Shop::open(turn.world, "upgrade", 2).await?;
    let before = shop.runners().await?;
    let load = Load::start(&shop.gateway().await?);
    load.answered(100).await?;
    let image = format!("{}/runner:{NEXT}", e2e::product::REGISTRY);
    let took = shop.change(&format!("{{\"spec\":{{\"image\":\"{image}\"}}}}")).await?;
    turn.tell(format_args!("rolled out after {:.1} s", took.as_secs_f64()));
    load.answered(100).await?;
    let report = load.finish().await?;
    turn.tell(&report);
    report.without_failures()?;
    // Those of before may still be on their way out.
    let images =
        "get pods -n upgrade -l cleat.dev/cluster=default -o jsonpath={.items[*].spec.containers[0].image}";
    turn.world.wait_for(PATIENCE, images, |text| text.split(' ').all(|used| used == image)).await?;
    let after = shop.runners().await?;
    ensure!(after.iter().all(|name| !before.contains(name)), "{before:?} {after:?}");
    shop.close().await?;
    turn.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pod_hands_over_and_no_call_fails() -> Result<()> {
    let turn = Turn::take("a_deleted_pod_hands_over_and_no_call_fails").await?;
    let shop = Shop::open(turn.world, "delete-pod", 2).await?;
    let load = Load::start(&shop.gateway().await?);
    load.answered(100).await?;
    let victim = shop.runners().await?.remove(0);
    let begun = Instant::now();
    shop.run(&format!("delete pod {victim} --wait=true --timeout=120s")).await?;
    shop.ready().await?;
    turn.tell(format_args!("replaced after {:.1} s", begun.elapsed().as_secs_f64()));
    load.answered(100).await?;
    let report = load.finish().await?;
    turn.tell(&report);
    report.without_failures()?;
    shop.close().await?;
    turn.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_drained_and_everything_comes_back() -> Result<()> {
    let turn = Turn::take("a_node_is_drained_and_everything_comes_back").await?;
    let shop = Shop::open(turn.world, "drain", 2).await?;
    let load = Load::start(&shop.gateway().await?);
    load.answered(100).await?;
    let node = turn.world.kubectl.run("get nodes -o jsonpath={.items[0].metadata.name}").await?;
    // With one node, those who leave have nowhere to go until it is let in again: the disruption budgets hold the drain.
    let drained = turn
        .world
        .kubectl
        .attempt(&format!("drain {node} --ignore-daemonsets --delete-emptydir-data --timeout=45s"), "")
        .await?;
    turn.tell(format_args!("drained: {}", drained.success));
    let begun = Instant::now();
    turn.world.kubectl.run(&format!("uncordon {node}")).await?;
    shop.ready().await?;
    turn.tell(format_args!("ready after {:.1} s", begun.elapsed().as_secs_f64()));
    load.answered(100).await?;
    let report = load.finish().await?;
    turn.tell(&report);
    turn.world
        .kubectl
        .run(&format!("rollout status -n {SYSTEM} deployment/cleat-operator --timeout=120s"))
        .await?;
    shop.close().await?;
    turn.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_release_is_upgraded_under_load_and_no_call_fails() -> Result<()> {
    let turn = Turn::take("the_release_is_upgraded_under_load_and_no_call_fails").await?;
    let shop = Shop::open(turn.world, "release", 2).await?;
    let load = Load::start(&shop.gateway().await?);
    load.answered(100).await?;
    let begun = Instant::now();
    // The runners' default image changes with the release, so they roll, too.
    let upgrade = format!("upgrade cleat . --namespace {SYSTEM} --reuse-values --set image.tag={NEXT}");
    turn.world.helm.run(&format!("{upgrade} --wait --timeout 3m")).await?;
    let image = format!("{}/runner:{NEXT}", e2e::product::REGISTRY);
    let images = "get deployments -n release -o jsonpath={.items[*].spec.template.spec.containers[0].image}";
    turn.world.wait_for(PATIENCE, images, |text| text == image).await?;
    shop.ready().await?;
    turn.tell(format_args!("upgraded after {:.1} s", begun.elapsed().as_secs_f64()));
    load.answered(100).await?;
    let report = load.finish().await?;
    turn.tell(&report);
    report.without_failures()?;
    turn.world.helm.run(&format!("rollback cleat 1 --namespace {SYSTEM} --wait --timeout 3m")).await?;
    shop.close().await?;
    turn.passed();
    Ok(())
}
