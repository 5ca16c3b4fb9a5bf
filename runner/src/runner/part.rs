//! What runs beside a node: ports for users and operators, the watch of definitions.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use prometheus::Registry;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Error, Refused, Settings, Token};
use crate::cluster::Node;
use crate::lease::kubernetes::Access;

/// How long the parts may take to end once they are asked to, all together.
const END: Duration = Duration::from_secs(5);

/// What a part has to do with. Cheap to clone.
#[derive(Clone)]
pub struct Place {
    /// The runner itself.
    pub node: Node,
    /// How it was told to run.
    pub settings: Arc<Settings>,
    /// The API server that it belongs to, if it runs in Kubernetes.
    pub access: Option<Access>,
    /// What peers and the operator prove themselves with.
    pub token: Arc<Token>,
    /// Where measurements go.
    pub metrics: Registry,
    /// Is cancelled when the part has to end: by then its runner has handed over what it could and told where it went.
    pub stop: CancellationToken,
    pub(super) ports: Arc<Mutex<Ports>>,
}

/// Ports that parts listen at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// For operators, probes and measurements.
    Admin,
    /// For users.
    Gateway,
}

/// Listeners that nobody has taken yet.
#[derive(Debug, Default)]
pub(super) struct Ports {
    pub(super) admin: Option<TcpListener>,
    pub(super) gateway: Option<TcpListener>,
}

impl Place {
    /// The listener of a port, if the runner was told to have it. Whoever asks first gets it.
    pub fn listener(&self, port: Port) -> Option<TcpListener> {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        match port {
            Port::Admin => ports.admin.take(),
            Port::Gateway => ports.gateway.take(),
        }
    }

    /// Closes what nobody took, so that whoever tries to connect is told and does not wait.
    pub(super) fn close_ports(&self) {
        for (port, name) in [(Port::Admin, "admin"), (Port::Gateway, "gateway")] {
            if self.listener(port).is_some() {
                tracing::warn!(port = name, "nothing serves it");
            }
        }
    }
}

/// Begins a part. What it gives back runs until [`Place::stop`] is cancelled.
pub(super) type Start =
    Box<dyn FnOnce(Place) -> BoxFuture<'static, Result<BoxFuture<'static, ()>, Refused>> + Send>;

/// A part that is to be started.
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) start: Start,
}

/// The parts at work, the first to be started first.
#[derive(Default)]
pub(super) struct Running {
    parts: Vec<(&'static str, CancellationToken, JoinSet<()>)>,
}

impl Running {
    /// Starts a part.
    pub(super) async fn start(&mut self, part: Part, mut place: Place) -> Result<(), Error> {
        place.stop = CancellationToken::new();
        let (name, stop, node) = (part.name, place.stop.clone(), place.node.clone());
        let task = (part.start)(place).await.map_err(|source| Error::Part { name, source })?;
        let mut tasks = JoinSet::new();
        let supervisor = node.health().supervisor();
        tasks.spawn(supervisor.supervise(name, &stop, task));
        self.parts.push((name, stop, tasks));
        Ok(())
    }

    /// Ends them, the last to be started first.
    pub(super) async fn stop(mut self) {
        let late = Instant::now() + END;
        while let Some((name, stop, mut tasks)) = self.parts.pop() {
            stop.cancel();
            let end = async { while tasks.join_next().await.is_some() {} };
            if tokio::time::timeout_at(late, end).await.is_err() {
                tracing::warn!(part = name, "it did not end in time, and is dropped");
            }
        }
    }
}
