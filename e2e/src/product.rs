//! The images of Cleat itself: its operator and its runner, each with nothing but what it needs.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use tokio::process::Command;

use crate::image::Image;
use crate::progress;

/// Who containers run as.
const USER: u32 = 65532;

/// Where the images say that they come from, unless they are pushed to a registry: nowhere that anybody could pull from.
pub const REGISTRY: &str = "cleat.local";

/// What speaks TLS looks here for whom to trust.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

const PASSWD: &str = "root:x:0:0::/:/nologin\ncleat:x:65532:65532::/:/nologin\n";

/// The programs, built.
#[derive(Debug, Clone)]
pub struct Product {
    operator: PathBuf,
    runner: PathBuf,
    /// What users call `cleat`.
    pub command_line: PathBuf,
}

/// A line of what cargo says with `--message-format=json`.
#[derive(Deserialize)]
struct Message {
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

impl Product {
    /// Builds the programs with a profile of cargo's, as they are shipped.
    ///
    /// # Errors
    /// They cannot be built.
    pub async fn build(profile: &str) -> Result<Self> {
        let packages = ["cleat-operator", "cleat-runner", "cleat"].map(|package| ["--package", package]);
        let build = ["build", "--profile", profile, "--bins"];
        Self::with(&[&build[..], packages.as_flattened()].concat()).await
    }

    /// The programs as `cargo test` has built them for tests of their own, or builds them now. Others would be the same, with other
    /// features of what they depend on, for which all of that had to be built again.
    ///
    /// # Errors
    /// They cannot be built.
    pub async fn for_tests() -> Result<Self> {
        if let Ok(profile) = std::env::var("E2E_PROFILE") {
            return Self::build(&profile).await;
        }
        // One of each package: cargo builds a package's programs before its tests.
        let tests = ["operator", "runner", "commands"].map(|test| ["--test", test]);
        Self::with(&[&["test", "--workspace", "--no-run"][..], tests.as_flattened()].concat()).await
    }

    async fn with(arguments: &[&str]) -> Result<Self> {
        progress(format_args!("building operator, runner and command line: cargo {}", arguments.join(" ")));
        let begun = Instant::now();
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(arguments).arg("--message-format=json-render-diagnostics");
        // What cargo tells a test about its package would be news to build scripts, and everything would be built again.
        let about =
            |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.starts_with(prefix));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(about)) {
            command.env_remove(name);
        }
        command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
        let done = command.stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true).output().await;
        let done = done.context("cannot run cargo")?;
        ensure!(done.status.success(), "operator, runner and command line cannot be built");
        let messages: Vec<Message> = String::from_utf8_lossy(&done.stdout)
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        let program = |name: &str| {
            let is_it = |target: &Target| target.name == name && target.kind == ["bin"];
            let found = messages
                .iter()
                .find(|message| message.executable.is_some() && message.target.as_ref().is_some_and(is_it));
            found
                .and_then(|message| message.executable.clone())
                .with_context(|| format!("there is no {name}"))
        };
        let product = Self {
            operator: program("cleat-operator")?,
            runner: program("cleat-runner")?,
            command_line: program("cleat")?,
        };
        progress(format_args!("built after {} s", begun.elapsed().as_secs()));
        Ok(product)
    }

    /// The operator's image.
    #[must_use]
    pub fn operator(&self, tag: &str) -> Image {
        image("operator", tag, &self.operator, "The operator of Cleat")
    }

    /// The runner's image.
    #[must_use]
    pub fn runner(&self, tag: &str) -> Image {
        image("runner", tag, &self.runner, "The runner of Cleat")
    }
}

fn image(name: &str, tag: &str, program: &Path, title: &str) -> Image {
    let path = format!("/usr/bin/cleat-{name}");
    let image = Image::new(&format!("{REGISTRY}/{name}:{tag}"))
        .program(program, &path)
        .entrypoint([path.as_str()])
        .user(USER)
        .text(PASSWD, "/etc/passwd")
        .label("org.opencontainers.image.title", title)
        .label("org.opencontainers.image.version", env!("CARGO_PKG_VERSION"))
        .label("org.opencontainers.image.licenses", "MIT OR Apache-2.0");
    if Path::new(AUTHORITIES).is_file() {
        return image.file(AUTHORITIES, AUTHORITIES);
    }
    progress(format_args!("no {AUTHORITIES}: the images will trust no public authority"));
    image
}
