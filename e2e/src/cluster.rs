//! A whole Kubernetes with one node, or the one that the user names.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use crate::binaries::Program;
use crate::component::Place;
use crate::control_plane::{self, ControlPlane, NODE, Options};
use crate::home::Running;
use crate::image::Image;
use crate::node::Node;
use crate::{Helm, Kubectl, progress};

/// Says at which address pods of the user's cluster reach this machine.
const MACHINE: &str = "E2E_MACHINE";

/// Names the command that loads an image into the user's cluster.
const LOAD_IMAGE: &str = "E2E_LOAD_IMAGE";

/// A Kubernetes that runs pods. Dropping it removes everything, unless it is the user's.
#[derive(Debug)]
pub struct Cluster(Kind);

#[derive(Debug)]
enum Kind {
    // The node is dropped first.
    Own { node: Node, plane: Box<ControlPlane> },
    Given { kubeconfig: PathBuf, machine: Option<String> },
}

impl Cluster {
    /// Starts one whose node is ready when this returns, or takes the one that `E2E_KUBECONFIG` leads to.
    ///
    /// # Errors
    /// The user is not root, a program is missing and cannot be built, or something does not start.
    pub async fn start() -> Result<Self> {
        if let Some(kubeconfig) = std::env::var_os("E2E_KUBECONFIG") {
            let kubeconfig = PathBuf::from(kubeconfig);
            progress(format_args!("using the cluster of {}", kubeconfig.display()));
            let machine = std::env::var(MACHINE).ok();
            return Ok(Self(Kind::Given { kubeconfig, machine }));
        }
        let begun = Instant::now();
        let mut plane = ControlPlane::start_in_sandbox(Options { controllers: true }).await?;
        // What goes wrong from here on is in the logs.
        let starting = plane.running("start")?;
        let node = Self::start_node(&mut plane).await?;
        starting.passed();
        progress(format_args!(
            "node ready after {:.1} s; KUBECONFIG={}",
            begun.elapsed().as_secs_f64(),
            plane.kubeconfig().display()
        ));
        Ok(Self(Kind::Own { node, plane: Box::new(plane) }))
    }

    async fn start_node(plane: &mut ControlPlane) -> Result<Node> {
        let mut node = Node::start(plane).await?;
        let kubectl = plane.kubectl().await?;
        let ready = format!("wait --for=condition=Ready node/{NODE} --timeout=1s");
        crate::until("the node is not ready", || {
            let alive = plane.check().and_then(|()| node.check());
            let (kubectl, ready) = (&kubectl, &ready);
            async move {
                alive?;
                Ok(kubectl.attempt(ready, "").await?.success)
            }
        })
        .await?;
        Ok(node)
    }

    /// The cluster that tests share which do it no harm; the first call starts it.
    ///
    /// # Errors
    /// As [`start`](Self::start). The next call tries again.
    pub async fn shared() -> Result<Arc<Self>> {
        static SHARED: tokio::sync::OnceCell<Arc<Cluster>> = tokio::sync::OnceCell::const_new();
        SHARED.get_or_try_init(|| async { Ok(Arc::new(Self::start().await?)) }).await.cloned()
    }

