//! The chart lets everybody do what they need, and nothing else. What it says is asked of a real API server; nothing runs.

use anyhow::{Result, ensure};
use e2e::{ControlPlane, Helm, Kubectl, Options};
use http::Request;

async fn namespaces(kubectl: &Kubectl, names: &[&str]) -> Result<()> {
    for name in names {
        kubectl.run(&format!("create namespace {name}")).await?;
    }
    Ok(())
}

/// A control plane with the chart on it. Its Deployment has no node to run on.
async fn installed(values: &str) -> Result<(ControlPlane, Kubectl)> {
    let plane = ControlPlane::start(Options { controllers: true }).await?;
    let kubectl = plane.kubectl().await?;
    namespaces(&kubectl, &["shop", "team-a", "team-b"]).await?;
    let helm = Helm::new(&plane.kubeconfig()).await?;
    let install = "install cleat . --namespace cleat-system --create-namespace";
    helm.run(&format!("{install}{values}")).await?;
    Ok((plane, kubectl))
}

async fn may(kubectl: &Kubectl, who: &str, what: &str) -> Result<bool> {
    let outcome = kubectl.attempt(&format!("auth can-i {what} --as={who}"), "").await?;
    Ok(outcome.output.trim() == "yes")
}

fn lease(name: &str, cluster: Option<&str>, holder: &str) -> String {
    let labels =
        cluster.map(|cluster| format!(", labels: {{cleat.dev/cluster: {cluster}}}")).unwrap_or_default();
    format!(
        "apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {{name: {name}, namespace: shop{labels}}}
spec: {{holderIdentity: {holder}}}
"
    )
}

#[tokio::test]
async fn people_may_do_what_their_role_says() -> Result<()> {
    let (plane, kubectl) = installed("").await?;
    let running = plane.running("people")?;
    for (user, role) in [
        ("vera", "cleat-viewer"),
        ("sam", "cleat-starter"),
        ("ada", "cleat-author"),
        ("ed", "edit"),
        ("val", "view"),
    ] {
        kubectl.run(&format!("create rolebinding {user} -n shop --clusterrole={role} --user={user}")).await?;
    }
    e2e::until("`edit` does not have the roles yet", || async {
        may(&kubectl, "ed", "create entitytypes.cleat.dev -n shop").await
    })
    .await?;
    for (user, what, allowed) in [
        ("vera", "list workflows.cleat.dev", true),
        ("vera", "get entitytypes.cleat.dev --subresource=requests", true),
        ("vera", "create workflows.cleat.dev", false),
        ("vera", "create entitytypes.cleat.dev --subresource=call", false),
        ("val", "watch clusters.cleat.dev", true),
        ("val", "create workflows.cleat.dev", false),
        ("sam", "create workflows.cleat.dev", true),
        ("sam", "delete workflows.cleat.dev", true),
        ("sam", "create entitytypes.cleat.dev --subresource=call", true),
        ("sam", "create entitytypes.cleat.dev", false),
        ("sam", "update clusters.cleat.dev --subresource=scale", false),
        ("sam", "update entitytypes.cleat.dev --subresource=deadletters", false),
        ("ada", "create clusters.cleat.dev", true),
        ("ada", "patch cronjobs.cleat.dev", true),
        ("ada", "update entitytypes.cleat.dev --subresource=deadletters", true),
        ("ada", "update workflows.cleat.dev --subresource=status", false),
        ("ada", "list secrets", false),
        ("ed", "update clusters.cleat.dev --subresource=scale", true),
        ("eve", "list workflows.cleat.dev", false),
    ] {
        let said = may(&kubectl, user, &format!("{what} -n shop")).await?;
        ensure!(said == allowed, "{user} {what}: {said}");
        ensure!(
            !may(&kubectl, user, &format!("{what} -n team-a")).await?,
            "{user} {what} in another namespace"
        );
    }
    running.passed();
    Ok(())
}

