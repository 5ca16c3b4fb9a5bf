//! A real Kubernetes v1.36 on a plain Linux machine, without Docker and without pulling an image.
//!
//! - [`ControlPlane`]: etcd and kube-apiserver, with the controllers if wanted, on loopback. Seconds, and nobody needs to be root.
//! - [`Cluster`]: a whole node: control plane, scheduler, containerd, kubelet, kube-proxy and CoreDNS. It needs root, and runs in
//!   namespaces of its own (processes, mounts, network), so that it neither meets what else runs on the machine nor leaves
//!   anything behind.
//! - [`image::Image`]: images made of files on this machine; [`product`] are those of Cleat itself.
//! - [`Helm`] and [`Kubectl`], as users run them; [`document`] runs what users are told to do.
//!
//! `cargo run -p e2e --bin cluster` holds a cluster for as long as one wants to look around in it.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `E2E_KUBECONFIG` | use this cluster; none is started |
//! | `E2E_LOAD_IMAGE` | the command that loads an image there: it gets the path of an OCI archive as its last argument |
//! | `E2E_MACHINE` | an address at which pods there reach this machine, for the PostgreSQL that it runs |
//! | `KUBEBUILDER_ASSETS` | a folder with kube-apiserver and the others |
//! | `E2E_CACHE` | where programs are kept that had to be built, `~/.cache/cleat-kubernetes` unless said otherwise |
//! | `E2E_PROFILE` | the profile that Cleat's own programs are built with, as they are shipped, instead of those that `cargo test` has built |
//! | `E2E_LOGS` | where the logs of failed tests are kept, `/tmp/cleat-e2e-logs` unless said otherwise |
//!
//! # Guarantees
//! Everything is removed when its owner is dropped and when the process ends, be it by SIGKILL: see
//! [`cleat_testing::folder`]. The logs of all components, and of all pods, are kept if a [`Running`] test was there at that
//! time that had not passed.

mod binaries;
mod certificates;
mod cluster;
mod component;
mod control_plane;
pub mod document;
mod helm;
mod home;
pub mod image;
mod kubectl;
mod node;
pub mod product;
mod sandbox;
mod wait;

pub use binaries::{Program, guest, kubectls, program};
pub use cluster::Cluster;
pub use control_plane::{ControlPlane, Options};
pub use helm::Helm;
pub use home::Running;
pub use kubectl::{Kubectl, Outcome};
pub use wait::{until, within};

use std::io::Write;

/// Tells whoever watches what goes on, also from a test whose output is captured.
pub fn progress(text: impl std::fmt::Display) {
    // Nobody is there to read it: so be it.
    let _ = writeln!(std::io::stderr(), "e2e: {text}");
}
