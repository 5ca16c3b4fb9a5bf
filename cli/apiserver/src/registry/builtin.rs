//! The resources that are part of this program.

use super::{Column, Origin, Resource, Scale, Version, columns};
use crate::schema::Schema;
use crate::selector;
use std::sync::Arc;

/// What a name of a kind may look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// Lower case, digits, `-` and `.`; up to 253 characters.
    Subdomain,
    /// One label of a domain: up to 63 characters and no dots.
    Label,
    /// A label that starts with a letter.
    Label1035,
    /// Anything that can stand in a path.
    Path,
}

/// A built-in kind: facts only, behaviour is in `strategy`.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    pub(crate) status: bool,
    pub(crate) scale: bool,
    /// Objects count their specs in `metadata.generation`.
    pub(crate) generation: bool,
    /// A replace may do without a resource version.
    pub(crate) unconditional: bool,
    /// A replace of what does not exist creates it.
    pub(crate) upsert: bool,
    /// A delete answers with the object rather than a Status.
    pub(crate) returns_deleted: bool,
    pub(crate) naming: Naming,
    /// The bucket, if it is not the one of its own name.
    pub(crate) bucket: Option<&'static str>,
}

const fn kind(
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    short_names: &'static [&'static str],
) -> Kind {
    Kind {
        group,
        version: "v1",
        plural,
        singular,
        kind,
        short_names,
        categories: &[],
        namespaced: true,
        status: false,
        scale: false,
        generation: false,
        unconditional: true,
        upsert: false,
        returns_deleted: false,
        naming: Naming::Subdomain,
        bucket: None,
    }
}

/// The group of leases.
pub(crate) const COORDINATION: &str = "coordination.k8s.io";
/// The group of newer events.
pub(crate) const EVENTS: &str = "events.k8s.io";
/// The group of CustomResourceDefinitions.
pub(crate) const EXTENSIONS: &str = "apiextensions.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const ALL: &[&str] = &["all"];

/// Core and `events.k8s.io` events are two views of the objects in this bucket.
pub(crate) const EVENTS_BUCKET: &str = "/events";
/// Where namespaces are kept.
pub(crate) const NAMESPACES_BUCKET: &str = "/namespaces";
/// Where CustomResourceDefinitions are kept.
pub(crate) const CRD_BUCKET: &str = "apiextensions.k8s.io/customresourcedefinitions";

/// All of them.
pub(crate) static KINDS: &[Kind] = &[
    Kind { upsert: true, bucket: Some(EVENTS_BUCKET), ..kind("", "events", "event", "Event", &["ev"]) },
    Kind { naming: Naming::Subdomain, ..kind("", "configmaps", "configmap", "ConfigMap", &["cm"]) },
    kind("", "endpoints", "endpoints", "Endpoints", &["ep"]),
    Kind {
        namespaced: false,
        status: true,
        returns_deleted: true,
        naming: Naming::Label,
        ..kind("", "namespaces", "namespace", "Namespace", &["ns"])
    },
    Kind { namespaced: false, status: true, ..kind("", "nodes", "node", "Node", &["no"]) },
    Kind {
        status: true,
        returns_deleted: true,
        ..kind("", "persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim", &["pvc"])
    },
    Kind {
        status: true,
        generation: true,
        categories: ALL,
        returns_deleted: true,
        ..kind("", "pods", "pod", "Pod", &["po"])
    },
    kind("", "secrets", "secret", "Secret", &[]),
    Kind {
        returns_deleted: true,
        ..kind("", "serviceaccounts", "serviceaccount", "ServiceAccount", &["sa"])
    },
    Kind {
        status: true,
        upsert: true,
        categories: ALL,
        returns_deleted: true,
        naming: Naming::Label1035,
        ..kind("", "services", "service", "Service", &["svc"])
    },
    Kind {
        status: true,
        scale: true,
        generation: true,
        categories: ALL,
        ..kind("apps", "deployments", "deployment", "Deployment", &["deploy"])
    },
    Kind {
        status: true,
        scale: true,
        generation: true,
        categories: ALL,
        ..kind("apps", "replicasets", "replicaset", "ReplicaSet", &["rs"])
    },
    Kind {
        status: true,
        scale: true,
        generation: true,
        categories: ALL,
        ..kind("apps", "statefulsets", "statefulset", "StatefulSet", &["sts"])
    },
    Kind { upsert: true, unconditional: false, ..kind(COORDINATION, "leases", "lease", "Lease", &[]) },
    Kind { upsert: true, bucket: Some(EVENTS_BUCKET), ..kind(EVENTS, "events", "event", "Event", &["ev"]) },
    Kind { upsert: true, naming: Naming::Path, ..kind(RBAC, "roles", "role", "Role", &[]) },
    Kind {
        upsert: true,
        naming: Naming::Path,
        ..kind(RBAC, "rolebindings", "rolebinding", "RoleBinding", &[])
    },
    Kind {
        upsert: true,
        namespaced: false,
        naming: Naming::Path,
        ..kind(RBAC, "clusterroles", "clusterrole", "ClusterRole", &[])
    },
    Kind {
        upsert: true,
        namespaced: false,
        naming: Naming::Path,
        ..kind(RBAC, "clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding", &[])
    },
    Kind {
        status: true,
        generation: true,
        unconditional: false,
        ..kind("policy", "poddisruptionbudgets", "poddisruptionbudget", "PodDisruptionBudget", &["pdb"])
    },
    Kind {
        generation: true,
        ..kind("networking.k8s.io", "networkpolicies", "networkpolicy", "NetworkPolicy", &["netpol"])
    },
    Kind {
        namespaced: false,
        status: true,
        generation: true,
        unconditional: false,
        categories: &["api-extensions"],
        ..kind(
            ADMISSION,
            "validatingadmissionpolicies",
            "validatingadmissionpolicy",
            "ValidatingAdmissionPolicy",
            &[],
        )
    },
    Kind {
        namespaced: false,
        generation: true,
        unconditional: false,
        categories: &["api-extensions"],
        ..kind(
            ADMISSION,
            "validatingadmissionpolicybindings",
            "validatingadmissionpolicybinding",
            "ValidatingAdmissionPolicyBinding",
            &[],
        )
    },
    Kind {
        version: "v2",
        status: true,
        categories: ALL,
        ..kind(
            "autoscaling",
            "horizontalpodautoscalers",
            "horizontalpodautoscaler",
            "HorizontalPodAutoscaler",
            &["hpa"],
        )
    },
    Kind {
        generation: true,
        ..kind("discovery.k8s.io", "endpointslices", "endpointslice", "EndpointSlice", &[])
    },
    Kind {
        namespaced: false,
        status: true,
        generation: true,
        unconditional: false,
        categories: &["api-extensions"],
        ..kind(
            EXTENSIONS,
            "customresourcedefinitions",
            "customresourcedefinition",
            "CustomResourceDefinition",
            &["crd", "crds"],
        )
    },
];

