//! The file with which clients find a server.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::io::Write;
use std::path::Path;

/// A kubeconfig with one cluster, one user and one context.
pub(super) fn render(url: &str, certificate: &str, token: &str, namespace: &str) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "cleat",
        "clusters": [{ "name": "cleat", "cluster": {
            "server": url, "certificate-authority-data": STANDARD.encode(certificate),
        } }],
        "users": [{ "name": "cleat", "user": { "token": token } }],
        "contexts": [{ "name": "cleat", "context": { "cluster": "cleat", "user": "cleat", "namespace": namespace } }],
    });
    // YAML contains JSON; this is for people to read, too.
    serde_yaml::to_string(&config).unwrap_or_else(|_| config.to_string())
}

/// Writes it where only its owner can read it, and never half of it.
pub(super) fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder {
        std::fs::create_dir_all(folder)?;
    }
    let draft = path.with_extension("tmp");
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let mut file = options.open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&draft, path)
}
