//! What is generated from the types is checked in, and is what they say.

mod reference;

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result};

const REGENERATE: &str = "CLEAT_REGENERATE";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Fails unless the file has this text. Writes it if it is told to.
fn keep(path: &Path, text: &str) -> Result<()> {
    if env::var_os(REGENERATE).is_some() {
        fs::create_dir_all(path.parent().context("a folder")?)?;
        fs::write(path, text)?;
    }
    let kept = fs::read_to_string(path).unwrap_or_default();
    assert!(kept == text, "{} is stale: run with {REGENERATE}=1", path.display());
    Ok(())
}

#[test]
fn the_yaml_is_what_the_types_say() -> Result<()> {
    // A chart cannot have files from outside of its folder, so it has copies.
    for folder in ["crds/yaml", "helm/cleat/files/crds"].map(|folder| root().join(folder)) {
        for crd in cleat_crds::all() {
            let path = folder.join(format!("{}.yaml", crd.spec.names.plural));
            keep(&path, &serde_yaml::to_string(&crd)?)?;
        }
        assert_eq!(
            fs::read_dir(folder)?.count(),
            cleat_crds::all().len(),
            "a file of a kind that is no more"
        );
    }
    Ok(())
}

#[test]
fn the_reference_is_what_the_types_say() -> Result<()> {
    keep(&root().join("docs/reference/custom-resources.md"), &reference::page(&cleat_crds::all())?)
}

/// kubectl keeps what was applied in an annotation, which the API server limits.
#[test]
fn each_definition_can_be_applied_by_the_client() -> Result<()> {
    for crd in cleat_crds::all() {
        let size = serde_json::to_string(&crd)?.len();
        assert!(size < 250_000, "{} has {size} bytes", crd.spec.names.kind);
    }
    Ok(())
}
