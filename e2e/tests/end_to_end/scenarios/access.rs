//! Who may not, cannot.

use anyhow::{Result, ensure};
use serde_json::json;

use super::shop::Shop;
use super::world::Turn;

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_without_the_role_is_refused_at_the_gateway() -> Result<()> {
    let turn = Turn::take("a_caller_without_the_role_is_refused_at_the_gateway").await?;
    let shop = Shop::open(turn.world, "callers", 1).await?;
    let gateway = shop.gateway().await?;
    let add = json!({ "message": 1 });

    let nobody = gateway.with_token(None).call("list/a", "add", &add, None).await?;
    ensure!(nobody.status == 401 && nobody.reason() == "Unauthenticated", "{nobody:?}");
    let forged = gateway.with_token(Some("made-up".to_owned())).call("list/a", "add", &add, None).await?;
    ensure!(forged.status == 401, "{forged:?}");
    shop.run("create serviceaccount stranger").await?;
    let token = shop.run("create token stranger").await?.trim().to_owned();
    let stranger = gateway.with_token(Some(token.clone())).call("list/a", "add", &add, None).await?;
    ensure!(stranger.status == 403 && stranger.reason() == "Forbidden", "{stranger:?}");
    // A role in another namespace is none here.
    let elsewhere = "create rolebinding stranger --clusterrole=cleat-starter --serviceaccount=callers:stranger -n default";
    turn.world.kubectl.run(elsewhere).await?;
    let refused = gateway.with_token(Some(token)).call("list/b", "add", &add, None).await?;
    turn.world.kubectl.run("delete rolebinding stranger -n default").await?;
    ensure!(refused.status == 403, "{refused:?}");
    let known = gateway.call("list/a", "add", &add, None).await?;
    ensure!(known.status == 200 && known.body["place"] == 1, "{known:?}");
    shop.close().await?;
    turn.passed();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_cannot_touch_the_leases_of_others() -> Result<()> {
    let turn = Turn::take("a_runner_cannot_touch_the_leases_of_others").await?;
    let shop = Shop::open(turn.world, "leases", 1).await?;
    shop.apply(
        "apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: foreign, labels: {cleat.dev/cluster: another}}
spec: {holderIdentity: somebody, leaseDurationSeconds: 10}
",
    )
    .await?;
    let token = shop.run("create token cleat-runner-default").await?;
    let folder = tempfile::tempdir()?;
    let runner = turn.world.kubectl.with_token(token.trim(), folder.path()).await?;
    let own = runner.run("get leases --namespace=leases -l cleat.dev/cluster=default -o name").await?;
    ensure!(own.contains("lease"), "a runner sees the Leases of its Cluster: {own:?}");
    let patch = "patch lease foreign --type=merge -p {\"spec\":{\"holderIdentity\":\"me\"}}";
    let manifest =
        "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: mine, namespace: leases}\n";
    for command in [patch, "delete lease foreign", "create -f -"] {
        let outcome = runner.attempt(&format!("{command} --namespace=leases"), manifest).await?;
        ensure!(!outcome.success && outcome.errors.contains("orbidden"), "{command}: {outcome:?}");
    }
    let holder = shop.run("get lease foreign -o jsonpath={.spec.holderIdentity}").await?;
    ensure!(holder == "somebody", "{holder}");
    shop.close().await?;
    turn.passed();
    Ok(())
}
