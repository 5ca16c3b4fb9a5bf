//! The cluster that the harness brings up is one.

use std::time::Instant;

use anyhow::Result;
use e2e::image::Image;
use e2e::{Cluster, Kubectl, guest, progress};

const IMAGE: &str = "cleat.local/guest:1";

async fn load_guest(cluster: &Cluster) -> Result<()> {
    let image = Image::new(IMAGE).program(guest().await?, "/guest").entrypoint(["/guest"]).user(65532);
    cluster.load(&image).await
}

fn pod(namespace: &str, name: &str, arguments: &str, restart: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {namespace}, labels: {{app: {name}}}}}
spec:
  restartPolicy: {restart}
  containers:
  - {{name: main, image: \"{IMAGE}\", imagePullPolicy: Never, args: [{arguments}]}}
"
    )
}

async fn namespace(kubectl: &Kubectl, name: &str) -> Result<()> {
    kubectl.run(&format!("create namespace {name}")).await?;
    e2e::until("there is no service account", || async {
        Ok(kubectl.attempt(&format!("get serviceaccount default -n {name}"), "").await?.success)
    })
    .await
}

#[tokio::test]
async fn the_node_is_ready_and_of_the_right_version() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let running = cluster.running("the_node_is_ready_and_of_the_right_version")?;
    let nodes = cluster.kubectl().await?.run("get nodes").await?;
    assert!(nodes.contains(" Ready ") && nodes.contains("v1.36."), "{nodes}");
    running.passed();
    Ok(())
}

#[tokio::test]
async fn a_pod_of_an_image_made_here_runs_and_its_logs_are_read() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let running = cluster.running("a_pod_of_an_image_made_here_runs_and_its_logs_are_read")?;
    let kubectl = cluster.kubectl().await?;
    load_guest(&cluster).await?;
    namespace(&kubectl, "pods").await?;
    kubectl.run_with("apply -f -", &pod("pods", "server", "serve, '8080'", "Always")).await?;
    kubectl.run("wait -n pods --for=condition=Ready pod/server --timeout=60s").await?;
    e2e::until("the log is empty", || async {
        Ok(kubectl.run("logs -n pods server").await?.contains("serving on 8080"))
    })
    .await?;
    kubectl.run("delete namespace pods --timeout=60s").await?;
    running.passed();
    Ok(())
}

#[tokio::test]
async fn a_service_is_found_by_its_name_and_leads_to_its_pod() -> Result<()> {
    let cluster = Cluster::shared().await?;
    let running = cluster.running("a_service_is_found_by_its_name_and_leads_to_its_pod")?;
    let kubectl = cluster.kubectl().await?;
    load_guest(&cluster).await?;
    namespace(&kubectl, "services").await?;
    kubectl.run_with("apply -f -", &pod("services", "web", "serve, '8080'", "Always")).await?;
    kubectl.run("expose -n services pod web --port=80 --target-port=8080").await?;
    kubectl.run_with("apply -f -", &pod("services", "asker", "get, web, '80'", "Never")).await?;
    let done = "wait -n services --for=jsonpath={.status.phase}=Succeeded pod/asker --timeout=60s";
    let finished = kubectl.attempt(done, "").await?;
    let said = kubectl.run("logs -n services asker").await?;
    assert!(finished.success && said.lines().any(|line| line == "web"), "{}{said}", finished.errors);
    kubectl.run("delete namespace services --timeout=60s").await?;
    running.passed();
    Ok(())
}

#[tokio::test]
async fn the_api_server_stops_and_starts_and_pods_do_not_notice() -> Result<()> {
    let cluster = Cluster::start().await?;
    if !cluster.is_own() {
        progress("skipped: the API server of E2E_KUBECONFIG is not ours to stop");
        return Ok(());
    }
    let running = cluster.running("the_api_server_stops_and_starts_and_pods_do_not_notice")?;
    let kubectl = cluster.kubectl().await?;
    load_guest(&cluster).await?;
    kubectl.run_with("apply -f -", &pod("default", "stays", "pause", "Always")).await?;
    kubectl.run("wait --for=condition=Ready pod/stays --timeout=60s").await?;
    let identity = "get pod stays -o jsonpath={.metadata.uid}/{.status.containerStatuses[0].containerID}";
    let before = kubectl.run(identity).await?;

    cluster.control_plane()?.stop_api_server().await?;
    let refused = kubectl.attempt("get pods", "").await?;
    assert!(!refused.success, "{}", refused.output);
    let begun = Instant::now();
    cluster.control_plane()?.start_api_server().await?;
    progress(format_args!("the API server was back after {:.1} s", begun.elapsed().as_secs_f64()));
    assert_eq!(kubectl.run(identity).await?, before);
    // The node and the controllers have found their way back when a new pod runs.
    kubectl.run_with("apply -f -", &pod("default", "later", "pause", "Always")).await?;
    kubectl.run("wait --for=condition=Ready pod/later --timeout=60s").await?;
    running.passed();
    Ok(())
}
