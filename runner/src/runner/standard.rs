//! What every runner has beside its node: definitions, the admin port and the gateway, as far as it is told to.

use std::sync::Arc;

use cleat_crds::entity_type::{Method, Shape};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::watch;

use super::part::{Part, Place, Port};
use super::{GatewayAuth, Refused};
use crate::definitions::kubernetes::KubernetesSecrets;
use crate::definitions::{self, Keeper, Kind, Serving, Set, Written};
use crate::egress::{self, Addresses, Allow, Egress, Fixed, Secrets};
use crate::gateway::{self, Guard};
use crate::message::EntityType;
use crate::workflow::{self, Runtime};
use crate::{admin, entity};

/// The parts, in the order in which they are started. They end in the opposite one.
pub(super) fn parts() -> [Part; 3] {
    let (told, tell) = watch::channel(admin::Definitions::default());
    let (serves, served) = watch::channel(Set::default());
    let schemas = Schemas(served);
    [
        Part { name: "definitions", start: Box::new(move |place| declare(place, serves, told).boxed()) },
        Part { name: "admin port", start: Box::new(move |place| administer(place, tell).boxed()) },
        Part { name: "gateway", start: Box::new(move |place| open(place, schemas).boxed()) },
    ]
}

type Task = BoxFuture<'static, ()>;

/// Runs until it is stopped, and does nothing.
fn idle(place: Place) -> Task {
    async move { place.stop.cancelled().await }.boxed()
}

/// Serves what is declared for the Cluster.
async fn declare(
    place: Place,
    serves: watch::Sender<Set>,
    told: watch::Sender<admin::Definitions>,
) -> Result<Task, Refused> {
    // Taken before anything is awaited: shards may be open already.
    let first = (place.access.is_some() && place.settings.cluster.is_some())
        .then(|| place.node.host().expect_definitions());
    // What is there before anything is declared is compiled in.
    let natives: Vec<String> = place.node.workflows().types().iter().map(native).collect();
    let egress = egress(&place).await?;
    let written = Written::new(&place.node, egress.clone())?;
    let keeper = Keeper::new(place.node.clone(), egress).with_workflows(Arc::new(written)).telling(serves);
    let (Some(access), Some(cluster)) = (place.access.clone(), place.settings.cluster.clone()) else {
        told.send_replace(shown(&keeper.serving().borrow(), &natives));
        return Ok(idle(place));
    };
    let (client, namespace) = (access.client()?, access.namespace().to_owned());
    let (sets, declared) = watch::channel(None);
    Ok(async move {
        let following = keeper.follow(declared);
        drop(first);
        let watching = definitions::kubernetes::watch(client, &namespace, &cluster, sets, place.stop.clone());
        let telling = async {
            let mut serving = keeper.serving();
            loop {
                told.send_replace(shown(&serving.borrow_and_update(), &natives));
                if serving.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = watching => {}
            () = following => {}
            () = telling => {}
        }
    }
    .boxed())
}

fn native(served: &entity::Served) -> String {
    workflow::name_of(&served.entity_type).to_owned()
}

/// The way to services outside, with the Secrets of the Cluster's namespace.
async fn egress(place: &Place) -> Result<Egress, Refused> {
    let secrets: Arc<dyn Secrets> = match &place.access {
        Some(access) => Arc::new(KubernetesSecrets::new(access.client()?, access.namespace())),
        None => Arc::new(Fixed::default()),
    };
    let settings = &place.settings;
    let allow: Allow = settings.egress.join(",").parse()?;
    let refused = match &place.access {
        Some(access) => access.addresses().await,
        None => Vec::new(),
    };
    let addresses = Addresses { loopback: settings.egress_loopback, refused };
    let metrics = Some(egress::Metrics::new(&place.metrics)?);
    Ok(Egress::new(egress::Options { allow, addresses, metrics, ..egress::Options::default() }, secrets))
}

/// What the operator is told of definitions.
fn shown(serving: &Serving, native_workflows: &[String]) -> admin::Definitions {
    let of = |kind: Kind| {
        let those = serving.generations.iter().filter(move |((of, _), _)| *of == kind);
        those
            .map(|((_, name), generation)| (name.clone(), admin::Declared { generation: *generation }))
            .collect()
    };
    let problem = |problem: &definitions::Problem| admin::Problem {
        kind: problem.kind.to_string(),
        name: problem.name.clone(),
        generation: problem.generation,
        reason: problem.fault.reason.to_owned(),
        message: problem.fault.message.clone(),
        path: problem.fault.path.clone(),
    };
    admin::Definitions {
        entities: of(Kind::EntityType),
        workflows: of(Kind::WorkflowType),
        native_entities: serving.natives.clone(),
        native_workflows: native_workflows.to_vec(),
        problems: serving.problems.iter().map(problem).collect(),
    }
}

/// Serves the admin port, if there is one.
async fn administer(place: Place, definitions: watch::Receiver<admin::Definitions>) -> Result<Task, Refused> {
    let Some(listener) = place.listener(Port::Admin) else { return Ok(idle(place)) };
    let settings = &place.settings;
    let version = settings.version.clone().unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned());
    let cluster = settings.cluster_uid.clone().unwrap_or_else(|| "local".to_owned());
    let parts = admin::Parts {
        node: place.node.clone(),
        metrics: place.metrics.clone(),
        verify: Arc::<super::Token>::clone(&place.token),
        definitions,
    };
    let server = admin::Server::new(admin::Options::new(settings.name.as_str(), version, cluster), parts);
    Ok(server.serve(listener, place.stop.clone()).boxed())
}

/// Serves the gateway, if there is one.
async fn open(place: Place, schemas: Schemas) -> Result<Task, Refused> {
    let Some(listener) = place.listener(Port::Gateway) else { return Ok(idle(place)) };
    let guard: Arc<dyn Guard> = match (place.settings.gateway_auth, &place.access) {
        (GatewayAuth::Kubernetes, Some(access)) => Arc::new(gateway::kubernetes::Kubernetes::new(
            access.client()?,
            access.namespace(),
            gateway::kubernetes::Options::default(),
        )),
        (GatewayAuth::Kubernetes | GatewayAuth::None, _) => Arc::new(gateway::Open),
    };
    let metrics = gateway::Metrics::new(&place.metrics)?;
    let server = gateway::Server::new(gateway::Options::default(), place.node.clone(), guard, metrics);
    let server = server.with_schemas(Arc::new(schemas));
    Ok(server.serve(listener, place.stop.clone()).boxed())
}

/// The JSON schemas of what is declared and served.
struct Schemas(watch::Receiver<Set>);

impl Schemas {
    fn method(
        &self,
        entity_type: &EntityType,
        method: &str,
        shape: fn(&Method) -> Option<&Shape>,
    ) -> Option<Value> {
        let set = self.0.borrow();
        let declared = set.entities.get(entity_type.as_str())?;
        schema(shape(declared.spec.methods.iter().find(|known| known.name == method)?))
    }
}

fn schema(shape: Option<&Shape>) -> Option<Value> {
    shape?.schema.as_ref().map(|schema| Value::Object(schema.0.clone()))
}

impl gateway::Schemas for Schemas {
    fn input(&self, entity_type: &EntityType, method: &str) -> Option<Value> {
        self.method(entity_type, method, |method| method.input.as_ref())
    }

    fn output(&self, entity_type: &EntityType, method: &str) -> Option<Value> {
        self.method(entity_type, method, |method| method.output.as_ref())
    }

    fn workflow(&self, name: &str) -> Option<Value> {
        schema(self.0.borrow().workflows.get(name)?.spec.input.as_ref())
    }
}
