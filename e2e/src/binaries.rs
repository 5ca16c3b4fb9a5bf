//! The programs: found on this machine, or built once from pinned Go modules.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};
use tokio::process::Command;

use crate::progress;

/// The modules that pin what is built, and the programs that run in test images.
const SOURCES: &str = env!("CARGO_MANIFEST_DIR");

/// A program that Kubernetes is made of, or that its users use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is a well-known program")]
pub enum Program {
    Apiserver,
    ControllerManager,
    Scheduler,
    Kubelet,
    Proxy,
    Kubectl,
    /// The oldest kubectl that has to work.
    Kubectl132,
    Helm,
    Coredns,
    /// A program on client-go that uses an API server as controllers do.
    ClientGo,
    Etcd,
    Containerd,
    Ctr,
}

/// Programs that are built together, because they share most of their packages.
struct Module {
    folder: &'static str,
    flags: &'static str,
    /// Each program and its package.
    programs: &'static [(Program, &'static str)],
}

/// What helm renders charts for unless it asks a server is set, too; without that it takes itself for an ancient one.
const KUBERNETES: Module = Module {
    folder: "modules/kubernetes",
    flags: "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 \
            -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36 \
            -X helm.sh/helm/v3/internal/version.version=v3.22.0 \
            -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=36 \
            -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=36",
    programs: &[
        (Program::Apiserver, "k8s.io/kubernetes/cmd/kube-apiserver"),
        (Program::ControllerManager, "k8s.io/kubernetes/cmd/kube-controller-manager"),
        (Program::Scheduler, "k8s.io/kubernetes/cmd/kube-scheduler"),
        (Program::Kubelet, "k8s.io/kubernetes/cmd/kubelet"),
        (Program::Proxy, "k8s.io/kubernetes/cmd/kube-proxy"),
        (Program::Kubectl, "k8s.io/kubernetes/cmd/kubectl"),
        (Program::Helm, "helm.sh/helm/v3/cmd/helm"),
        (Program::Coredns, "./coredns"),
        (Program::ClientGo, "./client-go"),
    ],
};
const KUBECTL_1_32: Module = Module {
    folder: "modules/kubectl-1.32",
    flags: "-s -w -X k8s.io/component-base/version.gitVersion=v1.32.13 \
            -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=32",
    programs: &[(Program::Kubectl132, ".")],
};

impl Program {
    /// The name of the program's file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Apiserver => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
            Self::Proxy => "kube-proxy",
            Self::Kubectl => "kubectl",
            Self::Kubectl132 => "kubectl-1.32",
            Self::Helm => "helm",
            Self::Coredns => "coredns",
            Self::ClientGo => "client-go",
            Self::Etcd => "etcd",
            Self::Containerd => "containerd",
            Self::Ctr => "ctr",
        }
    }

    /// What it is built from; what there is none for comes with the distribution.
    fn module(self) -> Option<&'static Module> {
        match self {
            Self::Kubectl132 => Some(&KUBECTL_1_32),
            Self::Etcd | Self::Containerd | Self::Ctr => None,
            _ => Some(&KUBERNETES),
        }
    }

    /// How it tells its version, and what that must hold; none where any version will do.
    fn version(self) -> Option<(&'static [&'static str], &'static str)> {
        match self {
            Self::Kubectl => Some((&["version", "--client"], "v1.36.")),
            Self::Kubectl132 => Some((&["version", "--client"], "v1.32.")),
            Self::Apiserver | Self::ControllerManager | Self::Scheduler | Self::Kubelet | Self::Proxy => {
                Some((&["--version"], "v1.36."))
            }
            _ => None,
        }
    }
}

/// Where `program` is: in `KUBEBUILDER_ASSETS`, in `PATH`, in the cache, or, after it was built, there.
///
/// # Errors
/// It is nowhere and cannot be built.
pub async fn program(program: Program) -> Result<PathBuf> {
    let built = cache()?.join("bin");
    if let Some(found) = at_hand(program, &built).await {
        return Ok(found);
    }
    let Some(module) = program.module() else {
        bail!("{} is not installed: run `.ci/setup kubernetes`", program.name());
    };
    build(module, &built).await?;
    at_hand(program, &built)
        .await
        .with_context(|| format!("{} was built and is not what it should be", program.name()))
}

