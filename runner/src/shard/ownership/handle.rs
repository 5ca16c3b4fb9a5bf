//! What the rest of a runner sees of ownership.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use super::location::{Location, Locations, Whereabouts};
use super::proof::Question;
use crate::lease::{Moment, Standing};
use crate::shard::{Fence, Instance, ShardId};
use crate::store;

/// How far the service is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stage {
    /// It takes and keeps shards.
    #[default]
    Running,
    /// It takes no shards and gives away those that somebody else can take.
    Draining,
    /// It gives away all shards and ends.
    Stopping,
    /// It has ended, and nothing is served here any more.
    Stopped,
}

/// How ownership is doing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// How far the service is in its life.
    pub stage: Stage,
    /// Whether its lock is renewed and its watch current.
    pub attached: bool,
    /// Whether the first assignment has been served: then a runner is ready.
    pub ready: bool,
    /// Whether it drains, everybody knows it, and nothing is here any more that somebody else could take.
    pub drained: bool,
    /// How many shards belong here by the last assignment.
    pub assigned: usize,
    /// How many of them and of others are served here now.
    pub serving: usize,
    /// Those that are about to be served.
    pub opening: BTreeSet<ShardId>,
    /// Those that are about to be let go.
    pub closing: BTreeSet<ShardId>,
    /// Shards that made no progress here and were released; this runner is left out of their assignment for a while.
    pub avoided: BTreeSet<ShardId>,
    /// What keeps the lock from being renewed now.
    pub trouble: Option<&'static str>,
}

/// The service has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this runner has given up its shards")]
pub struct Stopped;

/// Why it is not known whether fences stand.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Unproven {
    /// The database could not be asked.
    #[error("the database could not be asked whether the shards are still ours")]
    Store(#[from] store::Error),
    /// The service has ended.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

#[derive(Debug)]
pub(super) enum Command {
    Drain,
    /// Within that time, if another than usual.
    Stop(Option<Duration>),
    Fenced(Fence),
}

/// What the service and its handles share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) me: Instance,
    pub(super) standing: Standing,
    /// Whether the watch is current: a runner that hears nothing cannot know that its Lease is gone.
    pub(super) hears: AtomicBool,
    pub(super) locations: Whereabouts,
    /// From when on earlier owners of the shards that were claimed here run nothing any more.
    pub(super) quiet: Mutex<HashMap<ShardId, Moment>>,
    pub(super) status: watch::Sender<Status>,
    pub(super) commands: mpsc::UnboundedSender<Command>,
    pub(super) questions: mpsc::UnboundedSender<Question>,
}

impl Shared {
    pub(super) fn quiet(&self) -> std::sync::MutexGuard<'_, HashMap<ShardId, Moment>> {
        // Each entry is valid by itself.
        self.quiet.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks where shards are and whether they are still ours. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    pub(super) shared: Arc<Shared>,
}

impl Handle {
    /// Which instance this is.
    pub fn instance(&self) -> &Instance {
        &self.shared.me
    }

    /// Where a shard is. Cheap enough for every call.
    pub fn locate(&self, shard: &ShardId) -> Location {
        self.shared.locations.now().get(shard).clone()
    }

    /// Waits until a shard is not any more where the caller has seen it, and says where it is then.
    ///
    /// # Errors
    /// [`Stopped`] if the service has ended.
    pub async fn changed(&self, shard: &ShardId, seen: &Location) -> Result<Location, Stopped> {
        let mut status = self.shared.status.subscribe();
        tokio::select! {
            biased;
            location = self.shared.locations.moved(shard, seen) => Ok(location),
            _ = status.wait_for(|status| status.stage == Stage::Stopped) => Err(Stopped),
        }
    }

    /// Whether an answer from memory under this fence may go out unchecked right now. Ask when the request comes and again before
    /// the answer goes out. If not, [`confirm`](Self::confirm).
    pub fn stands(&self, fence: &Fence) -> bool {
        let here = match self.shared.locations.now().get(&fence.shard) {
            Location::Here(current) => current == fence,
            Location::There(_) | Location::Nowhere => false,
        };
        here && self.may_answer()
    }

    /// Where a shard is, and whether its fence [stands](Self::stands) if that is here, in one look.
    pub(crate) fn locate_standing(&self, shard: &ShardId) -> (Location, bool) {
        let location = self.locate(shard);
        let stands = matches!(location, Location::Here(_)) && self.may_answer();
        (location, stands)
    }

    /// The clock is looked at last: whatever came before it took time.
    fn may_answer(&self) -> bool {
        self.shared.hears.load(Ordering::Acquire) && self.shared.standing.stands()
    }

    /// For how long this runner may answer unchecked.
    pub fn standing(&self) -> &Standing {
        &self.shared.standing
    }

    /// From when on an earlier owner of a shard that was claimed here runs nothing any more that no fence stops. A singleton of that
    /// shard starts then.
    pub fn quiet_from(&self, shard: &ShardId) -> Moment {
        self.shared.quiet().get(shard).copied().unwrap_or_default()
    }

    /// Asks the database which fences are still the newest of their shards.
    ///
    /// # Guarantees
    /// The question is put after this call. Questions that wait together are one statement.
    ///
    /// # Errors
    /// [`Unproven`] if there is no answer: then nothing may be answered from memory.
    pub async fn confirm(&self, fences: Vec<Fence>) -> Result<Vec<bool>, Unproven> {
        let (answer, answered) = oneshot::channel();
        self.shared.questions.send(Question { fences, answer }).map_err(|_| Stopped)?;
        Ok(answered.await.map_err(|_| Stopped)??)
    }

    /// Reports that the store refused a write because of this fence.
    pub fn fenced(&self, fence: &Fence) {
        // Without a service nothing is served any more, which is what a report is for.
        let _ = self.shared.commands.send(Command::Fenced(fence.clone()));
    }

    /// How ownership is doing, from now on.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.shared.status.subscribe()
    }

    /// Whether this runner takes no new shards.
    pub fn is_draining(&self) -> bool {
        self.shared.status.borrow().stage != Stage::Running
    }

    /// Whether this runner gives away all its shards, or has.
    pub fn is_stopping(&self) -> bool {
        matches!(self.shared.status.borrow().stage, Stage::Stopping | Stage::Stopped)
    }

    /// Stops taking shards, and gives away those that somebody else can take. Doing so again changes nothing.
    pub fn drain(&self) {
        // As above.
        let _ = self.shared.commands.send(Command::Drain);
    }

    /// Gives away all shards and the lock, and waits until the service has ended. Doing so again waits for the same end.
    pub async fn shutdown(&self) {
        self.stop(None).await;
    }

    /// The same within that time instead of the usual one.
    pub async fn shutdown_within(&self, time: Duration) {
        self.stop(Some(time)).await;
    }

    /// Shows the service as stopped after its task has failed: nothing is served any more.
    pub(crate) fn abandon(&self) {
        self.shared.standing.lost();
        self.shared.locations.set(Locations::default());
        self.shared.status.send_replace(Status { stage: Stage::Stopped, ..Status::default() });
    }

    async fn stop(&self, within: Option<Duration>) {
        let mut status = self.shared.status.subscribe();
        // As above; and the status outlives the service, because this handle has it.
        let _ = self.shared.commands.send(Command::Stop(within));
        let _ = status.wait_for(|status| status.stage == Stage::Stopped).await;
    }
}
