//! A `cleat dev` for a test.

#![allow(dead_code, reason = "not every test program uses all of it")]

pub mod terminal;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

/// The program, started in a folder.
pub fn cleat(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cleat"));
    command.current_dir(home).env_remove("KUBECONFIG").env_remove("CLEAT_GATEWAY").env("RUST_LOG", "warn");
    command
}

/// Every kubectl at hand, with its version.
pub fn kubectls() -> Vec<(PathBuf, String)> {
    tokio::runtime::Runtime::new().unwrap().block_on(e2e::kubectls())
}

/// A platform in a folder of its own. It ends with this.
pub struct Dev {
    home: Rc<tempfile::TempDir>,
    child: Child,
    /// What it has printed until it was ready.
    pub printed: String,
}

impl Dev {
    /// Starts one and waits until it is ready.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_in(Rc::new(tempfile::tempdir().unwrap()), arguments)
    }

    fn start_in(home: Rc<tempfile::TempDir>, arguments: &[&str]) -> Self {
        let mut child = cleat(home.path())
            .args(["dev", "--port", "0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut printed = String::new();
        loop {
            let line = lines.next().expect("it ended before it was ready").unwrap();
            printed.push_str(&line);
            printed.push('\n');
            if line.contains("running; Ctrl-C") {
                break;
            }
        }
        // Whatever it prints later must not block it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { home, child, printed }
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// The address of its gateway.
    pub fn gateway(&self) -> String {
        let line = self.printed.lines().find(|line| line.contains("gateway")).unwrap();
        line.rsplit("http://").next().unwrap().trim().to_owned()
    }

    /// What a command prints, if it succeeds.
    pub fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let output = cleat(self.home()).args(arguments).output().unwrap();
        if output.status.success() {
            let printed = String::from_utf8(output.stdout).unwrap();
            assert!(!printed.contains('\x1b'), "colours are for terminals: {printed:?}");
            Ok(printed)
        } else {
            Err(String::from_utf8(output.stderr).unwrap())
        }
    }

    /// What a command prints once it succeeds: what it needs may still be under way.
    pub fn eventually(&self, arguments: &[&str]) -> String {
        let begun = Instant::now();
        loop {
            match self.run(arguments) {
                Ok(printed) => return printed,
                Err(error) if begun.elapsed() > Duration::from_secs(60) => panic!("{arguments:?}: {error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }

    /// The list that a command prints as JSON.
    pub fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["-o", "json"]).collect();
        serde_json::from_str(&self.eventually(&arguments)).unwrap()
    }

    /// Waits until something is there.
    pub fn until<T>(&self, within: Duration, what: &str, look: impl Fn() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(begun.elapsed() < within, "{what}: not within {within:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    pub fn api(&self) -> Kubernetes {
        Kubernetes { kubeconfig: std::fs::read_to_string(self.kubeconfig()).unwrap() }
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.home().join(".cleat/kubeconfig")
    }

    /// Asks it to end, and starts another one in the same folder.
    pub fn restart(mut self, arguments: &[&str]) -> Self {
        assert!(self.end().success());
        Self::start_in(Rc::clone(&self.home), arguments)
    }

    /// Asks it to end, and waits until it has.
    pub fn stop(mut self) -> std::process::ExitStatus {
        self.end()
    }

    fn end(&mut self) -> std::process::ExitStatus {
        let id = rustix::process::Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a person does with kubectl.
pub struct Kubernetes {
    kubeconfig: String,
}

impl Kubernetes {
    pub fn with<T>(&self, work: impl AsyncFnOnce(kube::Client) -> T) -> T {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let kubeconfig = kube::config::Kubeconfig::from_yaml(&self.kubeconfig).unwrap();
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
            work(kube::Client::try_from(config).unwrap()).await
        })
    }

    pub fn delete_pod(&self, name: &str) {
        self.with(async |client| {
            let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client, "default");
            pods.delete(name, &DeleteParams::default()).await.unwrap();
        });
    }

    pub fn logs(&self, pod: &str) -> String {
        self.with(async |client| {
            let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client, "default");
            pods.logs(pod, &kube::api::LogParams::default()).await.unwrap()
        })
    }

    pub fn delete_workflow(&self, name: &str) {
        self.with(async |client| {
            let workflows: Api<cleat_crds::Workflow> = Api::namespaced(client, "default");
            workflows.delete(name, &DeleteParams::default()).await.unwrap();
        });
    }

    /// The names of all Workflow objects.
    pub fn workflows(&self) -> Vec<String> {
        self.with(async |client| {
            let workflows: Api<cleat_crds::Workflow> = Api::namespaced(client, "default");
            let all = workflows.list(&kube::api::ListParams::default()).await.unwrap();
            all.items.into_iter().filter_map(|workflow| workflow.metadata.name).collect()
        })
    }

    pub fn scale(&self, replicas: u32) {
        self.with(async |client| {
            let clusters: Api<cleat_crds::Cluster> = Api::namespaced(client, "default");
            let patch = json!({"spec": {"replicas": replicas}});
            clusters.patch_scale("default", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        });
    }
}

/// The example's runner, which `cargo test --workspace` has built; by itself this test builds it.
pub fn orders() -> std::path::PathBuf {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_cleat")).with_file_name("orders");
    if !program.exists() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "-p", "orders"]).current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(build.status().unwrap().success());
    }
    program
}