/// Where a program is, if it need not be built.
async fn at_hand(program: Program, built: &Path) -> Option<PathBuf> {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    // What is for administrators is not on everybody's path.
    let folders = assets.into_iter().chain(std::env::split_paths(&path));
    let folders = folders.chain(["/usr/sbin".into(), "/sbin".into(), built.to_owned()]);
    for folder in folders {
        let candidate = folder.join(program.name());
        if candidate.is_file() && fits(program, &candidate).await {
            return Some(candidate);
        }
    }
    None
}

/// Every kubectl at hand, whatever its version: where it is, and what it says of itself.
pub async fn kubectls() -> Vec<(PathBuf, String)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(cache().ok().map(|cache| cache.join("bin")));
    let mut found: Vec<(PathBuf, String)> = Vec::new();
    for folder in folders {
        for name in [Program::Kubectl.name(), Program::Kubectl132.name()] {
            let candidate = folder.join(name);
            let mut asking = Command::new(&candidate);
            let said = asking.args(["version", "--client"]).stdin(Stdio::null()).output().await;
            let Some(said) = said.ok().filter(|said| said.status.success()) else { continue };
            let version = String::from_utf8_lossy(&said.stdout).lines().next().unwrap_or_default().to_owned();
            if found.iter().all(|(_, known)| *known != version) {
                found.push((candidate, version));
            }
        }
    }
    found
}

async fn fits(program: Program, candidate: &Path) -> bool {
    let Some((arguments, version)) = program.version() else { return true };
    let said = Command::new(candidate).args(arguments).stdin(Stdio::null()).output().await;
    said.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains(version))
}

fn cache() -> Result<PathBuf> {
    let named = std::env::var_os("E2E_CACHE").map(PathBuf::from);
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let usual = || folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    named.or_else(|| Some(usual()?.join("cleat-kubernetes"))).context("neither E2E_CACHE nor HOME is set")
}

/// Builds what is missing of a module.
async fn build(module: &Module, bin: &Path) -> Result<()> {
    std::fs::create_dir_all(bin).with_context(|| format!("cannot create {}", bin.display()))?;
    let lock = File::create(bin.join(".lock")).context("cannot open the lock of the cache")?;
    let locked = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await?;
    let _lock = locked.context("cannot lock the cache")?;
    let mut missing = Vec::new();
    for (program, package) in module.programs {
        // Another process may have built it meanwhile.
        if at_hand(*program, bin).await.is_none() {
            missing.push((program.name(), *package));
        }
    }
    let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    if names.is_empty() {
        return Ok(());
    }
    progress(format_args!("building {} from {}; this is done once", names.join(", "), module.folder));
    let begun = Instant::now();
    // A build that is cut short leaves nothing that looks like a program.
    let work = tempfile::tempdir_in(bin)?;
    let mut command = Command::new("go");
    command.arg("build").arg("-trimpath").arg("-ldflags").arg(module.flags).arg("-o");
    let mut output = OsString::from(work.path());
    output.push("/");
    if let [name] = names[..] {
        output.push(name);
    }
    command.arg(output).args(missing.iter().map(|(_, package)| package));
    command.current_dir(Path::new(SOURCES).join(module.folder)).env("CGO_ENABLED", "0").env("GOFLAGS", "");
    let status = command.stdin(Stdio::null()).kill_on_drop(true).status().await;
    let status = status.context("cannot run go: install Go 1.26 or later from https://go.dev/dl")?;
    ensure!(status.success(), "go build failed in {}", module.folder);
    for name in names {
        std::fs::rename(work.path().join(name), bin.join(name))?;
    }
    progress(format_args!("built after {} s", begun.elapsed().as_secs()));
    Ok(())
}

/// A small static program for test images, see `guest/main.rs`.
///
/// # Errors
/// It cannot be compiled.
pub async fn guest() -> Result<PathBuf> {
    let source = Path::new(SOURCES).join("guest/main.rs");
    let digest = Sha256::digest(std::fs::read(&source)?);
    let folder = cache()?.join("guest");
    let program = folder.join(crate::image::hex(&digest));
    if program.is_file() {
        return Ok(program);
    }
    std::fs::create_dir_all(&folder)?;
    let work = tempfile::tempdir_in(&folder)?;
    let output = work.path().join("guest");
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    command.args([
        "--edition",
        "2024",
        "-O",
        "-C",
        "target-feature=+crt-static",
        "-C",
        "strip=symbols",
        "-o",
    ]);
    command.arg(&output).arg(&source).stdin(Stdio::null()).kill_on_drop(true);
    let status = command.status().await.context("cannot run rustc")?;
    ensure!(status.success(), "{} does not compile", source.display());
    std::fs::rename(output, &program)?;
    Ok(program)
}
