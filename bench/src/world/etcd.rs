//! A private etcd, for the peer that keeps its leases there.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

const PATIENCE: Duration = Duration::from_secs(60);

/// It is killed and its data are removed when this is dropped.
pub(super) struct Etcd {
    // Before the folder that it writes to.
    _process: Child,
    _folder: tempfile::TempDir,
    client: SocketAddr,
}

impl Etcd {
    pub(super) async fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let (client, peer) = (free().await?, free().await?);
        let process = Command::new("etcd")
            .arg("--data-dir")
            .arg(folder.path())
            .args(["--listen-client-urls", &format!("http://{client}")])
            .args(["--advertise-client-urls", &format!("http://{client}")])
            .args(["--listen-peer-urls", &format!("http://{peer}")])
            .args(["--initial-advertise-peer-urls", &format!("http://{peer}")])
            .args(["--initial-cluster", &format!("default=http://{peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start etcd (Debian: apt-get install etcd-server)")?;
        let etcd = Self { _process: process, _folder: folder, client };
        let healthy = async {
            while !get(client, "/health").await.is_ok_and(|text| text.contains("\"true\"")) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, healthy).await.context("etcd does not become healthy")?;
        Ok(etcd)
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.client)
    }

    /// Writes that it has agreed on so far.
    pub(super) async fn writes(&self) -> Result<f64> {
        let text = get(self.client, "/metrics").await?;
        let prefix = "etcd_server_proposals_committed_total ";
        let value =
            text.lines().find_map(|line| line.strip_prefix(prefix)).context("no count of proposals")?;
        Ok(value.trim().parse()?)
    }
}

/// What is at an address, with status line and headers.
pub(super) async fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: bench\r\n\r\n").as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

/// An address that nobody listens at now.
pub(super) async fn free() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?)
}
