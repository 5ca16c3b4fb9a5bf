//! Namespaces for a whole node: when their first process ends, so do all processes, mounts and network devices in them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::home::Home;

/// What the first process does: set the place up, then reap orphans for ever.
const INIT: &str = include_str!("init.sh");

/// Networks of four addresses for the wire between the machine and the node, from the range that is meant for test networks.
const NETWORK: &str = "198.18";

/// How many networks are tried until one is free.
const ATTEMPTS: u32 = 20;

#[derive(Debug)]
pub(crate) struct Sandbox {
    unshare: Child,
    init: u32,
    /// The node's address, which the machine reaches.
    pub(crate) address: String,
    /// The machine's address, which the node and its pods reach.
    pub(crate) machine: String,
    home: PathBuf,
}

impl Sandbox {
    pub(crate) fn create(home: &Home) -> Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "a node needs root: its containers and networks do");
        let mut unshare = Command::new("unshare")
            .args([
                "--fork",
                "--kill-child",
                "--pid",
                "--mount",
                "--net",
                "--mount-proc",
                "sh",
                "-c",
                INIT,
                "init",
            ])
            .arg(home.root())
            .current_dir(home.root())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run unshare")?;
        let mut line = String::new();
        BufReader::new(unshare.stdout.take().context("no output")?).read_line(&mut line)?;
        if line.trim() != "ready" {
            let said = unshare.wait_with_output()?;
            bail!("the namespaces could not be set up: {}", String::from_utf8_lossy(&said.stderr));
        }
        let init = child_of(unshare.id())?;
        let (machine, address) = wire(init)?;
        Ok(Self { unshare, init, address, machine, home: home.root().to_owned() })
    }

    /// A command that runs in the namespaces.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--pid", "--mount", "--net", "--target", &self.init.to_string()]);
        // A namespace of mounts is entered at its root.
        command.arg(format!("--wdns={}", self.home.display())).arg("--").arg(program);
        command
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // With it goes the first process of the namespaces, and with that all others.
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
    }
}

/// The process that `unshare` has forked, by its number on the machine.
fn child_of(parent: u32) -> Result<u32> {
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // `pid (name) state parent ...`; the name may hold anything.
        let Some((front, back)) = stat.rsplit_once(')') else { continue };
        if back.split_whitespace().nth(1) == Some(&parent.to_string()) {
            let pid = front.split(' ').next().unwrap_or_default();
            return Ok(pid.parse()?);
        }
    }
    bail!("the first process of the namespaces is gone")
}

/// Joins the machine and the node, and returns their addresses.
fn wire(init: u32) -> Result<(String, String)> {
    for _ in 0..ATTEMPTS {
        let number = rand::random_range(0..=255_u8);
        let (device, pid) = (format!("cleat-e2e-{number}"), init.to_string());
        let (machine, node) = (format!("{NETWORK}.{number}.1"), format!("{NETWORK}.{number}.2"));
        if !ip(&["link", "add", &device, "type", "veth", "peer", "name", "eth0", "netns", &pid])? {
            continue;
        }
        let inside = |words: &[&str]| {
            let mut command = Command::new("nsenter");
            command.args(["--net", "--target", &pid, "--", "ip"]).args(words);
            anyhow::Ok(command.stdin(Stdio::null()).stderr(Stdio::null()).status()?.success())
        };
        let joined = ip(&["addr", "add", &format!("{machine}/30"), "dev", &device])?
            && ip(&["link", "set", &device, "up"])?
            && inside(&["addr", "add", &format!("{node}/30"), "dev", "eth0"])?
            && inside(&["link", "set", "eth0", "up"])?
            && inside(&["route", "add", "default", "via", &machine])?;
        ensure!(joined, "the network between the machine and the node could not be set up");
        return Ok((machine, node));
    }
    bail!("no network for the node is free: see `ip link`")
}

fn ip(words: &[&str]) -> Result<bool> {
    let status = Command::new("ip").args(words).stdin(Stdio::null()).stderr(Stdio::null()).status();
    Ok(status.context("cannot run ip")?.success())
}
