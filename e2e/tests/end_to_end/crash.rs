//! A run that is killed leaves nothing that stops the next.
#![allow(clippy::unwrap_used, reason = "a role that cannot go on fails")]

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use cleat_testing::process::{Process, role};
use e2e::{ControlPlane, Options};

/// The test that plays the holder, by its name in this program.
const HOLDER: &str = "crash::holder";

/// Holds a control plane, in a process of its own, until it is told to end.
#[test]
fn holder() {
    role(HOLDER, async |parent| {
        let plane = ControlPlane::start(Options::default()).await.unwrap();
        let running = plane.running("holder").unwrap();
        parent.send(&plane.kubeconfig()).unwrap();
        parent.receive::<()>().await.unwrap();
        running.passed();
    });
}

/// The processes that work in a folder.
fn working_in(folder: &Path) -> Result<usize> {
    let cwds = std::fs::read_dir("/proc")?.flatten().map(|entry| entry.path().join("cwd"));
    Ok(cwds.filter(|cwd| std::fs::read_link(cwd).is_ok_and(|cwd| cwd.starts_with(folder))).count())
}

#[tokio::test]
async fn a_killed_run_leaves_its_logs_and_nothing_else() -> Result<()> {
    let mut holder = Process::spawn(HOLDER)?;
    let kubeconfig: PathBuf = holder.receive().await?.context("the holder has ended")?;
    let home = kubeconfig.parent().context("the kubeconfig is in a folder")?;
    let kept = std::fs::read_to_string(home.join("kept"))?;
    let kept = Path::new(kept.trim());
    ensure!(working_in(home)? >= 2, "etcd and the API server work in the folder");

    holder.kill().await?;
    e2e::until("the folder is left", || async { Ok(!home.exists()) }).await?;
    ensure!(working_in(home)? == 0, "a component has outlived the run");
    ensure!(kept.join("kube-apiserver.log").is_file(), "the logs are not in {}", kept.display());
    std::fs::remove_dir_all(kept)?;
    Ok(())
}
