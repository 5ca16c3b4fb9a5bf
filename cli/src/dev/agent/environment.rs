//! What a container finds around it: variables and files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, Pod, Secret, Volume};
use kube::{Api, Client, ResourceExt};

/// What the runner of a Pod finds around it.
pub(super) struct Environment {
    client: Client,
    namespace: String,
    pod: Pod,
    /// Where its volumes are.
    folder: PathBuf,
}

impl Environment {
    pub(super) fn new(client: &Client, folder: &Path, pod: &Pod) -> Self {
        let namespace = pod.namespace().unwrap_or_default();
        Self { client: client.clone(), namespace, pod: pod.clone(), folder: folder.join(pod.name_any()) }
    }

    /// Writes the files of all volumes, and gives the variables. Paths in them lead to those files.
    pub(super) async fn prepare(&self) -> Result<BTreeMap<String, String>> {
        let spec = self.pod.spec.clone().unwrap_or_default();
        let container = spec.containers.first().context("the pod has no container")?;
        self.mount().await?;
        let mut variables = BTreeMap::new();
        for variable in container.env.iter().flatten() {
            let value = match (&variable.value, &variable.value_from) {
                (Some(value), _) => expand(value, &variables),
                (None, Some(source)) => match self.look_up(source).await {
                    Ok(value) => value,
                    Err(error) => {
                        return Err(error.context(format!("the variable {} has no value", variable.name)));
                    }
                },
                (None, None) => String::new(),
            };
            variables.insert(variable.name.clone(), value);
        }
        for value in variables.values_mut() {
            self.relocate(value, container);
        }
        Ok(variables)
    }

    /// Writes the files of all volumes again, as they are now.
    pub(super) async fn mount(&self) -> Result<()> {
        let volumes = self.pod.spec.as_ref().and_then(|spec| spec.volumes.clone()).unwrap_or_default();
        for volume in &volumes {
            let folder = self.folder.join(&volume.name);
            std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            for (name, content) in self.files(volume).await? {
                write(&folder.join(name), &content)?;
            }
        }
        Ok(())
    }

    /// Removes the files.
    pub(super) fn clear(&self) {
        // What was never written need not be removed.
        let _ = std::fs::remove_dir_all(&self.folder);
    }

    async fn files(&self, volume: &Volume) -> Result<BTreeMap<String, Vec<u8>>> {
        if let Some(source) = &volume.secret {
            let name = source.secret_name.clone().unwrap_or_default();
            let data = self.secret(&name).await?;
            let chosen = source.items.clone().unwrap_or_default();
            if chosen.is_empty() {
                return Ok(data.into_iter().map(|(key, value)| (key, value.0)).collect());
            }
            let mut files = BTreeMap::new();
            for item in chosen {
                let value =
                    data.get(&item.key).with_context(|| format!("Secret {name} has no key {}", item.key))?;
                files.insert(item.path, value.0.clone());
            }
            return Ok(files);
        }
        if let Some(source) = &volume.config_map {
            let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
            let data =
                api.get(&source.name).await.with_context(|| format!("ConfigMap {}", source.name))?.data;
            return Ok(data
                .unwrap_or_default()
                .into_iter()
                .map(|(key, value)| (key, value.into_bytes()))
                .collect());
        }
        Ok(BTreeMap::new())
    }

    async fn secret(&self, name: &str) -> Result<BTreeMap<String, ByteString>> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        Ok(api
            .get(name)
            .await
            .with_context(|| format!("Secret {name} cannot be read"))?
            .data
            .unwrap_or_default())
    }

    async fn look_up(&self, source: &EnvVarSource) -> Result<String> {
        if let Some(field) = &source.field_ref {
            return Ok(match field.field_path.as_str() {
                "metadata.name" => self.pod.name_any(),
                "metadata.namespace" => self.namespace.clone(),
                "metadata.uid" => self.pod.uid().unwrap_or_default(),
                "status.podIP" | "status.hostIP" => "127.0.0.1".to_owned(),
                "spec.nodeName" => super::NODE.to_owned(),
                other => bail!("the field {other} is not known here"),
            });
        }
        if let Some(key) = &source.secret_key_ref {
            let data = self.secret(&key.name).await?;
            let value =
                data.get(&key.key).with_context(|| format!("Secret {} has no key {}", key.name, key.key))?;
            return Ok(String::from_utf8_lossy(&value.0).into_owned());
        }
        bail!("only fields and Secrets are known here")
    }

    /// A path below a mount leads to the volume's files.
    fn relocate(&self, value: &mut String, container: &Container) {
        for mount in container.volume_mounts.iter().flatten() {
            if let Some(rest) = value.strip_prefix(&mount.mount_path)
                && (rest.is_empty() || rest.starts_with('/'))
            {
                let folder = self.folder.join(&mount.name);
                *value = format!("{}{rest}", folder.display());
                return;
            }
        }
    }
}

/// Writes a file if it is not that already, readable by its owner only, all at once.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if std::fs::read(path).is_ok_and(|there| there == content) {
        return Ok(());
    }
    let new = path.with_extension("new");
    let written = std::fs::write(&new, content)
        .and_then(|()| std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)))
        .and_then(|()| std::fs::rename(&new, path));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// `$(NAME)` is the value of an earlier variable.
fn expand(value: &str, variables: &BTreeMap<String, String>) -> String {
    let mut expanded = value.to_owned();
    for (name, known) in variables {
        expanded = expanded.replace(&format!("$({name})"), known);
    }
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_can_name_an_earlier_one() {
        let known = BTreeMap::from([("IP".to_owned(), "127.0.0.1".to_owned())]);
        assert_eq!(expand("$(IP):7400", &known), "127.0.0.1:7400");
        assert_eq!(expand("$(OTHER)", &known), "$(OTHER)");
    }
}
