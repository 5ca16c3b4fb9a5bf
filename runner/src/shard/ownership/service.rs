//! The loop that follows the Leases and acts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures::{FutureExt, StreamExt};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::book::Book;
use super::claim::Door;
use super::epochs::Epochs;
use super::handle::{Command, Handle, Shared, Stage, Status};
use super::host::Host;
use super::location::{Locations, Whereabouts};
use super::lock::Keeper;
use super::metrics::Metrics;
use super::options::Options;
use super::proof::{self, Question};
use super::reports::Report;
use super::sentinel::{Sentinels, Sign};
use super::wedge;
use crate::lease::{Clock, Event, Leases, Moment, Observer, Standing};
use crate::shard::{Assignment, ShardId};
use crate::transport::Peers;

/// What the service works with.
#[derive(Clone)]
pub struct Parts {
    /// Who is alive and owns what.
    pub leases: Arc<dyn Leases>,
    /// What decides in the end. Its instance is that of this runner.
    pub epochs: Arc<dyn Epochs>,
    /// A clock that counts suspension.
    pub clock: Arc<dyn Clock>,
    /// Connections whose state proves lives and deaths; without them only silence does.
    pub peers: Option<Peers>,
    /// Where measurements go.
    pub metrics: Metrics,
}

/// Makes this runner own the right shards for as long as it [runs](Self::run).
pub struct Service {
    options: Options,
    parts: Parts,
    shared: Arc<Shared>,
    commands: mpsc::UnboundedReceiver<Command>,
    questions: mpsc::UnboundedReceiver<Question>,
}

impl Service {
    /// A service that does nothing yet.
    pub fn new(options: Options, parts: Parts) -> Self {
        let (command, commands) = mpsc::unbounded_channel();
        let (question, questions) = mpsc::unbounded_channel();
        let shared = Shared {
            me: parts.epochs.instance().clone(),
            standing: Standing::new(Arc::clone(&parts.clock), options.timing),
            hears: AtomicBool::new(false),
            locations: Whereabouts::default(),
            quiet: std::sync::Mutex::default(),
            status: watch::Sender::default(),
            commands: command,
            questions: question,
        };
        Self { options, parts, shared: Arc::new(shared), commands, questions }
    }

    /// What the rest of the runner sees of it.
    pub fn handle(&self) -> Handle {
        Handle { shared: Arc::clone(&self.shared) }
    }

    /// Owns shards and lets the host serve them, until somebody calls [`Handle::shutdown`].
    ///
    /// # Cancel safety
    /// Dropped, it renews nothing and lets go of nothing: to others this is a crash. The host has to be dropped, too.
    pub async fn run(mut self, host: Arc<dyn Host>) {
        let answers =
            proof::answer(Arc::clone(&self.parts.epochs), self.options.timing.duration(), self.questions, {
                let shared = Arc::downgrade(&self.shared);
                move |fence| {
                    if let Some(shared) = shared.upgrade() {
                        // The loop below may have ended, and then nothing is served.
                        let _ = shared.commands.send(Command::Fenced(fence));
                    }
                }
            });
        let mut answers = AbortOnDropHandle::new(tokio::spawn(answers));
        let (sentinels, mut signs) = Sentinels::new(self.parts.peers.clone(), Arc::clone(&self.parts.clock));
        let mut events = self.parts.leases.watch();
        let mut running = Running::new(self.options, self.parts, self.shared, sentinels, host);
        loop {
            running.act();
            if running.is_done() {
                break;
            }
            let wake = running.wake();
            tokio::select! {
                biased;
                event = events.next() => running.watched(event),
                Some(report) = running.tasks.join_next() => running.joined(report),
                Some(command) = self.commands.recv() => running.told(command),
                Some(sign) = signs.recv() => running.signed(&sign),
                () = tokio::time::sleep(wake) => {}
                ended = &mut answers => {
                    // Whoever asks for a proof would wait forever: the supervisor ends the runner.
                    if let Err(error) = ended && error.is_panic() {
                        std::panic::resume_unwind(error.into_panic());
                    }
                    break;
                }
            }
            // Whatever has come is taken in before anything is concluded from what has not.
            while let Some(event) = events.next().now_or_never() {
                if event.is_none() {
                    events = running.parts.leases.watch();
                }
                running.watched(event);
            }
            while let Some(report) = running.tasks.try_join_next() {
                running.joined(report);
            }
        }
        running.end().await;
    }
}

