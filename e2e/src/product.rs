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
}

impl Product {
    /// Builds the programs with a profile of cargo's.
    ///
    /// # Errors
    /// They cannot be built.
    pub async fn build(profile: &str) -> Result<Self> {
        let [operator, runner] = build(profile, ["cleat-operator", "cleat-runner"]).await?;
        Ok(Self { operator, runner })
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

/// Builds the command line.
///
/// # Errors
/// It cannot be built.
pub async fn command_line(profile: &str) -> Result<PathBuf> {
    let [program] = build(profile, ["cleat"]).await?;
    Ok(program)
}

/// Builds packages of this workspace, and gives the program of the same name of each.
async fn build<const N: usize>(profile: &str, packages: [&str; N]) -> Result<[PathBuf; N]> {
    progress(format_args!("building {} with profile {profile}", packages.join(", ")));
    let begun = Instant::now();
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--message-format=json-render-diagnostics", "--profile", profile, "--bins"]);
    command.args(packages.iter().flat_map(|package| ["--package", package]));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let done = command.stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true).output().await;
    let done = done.context("cannot run cargo")?;
    ensure!(done.status.success(), "{} cannot be built", packages.join(", "));
    let messages: Vec<Message> = String::from_utf8_lossy(&done.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let mut programs = packages.map(|_| PathBuf::new());
    for (name, program) in packages.iter().zip(&mut programs) {
        let found = messages.iter().find(|message| {
            message.executable.is_some() && message.target.as_ref().is_some_and(|target| target.name == *name)
        });
        *program = found
            .and_then(|message| message.executable.clone())
            .with_context(|| format!("there is no {name}"))?;
    }
    progress(format_args!("built after {} s", begun.elapsed().as_secs()));
    Ok(programs)
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
