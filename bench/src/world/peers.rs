//! Peers are built or installed when they are first needed, into a cache that outlives the run.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use tokio::process::Command;
use tokio::sync::OnceCell;

use super::system::{Peer, System};

/// Restate's server: the version of its package.
const RESTATE: &str = "1.7.12";
/// DBOS: the version of its package.
const DBOS: &str = "3.3.0";

/// Where the cache is, if not in the user's.
const CACHE: &str = "BENCH_CACHE";

/// Each peer, or why there is none.
#[derive(Default)]
pub(super) struct Peers {
    found: [OnceCell<Result<System, String>>; Peer::ALL.len()],
}

impl Peers {
    pub(super) async fn get(&self, peer: Peer) -> Result<&System, &String> {
        let place = Peer::ALL.iter().position(|other| *other == peer).unwrap_or_default();
        let found = self.found[place].get_or_init(|| async {
            let made = match peer {
                Peer::Cruster => cruster().await,
                Peer::Restate => restate().await,
                Peer::Dbos => dbos().await,
            };
            made.map_err(|error| format!("{error:#}"))
        });
        found.await.as_ref()
    }
}

async fn cruster() -> Result<System> {
    need("etcd", "etcd-server").await?;
    need("protoc", "protobuf-compiler").await?;
    Ok(System::Cruster(build(Peer::Cruster, "cruster").await?))
}

async fn restate() -> Result<System> {
    let platform = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => "linux-x64",
        ("linux", "aarch64") => "linux-arm64",
        ("macos", "x86_64") => "darwin-x64",
        ("macos", "aarch64") => "darwin-arm64",
        (os, arch) => bail!("there is no package of its server for {os} on {arch}"),
    };
    let package = format!("@restatedev/restate-server-{platform}");
    let folder = cache()?.join(format!("restate-server-{RESTATE}"));
    let server = folder.join("node_modules").join(&package).join("bin/restate-server");
    if !server.exists() {
        need("npm", "npm").await?;
        eprintln!("{}: installing {package}@{RESTATE}", Peer::Restate.name());
        std::fs::create_dir_all(&folder)?;
        let mut npm = Command::new("npm");
        // No script of a package runs: the server is a plain file.
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
            .arg(&folder)
            .arg(format!("{package}@{RESTATE}"));
        run(npm, "npm cannot install the server").await?;
        ensure!(server.exists(), "{package} has no {}", server.display());
    }
    Ok(System::Restate { server, service: build(Peer::Restate, "restate").await? })
}

async fn dbos() -> Result<System> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/dbos");
    let folder = cache()?.join(format!("dbos-{DBOS}"));
    let python = folder.join("bin/python");
    let knows = || async {
        let mut check = Command::new(&python);
        check.args(["-c", "import dbos"]).stdout(Stdio::null()).stderr(Stdio::null());
        check.status().await.is_ok_and(|status| status.success())
    };
    if !knows().await {
        need("python3", "python3-venv").await?;
        eprintln!("{}: installing dbos {DBOS}", Peer::Dbos.name());
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv", "--clear"]).arg(&folder);
        run(venv, "python3 cannot make an environment (Debian: apt-get install python3-venv)").await?;
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"])
            .arg(source.join("requirements.txt"));
        run(pip, "pip cannot install dbos").await?;
        ensure!(knows().await, "dbos was installed, but cannot be imported");
    }
    Ok(System::Dbos { python, script: source.join("peer.py") })
}

/// Builds a peer's program, which is a workspace of its own, with the cargo that is there.
async fn build(peer: Peer, folder: &str) -> Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(folder).join("Cargo.toml");
    let target = cache()?.join(folder);
    eprintln!("{}: building {} (minutes, the first time)", peer.name(), manifest.display());
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "--manifest-path"]).arg(&manifest);
    cargo.arg("--target-dir").arg(&target);
    run(cargo, "cargo cannot build it").await?;
    Ok(target.join("release").join(format!("peer-{folder}")))
}

/// Fails unless a program is there.
async fn need(program: &str, package: &str) -> Result<()> {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    ensure!(command.status().await.is_ok(), "{program} is not installed (Debian: apt-get install {package})");
    Ok(())
}

async fn run(mut command: Command, failure: &'static str) -> Result<()> {
    // What it says is not a result.
    let status = command.stdin(Stdio::null()).stdout(std::io::stderr()).status().await.context(failure)?;
    ensure!(status.success(), "{failure} ({status})");
    Ok(())
}

fn cache() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os(CACHE) {
        return Ok(std::path::absolute(folder)?);
    }
    let user = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let folder =
        user.or_else(home).with_context(|| format!("no HOME: say with {CACHE} where peers are kept"))?;
    Ok(folder.join("cleat-bench"))
}