/// The service at work.
pub(super) struct Running {
    pub(super) options: Options,
    pub(super) parts: Parts,
    pub(super) shared: Arc<Shared>,
    pub(super) host: Arc<dyn Host>,
    pub(super) door: Door,
    pub(super) tasks: JoinSet<Report>,
    pub(super) sentinels: Sentinels,
    pub(super) observer: Observer,
    pub(super) keeper: Keeper,
    pub(super) book: Book,
    pub(super) assignment: Assignment,
    /// The shards that belong here by it; none if this runner does not count yet.
    pub(super) assigned: Option<Vec<ShardId>>,
    pub(super) watch: wedge::Watch,
    /// Shards that were released because they did not move, and until when they are not to come back.
    pub(super) avoids: BTreeMap<ShardId, Moment>,
    pub(super) stage: Stage,
    /// When a shutdown has to have ended.
    pub(super) stop_by: Option<Moment>,
    /// Something changed: every shard is looked at again.
    pub(super) dirty: bool,
    /// Claims under way.
    pub(super) claims: usize,
    pub(super) proof: Proof,
    /// When shards are next asked for their progress.
    pub(super) look_at: Moment,
    pub(super) ready: bool,
    pub(super) trouble: Option<&'static str>,
}

/// How the database is asked whether our epochs stand.
#[derive(Debug, Default)]
pub(super) struct Proof {
    pub(super) busy: bool,
    /// Not before this moment, after a failure.
    pub(super) not_before: Moment,
    /// When the last check that succeeded began.
    pub(super) began: Option<Moment>,
}

impl Running {
    fn new(
        options: Options,
        parts: Parts,
        shared: Arc<Shared>,
        sentinels: Sentinels,
        host: Arc<dyn Host>,
    ) -> Self {
        let (me, timing) = (shared.me.clone(), options.timing);
        let door = Door {
            leases: Arc::clone(&parts.leases),
            epochs: Arc::clone(&parts.epochs),
            writes: Arc::new(Semaphore::new(options.parallel_writes.max(1))),
            write_patience: timing.interval(),
            claim_patience: timing.duration() * 2,
        };
        let look_at = parts.clock.now() + options.wedge.after / 4;
        let book = Book::new(parts.epochs.maps());
        Self {
            observer: Observer::new(me.clone(), timing, options.settle),
            keeper: Keeper::new(options.name.clone(), me, timing),
            tasks: JoinSet::new(),
            assignment: Assignment::default(),
            assigned: None,
            watch: wedge::Watch::default(),
            avoids: BTreeMap::new(),
            stage: Stage::Running,
            stop_by: None,
            dirty: true,
            claims: 0,
            proof: Proof::default(),
            ready: false,
            trouble: None,
            options,
            parts,
            shared,
            host,
            door,
            sentinels,
            book,
            look_at,
        }
    }

    pub(super) fn now(&self) -> Moment {
        self.parts.clock.now()
    }

    fn watched(&mut self, event: Option<Event>) {
        let now = self.now();
        // A watch does not end; if one does, it is as good as cut.
        let event = event.unwrap_or(Event::Stalled);
        self.keeper.look(&event, now);
        self.observer.apply(event, now);
    }

    fn signed(&mut self, sign: &Sign) {
        let now = self.now();
        sign.tell(&mut self.observer, now);
    }

    fn told(&mut self, command: Command) {
        let now = self.now();
        match command {
            Command::Drain if self.stage == Stage::Running => self.stage = Stage::Draining,
            Command::Stop(within) if self.stop_by.is_none() => {
                tracing::info!("handing over all shards and stopping");
                self.stage = Stage::Stopping;
                self.stop_by = Some(now + within.unwrap_or(self.options.drain_within));
            }
            Command::Drain | Command::Stop(_) => {}
            Command::Fenced(fence) => self.fenced(&fence),
        }
        self.dirty = true;
    }

    fn is_done(&self) -> bool {
        let late = self.stop_by.is_some_and(|by| by <= self.now());
        self.stop_by.is_some() && (late || self.book.is_at_rest())
    }

    /// Gives up the lock, and says that all is over.
    async fn end(mut self) {
        for fence in self.book.held() {
            tracing::warn!(shard = %fence.shard, "a shard could not be handed over in time");
            self.let_go(&fence, "overdue");
        }
        self.shared.locations.set(Locations::default());
        self.tasks.shutdown().await;
        if let Some(lock) = self.keeper.lock() {
            let release =
                tokio::time::timeout(self.options.timing.interval(), self.parts.leases.release(lock));
            match release.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(
                        error,
                        "the lock was not released, others will have to wait until it has run out"
                    );
                }
                Err(_) => tracing::warn!(
                    "the lock was not released in time, others will have to wait until it has run out"
                ),
            }
        }
        self.shared.standing.lost();
        self.shared.status.send_replace(Status { stage: Stage::Stopped, ..Status::default() });
    }
}
