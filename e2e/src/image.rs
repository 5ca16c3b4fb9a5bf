//! Images made of files on this machine, without Docker: an OCI layout in a tar archive, which containerd, Docker, kind and
//! others load.
//!
//! ```no_run
//! # fn example() -> anyhow::Result<()> {
//! let image = e2e::image::Image::new("cleat.local/runner:1")
//!     .program("target/release/cleat-runner", "/cleat-runner")
//!     .entrypoint(["/cleat-runner"])
//!     .user(65532);
//! image.write("runner.tar".as_ref())?;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//! The same files give the same archive: owners, times and the order of entries do not come from the machine.

mod tar;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use tar::Archive;

/// An image to be.
#[derive(Debug, Clone)]
pub struct Image {
    name: String,
    files: Vec<(PathBuf, String)>,
    texts: Vec<(String, String)>,
    programs: Vec<(PathBuf, String)>,
    entrypoint: Vec<String>,
    environment: Vec<String>,
    labels: BTreeMap<String, String>,
    user: Option<u32>,
}

impl Image {
    /// An empty image with a name and a tag.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            files: Vec::new(),
            texts: Vec::new(),
            programs: Vec::new(),
            entrypoint: Vec::new(),
            environment: Vec::new(),
            labels: BTreeMap::new(),
            user: None,
        }
    }

    /// Its name and tag.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A file that everyone may read.
    #[must_use]
    pub fn file(mut self, from: impl Into<PathBuf>, to: &str) -> Self {
        self.files.push((from.into(), to.to_owned()));
        self
    }

    /// A file with a text that everyone may read.
    #[must_use]
    pub fn text(mut self, text: &str, to: &str) -> Self {
        self.texts.push((text.to_owned(), to.to_owned()));
        self
    }

    /// A program, with the libraries that it is linked with, if there are any.
    #[must_use]
    pub fn program(mut self, from: impl Into<PathBuf>, to: &str) -> Self {
        self.programs.push((from.into(), to.to_owned()));
        self
    }

    /// What a container runs.
    #[must_use]
    pub fn entrypoint<'a>(mut self, words: impl IntoIterator<Item = &'a str>) -> Self {
        self.entrypoint = words.into_iter().map(str::to_owned).collect();
        self
    }

    /// A variable of the environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push(format!("{name}={value}"));
        self
    }

    /// Something to know about the image.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), value.to_owned());
        self
    }

    /// The user and group that a container runs as; root unless said otherwise.
    #[must_use]
    pub fn user(mut self, id: u32) -> Self {
        self.user = Some(id);
        self
    }

    /// Writes the archive.
    ///
    /// # Errors
    /// A file cannot be read, or the archive not written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let layer = tempfile::NamedTempFile::new()?;
        let digest = self.write_layer(layer.as_file())?;
        let size = layer.as_file().metadata()?.len();

        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {
                "Entrypoint": self.entrypoint,
                "Env": self.environment,
                "Labels": self.labels,
                "User": self.user.map(|id| format!("{id}:{id}")).unwrap_or_default(),
            },
            "rootfs": { "type": "layers", "diff_ids": [digest] },
        });
        let config = Blob::of(&config)?;
        let manifest = Blob::of(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config.descriptor("application/vnd.oci.image.config.v1+json"),
            "layers": [{ "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest, "size": size }],
        }))?;
        let mut listed = manifest.descriptor("application/vnd.oci.image.manifest.v1+json");
        listed["annotations"] = json!({
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": self.name.rsplit_once(':').map_or("latest", |(_, tag)| tag),
        });
        let index = json!({ "schemaVersion": 2, "manifests": [listed] });
        // What `docker load` reads.
        let docker = json!([{ "Config": config.path(), "RepoTags": [self.name], "Layers": [blob(&digest)] }]);

        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        let mut archive = Archive::new(BufWriter::new(file));
        archive.bytes("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        archive.bytes("index.json", 0o644, &serde_json::to_vec(&index)?)?;
        archive.bytes("manifest.json", 0o644, &serde_json::to_vec(&docker)?)?;
        archive.bytes(&config.path(), 0o644, &config.bytes)?;
        archive.bytes(&manifest.path(), 0o644, &manifest.bytes)?;
        archive.file(&blob(&digest), 0o644, layer.path())?;
        archive.finish()?.flush()?;
        Ok(())
    }

    fn write_layer(&self, file: &File) -> Result<String> {
        let mut archive = Archive::new(Hashing { inner: BufWriter::new(file), digest: Sha256::new() });
        // Programs expect a place for temporary files, that all may write to.
        archive.folder("tmp", 0o1777)?;
        for (from, to) in &self.files {
            archive.file(to, 0o644, from)?;
        }
        for (text, to) in &self.texts {
            archive.bytes(to, 0o644, text.as_bytes())?;
        }
        let mut libraries = Vec::new();
        for (from, to) in &self.programs {
            archive.file(to, 0o755, from)?;
            libraries.extend(linked(from)?);
        }
        libraries.sort();
        libraries.dedup();
        for library in libraries {
            archive.file(&library.to_string_lossy(), 0o755, &library)?;
        }
        let mut written = archive.finish()?;
        written.flush()?;
        Ok(format!("sha256:{}", hex(&written.digest.finalize())))
    }
}

