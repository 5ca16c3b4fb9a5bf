//! Whole programs, told by their environment that they run in Kubernetes: they join, are killed, and end in order.

use std::process::{ExitCode, Stdio};
use std::time::Duration;

use cleat_runner::prelude::*;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use crate::nodes;
use crate::place::{Counter, Load, Place, VERSION};

/// Tells the test binary to be the program.
const PROGRAM: &str = "CLEAT_TEST_PROGRAM";

/// The program. A test by its attribute alone: it does nothing unless this process was started to be it.
#[test]
fn program() {
    if std::env::var_os(PROGRAM).is_none() {
        return;
    }
    let code = Runner::from_env().entity(Counter).run();
    assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::SUCCESS));
}

struct Program {
    child: Child,
    /// The UID of its pod, with which its instance begins.
    pod: String,
}

impl Place {
    async fn spawn(&self, name: &str, cluster: &str) -> Program {
        let pods: Api<Pod> = Api::default_namespaced(self.world.client.clone());
        let labels = json!({ "cleat.dev/cluster": "main", "app.kubernetes.io/name": "cleat-runner" });
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": labels },
            "spec": { "containers": [{ "name": "runner", "image": "i" }] } });
        let pod = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        let pod = pod.metadata.uid.unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["programs::program", "--exact", "--nocapture"]).kill_on_drop(true);
        command.env(PROGRAM, "1").env("KUBECONFIG", self.world.kubeconfig());
        command.envs([
            ("CLEAT_CLUSTER", "main"),
            ("CLEAT_CLUSTER_UID", cluster),
            ("CLEAT_NAME", name),
            ("CLEAT_VERSION", VERSION),
            ("CLEAT_POD_UID", &pod),
            ("CLEAT_DATABASE_URL", &self.database.url),
            ("CLEAT_PEER_TOKEN", "secret"),
            ("CLEAT_SHARDS", &nodes::SHARDS.to_string()),
            ("CLEAT_LEASE_DURATION", "3s"),
            ("CLEAT_LEASE_RENEW_EVERY", "1s"),
        ]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        Program { child: command.spawn().unwrap(), pod }
    }

    /// What the Lease of a runner says of its state.
    async fn state(&self, name: &str) -> Option<String> {
        let lease = self.api().get_opt(name).await.unwrap()?;
        lease.metadata.annotations?.get("cleat.dev/state").cloned()
    }
}

impl Program {
    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    /// Waits for its end, and gives what it said.
    async fn end(mut self) -> (bool, String) {
        let mut said = String::new();
        let read = async {
            self.child.stderr.take().unwrap().read_to_string(&mut said).await.unwrap();
            self.child.wait().await.unwrap()
        };
        let status = tokio::time::timeout(nodes::PATIENCE, read).await.expect("it does not end");
        (status.success(), said)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_move_to_who_joins_and_from_who_is_killed_or_drains_and_nothing_is_lost() {
    let place = Place::new().await;
    let (a, from_a) = place.start("a").await;
    let me = a.ownership().instance().to_string();
    place.held_by(&[&me]).await;
    let load = Load::start(&from_a);

    let b = place.spawn("b", &place.cluster).await;
    place.held_by(&[&me, &b.pod]).await;
    load.goes_on(100).await;
    b.signal(Signal::KILL);
    place.held_by(&[&me]).await;
    load.goes_on(100).await;

    let c = place.spawn("c", &place.cluster).await;
    place.held_by(&[&me, &c.pod]).await;
    load.goes_on(100).await;
    c.signal(Signal::TERM);
    let drains = async {
        while place.state("c").await.as_deref() != Some("draining") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(nodes::PATIENCE, drains).await.expect("its Lease says so");
    place.held_by(&[&me]).await;
    let (success, said) = c.end().await;
    assert!(success, "{said}");
    assert_eq!(place.api().get("c").await.unwrap().spec.unwrap().holder_identity, None, "it was released");
    load.goes_on(100).await;
    load.check().await;
    a.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_another_cluster_is_named_before_anything_begins() {
    let place = Place::new().await;
    let first = place.spawn("a", &place.cluster).await;
    place.held_by(&[&first.pod]).await;
    let (success, said) = place.spawn("b", "another").await.end().await;
    assert!(!success);
    assert!(said.contains("this runner cannot start") && said.contains(&place.cluster), "{said}");
    assert_eq!(place.state("b").await, None, "it did not register");
    first.signal(Signal::TERM);
    let (success, said) = first.end().await;
    assert!(success, "{said}");
}
