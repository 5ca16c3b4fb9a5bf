//! Applying manifests, as `kubectl apply --server-side` does, and again when they change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{self, Scope};
use kube::{Api, Client};
use serde::Deserialize;

use super::MANAGER;

/// How often a folder is looked at. Editors write in so many ways that a look is simpler than being told.
const LOOK: Duration = Duration::from_millis(500);

/// The objects of a YAML file.
///
/// # Errors
/// It is not YAML, or something in it has no kind or name.
pub fn objects(text: &str) -> Result<Vec<DynamicObject>> {
    let mut objects = Vec::new();
    for (number, document) in serde_yaml::Deserializer::from_str(text).enumerate() {
        let value =
            serde_json::Value::deserialize(document).with_context(|| format!("document {}", number + 1))?;
        if value.is_null() {
            continue;
        }
        let object: DynamicObject =
            serde_json::from_value(value).with_context(|| format!("document {} is no object", number + 1))?;
        if object.types.is_none() {
            bail!("document {} has no apiVersion and kind", number + 1);
        }
        objects.push(object);
    }
    Ok(objects)
}

/// Applies one object.
pub async fn apply(client: &Client, namespace: &str, object: &DynamicObject) -> Result<String> {
    let types = object.types.clone().context("it has no apiVersion and kind")?;
    let gvk = GroupVersionKind::try_from(&types)?;
    let (resource, capabilities) = discovery::pinned_kind(client, &gvk)
        .await
        .with_context(|| format!("the API server does not know {} {}", types.api_version, types.kind))?;
    let api = place(client, namespace, object, &resource, capabilities.scope);
    let name = object.metadata.name.clone().context("it has no name")?;
    api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object))
        .await
        .with_context(|| format!("{} {name}", types.kind))?;
    Ok(format!("{}/{name}", types.kind.to_lowercase()))
}

/// Where an object of a kind belongs.
pub fn place(
    client: &Client,
    namespace: &str,
    object: &DynamicObject,
    resource: &ApiResource,
    scope: Scope,
) -> Api<DynamicObject> {
    match scope {
        Scope::Cluster => Api::all_with(client.clone(), resource),
        Scope::Namespaced => {
            let namespace = object.metadata.namespace.as_deref().unwrap_or(namespace);
            Api::namespaced_with(client.clone(), namespace, resource)
        }
    }
}

/// Applies what is in a folder, and again whatever changes in it. What is wrong is said and tried again when it has changed. Objects
/// without a name, such as Workflows to start, are for `kubectl create` and left alone; those with a name are started once, which is
/// remembered in a file: somebody may delete them, and start this program again.
pub async fn follow(client: &Client, namespace: &str, path: &Path, memory: PathBuf) -> Result<()> {
    let mut seen: BTreeMap<PathBuf, SystemTime> = BTreeMap::new();
    let mut started = Started::read(memory)?;
    loop {
        for file in manifests(path)? {
            let changed =
                std::fs::metadata(&file).and_then(|about| about.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            if seen.insert(file.clone(), changed) != Some(changed) {
                apply_file(client, namespace, &file, &mut started).await;
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The Workflows that were started, one name a line.
struct Started {
    file: PathBuf,
    names: BTreeSet<String>,
}

impl Started {
    fn read(file: PathBuf) -> Result<Self> {
        let names = match std::fs::read_to_string(&file) {
            Ok(text) => text.lines().map(ToOwned::to_owned).collect(),
            Err(error) if error.kind() == ErrorKind::NotFound => BTreeSet::new(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
        };
        Ok(Self { file, names })
    }

    /// Dying just before this does no harm: the object is there, and applying it again starts nothing.
    fn add(&mut self, name: String) -> Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.file)?;
        file.write_all(format!("{name}\n").as_bytes())?;
        self.names.insert(name);
        Ok(())
    }
}

async fn apply_file(client: &Client, namespace: &str, file: &Path, started: &mut Started) {
    let shown = file.display();
    let read = std::fs::read_to_string(file).context("cannot be read").and_then(|text| objects(&text));
    let objects = match read {
        Ok(objects) => objects,
        Err(error) => return eprintln!("cleat: {shown}: {error:#}"),
    };
    for object in objects {
        let Some(name) = &object.metadata.name else {
            println!("cleat: {shown}: start it with `kubectl create -f {shown}`");
            continue;
        };
        let starts = object.types.as_ref().is_some_and(|types| types.kind == "Workflow");
        let key = format!("{}/{name}", object.metadata.namespace.as_deref().unwrap_or(namespace));
        if starts && started.names.contains(&key) {
            continue;
        }
        let applied = apply(client, namespace, &object).await;
        let remembered = match (&applied, starts) {
            (Ok(_), true) => started.add(key).with_context(|| "that it was started cannot be remembered"),
            _ => Ok(()),
        };
        match applied.and_then(|what| remembered.map(|()| what)) {
            Ok(what) => println!("cleat: {shown}: {what} applied"),
            Err(error) => eprintln!("cleat: {shown}: {error:#}"),
        }
    }
}

/// The YAML files of a folder and what is below it, in order.
fn manifests(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(manifests(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_have_several_objects_and_empty_documents() {
        let text = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\n---\napiVersion: v1\nkind: Secret\nmetadata: {generateName: b-}\n";
        let names: Vec<_> = objects(text).unwrap().into_iter().map(|object| object.metadata.name).collect();
        assert_eq!(names, [Some("a".to_owned()), None]);
    }

    #[test]
    fn what_is_no_object_is_named() {
        assert!(format!("{:#}", objects("a: 1\n").unwrap_err()).contains("document 1"));
        assert!(format!("{:#}", objects("---\n- 1\n").unwrap_err()).contains("document 1"));
    }
}
