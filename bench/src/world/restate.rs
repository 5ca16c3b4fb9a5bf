//! A private Restate server with its defaults, but without telemetry and on this machine only.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::process::{Child, Command};

use super::etcd::{free, get};

const PATIENCE: Duration = Duration::from_secs(60);

/// It is killed and its data are removed when this is dropped.
pub(super) struct Restate {
    process: Child,
    // After the process that writes to it.
    _folder: tempfile::TempDir,
    addresses: String,
}

impl Restate {
    pub(super) async fn start(program: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let (node, ingress, admin) = (free().await?, free().await?, free().await?);
        let process = Command::new(program)
            .args(["--no-logo", "--listen-mode", "tcp", "--node-name", "bench", "--base-dir"])
            .arg(folder.path())
            .current_dir(folder.path())
            .env("RESTATE_DISABLE_TELEMETRY", "true")
            .env("DO_NOT_TRACK", "1")
            .env("RESTATE_BIND_ADDRESS", node.to_string())
            .env("RESTATE_ADVERTISED_ADDRESS", format!("http://{node}"))
            .env("RESTATE_INGRESS__BIND_ADDRESS", ingress.to_string())
            .env("RESTATE_ADMIN__BIND_ADDRESS", admin.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the Restate server")?;
        let healthy = async {
            for (address, path) in [(admin, "/health"), (ingress, "/restate/health")] {
                while !get(address, path).await.is_ok_and(|text| text.contains(" 200 ")) {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        };
        tokio::time::timeout(PATIENCE, healthy)
            .await
            .context("the Restate server does not become healthy")?;
        let addresses = format!("http://{ingress} http://{admin}");
        Ok(Self { process, _folder: folder, addresses })
    }

    /// Where its ingress and its admin API are.
    pub(super) fn addresses(&self) -> String {
        self.addresses.clone()
    }

    /// Its process id, unless it has ended.
    pub(super) fn pid(&self) -> Option<u32> {
        self.process.id()
    }
}