/// A kind that is only posted and answered, never stored.
#[derive(Debug)]
pub(crate) struct Review {
    pub(crate) group: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
}

const fn review(
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    namespaced: bool,
) -> Review {
    Review { group, plural, singular, kind, namespaced }
}

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// All reviews.
pub(crate) static REVIEWS: &[Review] = &[
    review(AUTHENTICATION, "selfsubjectreviews", "selfsubjectreview", "SelfSubjectReview", false),
    review(AUTHENTICATION, "tokenreviews", "tokenreview", "TokenReview", false),
    review(
        AUTHORIZATION,
        "localsubjectaccessreviews",
        "localsubjectaccessreview",
        "LocalSubjectAccessReview",
        true,
    ),
    review(
        AUTHORIZATION,
        "selfsubjectaccessreviews",
        "selfsubjectaccessreview",
        "SelfSubjectAccessReview",
        false,
    ),
    review(
        AUTHORIZATION,
        "selfsubjectrulesreviews",
        "selfsubjectrulesreview",
        "SelfSubjectRulesReview",
        false,
    ),
    review(AUTHORIZATION, "subjectaccessreviews", "subjectaccessreview", "SubjectAccessReview", false),
];

fn owned(list: &[&str]) -> Vec<String> {
    list.iter().map(|&text| text.to_owned()).collect()
}

/// The resource of a built-in kind.
pub(crate) fn resource(kind: &'static Kind) -> Resource {
    let version = Arc::new(Version {
        name: kind.version.to_owned(),
        schema: Schema::builtin(kind.group, kind.kind),
        openapi: None,
        status: kind.status,
        scale: kind.scale.then(|| Scale {
            spec_replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            selector: None,
        }),
        columns: columns_of(kind),
        selectable: owned(selector::selectable(kind.group, kind.kind)),
        deprecated: None,
    });
    Resource {
        group: kind.group.to_owned(),
        plural: kind.plural.to_owned(),
        singular: kind.singular.to_owned(),
        kind: kind.kind.to_owned(),
        list_kind: format!("{}List", kind.kind),
        short_names: owned(kind.short_names),
        categories: owned(kind.categories),
        namespaced: kind.namespaced,
        versions: vec![version.clone()],
        storage: version,
        origin: Origin::Builtin(kind),
        definition: None,
        since: 0,
        bucket: kind.bucket.map_or_else(|| format!("{}/{}", kind.group, kind.plural), str::to_owned),
    }
}

fn columns_of(kind: &Kind) -> Vec<Column> {
    columns::builtin(kind.group, kind.plural)
}
