//! The systems that are measured: us, and the peer.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

/// The peer's name.
pub(super) const PEER: &str = "cruster";

/// A measured system.
#[derive(Debug, Clone)]
pub enum System {
    /// Us.
    Cleat,
    /// The peer, by its program.
    Cruster(PathBuf),
}

/// What the peer has shown where we have shown something.
#[derive(Debug, Clone)]
pub enum Beside<T> {
    /// By whom, and what.
    Measured(&'static str, T),
    /// By whom nothing.
    Missing(&'static str),
    /// Nobody asked for a peer.
    Unwanted,
}

impl<T> Beside<T> {
    /// The same as a reference.
    pub fn as_ref(&self) -> Beside<&T> {
        match self {
            Self::Measured(name, measured) => Beside::Measured(name, measured),
            Self::Missing(name) => Beside::Missing(name),
            Self::Unwanted => Beside::Unwanted,
        }
    }

    /// The same with something else made of what was measured.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Beside<U> {
        match self {
            Self::Measured(name, measured) => Beside::Measured(name, make(measured)),
            Self::Missing(name) => Beside::Missing(name),
            Self::Unwanted => Beside::Unwanted,
        }
    }
}

/// Builds the peer's program with the cargo that is there, in our own target folder.
pub(super) async fn build() -> Result<System> {
    for (program, package) in [("etcd", "etcd-server"), ("protoc", "protobuf-compiler")] {
        let found =
            Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().await;
        ensure!(found.is_ok(), "{program} is not installed (Debian: apt-get install {package})");
    }
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/cruster/Cargo.toml");
    let target = target()?.join("peers").join(PEER);
    eprintln!("{PEER}: building {} (minutes, the first time)", manifest.display());
    let status = Command::new("cargo")
        .args(["build", "--release", "--locked", "--manifest-path"])
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&target)
        .status()
        .await
        .context("cannot run cargo")?;
    ensure!(status.success(), "cargo could not build it ({status})");
    Ok(System::Cruster(target.join("release").join("peer-cruster")))
}

/// The target folder that this program was built in.
fn target() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.parent().and_then(Path::parent).context("this program is in no target folder")?;
    Ok(target.to_owned())
}
