//! A Cluster with its database, and somebody who asks it without a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cleat_runner::cluster::Node;
use cleat_runner::lease::Leases;
use cleat_runner::lease::kubernetes::{Kubernetes, Options};
use cleat_runner::message::EntityId;
use cleat_runner::prelude::*;
use cleat_runner::shard::Version;
use cleat_testing::postgres::{Database, shared};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::nodes;
use crate::world::World;

#[entity(name = "counter", state = i64)]
pub struct Counter;

#[entity_impl]
impl Counter {
    #[rpc(persisted)]
    pub async fn add(&self, total: &mut i64, count: i64) -> Result<i64, Never> {
        *total += count;
        Ok(*total)
    }

    #[rpc]
    pub async fn get(&self, total: &i64) -> Result<i64, Never> {
        Ok(*total)
    }
}

/// All belong to one rollout: otherwise shards would move to the newest.
pub const VERSION: &str = "1";

pub struct Place {
    pub world: World,
    pub database: Database,
    /// The UID of the Cluster.
    pub cluster: String,
}

impl Place {
    pub async fn new() -> Self {
        let world = World::lasting().await;
        let database = shared().await.unwrap().database().await.unwrap();
        let cluster = cluster(&world).await;
        Self { world, database, cluster }
    }

    pub fn leases(&self) -> Kubernetes {
        self.world.leases_of(Options {
            cluster: "main".to_owned(),
            cluster_uid: Some(self.cluster.clone()),
            pod_uid: None,
        })
    }

    /// Starts a runner in this process.
    pub async fn start(&self, name: &str) -> (Node, CounterClient) {
        let leases: Arc<dyn Leases> = Arc::new(self.leases());
        let set = |options: &mut cleat_runner::cluster::Options| {
            options.cluster = self.cluster.as_str().into();
            options.ownership.version = Version::new(VERSION);
        };
        let node = nodes::start(name, &self.database.url, leases, set).await;
        let client = Counter.register(&node).unwrap();
        (node, client)
    }

    pub fn api(&self) -> Api<Lease> {
        Api::default_namespaced(self.world.client.clone())
    }

    /// The Leases of shards, with who holds them.
    pub async fn shards(&self) -> Vec<(String, Option<String>)> {
        let shards = ListParams::default().labels("cleat.dev/cluster=main,cleat.dev/lease=shard");
        let leases = self.api().list(&shards).await.unwrap();
        let held = |lease: Lease| (lease.metadata.name.unwrap(), lease.spec.unwrap().holder_identity);
        leases.items.into_iter().map(held).collect()
    }

    /// Waits until every shard is held by one of these.
    pub async fn held_by(&self, holders: &[&str]) {
        let wait = async {
            loop {
                let shards = self.shards().await;
                let by = |holder: &str| {
                    let held = shards.iter().filter_map(|(_, by)| by.as_deref());
                    held.filter(|by| by.starts_with(holder)).count()
                };
                let counts: Vec<usize> = holders.iter().map(|holder| by(holder)).collect();
                if counts.iter().sum::<usize>() == usize::from(nodes::SHARDS) && !counts.contains(&0) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        assert!(
            tokio::time::timeout(nodes::PATIENCE, wait).await.is_ok(),
            "{holders:?} never hold all shards"
        );
    }
}

/// Makes the Cluster that owns the Leases: what has no owner is collected.
async fn cluster(world: &World) -> String {
    let schema =
        json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "clusters.cleat.dev" },
        "spec": { "group": "cleat.dev", "scope": "Namespaced",
            "names": { "kind": "Cluster", "plural": "clusters", "singular": "cluster" },
            "versions": [{ "name": "v1alpha1", "served": true, "storage": true, "schema": schema }] },
    });
    let definition: CustomResourceDefinition = serde_json::from_value(definition).unwrap();
    Api::all(world.client.clone()).create(&PostParams::default(), &definition).await.unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cleat.dev", "v1alpha1", "Cluster"));
    let clusters: Api<DynamicObject> = Api::default_namespaced_with(world.client.clone(), &kind);
    let cluster = DynamicObject::new("main", &kind).data(json!({ "spec": {} }));
    let made = async {
        // The definition may not be served yet.
        loop {
            match clusters.create(&PostParams::default(), &cluster).await {
                Ok(made) => return made,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(nodes::PATIENCE, made).await.expect("the Cluster can be made").metadata.uid.unwrap()
}

/// Somebody who asks without a pause, and keeps what was answered.
pub struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    askers: Vec<JoinHandle<Vec<i64>>>,
    client: CounterClient,
}

impl Load {
    pub fn start(client: &CounterClient) -> Self {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let ask = |number| {
            let (client, stop, answered) = (client.clone(), Arc::clone(&stop), Arc::clone(&answered));
            tokio::spawn(async move {
                let mut answers = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    answers.push(client.add(entity(number), &1).await.unwrap());
                    answered.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                answers
            })
        };
        let askers = (0..12).map(ask).collect();
        Self { stop, answered, askers, client: client.clone() }
    }

    /// Waits until so many more have been answered.
    pub async fn goes_on(&self, more: usize) {
        let from = self.answered.load(Ordering::Relaxed);
        nodes::until("requests are answered", || self.answered.load(Ordering::Relaxed) >= from + more).await;
    }

    /// Checks that what was answered was done, once each and in order.
    pub async fn check(self) {
        self.stop.store(true, Ordering::Relaxed);
        for (number, asker) in self.askers.into_iter().enumerate() {
            let answers = asker.await.unwrap();
            let expected: Vec<i64> = (1..=i64::try_from(answers.len()).unwrap()).collect();
            assert_eq!(answers, expected, "entity {number}");
            assert_eq!(self.client.get(entity(number)).await.unwrap(), *answers.last().unwrap());
        }
    }
}

fn entity(number: usize) -> EntityId {
    EntityId::new(&format!("entity-{number}")).unwrap()
}
