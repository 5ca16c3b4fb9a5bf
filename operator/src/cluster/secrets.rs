//! The Secrets that definitions name, and Workflows with steps of their own while they run, which their runners may read.

use std::collections::BTreeSet;

use cleat_crds::cluster::Cluster;
use cleat_crds::entity_type::{Handler, Http};
use cleat_crds::http::{Auth, Headers, Tls, Value};
use cleat_crds::step::{Compensation, Request};
use cleat_crds::{EntityType, Steps, Workflow, WorkflowType};
use kube::ResourceExt;
use kube::core::DeserializeGuard;

use crate::controller::{Known, Lookup};
use crate::names::label;

/// The names of the Secrets that the steps of a Workflow name, if it has any of its own.
pub fn of(workflow: &Workflow) -> BTreeSet<String> {
    let mut names = Names::default();
    workflow.spec.steps.iter().for_each(|steps| names.steps(steps));
    names.0
}

/// Whether the steps of any Workflow may use a Secret. Whoever may start Workflows need not be allowed to read Secrets, so it takes somebody
/// who may write this one to say so.
pub fn is_lent(secret: &impl ResourceExt) -> bool {
    secret.labels().get(label::STEPS).is_some_and(|value| value == "true")
}

/// The names of the Secrets that the Workflows of a Cluster name that have not ended.
pub fn running(cluster: &Cluster, workflows: &Known<Workflow>) -> BTreeSet<String> {
    let (namespace, name) = (cluster.namespace(), cluster.name_any());
    let of_cluster = |guard: &DeserializeGuard<Workflow>| {
        guard.0.as_ref().is_ok_and(|workflow| {
            workflow.namespace() == namespace
                && workflow.spec.cluster_ref.name == name
                && workflow.status.as_ref().is_none_or(|status| !status.phase.is_final())
        })
    };
    let unfinished = workflows.state_filter(of_cluster);
    unfinished.iter().filter_map(|guard| guard.0.as_ref().ok()).flat_map(of).collect()
}

/// The names of the Secrets that the definitions of a Cluster name.
pub fn named(
    cluster: &Cluster,
    entities: &Known<EntityType>,
    types: &Known<WorkflowType>,
) -> BTreeSet<String> {
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let mut names = Names::default();
    for entity in entities.in_namespace(&namespace) {
        if entity.spec.cluster_ref.name == name {
            if let Some(Handler::Http(http)) = &entity.spec.handler {
                names.service(http);
            }
            entity
                .spec
                .methods
                .iter()
                .filter_map(|method| method.http.as_ref())
                .for_each(|http| names.service(http));
        }
    }
    for workflow in types.in_namespace(&namespace) {
        if workflow.spec.cluster_ref.name == name {
            names.steps(&workflow.spec.steps);
        }
    }
    names.0
}

#[derive(Default)]
struct Names(BTreeSet<String>);

impl Names {
    fn service(&mut self, http: &Http) {
        self.parts(http.headers.as_ref(), http.auth.as_ref(), http.tls.as_ref());
    }

    fn request(&mut self, request: &Request) {
        self.parts(request.headers.as_ref(), request.auth.as_ref(), request.tls.as_ref());
    }

    fn parts(&mut self, headers: Option<&Headers>, auth: Option<&Auth>, tls: Option<&Tls>) {
        for value in headers.into_iter().flat_map(|headers| headers.values()) {
            if let Value::SecretRef(secret) = value {
                self.0.insert(secret.name.clone());
            }
        }
        if let Some(Auth::Hmac(secret) | Auth::Bearer(secret)) = auth {
            self.0.insert(secret.secret_ref.name.clone());
        }
        if let Some(ca) = tls.and_then(|tls| tls.ca.as_ref()) {
            self.0.insert(ca.secret_ref.name.clone());
        }
    }

    fn steps(&mut self, steps: &Steps) {
        for step in &steps.0 {
            if let Some(request) = &step.http {
                self.request(request);
            }
            if let Some(Compensation::Http(request)) = &step.compensate {
                self.request(request);
            }
            if let Some(steps) = &step.steps {
                self.steps(steps);
            }
            step.parallel.iter().flatten().for_each(|branch| self.steps(&branch.steps));
            step.switch.iter().flatten().for_each(|case| self.steps(&case.steps));
        }
    }
}
