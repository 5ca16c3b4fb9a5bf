//! Holds a Kubernetes on this machine until it is interrupted, and says how to use it: with kubectl, and as the cluster of the
//! end-to-end tests.

use anyhow::Result;
use e2e::Cluster;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    let cluster = Cluster::start().await?;
    println!("export KUBECONFIG={0} E2E_KUBECONFIG={0}", cluster.kubeconfig().display());
    println!("export E2E_MACHINE={} E2E_LOAD_IMAGE='{}'", cluster.machine()?, cluster.load_command()?);
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminated.recv() => {}
    }
    Ok(())
}
