//! A program on client-go works on this server. It is not part of a plain test run, which needs nothing but cargo: build
//! `client-go/`, name the result in `CLEAT_CLIENT_GO`, and run the ignored test.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use cleat_apiserver::{Options, start};
use tokio::process::Command;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the program in client-go/, built and named in CLEAT_CLIENT_GO"]
async fn informers_updates_apply_and_leader_election_of_client_go_work() {
    let program = std::env::var("CLEAT_CLIENT_GO").expect("CLEAT_CLIENT_GO names the program");
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let handle = start(Options { kubeconfig: Some(kubeconfig.clone()), ..Options::default() }).await.unwrap();
    let output = Command::new(program).env("KUBECONFIG", kubeconfig).output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.trim() == "ok",
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    handle.shutdown().await;
}
