//! The answers of this server are those of a real one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use cleat_apiserver::{Options, start};
use cleat_conformance::{FILES, File, Server, Target};
use kube::config::{KubeConfigOptions, Kubeconfig};

async fn client(kubeconfig: Kubeconfig) -> kube::Client {
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

/// Runs all files against this server, or against the real one that `CLEAT_CONFORMANCE_KUBECONFIG` leads to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_questions_get_the_same_answers() {
    let (server, handle) = match std::env::var("CLEAT_CONFORMANCE_KUBECONFIG") {
        Ok(path) => (Server::new(client(Kubeconfig::read_from(path).unwrap()).await, Target::Real), None),
        Err(_) => {
            let handle = start(Options::default()).await.unwrap();
            let config = Kubeconfig::from_yaml(&handle.kubeconfig()).unwrap();
            (Server::new(client(config).await, Target::Embedded), Some(handle))
        }
    };
    let only = std::env::var("CLEAT_CONFORMANCE_ONLY").unwrap_or_default();
    let mut passed = 0;
    let mut failures = Vec::new();
    for (name, text) in FILES.iter().filter(|(name, _)| only.is_empty() || only == *name) {
        let file = File::parse(text).unwrap();
        let report = server.check(name, &file).await.unwrap();
        if report.failures.is_empty() {
            assert_eq!(report.passed, file.cases.len(), "every case of {name} is checked");
        }
        passed += report.passed;
        failures.extend(report.failures);
    }
    if let Some(handle) = handle {
        handle.shutdown().await;
    }
    assert!(
        failures.is_empty(),
        "{passed} cases passed; {} steps did not:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(passed > 0);
}
