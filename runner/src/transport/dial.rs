//! Keeps one connection to one peer: dials, shakes hands, reads, and dials again.

use std::error::Error as StdError;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cleat_proto::v1::{self, packet::Body, peer_client::PeerClient};
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Endpoint;

use super::link::{Generation, Outgoing};
use super::peers::{Context, Peer};
use super::{Error, Health, Refusal};
use crate::shard::Instance;

/// Why there is no connection, or none any more.
enum Broken {
    /// Nothing listens there.
    Refused(String),
    /// We are not let in.
    Denied(Refusal),
    /// Anything else.
    Lost(String),
}

/// How long there has been no connection.
struct Outage {
    since: Instant,
    refused: Option<Instant>,
    failures: u32,
}

impl Outage {
    fn new() -> Self {
        Self { since: Instant::now(), refused: None, failures: 0 }
    }
}

/// Runs until the peer is forgotten, or has not been reachable or needed for a while.
pub(super) async fn run(context: Arc<Context>, peer: Arc<Peer>) {
    let work = async {
        let mut outage = Outage::new();
        loop {
            let broken = attempt(&context, &peer, &mut outage).await;
            if settle(&context, &peer, &mut outage, broken).is_break() {
                return;
            }
            rest(&context, &peer, &outage).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = peer.stop.cancelled() => {}
    }
    close(&context, &peer);
    let mut peers = context.peers();
    if peers.get(&peer.address).is_some_and(|current| Arc::ptr_eq(current, &peer)) {
        peers.remove(&peer.address);
    }
}

/// Ends a peer's session and everything that waits in it.
pub(super) fn close(context: &Context, peer: &Peer) {
    peer.link.begin();
    let mut state = peer.link.lock();
    state.side.closed = true;
    let instance = state.side.instance.clone();
    let failed = state.give_up(context.options.batch, |sent| match sent {
        true => Error::ConnectionLost { address: peer.address.clone(), instance: instance.clone() },
        false => Error::Forgotten(peer.address.clone()),
    });
    drop(state);
    failed.tell();
    peer.stop.cancel();
    peer.health.send_replace(Health::Closed);
}

/// Decides what a failed attempt means.
fn settle(context: &Context, peer: &Peer, outage: &mut Outage, broken: Broken) -> ControlFlow<()> {
    outage.failures += 1;
    let patience = context.options.patience;
    let (health, cause, give_up) = match broken {
        Broken::Refused(cause) => {
            let since = *outage.refused.get_or_insert_with(Instant::now);
            (Health::Refused { since }, cause, outage.since.elapsed() >= patience)
        }
        Broken::Lost(cause) => {
            outage.refused = None;
            (Health::Lost { since: outage.since }, cause, outage.since.elapsed() >= patience)
        }
        Broken::Denied(refusal) => {
            outage.refused = None;
            let cause = refusal.to_string();
            (Health::Denied { refusal }, cause, true)
        }
    };
    if outage.failures == 1 {
        tracing::info!(address = %peer.address, %cause, "no connection to a peer");
    }
    let refusal = match &health {
        Health::Denied { refusal } => Some(refusal.clone()),
        _ => None,
    };
    // Equal states are not told again: a watcher would wake up at every attempt for nothing.
    peer.health.send_if_modified(|old| {
        let changed = *old != health;
        *old = health;
        changed
    });
    if !give_up {
        return ControlFlow::Continue(());
    }
    let mut state = peer.link.lock();
    if state.side.is_empty() {
        // Nobody waits. If nobody watches either, the peer is not dialled until it is needed again.
        if outage.since.elapsed() >= patience && peer.health.receiver_count() == 0 {
            state.side.closed = true;
            return ControlFlow::Break(());
        }
        return ControlFlow::Continue(());
    }
    let address = &peer.address;
    let (cause, waited) = (Arc::<str>::from(cause), outage.since.elapsed());
    let instance = state.side.instance.clone();
    let failed = state.give_up(context.options.batch, |sent| match (sent, &refusal) {
        (true, _) => Error::ConnectionLost { address: address.clone(), instance: instance.clone() },
        (false, Some(refusal)) => Error::Denied { address: address.clone(), refusal: refusal.clone() },
        (false, None) => Error::Unreachable { address: address.clone(), waited, cause: Arc::clone(&cause) },
    });
    drop(state);
    failed.tell();
    ControlFlow::Continue(())
}

/// Waits before the next attempt; less if somebody needs the connection.
async fn rest(context: &Context, peer: &Peer, outage: &Outage) {
    let backoff = &context.options.backoff;
    let pause = backoff.pause(outage.failures, rand::random::<f64>());
    sleep(pause.min(backoff.first)).await;
    tokio::select! {
        () = sleep(pause.saturating_sub(backoff.first)) => {}
        () = peer.needed.notified() => {}
    }
}

/// Connects and stays connected as long as it goes.
async fn attempt(context: &Context, peer: &Peer, outage: &mut Outage) -> Broken {
    let (generation, received) = peer.link.begin();
    let opened = timeout(context.options.connect_timeout, open(context, peer, generation, received)).await;
    let (mut incoming, instance) = match opened {
        Ok(Ok(open)) => open,
        Ok(Err(broken)) => return broken,
        Err(_) => return Broken::Lost(format!("no answer within {:?}", context.options.connect_timeout)),
    };
    outage.failures = 0;
    outage.refused = None;
    tracing::debug!(address = %peer.address, %instance, "connected to a peer");
    peer.health.send_replace(Health::Connected { instance });
    let broken = read(context, peer, generation, &mut incoming).await;
    peer.link.close(generation);
    outage.since = Instant::now();
    broken
}

type Incoming = tonic::Streaming<v1::Packet>;

/// Dials and shakes hands.
async fn open(
    context: &Context,
    peer: &Peer,
    generation: Generation,
    received: u64,
) -> Result<(Incoming, Instance), Broken> {
    let options = &context.options;
    let endpoint = Endpoint::from_shared(format!("http://{}", peer.address))
        .map_err(|error| Broken::Lost(chain(&error)))?
        .connect_timeout(options.connect_timeout)
        .tcp_nodelay(true)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .http2_keep_alive_interval(options.keep_alive)
        .keep_alive_timeout(options.keep_alive_timeout)
        .keep_alive_while_idle(true);
    let channel = endpoint.connect().await.map_err(|error| match refused(&error) {
        true => Broken::Refused(chain(&error)),
        false => Broken::Lost(chain(&error)),
    })?;
    let mut client = PeerClient::new(channel)
        .max_decoding_message_size(options.message_limit())
        .max_encoding_message_size(usize::MAX);
    let hello = hello(context, peer, received);
    let outgoing = Outgoing::new(Arc::clone(&peer.link), generation, Body::Hello(hello));
    let lost = |status: tonic::Status| Broken::Lost(chain(&status));
    let mut incoming = client.exchange(outgoing).await.map_err(lost)?.into_inner();
    match incoming.message().await.map_err(lost)?.and_then(|packet| packet.body) {
        Some(Body::Welcome(welcome)) => Ok((incoming, welcomed(context, peer, generation, welcome)?)),
        Some(Body::Refusal(refusal)) => Err(Broken::Denied(read_refusal(refusal))),
        _ => Err(Broken::Lost("the peer did not shake hands".to_owned())),
    }
}

fn hello(context: &Context, peer: &Peer, received: u64) -> v1::Hello {
    let (session, abandons) = {
        let state = peer.link.lock();
        (state.side.session, state.side.abandons)
    };
    v1::Hello {
        cluster: context.identity.cluster.as_ref().to_owned(),
        instance: context.identity.instance.as_str().to_owned(),
        version: context.identity.version.as_ref().to_owned(),
        credential: context.credential.credential(),
        session,
        received,
        abandons,
        frame_limit: u64::try_from(context.options.frame_limit).unwrap_or(u64::MAX),
        chunk_window: u32::from(context.options.chunk_window),
    }
}

/// Brings the session to where the peer is.
fn welcomed(
    context: &Context,
    peer: &Peer,
    generation: Generation,
    welcome: v1::Welcome,
) -> Result<Instance, Broken> {
    if welcome.cluster != context.identity.cluster.as_ref() {
        let (theirs, ours) = (welcome.cluster, &context.identity.cluster);
        return Err(Broken::Denied(Refusal::Cluster(format!(
            "it belongs to cluster {theirs}, we to {ours}"
        ))));
    }
    let instance = Instance::new(welcome.instance);
    let limit = context.options.frame_limit.min(usize::try_from(welcome.frame_limit).unwrap_or(usize::MAX));
    peer.frame_limit.store(limit, Ordering::Relaxed);
    let mut failed = None;
    let opened = peer.link.open(generation, |state| {
        if welcome.resumed {
            state.outbox.resume(welcome.received)?;
        } else {
            state.side.session = welcome.session;
            let before = state.side.instance.take();
            failed = Some(state.begin_session(context.options.batch, limit, || Error::ConnectionLost {
                address: peer.address.clone(),
                instance: before.clone(),
            }));
        }
        state.side.abandons = 0;
        state.side.instance = Some(instance.clone());
        Ok(())
    });
    if let Some(failed) = failed {
        failed.tell();
    }
    opened.map(|()| instance).map_err(|violation| {
        // The peer and we do not agree about this session. There is no going on with it.
        let mut state = peer.link.lock();
        let failed = state.give_up(context.options.batch, |_| Error::Protocol(violation.to_string()));
        drop(state);
        failed.tell();
        Broken::Lost(violation.to_string())
    })
}

/// Handles what the peer sends until the connection breaks.
async fn read(context: &Context, peer: &Peer, generation: Generation, incoming: &mut Incoming) -> Broken {
    let chunk_limit = usize::from(context.options.chunk_window).saturating_mul(2);
    loop {
        let batch = match incoming.message().await {
            Ok(Some(v1::Packet { body: Some(Body::Batch(batch)) })) => batch,
            Ok(Some(_)) => continue,
            Ok(None) => return Broken::Lost("the peer ended the stream".to_owned()),
            Err(status) => return Broken::Lost(chain(&status)),
        };
        let _handling = peer.link.handling();
        match peer.link.take(generation, batch) {
            Ok(frames) => peer.link.handle(frames, context.options.frame_limit, chunk_limit),
            Err(violation) => return Broken::Lost(violation.to_string()),
        }
    }
}

/// How much may be under way in HTTP/2 before it is read.
pub(super) const WINDOW: u32 = 4 << 20;

fn read_refusal(refusal: v1::Refusal) -> Refusal {
    use v1::refusal::Reason;
    match refusal.reason() {
        Reason::Cluster => Refusal::Cluster(refusal.message),
        Reason::Credential => Refusal::Credential(refusal.message),
        Reason::Protocol | Reason::Unspecified => Refusal::Protocol(refusal.message),
    }
}

fn sources<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// Whether nothing listens at the address.
fn refused(error: &(dyn StdError + 'static)) -> bool {
    sources(error)
        .filter_map(|source| source.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// An error with all its causes in one line.
fn chain(error: &(dyn StdError + 'static)) -> String {
    sources(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
