//! A program on client-go works on the embedded server.

use std::time::Duration;

use anyhow::{Result, ensure};
use cleat_apiserver::{Options, start};
use e2e::{Program, program};
use tokio::process::Command;

/// Far more than it needs: leader election alone takes some seconds.
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn informers_updates_apply_and_leader_election_of_client_go_work() -> Result<()> {
    let program = program(Program::ClientGo).await?;
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    let server = start(Options { kubeconfig: Some(kubeconfig.clone()), ..Options::default() }).await?;
    let running = Command::new(program).env("KUBECONFIG", kubeconfig).kill_on_drop(true).output();
    let output = tokio::time::timeout(PATIENCE, running).await??;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success() && said.trim() == "ok", "{said}{errors}");
    server.shutdown().await;
    Ok(())
}
