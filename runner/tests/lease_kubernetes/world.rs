//! An embedded API server that can be stopped and started.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cleat_apiserver::store::{Backend, Memory, Sqlite};
use cleat_apiserver::{Handle, Options, start};
use cleat_runner::lease::kubernetes::{self, Access, Kubernetes};
use cleat_runner::lease::{Event, Name, Runner, Timing};
use cleat_runner::shard::{GroupName, Instance, Member, State, Version};
use futures::StreamExt;
use futures::stream::BoxStream;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// No test waits so long, unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// An API server with its storage.
pub struct World {
    /// Where objects are kept while the server is down.
    folder: Option<tempfile::TempDir>,
    server: Option<Handle>,
    port: u16,
    token: String,
    pub access: Access,
    pub client: Client,
}

impl World {
    /// One that is never stopped.
    pub async fn new() -> Self {
        Self::with(None).await
    }

    /// One that can be.
    pub async fn lasting() -> Self {
        Self::with(Some(tempfile::tempdir().unwrap())).await
    }

    async fn with(folder: Option<tempfile::TempDir>) -> Self {
        let server = serve(folder.as_ref(), 0, None).await;
        let port = server.url().rsplit(':').next().unwrap().parse().unwrap();
        let token = server.token().to_owned();
        let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        // Each start of the server has a certificate of its own.
        config.accept_invalid_certs = true;
        let client = Client::try_from(config.clone()).unwrap();
        let access = Access::new(config, None);
        Self { folder, server: Some(server), port, token, access, client }
    }

    /// The Leases of the Cluster `main`, as one runner reaches them.
    pub fn leases(&self) -> Kubernetes {
        self.leases_of(kubernetes::Options { cluster: "main".to_owned(), cluster_uid: None, pod_uid: None })
    }

    pub fn leases_of(&self, options: kubernetes::Options) -> Kubernetes {
        Kubernetes::new(self.access.clone(), options).unwrap()
    }

    /// A file with which other processes find the server.
    pub fn kubeconfig(&self) -> std::path::PathBuf {
        let file = self.folder.as_ref().unwrap().path().join("kubeconfig");
        std::fs::write(&file, self.server.as_ref().unwrap().kubeconfig()).unwrap();
        file
    }

    /// Stops the server. What it has stored stays.
    pub async fn stop(&mut self) {
        self.server.take().unwrap().shutdown().await;
    }

    /// Starts it again where it was.
    pub async fn start(&mut self) {
        self.server = Some(serve(self.folder.as_ref(), self.port, Some(self.token.clone())).await);
    }
}

async fn serve(folder: Option<&tempfile::TempDir>, port: u16, token: Option<String>) -> Handle {
    let backend: Arc<dyn Backend> = match folder {
        Some(folder) => Arc::new(Sqlite::open(&folder.path().join("objects.db")).await.unwrap()),
        None => Arc::new(Memory),
    };
    start(Options { port, token, backend, ..Options::default() }).await.unwrap()
}

pub fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

pub fn runner(instance: &str) -> Runner {
    let member = Member {
        instance: Instance::new(instance),
        weight: 100,
        groups: BTreeSet::from([GroupName::default()]),
        version: Version::new("1"),
        state: State::Ready,
        avoids: BTreeSet::new(),
    };
    let timing = Timing::new(Duration::from_secs(30), Duration::from_secs(1)).unwrap();
    Runner { member, address: "127.0.0.1:1".to_owned(), admin: None, gateway: None, schema: None, timing }
}

/// The next thing that a watch tells.
pub async fn next(events: &mut BoxStream<'static, Event>) -> Event {
    tokio::time::timeout(PATIENCE, events.next()).await.expect("the watch tells nothing").unwrap()
}

/// Reads on until something is told that is looked for.
pub async fn find<T>(
    events: &mut BoxStream<'static, Event>,
    mut wanted: impl FnMut(Event) -> Option<T>,
) -> T {
    loop {
        if let Some(found) = wanted(next(events).await) {
            return found;
        }
    }
}
