//! An API server with the kinds, an operator, and runners that it finds.

use std::sync::Arc;
use std::time::Duration;

use cleat_apiserver::Handle;
use cleat_crds::Cluster;
use cleat_operator::{Error, Options};
use cleat_runner::admin::{self, Definitions, Server};
use cleat_runner::transport::SharedToken;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::nodes::Runner;

/// No test waits so long, unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub struct Rig {
    pub server: Handle,
    pub client: Client,
    pub stop: CancellationToken,
    pub operator: Option<JoinHandle<Result<(), Error>>>,
}

impl Rig {
    /// An API server with the kinds, and an operator.
    pub async fn new() -> Self {
        Self::with(Options::default()).await
    }

    /// The same with an operator that is run so.
    pub async fn with(options: Options) -> Self {
        let mut rig = Self::bare().await;
        rig.operate(options);
        rig
    }

    /// An API server with the kinds.
    pub async fn bare() -> Self {
        let server = cleat_apiserver::start(cleat_apiserver::Options::default()).await.unwrap();
        let config = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
        let client = Client::try_from(config).unwrap();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in cleat_crds::all() {
            definitions.create(&PostParams::default(), &crd).await.unwrap();
        }
        Self { server, client, stop: CancellationToken::new(), operator: None }
    }

    pub fn operate(&mut self, options: Options) {
        self.operator =
            Some(tokio::spawn(cleat_operator::run(self.client.clone(), options, self.stop.clone())));
    }

    /// Stops the operator, and says how it ended.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.stop.cancel();
        let ended = match self.operator.take() {
            Some(operator) => tokio::time::timeout(PATIENCE, operator).await.expect("it stops").unwrap(),
            None => Ok(()),
        };
        self.server.shutdown().await;
        ended
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::default_namespaced(self.client.clone())
    }

    pub async fn create<K>(&self, name: &str, spec: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        let object = json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {"name": name}, "spec": spec,
        });
        let object: K = serde_json::from_value(object).unwrap();
        self.api::<K>().create(&PostParams::default(), &object).await.unwrap()
    }

    /// Waits until something holds for an object, and gives what was found.
    pub async fn until<K, T>(&self, name: &str, what: &str, holds: impl Fn(&K) -> Option<T>) -> T
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let api = self.api::<K>();
        let began = tokio::time::Instant::now();
        loop {
            let seen = api.get_opt(name).await.unwrap();
            if let Some(found) = seen.as_ref().and_then(&holds) {
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "never {what}: {seen:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until there is an Event with a reason about an object, and gives what it says.
    pub async fn event(&self, name: &str, reason: &str) -> String {
        let events = self.api::<Event>();
        let began = tokio::time::Instant::now();
        loop {
            let seen = events.list(&ListParams::default()).await.unwrap().items;
            let about = |event: &&Event| {
                event.reason.as_deref() == Some(reason)
                    && event.regarding.as_ref().and_then(|of| of.name.as_deref()) == Some(name)
            };
            if let Some(event) = seen.iter().find(about) {
                return event.note.clone().unwrap_or_default();
            }
            assert!(began.elapsed() < PATIENCE, "no Event {reason} about {name}: {seen:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A Cluster with its Secret.
    pub async fn cluster(&self, replicas: i32) -> Cluster {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": "db"}, "stringData": {"url": "postgres://localhost/x"},
            "data": {"url": "cG9zdGdyZXM6Ly9sb2NhbGhvc3QveA=="},
        }))
        .unwrap();
        self.api::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
        let spec = json!({
            "replicas": replicas, "shards": crate::nodes::SHARDS, "database": {"secretRef": {"name": "db", "key": "url"}},
        });
        self.create("default", spec).await
    }

    /// Serves the admin port of a runner, and says where it is by a Lease.
    pub async fn serve(&self, runner: &Runner, name: &str) -> Served {
        let token = self
            .until("default-credential", "has a credential", |secret: &Secret| {
                let data = secret.data.as_ref()?.get("token")?;
                String::from_utf8_lossy(&data.0).lines().next().map(str::to_owned)
            })
            .await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (definitions, defined) = watch::channel(Definitions::default());
        let parts = admin::Parts {
            node: runner.node.clone(),
            metrics: runner.metrics.clone(),
            verify: Arc::new(SharedToken::new(token)),
            definitions: defined,
        };
        let stop = CancellationToken::new();
        let server = Server::new(admin::Options::new(name, "0.1.0", "cluster"), parts);
        tokio::spawn(server.serve(listener, stop.clone()));
        let lease: Lease = serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "labels": {"cleat.dev/cluster": "default", "cleat.dev/lease": "runner"},
                "annotations": {
                    "cleat.dev/admin": address, "cleat.dev/state": "ready", "cleat.dev/groups": "default",
                    "cleat.dev/version": "1-0.1.0",
                },
            },
            "spec": {"holderIdentity": format!("{name}-instance")},
        }))
        .unwrap();
        self.api::<Lease>().create(&PostParams::default(), &lease).await.unwrap();
        Served { definitions, stop }
    }
}

/// An admin port that is served.
pub struct Served {
    pub definitions: watch::Sender<Definitions>,
    pub stop: CancellationToken,
}

/// The reason of a condition, if it has this status.
pub fn reason(conditions: &[Condition], type_: &str, status: &str) -> Option<String> {
    let found = conditions.iter().find(|condition| condition.type_ == type_ && condition.status == status)?;
    Some(found.reason.clone())
}
