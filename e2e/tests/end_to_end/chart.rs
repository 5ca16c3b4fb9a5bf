//! The chart renders, and a real API server takes all of it.

use anyhow::{Result, ensure};
use e2e::{ControlPlane, Helm, Kubectl, Options};
use serde_json::json;

/// The values files that the chart is rendered with; none stands for its own.
const VALUES: [&str; 4] = ["", "ci/bare.yaml", "ci/everything.yaml", "ci/namespaces.yaml"];

/// Kinds of the Prometheus operator, as far as an API server has to know them.
const MONITORING: [(&str, &str); 3] = [
    ("servicemonitors", "ServiceMonitor"),
    ("podmonitors", "PodMonitor"),
    ("prometheusrules", "PrometheusRule"),
];

fn with(values: &str) -> String {
    if values.is_empty() { String::new() } else { format!(" --values {values}") }
}

async fn helm() -> Result<(tempfile::TempDir, Helm)> {
    let home = tempfile::tempdir()?;
    let helm = Helm::new(&home.path().join("kubeconfig")).await?;
    Ok((home, helm))
}

async fn rendered(helm: &Helm, values: &str) -> Result<String> {
    let template =
        "template cleat . --namespace cleat-system --kube-version 1.36.0 --include-crds --is-upgrade";
    helm.run(&format!("{template}{}", with(values))).await
}

#[tokio::test]
async fn the_chart_passes_the_linter_with_every_values_file() -> Result<()> {
    let (_home, helm) = helm().await?;
    for values in VALUES {
        helm.run(&format!("lint . --strict --kube-version 1.36.0{}", with(values))).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_value_that_the_chart_does_not_know_is_refused_by_its_name() -> Result<()> {
    let (_home, helm) = helm().await?;
    for (set, named) in [
        ("replicas=3", "replicas"),
        ("operator.replica=3", "replica"),
        ("operator.replicas=many", "replicas"),
        ("namespaces[0]=Not_A_Name", "namespaces"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("defaultCluster.spec.database.secretRef.nam=x", "nam"),
    ] {
        let outcome = helm.attempt(&format!("template . --kube-version 1.36.0 --set {set}")).await?;
        ensure!(!outcome.success, "{set} was taken");
        ensure!(outcome.errors.contains(named), "{set}: {}", outcome.errors);
    }
    let outside = "template . --kube-version 1.36.0 --namespace cleat-system --set namespaces={a},defaultCluster.enabled=true";
    let outcome = helm.attempt(outside).await?;
    ensure!(!outcome.success && outcome.errors.contains("not among namespaces"), "{}", outcome.errors);
    let old = helm.attempt("template . --kube-version 1.31.0").await?;
    ensure!(!old.success && old.errors.contains("kubeVersion"), "{}", old.errors);
    Ok(())
}

async fn prepare(kubectl: &Kubectl) -> Result<()> {
    for namespace in ["cleat-system", "team-a", "team-b"] {
        kubectl.run(&format!("create namespace {namespace}")).await?;
        let level = format!("label namespace {namespace} pod-security.kubernetes.io/enforce=restricted");
        kubectl.run(&format!("{level} pod-security.kubernetes.io/warn=restricted")).await?;
        e2e::until("there is no service account", || async {
            Ok(kubectl.attempt(&format!("get serviceaccount default -n {namespace}"), "").await?.success)
        })
        .await?;
    }
    // Helm makes it before the pod that uses it.
    kubectl.run("create serviceaccount cleat-test -n cleat-system").await?;
    for (plural, kind) in MONITORING {
        let singular = kind.to_lowercase();
        let definition = format!(
            "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.monitoring.coreos.com}}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {{plural: {plural}, singular: {singular}, kind: {kind}}}
  versions:
  - {{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}}}
"
        );
        kubectl.run_with("apply -f -", &definition).await?;
        kubectl.run(&format!("wait --for=condition=Established crd/{plural}.monitoring.coreos.com")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_real_api_server_takes_everything_and_has_nothing_to_say_about_its_pods() -> Result<()> {
    let plane = ControlPlane::start(Options { controllers: true }).await?;
    let running = plane.running("chart")?;
    let (kubectl, helm) = (plane.kubectl().await?, Helm::new(&plane.kubeconfig()).await?);
    prepare(&kubectl).await?;
    for values in VALUES {
        let text = rendered(&helm, values).await?;
        let dry = "apply --server-side --dry-run=server --validate=strict -f -";
        let outcome = kubectl.attempt(dry, &text).await?;
        ensure!(outcome.success, "{values}: {}", outcome.errors);
        // Pods that are not `restricted` are warned of where a workload would make them, and refused where they are made.
        ensure!(!outcome.errors.contains("Warning"), "{values}: {}", outcome.errors);
        let taken = outcome.output.lines().filter(|line| line.ends_with("(server dry run)")).count();
        let sent = text.lines().filter(|line| line.starts_with("kind: ")).count();
        ensure!(taken == sent, "{values}: {taken} of {sent}\n{}", outcome.output);
    }
    running.passed();
    Ok(())
}

/// What is between fences of YAML on a page.
fn blocks(page: &str) -> Vec<&str> {
    let fenced = page.split("```yaml").skip(1).filter_map(|rest| rest.split("```").next());
    fenced.filter_map(|block| Some(block.split_once('\n')?.1)).collect()
}

#[tokio::test]
async fn what_the_page_on_installing_shows_is_taken_as_it_is() -> Result<()> {
    let page = std::fs::read_to_string(Helm::chart().join("../../docs/install.md"))?;
    let plane = ControlPlane::start(Options { controllers: true }).await?;
    let running = plane.running("page")?;
    let (kubectl, helm) = (plane.kubectl().await?, Helm::new(&plane.kubeconfig()).await?);
    let notes = helm.run("install cleat . --namespace cleat-system --create-namespace").await?;
    ensure!(notes.contains("kubectl create secret generic cleat-database"), "{notes}");
    kubectl.run("wait --for=condition=Established crd --all --timeout=60s").await?;
    kubectl.run("label namespace default pod-security.kubernetes.io/warn=restricted").await?;
    let blocks = blocks(&page);
    ensure!(blocks.len() >= 4, "{} blocks", blocks.len());
    for block in blocks {
        let outcome = kubectl.attempt("apply --server-side --validate=strict -f -", block).await?;
        ensure!(outcome.success && outcome.errors.is_empty(), "{}\n{block}", outcome.errors);
    }
    // CEL's checker does not know a field that may be anything, and its evaluator does.
    let odd = json!({"apiVersion": "cleat.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "odd"}, "spec": {"type": "order", "output": 1}});
    let outcome = kubectl.attempt("create -f -", &odd.to_string()).await?;
    ensure!(!outcome.success && outcome.errors.contains("output goes with steps"), "{}", outcome.errors);
    running.passed();
    Ok(())
}
