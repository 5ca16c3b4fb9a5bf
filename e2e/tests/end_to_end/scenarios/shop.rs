//! A namespace with a Cluster, a database, and something to sell.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::Outcome;
use serde_json::Value;

use super::gateway::Gateway;
use super::world::World;

/// What its Cluster serves.
const DEFINITIONS: &str = include_str!("shop.yaml");

/// The service account that calls the gateway, with the chart's role for it.
const CALLER: &str = "caller";

/// How long anything may take that Kubernetes and Cleat do together on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(180);

pub struct Shop {
    pub world: &'static World,
    pub name: &'static str,
}

impl Shop {
    /// Opens one with so many runners; when this returns, everything in it is ready.
    pub async fn open(world: &'static World, name: &'static str, runners: u32) -> Result<Self> {
        world.namespace(name).await?;
        let shop = Self { world, name };
        let server = world.postgres.lock().await;
        let database = server.database().await?;
        let url = server.url_at(&world.machine, &database.name);
        drop(server);
        shop.run(&format!("create secret generic cleat-database --from-literal=url={url}")).await?;
        shop.declare(runners).await?;
        shop.run(&format!("create serviceaccount {CALLER}")).await?;
        let bind = format!(
            "create rolebinding {CALLER} --clusterrole=cleat-starter --serviceaccount={name}:{CALLER}"
        );
        shop.run(&bind).await?;
        shop.ready().await?;
        shop.run("wait --for=condition=Ready cet/list cet/inventory cwt/order --timeout=120s").await?;
        Ok(shop)
    }

    /// Applies a Cluster with so many runners, and what it serves.
    pub async fn declare(&self, runners: u32) -> Result<()> {
        self.apply(&cluster(runners, "")).await?;
        self.apply(DEFINITIONS).await
    }

    /// Waits until the Cluster is ready as it was asked for last.
    pub async fn ready(&self) -> Result<Duration> {
        let path = "{.metadata.generation}/{.status.observedGeneration}/{.status.conditions[?(@.type==\"Ready\")].status}/{.status.conditions[?(@.type==\"Progressing\")].status}";
        let command = format!("get ccl default -n {} -o jsonpath={path}", self.name);
        let waited = self
            .world
            .wait_for(PATIENCE, &command, |text| {
                let words: Vec<&str> = text.split('/').collect();
                matches!(words.as_slice(), [wanted, seen, "True", "False"] if wanted == seen)
            })
            .await;
        if waited.is_err() {
            let described = self.attempt("describe ccl,pods").await?;
            e2e::progress(described.output);
        }
        waited
    }

    /// Runs kubectl in the namespace.
    pub async fn run(&self, arguments: &str) -> Result<String> {
        self.world.kubectl.run(&format!("{arguments} --namespace={}", self.name)).await
    }

    /// The same, whether it fails or not.
    pub async fn attempt(&self, arguments: &str) -> Result<Outcome> {
        self.world.kubectl.attempt(&format!("{arguments} --namespace={}", self.name), "").await
    }

    pub async fn apply(&self, manifest: &str) -> Result<()> {
        self.world
            .kubectl
            .run_with(&format!("apply --namespace={} -f -", self.name), manifest)
            .await
            .map(drop)
    }

    /// Creates a Workflow of type `order` that packs for a while, and returns its name.
    pub async fn order(&self, order: &str, count: u32, wait: &str) -> Result<String> {
        let manifest = format!(
            "apiVersion: cleat.dev/v1alpha1
kind: Workflow
metadata: {{name: {order}}}
spec: {{type: order, input: {{order: {order}, item: apples, count: {count}, wait: {wait}}}}}
"
        );
        let create = format!("create --namespace={} -f - -o jsonpath={{.metadata.name}}", self.name);
        self.world.kubectl.run_with(&create, &manifest).await
    }

    /// The gateway, asked by somebody who may.
    pub async fn gateway(&self) -> Result<Gateway> {
        let token = self.run(&format!("create token {CALLER} --duration=1h")).await?;
        let port = self.run("get service default-gateway -o jsonpath={.spec.ports[0].nodePort}").await?;
        ensure!(!port.is_empty(), "the gateway's Service has no port of the node");
        let gateway =
            Gateway::new(format!("http://{}:{port}", self.world.node), Some(token.trim().to_owned()));
        e2e::within(PATIENCE, "the gateway does not answer", || async {
            let answer = gateway.call("list/probe", "get", &serde_json::json!({}), None).await;
            Ok(answer.is_ok_and(|reply| reply.status.is_success()).then_some(()))
        })
        .await?;
        Ok(gateway)
    }

    /// What is in stock, as the gateway tells it.
    pub async fn stock(&self, gateway: &Gateway) -> Result<Value> {
        let reply = gateway.call("inventory/apples", "get", &serde_json::json!({}), None).await?;
        ensure!(reply.status.is_success(), "{} {}", reply.status, reply.body);
        Ok(reply.body["stock"].clone())
    }

    /// The pods of its runners.
    pub async fn runners(&self) -> Result<Vec<String>> {
        let names = self.run("get pods -l cleat.dev/cluster=default -o name").await?;
        Ok(names.lines().filter_map(|name| Some(name.strip_prefix("pod/")?.to_owned())).collect())
    }

    /// Changes the Cluster and waits until it is as it was asked for.
    pub async fn change(&self, patch: &str) -> Result<Duration> {
        self.run(&format!("patch ccl default --type=merge -p {patch}")).await?;
        self.ready().await
    }

    /// Deletes the namespace with all that is in it.
    pub async fn close(self) -> Result<()> {
        let gone =
            self.world.kubectl.attempt(&format!("delete namespace {} --timeout=180s", self.name), "").await?;
        if !gone.success {
            let left = self.attempt("get cleat,pods,leases -o yaml").await?;
            anyhow::bail!("{}{}", gone.errors, left.output);
        }
        Ok(())
    }
}

/// The manifest of a Cluster, with further fields of its spec if there are any.
pub fn cluster(runners: u32, more: &str) -> String {
    format!(
        "apiVersion: cleat.dev/v1alpha1
kind: Cluster
metadata: {{name: default}}
spec:
  replicas: {runners}
  shards: 32
  database: {{secretRef: {{name: cleat-database, key: url}}}}
  gateway: {{service: NodePort}}
  template: {{spec: {{containers: [{{name: runner, resources: {{requests: {{cpu: 20m, memory: 64Mi}}}}}}]}}}}
{more}"
    )
}
