//! Which resources are served: the built-in ones and those that CustomResourceDefinitions add.

pub(crate) mod builtin;
mod columns;
pub(crate) mod crd;
pub(crate) mod shapes;

pub(crate) use columns::{Cell, Column};

use crate::schema::Schema;
use crate::status::Named;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

/// Where the replicas of a resource with a scale subresource are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scale {
    pub(crate) spec_replicas: String,
    pub(crate) status_replicas: String,
    pub(crate) selector: Option<String>,
}

/// One served version of a resource.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) schema: Schema,
    /// The schema as OpenAPI shows it; `None` for built-in types, whose shapes have a place of their own.
    pub(crate) openapi: Option<Value>,
    pub(crate) status: bool,
    pub(crate) scale: Option<Scale>,
    pub(crate) columns: Vec<Column>,
    /// Paths beyond name and namespace that field selectors may use.
    pub(crate) selectable: Vec<String>,
    /// The warning that each use of this version gives.
    pub(crate) deprecated: Option<String>,
}

/// What a resource comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin {
    /// It is part of this program.
    Builtin(&'static builtin::Kind),
    /// A CustomResourceDefinition; `true` while that one is being deleted.
    Custom {
        /// Nothing may be created any more.
        terminating: bool,
    },
}

/// A resource and all its served versions.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// In order of preference.
    pub(crate) versions: Vec<Arc<Version>>,
    /// The version in which objects are stored.
    pub(crate) storage: Arc<Version>,
    pub(crate) origin: Origin,
    /// The spec of the CustomResourceDefinition, if it is one.
    pub(crate) definition: Option<Value>,
    /// The revision as of which the definition reads so; older objects may not fit it.
    pub(crate) since: u64,
    /// Where the store keeps the objects.
    pub(crate) bucket: String,
}

impl Resource {
    /// How messages name it.
    pub(crate) fn named(&self) -> Named<'_> {
        Named { group: &self.group, name: &self.plural }
    }

    /// How messages about fields name it.
    pub(crate) fn named_kind(&self) -> Named<'_> {
        Named { group: &self.group, name: &self.kind }
    }

    /// `apiVersion` of its objects in a version.
    pub(crate) fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    /// A served version.
    pub(crate) fn version(&self, name: &str) -> Option<&Arc<Version>> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// The key of an object in its bucket.
    pub(crate) fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }

    /// The built-in kind behind this, if it is one.
    pub(crate) fn builtin(&self) -> Option<&'static builtin::Kind> {
        match self.origin {
            Origin::Builtin(kind) => Some(kind),
            Origin::Custom { .. } => None,
        }
    }

    /// Whether this is that built-in resource.
    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }
}

/// All resources at one moment.
#[derive(Debug, Default, Clone)]
pub(crate) struct Served {
    /// By group and plural name.
    resources: BTreeMap<(String, String), Arc<Resource>>,
    /// Grows with every change, so that clients can cache what is derived from this.
    pub(crate) generation: u64,
    /// Where each part is described, made by the first that asks.
    pub(crate) index: OnceLock<Value>,
}

impl Served {
    /// A resource by group and plural name.
    pub(crate) fn get(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        // The key type owns its parts; the map is small and this is no hot loop.
        self.resources.get(&(group.to_owned(), plural.to_owned()))
    }

    /// A resource by `apiVersion` and kind.
    pub(crate) fn by_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.all().find(|one| one.group == group && one.kind == kind && one.version(version).is_some())
    }

    /// All of them, by group and name.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    /// The groups with their versions, preferred first; core is the empty group.
    pub(crate) fn groups(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for resource in self.all() {
            let versions = groups.entry(&resource.group).or_default();
            for version in &resource.versions {
                if !versions.contains(&version.name.as_str()) {
                    versions.push(&version.name);
                }
            }
        }
        for versions in groups.values_mut() {
            versions.sort_by(|one, other| crd::compare_versions(one, other));
        }
        for review in builtin::REVIEWS {
            let versions = groups.entry(review.group).or_default();
            if versions.is_empty() {
                versions.push("v1");
            }
        }
        groups
    }
}

/// The resources, exchanged as a whole when they change.
#[derive(Debug)]
pub(crate) struct Registry {
    served: RwLock<Arc<Served>>,
    builtin: BTreeMap<(String, String), Arc<Resource>>,
}

impl Registry {
    /// The built-in resources.
    pub(crate) fn new() -> Self {
        let builtin: BTreeMap<_, _> = builtin::KINDS
            .iter()
            .map(|kind| ((kind.group.to_owned(), kind.plural.to_owned()), Arc::new(builtin::resource(kind))))
            .collect();
        let served = Served { resources: builtin.clone(), generation: 1, ..Served::default() };
        Self { served: RwLock::new(Arc::new(served)), builtin }
    }

    /// What is served now.
    pub(crate) fn served(&self) -> Arc<Served> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the custom resources; what did not change keeps its identity.
    pub(crate) fn replace_custom(&self, custom: Vec<Arc<Resource>>) {
        let mut served = self.served.write().unwrap_or_else(PoisonError::into_inner);
        let mut resources = self.builtin.clone();
        for resource in custom {
            resources.entry((resource.group.clone(), resource.plural.clone())).or_insert(resource);
        }
        *served = Arc::new(Served { resources, generation: served.generation + 1, ..Served::default() });
    }
}
