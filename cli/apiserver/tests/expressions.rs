//! Rules in CEL are judged as a real server judges them.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use cleat_apiserver::{Options, start};
use cleat_conformance::{File, Server, Target};
use kube::config::{KubeConfigOptions, Kubeconfig};

async fn client(kubeconfig: Kubeconfig) -> kube::Client {
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

/// Runs against this server, or against the real one that `CLEAT_CONFORMANCE_KUBECONFIG` leads to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_get_the_answers_of_a_real_server() {
    let (server, handle) = match std::env::var("CLEAT_CONFORMANCE_KUBECONFIG") {
        Ok(path) => (Server::new(client(Kubeconfig::read_from(path).unwrap()).await, Target::Real), None),
        Err(_) => {
            let handle = start(Options::default()).await.unwrap();
            let config = Kubeconfig::from_yaml(&handle.kubeconfig()).unwrap();
            (Server::new(client(config).await, Target::Embedded), Some(handle))
        }
    };
    let file = File::parse(include_str!("cases/cel.yaml")).unwrap();
    let report = server.check("cel", &file).await.unwrap();
    if let Some(handle) = handle {
        handle.shutdown().await;
    }
    let failures = &report.failures;
    assert!(failures.is_empty(), "{} steps differ:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(report.passed, file.cases.len());
}
