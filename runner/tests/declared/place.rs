//! A Cluster with its database, its definitions, and one runner after the other.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use cleat_proto::v1;
use cleat_proto::v1::admin_client::AdminClient;
use cleat_testing::postgres::{Database, shared};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::world::World;

/// No test waits so long, unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(180);
const TOKEN: &str = "secret";

pub struct Place {
    world: World,
    database: Database,
    cluster: String,
    http: Client<HttpConnector, Full<Bytes>>,
}

/// A runner as a process of its own.
pub struct Runner {
    child: Child,
    pub gateway: SocketAddr,
    admin: SocketAddr,
}

pub async fn patiently<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let wait = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("it never happened: {what}"))
}

impl Place {
    pub async fn new() -> Self {
        let world = World::lasting().await;
        let database = shared().await.unwrap().database().await.unwrap();
        let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
        for definition in cleat_crds::all() {
            definitions.create(&PostParams::default(), &definition).await.unwrap();
        }
        let http = Client::builder(TokioExecutor::new()).build_http();
        let mut place = Self { world, database, cluster: String::new(), http };
        let database = json!({ "secretRef": { "name": "database", "key": "url" } });
        let spec = json!({ "database": database });
        let made = patiently("the Cluster can be made", async || {
            place.try_apply("Cluster", "main", &spec).await.ok()
        });
        place.cluster = made.await.metadata.uid.unwrap();
        place
    }

    async fn try_apply(&self, kind: &str, name: &str, spec: &Value) -> Result<DynamicObject, kube::Error> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cleat.dev", "v1alpha1", kind));
        let api: Api<DynamicObject> = Api::default_namespaced_with(self.world.client.clone(), &resource);
        let object = json!({ "apiVersion": "cleat.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec });
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&object)).await
    }

    /// Declares something of the Cluster.
    pub async fn apply(&self, kind: &str, name: &str, yaml: &str) {
        let mut spec: Value = serde_yaml::from_str(yaml).unwrap();
        spec["clusterRef"] = json!({ "name": "main" });
        let applied = patiently(name, async || {
            self.try_apply(kind, name, &spec)
                .await
                .map_err(|error| {
                    assert!(!error.to_string().contains("invalid"), "{error}");
                })
                .ok()
        });
        applied.await;
    }

    /// Starts a runner, and waits until it serves everything.
    pub async fn start(&self, name: &str) -> Runner {
        let pods: Api<Pod> = Api::default_namespaced(self.world.client.clone());
        let labels = json!({ "cleat.dev/cluster": "main", "app.kubernetes.io/name": "cleat-runner" });
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": labels },
            "spec": { "containers": [{ "name": "runner", "image": "i" }] } });
        let pod = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cleat-runner"));
        command.kill_on_drop(true).env("KUBECONFIG", self.world.kubeconfig()).envs([
            ("CLEAT_CLUSTER", "main"),
            ("CLEAT_CLUSTER_UID", &self.cluster),
            ("CLEAT_NAME", name),
            ("CLEAT_VERSION", "1"),
            ("CLEAT_POD_UID", &pod.metadata.uid.unwrap()),
            ("CLEAT_DATABASE_URL", &self.database.url),
            ("CLEAT_PEER_TOKEN", TOKEN),
            ("CLEAT_SHARDS", "4"),
            ("CLEAT_LEASE_DURATION", "3s"),
            ("CLEAT_LEASE_RENEW_EVERY", "1s"),
            ("CLEAT_LISTEN", "127.0.0.1:0"),
            ("CLEAT_GATEWAY_LISTEN", "127.0.0.1:0"),
            ("CLEAT_GATEWAY_AUTH", "None"),
            ("CLEAT_ADMIN_LISTEN", "127.0.0.1:0"),
            ("CLEAT_EGRESS_LOOPBACK", "allow"),
        ]);
        let child = command.env("CLEAT_LOG", "warn").stdout(Stdio::null()).spawn().unwrap();
        let leases: Api<Lease> = Api::default_namespaced(self.world.client.clone());
        let (gateway, admin) = patiently("its Lease says where it is", async || {
            let annotations = leases.get_opt(name).await.unwrap()?.metadata.annotations?;
            let at = |what: &str| annotations.get(&format!("cleat.dev/{what}"))?.parse().ok();
            Some((at("gateway")?, at("admin")?))
        })
        .await;
        let runner = Runner { child, gateway, admin };
        patiently("it is ready", async || {
            let ready = self.ask(&runner, Method::GET, "/readyz", &[], None).await?;
            (ready.0 == 200).then_some(())
        })
        .await;
        runner
    }

    /// Asks the gateway once. Nothing if there is no answer.
    pub async fn ask(
        &self,
        runner: &Runner,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        input: Option<&Value>,
    ) -> Option<(StatusCode, Value)> {
        self.ask_at(runner.gateway, method, path, headers, input).await
    }

    /// The same for a gateway that may be gone.
    pub async fn ask_at(
        &self,
        gateway: SocketAddr,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        input: Option<&Value>,
    ) -> Option<(StatusCode, Value)> {
        let uri = format!("http://{gateway}{path}");
        let mut request =
            Request::builder().method(method).uri(uri).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = input.map(ToString::to_string).unwrap_or_default();
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let answer =
            tokio::time::timeout(Duration::from_secs(60), self.http.request(request)).await.ok()?.ok()?;
        let status = answer.status();
        let body = answer.into_body().collect().await.ok()?.to_bytes();
        Some((status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
    }

    /// How a cron is doing, if the runner answers.
    pub async fn cron(&self, runner: &Runner, name: &str) -> Option<v1::cron_status_response::Cron> {
        let endpoint = tonic::transport::Channel::from_shared(format!("http://{}", runner.admin)).unwrap();
        let mut client = AdminClient::new(endpoint.connect().await.ok()?);
        let cron = v1::CronRef { name: name.to_owned(), group: String::new() };
        let mut request = tonic::Request::new(v1::CronStatusRequest { cron: Some(cron) });
        request.metadata_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
        client.cron_status(request).await.ok()?.into_inner().cron
    }
}

impl Runner {
    /// Ends it as `kill -9` does.
    pub async fn kill(mut self) {
        self.child.start_kill().unwrap();
        self.child.wait().await.unwrap();
    }
}
