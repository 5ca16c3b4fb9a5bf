//! `cleat dev` as a user of kubectl sees it, with every kubectl at hand.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

mod world;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use world::{Dev, kubectls};

const PATIENCE: Duration = Duration::from_secs(60);
const ORDERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/orders");

/// One kubectl on one platform.
struct Kubectl<'d> {
    program: &'d Path,
    dev: &'d Dev,
}

impl Kubectl<'_> {
    /// The command with arguments that are separated by single blanks, in the folder of the example.
    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(self.program);
        command.args(arguments.split(' ')).current_dir(ORDERS).env("KUBECONFIG", self.dev.kubeconfig());
        // Its plugin is beside it on the path, and its cache belongs to this server alone.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.dev.home().join("bin").display()));
        command.env("HOME", self.dev.home()).stdin(Stdio::null());
        command
    }

    fn attempt(&self, arguments: &str) -> Result<String, String> {
        let done = self.command(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
    }

    fn run(&self, arguments: &str) -> String {
        self.attempt(arguments).unwrap_or_else(|error| panic!("kubectl {arguments}: {error}"))
    }

    fn shows(&self, arguments: &str, parts: &[&str]) {
        let shown = self.run(arguments);
        for part in parts {
            assert!(shown.contains(part), "kubectl {arguments} shows no {part}:\n{shown}");
        }
    }

    fn eventually_shows(&self, arguments: &str, part: &str) {
        self.dev.until(PATIENCE, &format!("kubectl {arguments} shows {part}"), || {
            self.attempt(arguments).ok().filter(|shown| shown.contains(part))
        });
    }
}

fn daily_work(kubectl: &Kubectl<'_>) {
    kubectl.shows("api-resources --api-group=cleat.dev", &["ccl", "cet", "ccj", "cwt", "cwf", "EntityType"]);
    kubectl.shows(
        "apply -f entities.yaml -f workflow.yaml -f cron.yaml",
        &["entitytype.cleat.dev/inventory created"],
    );
    kubectl.shows("apply -f cron.yaml", &["cronjob.cleat.dev/restock unchanged"]);
    kubectl.run("wait --for=condition=Ready cet/inventory cet/payments cwt/order ccj/restock --timeout=60s");
    kubectl.shows(
        "get cleat",
        &["cluster.cleat.dev/default", "entitytype.cleat.dev/inventory", "cronjob.cleat.dev/restock"],
    );
    kubectl.shows("get ccl", &["NAME      RUNNERS   SHARDS   VERSION   READY", "default   1/1       32/32"]);
    kubectl.shows("explain entitytype.spec.methods", &["delivery", "visibility", "-required-"]);
    kubectl.shows("describe cet inventory", &["Kind:         EntityType", "Served"]);
    kubectl.shows("describe ccl default", &["Replicas:", "Ready"]);

    // The same binary under another name.
    kubectl.shows("cleat call inventory/apples restock {\"count\":10}", &["\"stock\": 10"]);
    kubectl.shows("cleat runners", &["ready", "32"]);

    let order = kubectl.run("create -f order.yaml -o name");
    let order = order.trim();
    watches(kubectl, order);
    kubectl.run(&format!("wait --for=condition=Completed {order} --timeout=60s"));
    kubectl.shows(&format!("get {order} -o wide"), &["Completed", "5/5"]);
    let refused =
        kubectl.attempt(&format!("patch {order} --type=merge -p {{\"spec\":{{\"type\":\"other\"}}}}"));
    assert!(refused.unwrap_err().contains("spec"), "what runs does not become something else");

    kubectl.run("patch ccj restock --type=merge -p {\"spec\":{\"suspend\":true}}");
    kubectl.eventually_shows("get ccj restock", "true");
    edits(kubectl);

    kubectl.run("scale ccl/default --replicas=2");
    kubectl.eventually_shows("get ccl default", "2/2");
    let pods = kubectl.run("get pods -o name");
    assert_eq!(pods.lines().count(), 2, "{pods}");
    let pod = pods.lines().next().unwrap();
    kubectl.shows(&format!("logs {pod}"), &["INFO"]);
    kubectl.shows(&format!("logs {pod} --tail=1 --timestamps"), &["Z "]);
    kubectl.shows("get leases -l cleat.dev/lease=runner", &[pod.trim_start_matches("pod/")]);
    kubectl.run(&format!("delete {pod} --timeout=60s"));
    kubectl.eventually_shows("get ccl default", "2/2");

    kubectl.shows(&format!("delete {order} --timeout=60s"), &["deleted"]);
    kubectl.run("delete -f cron.yaml -f workflow.yaml -f entities.yaml --timeout=60s");
    assert_eq!(kubectl.run("get cet,cwt,ccj -o name"), "");
}

/// `get -w` shows a phase after the other.
fn watches(kubectl: &Kubectl<'_>, order: &str) {
    let mut watching = kubectl.command(&format!("get {order} -w")).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let seen = lines.map_while(Result::ok).find(|line| line.contains("Completed"));
    watching.kill().unwrap();
    watching.wait().unwrap();
    assert!(seen.is_some());
}

/// `edit` sends what an editor has made of the object.
fn edits(kubectl: &Kubectl<'_>) {
    let mut editing = kubectl.command("edit ccj restock");
    let done = editing.env("KUBE_EDITOR", "sed -i 's/0 3 \\* \\* \\*/0 4 * * */'").output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    kubectl.eventually_shows("get ccj restock", "0 4 * * *");
}

#[test]
fn every_kubectl_at_hand_does_its_daily_work() {
    let all = kubectls();
    if all.is_empty() {
        eprintln!("no kubectl is at hand: nothing is shown");
    }
    for (program, version) in &all {
        eprintln!("{version}");
        let dev = Dev::start(&[]);
        let bin = dev.home().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_cleat"), bin.join("kubectl-cleat")).unwrap();
        daily_work(&Kubectl { program, dev: &dev });
    }
}
