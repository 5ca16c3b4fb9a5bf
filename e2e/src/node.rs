//! What a node runs: containerd, the kubelet, kube-proxy, and, for the whole cluster, the scheduler and CoreDNS.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use tokio::process::Command;

use crate::binaries::{Program, guest, program};
use crate::component::{Component, Place};
use crate::control_plane::{ControlPlane, NODE};
use crate::home::Home;
use crate::image::Image;

/// The addresses of pods. Nobody outside the node's namespaces sees them.
const PODS: &str = "10.88.0.0/24";

/// The image of each pod's first container.
const PAUSE: &str = "cleat.local/pause:1";

/// Where Debian's package has the CNI plugins.
const PLUGINS: &str = "/usr/lib/cni";

#[derive(Debug)]
pub(crate) struct Node {
    components: Vec<Component>,
    /// What containerd listens on.
    socket: PathBuf,
    ctr: PathBuf,
}

impl Node {
    pub(crate) async fn start(plane: &ControlPlane) -> Result<Self> {
        let (home, place) = (plane.home(), plane.place());
        let Place::Sandbox(sandbox) = place else { bail!("a node runs in namespaces") };
        let address = &sandbox.address;
        configure(home, address)?;
        ensure!(
            Path::new(PLUGINS).join("ptp").is_file(),
            "no CNI plugins in {PLUGINS}: run `.ci/setup kubernetes`"
        );
        let kubeconfig = format!("--kubeconfig={}", plane.kubeconfig().display());
        let path = |name: &str| home.path(name).display().to_string();

        let containerd = program(Program::Containerd).await?;
        let containerd = Component::start(
            home,
            place,
            "containerd",
            &containerd,
            ["--config".to_owned(), path("etc/containerd.toml")],
        )?;
        let socket = home.path("data/containerd.sock");
        let mut node = Self { components: vec![containerd], socket, ctr: program(Program::Ctr).await? };
        let (ctr, socket) = (node.ctr.clone(), node.socket.clone());
        node.components[0].ready(|| answers(&ctr, &socket)).await?;
        let pause = Image::new(PAUSE).program(guest().await?, "/guest").entrypoint(["/guest", "pause"]);
        node.load(&pause).await?;

        let scheduler = program(Program::Scheduler).await?;
        let arguments = [kubeconfig.clone(), "--leader-elect=false".to_owned()];
        node.components.push(Component::start(home, place, "kube-scheduler", &scheduler, arguments)?);
        let kubelet = program(Program::Kubelet).await?;
        let arguments = [
            format!("--config={}", path("etc/kubelet.yaml")),
            format!("--kubeconfig={}", path("etc/node.kubeconfig")),
            format!("--root-dir={}", path("data/kubelet")),
            format!("--hostname-override={NODE}"),
            format!("--node-ip={address}"),
        ];
        node.components.push(Component::start(home, place, "kubelet", &kubelet, arguments)?);
        let proxy = program(Program::Proxy).await?;
        // Its limits for tracked connections are the machine's, which are not to be changed.
        let fixed = "--proxy-mode=nftables --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0s \
                     --conntrack-tcp-timeout-close-wait=0s";
        let mut arguments =
            vec![kubeconfig, format!("--hostname-override={NODE}"), format!("--cluster-cidr={PODS}")];
        arguments.extend(fixed.split_whitespace().map(str::to_owned));
        node.components.push(Component::start(home, place, "kube-proxy", &proxy, arguments)?);
        let coredns = program(Program::Coredns).await?;
        let arguments = ["-conf".to_owned(), path("etc/Corefile")];
        node.components.push(Component::start(home, place, "coredns", &coredns, arguments)?);
        Ok(node)
    }

    /// Fails if a part of it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.components.iter_mut().try_for_each(Component::check)
    }

    /// Gives an image to containerd.
    pub(crate) async fn load(&self, image: &Image) -> Result<()> {
        let archive = tempfile::NamedTempFile::new()?;
        image.write(archive.path())?;
        self.import(archive.path()).await.with_context(|| format!("cannot load {}", image.name()))
    }

    /// The same as a command for a shell.
    pub(crate) fn load_command(&self) -> String {
        format!("{} --address {} --namespace k8s.io images import", self.ctr.display(), self.socket.display())
    }

    async fn import(&self, archive: &Path) -> Result<()> {
        let mut command = Command::new(&self.ctr);
        command.arg("--address").arg(&self.socket).args(["--namespace", "k8s.io", "images", "import"]);
        let done = command.arg(archive).stdin(Stdio::null()).kill_on_drop(true).output().await?;
        ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Ok(())
    }
}

async fn answers(ctr: &Path, socket: &Path) -> bool {
    let mut command = Command::new(ctr);
    command.arg("--address").arg(socket).arg("version").stdin(Stdio::null());
    command.output().await.is_ok_and(|done| done.status.success())
}

/// Writes what the components read.
fn configure(home: &Home, address: &str) -> Result<()> {
    let (etc, data) = (home.path("etc"), home.path("data"));
    let (etc, data, group) = (etc.display(), data.display(), home.name());
    home.write(
        "etc/containerd.toml",
        &format!(
            r#"version = 2
root = "{data}/containerd"
state = "{data}/containerd-state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{data}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{PLUGINS}"
    conf_dir = "{etc}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
"#
        ),
    )?;
    std::fs::create_dir(home.path("etc/cni"))?;
    // Pods are routed and not bridged, so that answers of services always pass the node, which knows where they belong.
    home.write(
        "etc/cni/10-cleat.conflist",
        &format!(
            r#"{{"cniVersion": "1.0.0", "name": "cleat", "plugins": [
  {{"type": "ptp", "ipMasq": true, "ipam": {{"type": "host-local", "dataDir": "{data}/cni",
    "ranges": [[{{"subnet": "{PODS}", "rangeStart": "10.88.0.10"}}]], "routes": [{{"dst": "0.0.0.0/0"}}]}}}},
  {{"type": "portmap", "capabilities": {{"portMappings": true}}}}]}}
"#
        ),
    )?;
    home.write(
        "etc/kubelet.yaml",
        &format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: true}}, x509: {{clientCAFile: \"{etc}/ca.crt\"}}}}
authorization: {{mode: Webhook}}
tlsCertFile: \"{etc}/node.crt\"
tlsPrivateKeyFile: \"{etc}/node.key\"
cgroupDriver: cgroupfs
cgroupRoot: /{group}
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
clusterDNS: [{address}]
clusterDomain: cluster.local
containerRuntimeEndpoint: \"unix://{data}/containerd.sock\"
evictionHard: {{memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}}
resolvConf: \"{etc}/resolv.conf\"
imageGCHighThresholdPercent: 100
serializeImagePulls: false
"
        ),
    )?;
    home.write("etc/resolv.conf", "")?;
    let kubeconfig = home.path("kubeconfig");
    home.write(
        "etc/Corefile",
        &format!(
            ".:53 {{
  bind {address}
  errors
  kubernetes cluster.local {{
    kubeconfig {} e2e
  }}
}}
",
            kubeconfig.display()
        ),
    )?;
    Ok(())
}
