//! The handle with which a runner talks to all its peers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cleat_proto::v1::{self, frame::Kind};
use prost::Message;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::calls::{Call, Calls};
use super::link::{Link, State};
use super::slot::Slot;
use super::{Address, Error, Health, Identity, Options, Present, Replies, dial, wire};
use crate::message::{Envelope, Outcome, Sequence, Snowflake};
use crate::shard::{Instance, ShardId};

/// There is no connection to the peer now, and what should have gone over it was dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no connection to {0}")]
pub struct NotConnected(pub Address);

/// The peers of a runner. Cheap to clone; the last clone takes the connections down with it.
///
/// # Guarantees
/// A peer is dialled when it is first needed, and kept. Requests to one peer arrive in the order in which they were sent.
/// A volatile request is delivered at most once, a persisted one at least once or its caller is told otherwise. Dropping a
/// caller interrupts its request at the peer and disturbs no other.
///
/// # Caveats
/// A request goes to an address, not to an instance: who answers there decides whether it is the right one.
#[derive(Clone)]
pub struct Peers {
    inner: Arc<Inner>,
}

struct Inner {
    context: Arc<Context>,
    runtime: Handle,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What all connections share.
pub(super) struct Context {
    pub identity: Identity,
    pub credential: Arc<dyn Present>,
    pub options: Options,
    peers: Mutex<HashMap<Address, Arc<Peer>>>,
    next_call: AtomicU64,
}

/// One address.
pub(super) struct Peer {
    pub address: Address,
    pub link: Arc<Link<Calls>>,
    pub health: watch::Sender<Health>,
    /// Somebody needs the connection now.
    pub needed: Notify,
    /// Ends the attempts.
    pub stop: CancellationToken,
    /// The smaller limit of the two peers, as far as it is known.
    pub frame_limit: AtomicUsize,
    window: Arc<Semaphore>,
}

impl Context {
    pub(super) fn peers(&self) -> MutexGuard<'_, HashMap<Address, Arc<Peer>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peers {
    /// A handle that has dialled nobody yet. Its connections live in the runtime that this is called in.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(identity: Identity, credential: Arc<dyn Present>, options: Options) -> Self {
        let context = Context {
            identity,
            credential,
            options,
            peers: Mutex::new(HashMap::new()),
            next_call: AtomicU64::new(1),
        };
        let inner = Inner {
            context: Arc::new(context),
            runtime: Handle::current(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    fn peer(&self, address: &Address) -> Arc<Peer> {
        let context = &self.inner.context;
        let mut peers = context.peers();
        if let Some(peer) = peers.get(address) {
            return Arc::clone(peer);
        }
        let peer = Arc::new(Peer {
            address: address.clone(),
            link: Arc::new(Link::new(context.options.batch, Calls::new())),
            health: watch::Sender::new(Health::Connecting),
            needed: Notify::new(),
            stop: self.inner.stop.child_token(),
            frame_limit: AtomicUsize::new(context.options.frame_limit),
            window: Arc::new(Semaphore::new(
                usize::try_from(context.options.window_units()).unwrap_or(Semaphore::MAX_PERMITS),
            )),
        });
        peers.insert(address.clone(), Arc::clone(&peer));
        let dialling = dial::run(Arc::clone(context), Arc::clone(&peer));
        let dialling = context.options.health.supervisor().supervise_panics("peer connections", dialling);
        self.inner.tasks.spawn_on(dialling, &self.inner.runtime);
        peer
    }

    /// Runs a change of a peer's session while it is not closed, dialling anew if it is.
    fn with<T>(&self, address: &Address, change: impl FnMut(&Peer, &mut State<Calls>) -> T) -> T {
        self.with_peer(self.peer(address), address, change)
    }

    /// The same, beginning with a peer that was found already.
    fn with_peer<T>(
        &self,
        mut peer: Arc<Peer>,
        address: &Address,
        mut change: impl FnMut(&Peer, &mut State<Calls>) -> T,
    ) -> T {
        loop {
            let changed = peer.link.update(|state| {
                let usable = !state.side.closed || self.inner.stop.is_cancelled();
                usable.then(|| (change(&peer, state), state.is_open()))
            });
            let Some((result, open)) = changed else {
                // It was forgotten or idle, and its task is about to take it off; that is not to be waited for.
                let mut peers = self.inner.context.peers();
                if peers.get(address).is_some_and(|current| Arc::ptr_eq(current, &peer)) {
                    peers.remove(address);
                }
                drop(peers);
                peer = self.peer(address);
                continue;
            };
            if !open {
                peer.needed.notify_one();
            }
            return result;
        }
    }

    /// Sends a request, and waits only while the window of that peer is full. The answer comes with the [`Replies`].
    ///
    /// `after` is the last chunk of a stream that the caller has already from an earlier attempt.
    ///
    /// # Errors
    /// [`Error::RequestTooLarge`] at once if no peer would take it; [`Error::Forgotten`] if this handle was closed. All
    /// else comes with the replies.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, nothing was sent.
    pub async fn request(
        &self,
        to: &Address,
        envelope: Envelope,
        after: Option<Sequence>,
    ) -> Result<Replies, Error> {
        let number = self.inner.context.next_call.fetch_add(1, Ordering::Relaxed);
        let frame = wire::request(number, false, after, &envelope);
        let size = frame.encoded_len();
        let peer = self.peer(to);
        let limit = peer.frame_limit.load(Ordering::Relaxed);
        if size > limit {
            return Err(Error::RequestTooLarge { size, limit });
        }
        let units = self.inner.context.options.units(size);
        let window = Arc::clone(&peer.window);
        let Ok(permit) = window.acquire_many_owned(units).await else {
            return Err(Error::Forgotten(to.clone()));
        };
        let (slot, id) = (Arc::new(Slot::default()), envelope.id);
        let mut call = Some(Call::new(envelope, Arc::clone(&slot), permit, after));
        let link = self.with_peer(peer, to, |peer, state| {
            if let (Some(call), false) = (call.take(), state.side.closed) {
                state.send(number, &frame, call);
                Some(Arc::clone(&peer.link))
            } else {
                None
            }
        });
        match link {
            Some(link) => Ok(Replies::new(number, id, slot, link)),
            None => Err(Error::Forgotten(to.clone())),
        }
    }

    /// Sends a request and waits for its end.
    ///
    /// # Errors
    /// Whatever [`Error`] keeps it from having one.
    pub async fn call(&self, to: &Address, envelope: Envelope) -> Result<Outcome, Error> {
        self.request(to, envelope, None).await?.outcome().await
    }

    /// Like [`call`](Self::call), but follows the shard if it has moved, at most so many times.
    ///
    /// # Errors
    /// As for `call`. [`Error::Moved`] if its holder is not known or it has moved too often.
    pub async fn call_following(
        &self,
        to: &Address,
        envelope: Envelope,
        redirects: u32,
    ) -> Result<Outcome, Error> {
        let mut to = to.clone();
        for _ in 0..redirects {
            match self.call(&to, envelope.clone()).await {
                Err(Error::Moved(super::Moved { holder: Some(holder), .. })) => to = holder.address,
                other => return other,
            }
        }
        self.call(&to, envelope).await
    }

    /// Tells a peer that there is new work in a shard. Nothing comes back; hints that wait together are one.
    ///
    /// # Errors
    /// [`NotConnected`] if there is no stream now: tell it some other way. The peer is dialled nevertheless.
    pub fn hint(&self, to: &Address, shard: &ShardId) -> Result<(), NotConnected> {
        self.with(to, |_, state| {
            state.is_open().then(|| state.side.hint(shard.clone())).ok_or_else(|| NotConnected(to.clone()))
        })
    }

    /// Asks a peer to interrupt a request, whoever sent it. Nothing comes back.
    ///
    /// # Errors
    /// [`NotConnected`] if there is no stream now.
    pub fn interrupt(&self, to: &Address, request: Snowflake) -> Result<(), NotConnected> {
        let target = Some(v1::interrupt::Target::Request(request.get()));
        let frame = wire::frame(Kind::Interrupt(v1::Interrupt { target, gone: false }));
        self.with(to, |_, state| {
            if !state.is_open() {
                return Err(NotConnected(to.clone()));
            }
            state.outbox.push(&frame);
            Ok(())
        })
    }

    /// How long a frame takes to a peer and back, through everything that requests go through.
    ///
    /// # Errors
    /// [`NotConnected`] if there is no stream, or it breaks meanwhile.
    pub async fn ping(&self, to: &Address) -> Result<Duration, NotConnected> {
        let number = self.inner.context.next_call.fetch_add(1, Ordering::Relaxed);
        let begun = Instant::now();
        let (pong, ponged) = oneshot::channel();
        let mut pong = Some(pong);
        self.with(to, |_, state| {
            if let (true, Some(pong)) = (state.is_open(), pong.take()) {
                state.ping(number, pong);
            }
        });
        // Without a connection the sender is dropped here, and the receiver says so.
        drop(pong);
        ponged.await.map_err(|_| NotConnected(to.clone()))?;
        Ok(begun.elapsed())
    }

    /// What the connection to a peer tells of it, from now on. Dials it if nobody did.
    pub fn health(&self, of: &Address) -> watch::Receiver<Health> {
        self.with(of, |peer, _| peer.health.subscribe())
    }

    /// What the connections that there are now tell.
    pub fn healths(&self) -> Vec<Health> {
        self.inner.context.peers().values().map(|peer| peer.health.borrow().clone()).collect()
    }

    /// Ends the connection to a peer that is known to be gone; if an instance is named, only if no other one answers there.
    /// What was never sent fails as [`Error::Forgotten`], all else as [`Error::ConnectionLost`]; both at once.
    pub fn forget(&self, address: &Address, instance: Option<&Instance>) {
        let mut peers = self.inner.context.peers();
        let Some(peer) = peers.get(address) else { return };
        let other = match (instance, &*peer.health.borrow()) {
            (Some(gone), Health::Connected { instance }) => gone != instance,
            _ => false,
        };
        if !other {
            dial::close(&self.inner.context, peer);
            peers.remove(address);
        }
    }

    /// Ends all connections and waits until they are gone. What waits for an answer fails.
    pub async fn close(&self) {
        self.inner.stop.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }
}