    /// The kubeconfig of an administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        match &self.0 {
            Kind::Own { plane, .. } => plane.kubeconfig(),
            Kind::Given { kubeconfig, .. } => kubeconfig.clone(),
        }
    }

    /// A client of the administrator's.
    ///
    /// # Errors
    /// The kubeconfig cannot be read.
    pub async fn client(&self) -> Result<kube::Client> {
        control_plane::client(&self.kubeconfig()).await
    }

    /// kubectl for it.
    ///
    /// # Errors
    /// There is no kubectl and it cannot be built.
    pub async fn kubectl(&self) -> Result<Kubectl> {
        Kubectl::new(Program::Kubectl, &self.kubeconfig()).await
    }

    /// Helm for it.
    ///
    /// # Errors
    /// There is no Helm and it cannot be built.
    pub async fn helm(&self) -> Result<Helm> {
        Helm::new(&self.kubeconfig()).await
    }

    /// Whether the cluster was started by this process, so that its parts can be stopped and started.
    #[must_use]
    pub fn is_own(&self) -> bool {
        matches!(self.0, Kind::Own { .. })
    }

    /// The control plane, to be stopped and started.
    ///
    /// # Errors
    /// It is the user's cluster.
    pub fn control_plane(&self) -> Result<&ControlPlane> {
        match &self.0 {
            Kind::Own { plane, .. } => Ok(plane),
            Kind::Given { .. } => bail!("the cluster of E2E_KUBECONFIG is not stopped and started"),
        }
    }

    /// An address of the machine that pods reach, for what runs beside the cluster.
    ///
    /// # Errors
    /// It is the user's cluster, and `E2E_MACHINE` does not say.
    pub fn machine(&self) -> Result<&str> {
        match &self.0 {
            Kind::Own { plane, .. } => match plane.place() {
                Place::Sandbox(sandbox) => Ok(&sandbox.machine),
                Place::Machine => bail!("a control plane without a node has no pods"),
            },
            Kind::Given { machine, .. } => machine.as_deref().with_context(|| {
                format!("{MACHINE} does not say at which address pods of the cluster reach this machine")
            }),
        }
    }

    /// The command that loads an image, which gets the path of an archive as its last argument.
    ///
    /// # Errors
    /// It is the user's cluster, and `E2E_LOAD_IMAGE` does not say.
    pub fn load_command(&self) -> Result<String> {
        match &self.0 {
            Kind::Own { node, .. } => Ok(node.load_command()),
            Kind::Given { .. } => std::env::var(LOAD_IMAGE).with_context(|| {
                format!("{LOAD_IMAGE} names no command that loads an image into the cluster")
            }),
        }
    }

    /// An address of the node that this machine reaches, for Services of type NodePort.
    ///
    /// # Errors
    /// It is the user's cluster, and none of its nodes says an address.
    pub async fn node(&self) -> Result<String> {
        if let Kind::Own { plane, .. } = &self.0
            && let Place::Sandbox(sandbox) = plane.place()
        {
            return Ok(sandbox.address.clone());
        }
        let path = "{.items[0].status.addresses[?(@.type==\"InternalIP\")].address}";
        let address = self.kubectl().await?.run(&format!("get nodes -o jsonpath={path}")).await?;
        ensure!(!address.is_empty(), "no node says its address");
        Ok(address)
    }

    /// Kills all processes of a container, as nothing else in Kubernetes would.
    ///
    /// # Errors
    /// It is the user's cluster, or there are none.
    pub fn kill_container(&self, id: &str) -> Result<()> {
        self.control_plane()?;
        let id = id.rsplit('/').next().filter(|id| id.len() >= 32).context("not the id of a container")?;
        let mut killed = 0;
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            let groups = std::fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
            if let Some(pid) = pid
                && groups.contains(id)
            {
                kill_process(pid, Signal::KILL)?;
                killed += 1;
            }
        }
        ensure!(killed > 0, "container {id} has no processes");
        Ok(())
    }

    /// Gives an image to the node. Pods use it with a pull policy other than `Always`.
    ///
    /// # Errors
    /// It cannot be made or loaded.
    pub async fn load(&self, image: &Image) -> Result<()> {
        match &self.0 {
            Kind::Own { node, .. } => node.load(image).await,
            Kind::Given { .. } => {
                let command = self.load_command()?;
                let archive = tempfile::NamedTempFile::with_suffix(".tar")?;
                image.write(archive.path())?;
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(format!("{command} \"$1\"")).arg("sh").arg(archive.path());
                let status = shell.stdin(Stdio::null()).kill_on_drop(true).status().await?;
                ensure!(status.success(), "{LOAD_IMAGE} could not load {}", image.name());
                Ok(())
            }
        }
    }

    /// Says that a test runs here, so that logs are kept if it does not pass.
    ///
    /// # Errors
    /// The mark cannot be written.
    pub fn running(&self, test: &str) -> Result<Running> {
        match &self.0 {
            Kind::Own { plane, .. } => plane.running(test),
            Kind::Given { .. } => Ok(Running::elsewhere()),
        }
    }
}
