//! Leases on a real API server do what those on the embedded one do.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use anyhow::{Result, ensure};
use cleat_runner::lease::conformance::Subject;
use cleat_runner::lease::kubernetes::{self, Access, Kubernetes, NotAllowed};
use cleat_runner::lease_conformance;
use e2e::{ControlPlane, Options};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio::sync::OnceCell;

/// The API server that the tests of this program share. Each has a namespace of its own.
async fn plane() -> Result<&'static ControlPlane> {
    static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    PLANE.get_or_try_init(|| ControlPlane::start(Options::default())).await
}

/// A way to a namespace that nobody else uses.
async fn access() -> Result<Access> {
    let plane = plane().await?;
    let namespace = Namespace {
        metadata: ObjectMeta { generate_name: Some("leases-".to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    let namespaces: Api<Namespace> = Api::all(plane.client().await?);
    let namespace = namespaces.create(&PostParams::default(), &namespace).await?;
    let kubeconfig = std::fs::read_to_string(plane.kubeconfig())?;
    Ok(Access::from_kubeconfig(&kubeconfig, namespace.metadata.name.as_deref()).await?)
}

fn leases(access: Access) -> Result<Kubernetes> {
    let options = kubernetes::Options { cluster: "main".to_owned(), cluster_uid: None, pod_uid: None };
    Ok(Kubernetes::new(access, options)?)
}

mod conforms {
    use super::*;

    lease_conformance!({
        let leases = leases(access().await.unwrap()).unwrap();
        Subject { leases: Arc::new(leases.clone()), backstage: Arc::new(leases) }
    });
}

/// Who may do everything lacks nothing; who may do nothing is told what is missing and what to change.
#[tokio::test]
async fn a_runner_without_rights_is_told_so_before_it_starts() -> Result<()> {
    let access = access().await?;
    leases(access.clone())?.preflight().await?;
    let nobody = access.clone().acting_as("system:serviceaccount:default:nobody");
    let refused = leases(nobody)?.preflight().await;
    let Err(error @ NotAllowed::Missing { .. }) = refused else { anyhow::bail!("{refused:?}") };
    let text = error.to_string();
    for part in ["watch leases.coordination.k8s.io", "list pods", "RoleBinding", access.namespace()] {
        ensure!(text.contains(part), "{part:?} is not in: {text}");
    }
    Ok(())
}
