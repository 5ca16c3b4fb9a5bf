//! What a Cluster asks for, checked.

use cleat_crds::cluster::{Cluster, Database};
use kube::ResourceExt;
use serde_json::{Map, Value};

use crate::names::DEFAULT_GROUP;

/// A shard group with its runners.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// How many shards it has.
    pub shards: i32,
    /// How many runners it wants.
    pub replicas: i32,
    /// Its database.
    pub database: Database,
    /// What is laid over its pod template, one after the other.
    pub overlays: Vec<Map<String, Value>>,
}

/// Why a Cluster cannot be built. It waits until somebody changes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Its name is too long for what is named after it.
    #[error(
        "the name {0:?} is too long: a Cluster's name has at most 40 characters, so that what is named after it fits"
    )]
    Name(String),
    /// A template is no pod template.
    #[error(
        "{path}: {field:?} is no field of a pod template: use metadata and spec, such as spec.containers with the name runner"
    )]
    Template {
        /// Which template.
        path: String,
        /// The wrong field.
        field: String,
    },
}

impl Invalid {
    /// Why, in one word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Name(_) => "NameTooLong",
            Self::Template { .. } => "InvalidTemplate",
        }
    }
}

/// The shard groups of a Cluster, the default one first.
///
/// # Errors
/// [`Invalid`] says what to change.
pub fn groups(cluster: &Cluster) -> Result<Vec<Group>, Invalid> {
    if cluster.name_any().len() > 40 {
        return Err(Invalid::Name(cluster.name_any()));
    }
    let spec = &cluster.spec;
    let shared = &spec.template.0;
    template("spec.template".to_owned(), shared)?;
    let default = Group {
        name: DEFAULT_GROUP.to_owned(),
        shards: spec.shards,
        replicas: spec.replicas,
        database: spec.database.clone(),
        overlays: vec![shared.clone()],
    };
    let further = spec.shard_groups.iter().enumerate().map(|(index, group)| {
        template(format!("spec.shardGroups[{index}].template"), &group.template.0)?;
        Ok(Group {
            name: group.name.clone(),
            shards: group.shards,
            replicas: group.replicas,
            database: group.database.clone().unwrap_or_else(|| spec.database.clone()),
            overlays: vec![shared.clone(), group.template.0.clone()],
        })
    });
    std::iter::once(Ok(default)).chain(further).collect()
}

fn template(path: String, template: &Map<String, Value>) -> Result<(), Invalid> {
    match template.keys().find(|field| !matches!(field.as_str(), "metadata" | "spec")) {
        Some(field) => Err(Invalid::Template { path, field: field.clone() }),
        None => Ok(()),
    }
}
