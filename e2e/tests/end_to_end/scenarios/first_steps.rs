//! Install, declare, run, watch.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::shop::{PATIENCE, Shop};
use super::world::{SYSTEM, Turn};

#[tokio::test(flavor = "multi_thread")]
async fn a_declared_workflow_runs_and_kubectl_shows_it() -> Result<()> {
    let turn = Turn::take("a_declared_workflow_runs_and_kubectl_shows_it").await?;
    let shop = Shop::open(turn.world, "first-steps", 1).await?;
    let gateway = shop.gateway().await?;
    let clusters = shop.run("get ccl").await?;
    ensure!(
        clusters.contains("1/1") && clusters.contains("32/32") && clusters.contains("True"),
        "{clusters}"
    );

    let restocked = gateway.call("inventory/apples", "restock", &json!({ "count": 10 }), None).await?;
    ensure!(restocked.status == 200 && restocked.body["stock"] == 10, "{restocked:?}");
    shop.order("o-1", 3, "1s").await?;
    shop.run("wait --for=condition=Completed cwf/o-1 --timeout=60s").await?;
    let listed = shop.run("get cwf").await?;
    ensure!(listed.contains("order") && listed.contains("Completed") && listed.contains("2/2"), "{listed}");
    let output = shop.run("get cwf o-1 -o jsonpath={.status.output.order}").await?;
    ensure!(output == "o-1", "{output}");
    let described = shop.run("describe cwf o-1").await?;
    ensure!(described.contains("reserve") && described.contains("pack"), "{described}");
    ensure!(shop.stock(&gateway).await? == 7);

    // What cannot be done fails, says why, and ends every wait.
    shop.order("o-2", 100, "1s").await?;
    shop.run("wait --for=condition=Finished cwf/o-2 --timeout=60s").await?;
    let failure = shop.run("get cwf o-2 -o jsonpath={.status.phase}:{.status.failure.message}").await?;
    ensure!(failure.starts_with("Failed:") && failure.contains("only 7 of apples left"), "{failure}");
    ensure!(shop.stock(&gateway).await? == 7);

    let all = shop.run("get cleat").await?;
    for name in ["cluster.cleat.dev/default", "entitytype.cleat.dev/inventory", "workflow.cleat.dev/o-1"] {
        ensure!(all.contains(name), "{name} is missing in\n{all}");
    }
    shop.close().await?;
    turn.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cron_job_ticks_and_is_suspended() -> Result<()> {
    let turn = Turn::take("a_cron_job_ticks_and_is_suspended").await?;
    let shop = Shop::open(turn.world, "crons", 1).await?;
    let gateway = shop.gateway().await?;
    shop.apply(
        "apiVersion: cleat.dev/v1alpha1
kind: CronJob
metadata: {name: restock}
spec:
  schedule: '* * * * * *'
  target: {call: {entity: inventory, id: apples, method: restock, input: {count: 1}}}
",
    )
    .await?;
    shop.run("wait --for=condition=Ready ccj/restock --timeout=60s").await?;
    e2e::within(PATIENCE, "nothing is restocked", || async {
        Ok((shop.stock(&gateway).await?.as_i64() >= Some(3)).then_some(()))
    })
    .await?;
    let command = "get ccj restock -n crons -o jsonpath={.status.lastScheduleTime}";
    turn.world.wait_for(PATIENCE, command, |text| text.contains('T')).await?;
    shop.run("patch ccj restock --type=merge -p {\"spec\":{\"suspend\":true}}").await?;
    // A tick that was on its way when it was suspended still comes; then there are none in as many seconds as ticks were due.
    e2e::within(PATIENCE, "it goes on", || async {
        let before = shop.stock(&gateway).await?;
        tokio::time::sleep(Duration::from_secs(4)).await;
        Ok((shop.stock(&gateway).await? == before).then_some(()))
    })
    .await?;
    shop.close().await?;
    turn.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_test_runs_a_workflow() -> Result<()> {
    let turn = Turn::take("helm_test_runs_a_workflow").await?;
    let shop = Shop::open(turn.world, "helm-test", 1).await?;
    turn.world.install("upgrade cleat . --set test.namespace=helm-test").await?;
    let said = turn.world.helm.run(&format!("test cleat --namespace {SYSTEM} --timeout 3m")).await?;
    ensure!(said.contains("Phase:") && said.contains("Succeeded"), "{said}");
    turn.world.install("upgrade cleat .").await?;
    shop.close().await?;
    turn.passed();
    Ok(())
}
