//! What a Deployment wants next. Pure.

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

use super::{FINALIZER, HASH, NODE};

/// One Pod of a Deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Replica {
    pub(super) name: String,
    /// Whether it was made from the present template.
    pub(super) current: bool,
    pub(super) ready: bool,
    pub(super) leaving: bool,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Todo {
    Start,
    Stop(String),
}

/// What to do next: at most one more than wanted at a time, and never fewer that are ready for the sake of a new template.
pub(super) fn next(wanted: usize, replicas: &[Replica]) -> Vec<Todo> {
    let staying: Vec<&Replica> = replicas.iter().filter(|replica| !replica.leaving).collect();
    let (current, outdated): (Vec<&Replica>, Vec<&Replica>) =
        staying.iter().partition(|replica| replica.current);
    let mut todo = Vec::new();
    let surge = usize::from(!outdated.is_empty());
    let room = (wanted + surge).saturating_sub(staying.len());
    let missing = wanted.saturating_sub(current.len());
    todo.extend((0..missing.min(room)).map(|_| Todo::Start));
    // What is not ready is no loss.
    let ready = staying.iter().filter(|replica| replica.ready).count();
    let mut spare = ready.saturating_sub(wanted);
    for replica in &outdated {
        if !replica.ready {
            todo.push(Todo::Stop(replica.name.clone()));
        } else if spare > 0 {
            spare -= 1;
            todo.push(Todo::Stop(replica.name.clone()));
        }
    }
    let mut surplus: Vec<&&Replica> = current.iter().collect();
    surplus.sort_by_key(|replica| replica.ready);
    let too_many = current.len().saturating_sub(wanted);
    todo.extend(surplus.into_iter().take(too_many).map(|replica| Todo::Stop(replica.name.clone())));
    todo
}

/// What tells one template from another.
pub(super) fn hash(template: &PodTemplateSpec) -> String {
    use std::hash::{Hash, Hasher};
    let mut hasher = std::collections::hash_map::DefaultHasher::new();
    serde_json::to_string(template).unwrap_or_default().hash(&mut hasher);
    format!("{:08x}", hasher.finish() & 0xffff_ffff)
}

/// A Pod of a Deployment.
pub(super) fn pod(deployment: &Deployment, hash: &str) -> Result<Pod> {
    let template = deployment.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let mut metadata = template.metadata.unwrap_or_default();
    let name = deployment.name_any();
    metadata.name = None;
    metadata.generate_name = Some(format!("{name}-{hash}-"));
    metadata.namespace = deployment.namespace();
    metadata.labels.get_or_insert_default().insert(HASH.to_owned(), hash.to_owned());
    metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    metadata.owner_references = Some(vec![OwnerReference {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name,
        uid: deployment.uid().context("the deployment has no UID")?,
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    let mut spec = template.spec.context("the deployment's template has no spec")?;
    spec.node_name = Some(NODE.to_owned());
    Ok(Pod { metadata, spec: Some(spec), status: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(name: &str, current: bool, ready: bool) -> Replica {
        Replica { name: name.to_owned(), current, ready, leaving: false }
    }

    fn stop(name: &str) -> Todo {
        Todo::Stop(name.to_owned())
    }

    #[test]
    fn as_many_are_started_as_are_wanted() {
        assert_eq!(next(2, &[]), [Todo::Start, Todo::Start]);
        assert_eq!(next(2, &[replica("a", true, false)]), [Todo::Start]);
        assert_eq!(next(2, &[replica("a", true, true), replica("b", true, true)]), []);
    }

    #[test]
    fn what_leaves_is_replaced_at_once() {
        let leaving = Replica { leaving: true, ..replica("a", true, true) };
        assert_eq!(next(1, &[leaving]), [Todo::Start]);
    }

    #[test]
    fn what_is_not_ready_goes_first() {
        assert_eq!(next(1, &[replica("a", true, true), replica("b", true, false)]), [stop("b")]);
    }

    #[test]
    fn a_new_template_replaces_one_after_the_other() {
        let (old_a, old_b) = (replica("a", false, true), replica("b", false, true));
        assert_eq!(next(2, &[old_a.clone(), old_b.clone()]), [Todo::Start]);
        assert_eq!(next(2, &[old_a.clone(), old_b.clone(), replica("c", true, false)]), []);
        assert_eq!(next(2, &[old_a, old_b.clone(), replica("c", true, true)]), [stop("a")]);
        assert_eq!(next(2, &[old_b, replica("c", true, true)]), [Todo::Start]);
    }

    #[test]
    fn an_old_one_that_is_not_ready_makes_room() {
        assert_eq!(next(1, &[replica("a", false, false)]), [Todo::Start, stop("a")]);
    }

    #[test]
    fn nothing_wanted_stops_everything() {
        assert_eq!(next(0, &[replica("a", true, true), replica("b", false, true)]), [stop("b"), stop("a")]);
    }
}