/// The shared libraries that a program needs, with the loader; none for a static one.
fn linked(program: &Path) -> Result<Vec<PathBuf>> {
    let listed = Command::new("ldd").arg(program).output().context("cannot run ldd")?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    if !listed.status.success() {
        let said = String::from_utf8_lossy(&listed.stderr).into_owned() + &text;
        ensure!(said.contains("not a dynamic executable"), "ldd {}: {said}", program.display());
        return Ok(Vec::new());
    }
    // `name => /path (address)`, and for the loader `/path (address)`; what is not a file needs no copy.
    let paths = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(PathBuf::from).collect())
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

struct Blob {
    bytes: Vec<u8>,
    digest: String,
}

impl Blob {
    fn of(value: &Value) -> Result<Self> {
        let bytes = serde_json::to_vec(value)?;
        let digest = format!("sha256:{}", hex(&Sha256::digest(&bytes)));
        Ok(Self { bytes, digest })
    }

    fn descriptor(&self, kind: &str) -> Value {
        json!({ "mediaType": kind, "digest": self.digest, "size": self.bytes.len() })
    }

    fn path(&self) -> String {
        blob(&self.digest)
    }
}

fn blob(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Passes on what is written, and remembers its digest.
struct Hashing<W> {
    inner: W,
    digest: Sha256,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.digest.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(archive: &Path) -> String {
        let listed = Command::new("tar").arg("-tvf").arg(archive).output().unwrap();
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        String::from_utf8(listed.stdout).unwrap()
    }

    #[test]
    fn the_same_files_give_the_same_archive_which_tar_can_read() {
        let folder = tempfile::tempdir().unwrap();
        let image = Image::new("cleat.local/true:1").program("/bin/true", "/bin/true").user(7);
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        image.write(&one).unwrap();
        image.write(&two).unwrap();
        assert_eq!(std::fs::read(&one).unwrap(), std::fs::read(two).unwrap());
        let listed = listing(&one);
        for name in ["oci-layout", "index.json", "manifest.json", "blobs/sha256/"] {
            assert!(listed.contains(name), "{name} is missing in\n{listed}");
        }
    }

    #[test]
    fn a_dynamic_program_brings_its_libraries() {
        let folder = tempfile::tempdir().unwrap();
        let layer = folder.path().join("layer");
        let image = Image::new("a:1").program(std::env::current_exe().unwrap(), "/test");
        image.write_layer(&File::create(&layer).unwrap()).unwrap();
        let listed = listing(&layer);
        assert!(listed.contains("libc.so.6") && listed.contains("ld-linux"), "{listed}");
        assert!(listed.contains("drwxrwxrwt"), "{listed}");
    }
}