#[tokio::test]
async fn an_operator_for_named_namespaces_has_no_rights_elsewhere() -> Result<()> {
    let (plane, kubectl) = installed(" --set namespaces={team-a,team-b}").await?;
    let running = plane.running("namespaces")?;
    let operator = "system:serviceaccount:cleat-system:cleat-operator";
    for what in [
        "list clusters.cleat.dev",
        "patch workflows.cleat.dev --subresource=status",
        "create deployments",
        "get secrets",
    ] {
        for (namespace, allowed) in
            [("team-a", true), ("team-b", true), ("shop", false), ("kube-system", false)]
        {
            let said = may(&kubectl, operator, &format!("{what} -n {namespace}")).await?;
            ensure!(said == allowed, "{what} in {namespace}: {said}");
        }
    }
    // It hands out one role, and no other.
    let bind = |role: &str| {
        format!(
            "create rolebinding runners -n team-a --clusterrole={role} --serviceaccount=team-a:x --as={operator}"
        )
    };
    let refused = kubectl.attempt(&bind("admin"), "").await?;
    ensure!(
        !refused.success && refused.errors.contains("attempting to grant RBAC permissions"),
        "{}",
        refused.errors
    );
    kubectl.run(&bind("cleat-runner")).await?;
    let everywhere =
        format!("create clusterrolebinding x --clusterrole=cleat-runner --user=x --as={operator}");
    ensure!(!kubectl.attempt(&everywhere, "").await?.success, "a binding for the whole cluster");
    // It keeps the list of those who may ask who is calling.
    let subjects = "{\"subjects\":[{\"kind\":\"ServiceAccount\",\"name\":\"cleat-runner-default\",\"namespace\":\"team-a\"}]}";
    kubectl
        .run(&format!("patch clusterrolebinding cleat-gateway --type=merge -p {subjects} --as={operator}"))
        .await?;
    ensure!(may(&kubectl, "system:serviceaccount:team-a:cleat-runner-default", "create tokenreviews").await?);
    let other = format!("patch clusterrolebinding cluster-admin --type=merge -p {subjects} --as={operator}");
    ensure!(!kubectl.attempt(&other, "").await?.success, "another binding");
    running.passed();
    Ok(())
}

#[tokio::test]
async fn a_runner_writes_only_the_leases_of_its_own_cluster() -> Result<()> {
    let (plane, kubectl) = installed("").await?;
    let running = plane.running("leases")?;
    let runner = "system:serviceaccount:shop:cleat-runner-a";
    let bind = "create rolebinding runners -n shop --clusterrole=cleat-runner";
    kubectl.run(&format!("{bind} --serviceaccount=shop:cleat-runner-a --serviceaccount=shop:other")).await?;
    for (name, cluster) in [("b-1", Some("b")), ("plain", None)] {
        kubectl.run_with("create -f -", &lease(name, cluster, "somebody")).await?;
    }
    // A policy takes a moment to be known.
    e2e::until("the policy is not in force", || async {
        let words = format!("create --dry-run=server -f - --as={runner}");
        Ok(!kubectl.attempt(&words, &lease("probe", Some("b"), "me")).await?.success)
    })
    .await?;

    kubectl.run_with(&format!("create -f - --as={runner}"), &lease("a-1", Some("a"), "me")).await?;
    kubectl.run_with(&format!("replace -f - --as={runner}"), &lease("a-1", Some("a"), "you")).await?;
    for (what, command, manifest) in [
        ("make one of another Cluster", "create", lease("b-2", Some("b"), "me")),
        ("make one of nobody's", "create", lease("x", None, "me")),
        ("take one of another Cluster", "replace", lease("b-1", Some("b"), "me")),
        ("make another Cluster's its own", "replace", lease("b-1", Some("a"), "me")),
        ("take one that is not ours", "replace", lease("plain", None, "me")),
        ("give its own away", "replace", lease("a-1", Some("b"), "me")),
    ] {
        let outcome = kubectl.attempt(&format!("{command} -f - --as={runner}"), &manifest).await?;
        let said = &outcome.errors;
        ensure!(
            !outcome.success && said.contains("cleat-leases") && said.contains("Cluster a"),
            "{what}: {said}"
        );
    }
    // Whoever is not a runner of ours is not kept from anything by this.
    let other = "system:serviceaccount:shop:other";
    kubectl.run_with(&format!("create -f - --as={other}"), &lease("free", None, "them")).await?;
    running.passed();
    Ok(())
}

#[tokio::test]
async fn leases_of_service_accounts_have_a_share_of_their_own() -> Result<()> {
    let (plane, kubectl) = installed("").await?;
    let running = plane.running("flow")?;
    let uid = kubectl.run("get flowschema cleat-leases -o jsonpath={.metadata.uid}").await?;
    let client = plane.client().await?;
    e2e::until("the API server does not sort by it", || async {
        let request = Request::get("/apis/coordination.k8s.io/v1/namespaces/shop/leases/x")
            .header("Impersonate-User", "system:serviceaccount:shop:cleat-runner-a")
            .header("Impersonate-Group", "system:serviceaccounts")
            .body(kube::client::Body::empty())?;
        // It may not, or there is none; who was asked in which order is told all the same.
        let response = client.send(request).await?;
        Ok(response.headers().get("x-kubernetes-pf-flowschema-uid").is_some_and(|said| said == uid.as_str()))
    })
    .await?;
    running.passed();
    Ok(())
}
