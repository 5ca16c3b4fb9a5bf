//! The Secrets that definitions name, which their runners may read.

use std::collections::BTreeSet;

use cleat_crds::cluster::Cluster;
use cleat_crds::entity_type::{Handler, Http};
use cleat_crds::http::{Auth, Headers, Tls, Value};
use cleat_crds::step::{Compensation, Request};
use cleat_crds::{EntityType, Steps, WorkflowType};
use kube::ResourceExt;

use crate::controller::{Known, Lookup};

/// The names of the Secrets that the definitions of a Cluster name.
pub fn named(
    cluster: &Cluster,
    entities: &Known<EntityType>,
    workflows: &Known<WorkflowType>,
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
    for workflow in workflows.in_namespace(&namespace) {
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
