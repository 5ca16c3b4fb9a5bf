//! Something dies or goes away: what was acknowledged stays, and the rest recovers by itself.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use cleat_testing::postgres::Shutdown;

use super::load::Load;
use super::shop::{PATIENCE, Shop};
use super::world::{SYSTEM, Turn};

/// How long the API server is away.
const AWAY: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_runner_loses_nothing() -> Result<()> {
    let turn = Turn::take("a_killed_runner_loses_nothing").await?;
    if !turn.world.cluster.is_own() {
        turn.tell("skipped: processes of E2E_KUBECONFIG are not ours to kill");
        return Ok(());
    }
    let shop = Shop::open(turn.world, "kill", 2).await?;
    let load = Load::start(&shop.gateway().await?);
    load.answered(100).await?;
    let victim = shop.runners().await?.remove(0);
    let container = format!("get pod {victim} -o jsonpath={{.status.containerStatuses[0].containerID}}");
    let container = shop.run(&container).await?;
    let begun = Instant::now();
    turn.world.cluster.kill_container(&container)?;
    // Before the kubelet has seen it, everything looks as if nothing had happened.
    let restarted =
        format!("get pod {victim} -n kill -o jsonpath={{.status.containerStatuses[0].restartCount}}");
    turn.world.wait_for(PATIENCE, &restarted, |text| text.parse().is_ok_and(|times: u32| times > 0)).await?;
    let assigned = "get ccl default -n kill -o jsonpath={.status.ready}/{.status.assigned}";
    turn.world.wait_for(PATIENCE, assigned, |text| text == "2/2/32/32").await?;
    shop.ready().await?;
    turn.tell(format_args!("all runners serve again after {:.1} s", begun.elapsed().as_secs_f64()));
    load.answered(100).await?;
    let report = load.finish().await?;
    turn.tell(&report);
    shop.close().await?;
    turn.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_api_server_for_a_minute_calls_go_on() -> Result<()> {
    let turn = Turn::take("without_an_api_server_for_a_minute_calls_go_on").await?;
    if !turn.world.cluster.is_own() {
        turn.tell("skipped: the API server of E2E_KUBECONFIG is not ours to stop");
        return Ok(());
    }
    let shop = Shop::open(turn.world, "no-api", 2).await?;
    let load = Load::start(&shop.gateway().await?);
    load.answered(100).await?;
    turn.world.cluster.control_plane()?.stop_api_server().await?;
    let begun = Instant::now();
    while begun.elapsed() < AWAY {
        load.answered(10).await?;
    }
    turn.world.cluster.control_plane()?.start_api_server().await?;
    let back = Instant::now();
    load.answered(100).await?;
    // Everything takes part again: the Cluster is ready, and grows.
    shop.run("scale ccl default --replicas=3").await?;
    let asked = "get deployments -n no-api -o jsonpath={.items[0].spec.replicas}";
    turn.world.wait_for(PATIENCE, asked, |text| text == "3").await?;
    turn.tell(format_args!("the operator acted {:.1} s after it was back", back.elapsed().as_secs_f64()));
    shop.ready().await?;
    turn.tell(format_args!("grown {:.1} s after it was back", back.elapsed().as_secs_f64()));
    let report = load.finish().await?;
    turn.tell(&report);
    report.without_failures()?;
    shop.close().await?;
    turn.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_database_loses_nothing() -> Result<()> {
    let turn = Turn::take("a_restarted_database_loses_nothing").await?;
    let shop = Shop::open(turn.world, "database", 2).await?;
    let load = Load::start(&shop.gateway().await?);
    load.answered(100).await?;
    turn.world.postgres.lock().await.restart(Shutdown::Immediate).await?;
    let took = load.answered(20).await?;
    turn.tell(format_args!("calls are answered {:.1} s after the database was back", took.as_secs_f64()));
    load.answered(100).await?;
    let report = load.finish().await?;
    turn.tell(&report);
    shop.ready().await?;
    shop.close().await?;
    turn.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_dies_in_its_work_is_succeeded() -> Result<()> {
    let turn = Turn::take("an_operator_that_dies_in_its_work_is_succeeded").await?;
    let shop = Shop::open(turn.world, "operator", 1).await?;
    let gateway = shop.gateway().await?;
    let load = Load::start(&gateway);
    load.answered(100).await?;
    gateway.call("inventory/apples", "restock", &serde_json::json!({ "count": 5 }), None).await?;
    let leader = turn.world.leader().await?;
    let begun = Instant::now();
    // It has just begun with both.
    shop.run("scale ccl default --replicas=2").await?;
    shop.order("o-1", 1, "1s").await?;
    let kill = format!("delete pod {leader} -n {SYSTEM} --force --grace-period=0");
    turn.world.kubectl.run(&kill).await?;
    shop.ready().await?;
    shop.run("wait --for=condition=Completed cwf/o-1 --timeout=120s").await?;
    turn.tell(format_args!("its successor was done after {:.1} s", begun.elapsed().as_secs_f64()));
    ensure!(turn.world.leader().await? != leader, "the dead one leads");
    ensure!(shop.stock(&gateway).await? == 4, "the order was run once");
    let report = load.finish().await?;
    turn.tell(&report);
    report.without_failures()?;
    shop.close().await?;
    turn.passed();
    Ok(())
}
