//! One connection to one runner.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use cleat_proto::v1;
use cleat_proto::v1::admin_client::AdminClient;
use cleat_proto::v1::execution_changes::What;
use tokio::sync::broadcast;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

use super::{Execution, Key, Wake};
use crate::error::pause;

/// A way to ask a runner.
pub(super) type Admin = AdminClient<InterceptedService<Channel, Bearer>>;

/// Shows the credential of the Cluster with each request, as it is by then: it may be rotated while a connection lasts. Clones show
/// the same.
#[derive(Clone, Default)]
pub(super) struct Bearer(Arc<RwLock<Option<MetadataValue<Ascii>>>>);

impl Bearer {
    /// Shows this from now on.
    pub(super) fn present(&self, token: &str) {
        let mut value: Option<MetadataValue<Ascii>> = format!("Bearer {token}").parse().ok();
        value.iter_mut().for_each(|value| value.set_sensitive(true));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value;
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let value = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        let value = value.ok_or_else(|| Status::unavailable("the Secret of the credential holds none"))?;
        request.metadata_mut().insert("authorization", value);
        Ok(request)
    }
}

/// How long a runner may take to let us in.
const DIAL: Duration = Duration::from_secs(5);
/// How often a quiet connection is tried, and how long an answer to that may take.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A connection that is made anew when it breaks, until this is dropped.
pub(super) struct Connection {
    /// Where the runner is, and which start of it.
    pub(super) target: Target,
    state: Arc<Mutex<State>>,
    _stop: DropGuard,
}

/// Which runner, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) name: String,
    /// Which start of it.
    pub(super) instance: String,
    /// Where its admin port is.
    pub(super) admin: String,
}

#[derive(Default)]
struct State {
    admin: Option<Admin>,
    status: Option<v1::RunnerStatus>,
}

impl Connection {
    pub(super) fn start(key: Key, target: Target, bearer: Bearer, wakes: broadcast::Sender<Wake>) -> Self {
        let stop = CancellationToken::new();
        let state = Arc::new(Mutex::new(State::default()));
        let task = Task { key, target: target.clone(), bearer, wakes, state: Arc::clone(&state) };
        let stopped = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = task.run() => {}
                () = stopped.cancelled() => {}
            }
        });
        Self { target, state, _stop: stop.drop_guard() }
    }

    pub(super) fn admin(&self) -> Option<Admin> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).admin.clone()
    }

    pub(super) fn status(&self) -> Option<v1::RunnerStatus> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).status.clone()
    }
}

struct Task {
    key: Key,
    target: Target,
    bearer: Bearer,
    wakes: broadcast::Sender<Wake>,
    state: Arc<Mutex<State>>,
}

impl Task {
    async fn run(self) {
        let mut failures = 0;
        loop {
            if let Err(status) = self.follow(&mut failures).await {
                tracing::debug!(runner = self.target.name, %status, "the connection to a runner broke");
            }
            let before = std::mem::take(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner));
            if before.admin.is_some() {
                self.wake(Wake::Runners(self.key.clone()));
            }
            tokio::time::sleep(pause(failures).min(KEEP_ALIVE)).await;
            failures += 1;
        }
    }

    /// Keeps both streams until one of them ends.
    async fn follow(&self, failures: &mut u32) -> Result<(), Status> {
        let mut admin = self.dial().await?;
        let statuses = admin.watch(v1::WatchRequest {}).await?.into_inner();
        let changes = admin.follow_executions(v1::FollowExecutionsRequest { types: Vec::new() }).await?;
        *failures = 0;
        self.state.lock().unwrap_or_else(PoisonError::into_inner).admin = Some(admin);
        tokio::select! {
            ended = self.statuses(statuses) => ended,
            ended = self.changes(changes.into_inner()) => ended,
        }
    }

    async fn dial(&self) -> Result<Admin, Status> {
        let unusable = |error: tonic::transport::Error| Status::unavailable(crate::error::chain(&error));
        let endpoint = Endpoint::from_shared(format!("http://{}", self.target.admin)).map_err(unusable)?;
        let endpoint = endpoint
            .connect_timeout(DIAL)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true);
        let channel = endpoint.connect().await.map_err(unusable)?;
        Ok(AdminClient::with_interceptor(channel, self.bearer.clone()).max_decoding_message_size(64 << 20))
    }

    async fn statuses(&self, mut stream: Streaming<v1::RunnerStatus>) -> Result<(), Status> {
        while let Some(status) = stream.message().await? {
            let lasting = lasting(&status);
            let before = self.state.lock().unwrap_or_else(PoisonError::into_inner).status.replace(status);
            // Numbers that change all the time are looked at once in a while.
            if before.is_none_or(|before| self::lasting(&before) != lasting) {
                self.wake(Wake::Runners(self.key.clone()));
            }
        }
        Ok(())
    }

    async fn changes(&self, mut stream: Streaming<v1::ExecutionChanges>) -> Result<(), Status> {
        while let Some(changes) = stream.message().await? {
            if let ControlFlow::Continue(wake) = self.read(changes) {
                self.wake(wake);
            }
        }
        Ok(())
    }

    fn read(&self, changes: v1::ExecutionChanges) -> ControlFlow<(), Wake> {
        match changes.what {
            Some(What::Changed(changed)) => {
                let executions: Arc<[Execution]> = changed.executions.into_iter().map(Into::into).collect();
                ControlFlow::Continue(Wake::Changed(self.key.clone(), executions))
            }
            // From here on changes are told; what was before has to be looked at.
            Some(What::Began(_) | What::Missed(_)) => ControlFlow::Continue(Wake::Any(self.key.clone())),
            None => ControlFlow::Break(()),
        }
    }

    fn wake(&self, wake: Wake) {
        // Nobody listens while the controllers stop.
        let _ = self.wakes.send(wake);
    }
}

/// What a runner says of itself, without what changes with every message.
fn lasting(status: &v1::RunnerStatus) -> v1::RunnerStatus {
    let mut status = status.clone();
    status.groups.iter_mut().for_each(|group| group.open_messages = 0);
    status.entity_types.iter_mut().for_each(|entity| entity.active = 0);
    status.workflow_types.iter_mut().for_each(|workflow| workflow.active = 0);
    status
}
