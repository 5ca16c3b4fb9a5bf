//! Lets peers in.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cleat_proto::v1::{self, packet::Body, peer_server};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::transport::server::TcpIncoming;
use tonic::{Status, Streaming};

use super::dial::WINDOW;
use super::link::{Generation, Outgoing};
use super::session::Session;
use super::{Claim, Identity, Inbound, Options, Refusal, Verify};
use crate::shard::Instance;

/// The listener could not be served any more.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve peers")]
pub struct ServeError(#[from] tonic::transport::Error);

/// Accepts what peers send and hands it to an [`Inbound`].
///
/// # Guarantees
/// Only a peer of the same cluster whose claim is verified gets in. Within a session, whatever connections it takes,
/// each frame is handled once and in order.
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    identity: Identity,
    options: Options,
    verify: Arc<dyn Verify>,
    inbound: Arc<dyn Inbound>,
    sessions: Mutex<HashMap<Key, Arc<Session>>>,
    stop: CancellationToken,
}

/// A session is named by who dials and a number that nobody can guess.
type Key = (Instance, u64);

impl Server {
    /// A server for the runner of this identity.
    pub fn new(
        identity: Identity,
        verify: Arc<dyn Verify>,
        inbound: Arc<dyn Inbound>,
        options: Options,
    ) -> Self {
        let stop = CancellationToken::new();
        let sessions = Mutex::default();
        Self { shared: Arc::new(Shared { identity, options, verify, inbound, sessions, stop }) }
    }

    /// Serves a listener until `stop`. Then no new connection is accepted, answers that are queued are sent, and all
    /// connections end; at the latest after the keep-alive timeout.
    ///
    /// # Errors
    /// [`ServeError`] if the listener breaks.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) -> Result<(), ServeError> {
        let shared = self.shared;
        let options = &shared.options;
        let service = peer_server::PeerServer::from_arc(Arc::new(Service(Arc::clone(&shared))))
            .max_decoding_message_size(options.message_limit())
            .max_encoding_message_size(usize::MAX);
        let serving = tonic::transport::Server::builder()
            // A peer needs one, and one more while a reconnect overtakes the end of the last connection.
            .max_concurrent_streams(2)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .http2_keepalive_interval(Some(options.keep_alive))
            .http2_keepalive_timeout(Some(options.keep_alive_timeout))
            .serve_with_incoming_shutdown(
                service,
                TcpIncoming::from(listener).with_nodelay(Some(true)),
                stop.clone().cancelled_owned(),
            );
        let ended = async {
            stop.cancelled().await;
            shared.stop.cancel();
            shared.sessions().values().for_each(|session| session.link.end());
            tokio::time::sleep(options.keep_alive_timeout).await;
        };
        let served = tokio::select! {
            served = serving => served,
            () = ended => Ok(()),
        };
        for (_, session) in shared.sessions().drain() {
            session.dissolve(shared.inbound.as_ref());
        }
        Ok(served?)
    }
}

impl Shared {
    fn sessions(&self) -> MutexGuard<'_, HashMap<Key, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody may come in.
    fn check(&self, hello: &v1::Hello, remote: Option<std::net::SocketAddr>) -> Result<Identity, Refusal> {
        let identity = Identity {
            cluster: hello.cluster.as_str().into(),
            instance: Instance::new(hello.instance.as_str()),
            version: hello.version.as_str().into(),
        };
        if identity.cluster != self.identity.cluster {
            let text = format!("this is cluster {}, not {}", self.identity.cluster, identity.cluster);
            return Err(Refusal::Cluster(text));
        }
        if hello.instance.is_empty() {
            return Err(Refusal::Protocol("an instance is needed".to_owned()));
        }
        let claim = Claim { identity, credential: hello.credential.clone(), remote };
        match self.verify.verify(&claim) {
            Ok(()) => Ok(claim.identity),
            Err(unproven) => Err(Refusal::Credential(unproven.to_string())),
        }
    }

    /// Goes on with a session, or begins one.
    fn enter(&self, peer: Identity, hello: &v1::Hello) -> (Arc<Session>, Generation, v1::Welcome) {
        let instance = peer.instance.clone();
        let key = |session: u64| (instance.clone(), session);
        let mut sessions = self.sessions();
        let abandoned = sessions.remove(&key(hello.abandons));
        let known = sessions.get(&key(hello.session)).and_then(|session| {
            let (generation, received) = session.link.begin();
            let resumed = session.link.open(generation, |state| state.outbox.resume(hello.received));
            resumed.ok().map(|()| (Arc::clone(session), generation, received))
        });
        let resumed = known.is_some();
        let mut name = hello.session;
        let mut replaced = None;
        let (session, generation, received) = known.unwrap_or_else(|| {
            let session = Arc::new(Session::new(peer, &self.options, hello));
            let (generation, received) = session.link.begin();
            // Nothing was sent, so there is nothing that could not be gone on with.
            let _ = session.link.open(generation, |_| Ok(()));
            replaced = sessions.remove(&key(name));
            name = rand::random::<u64>().max(1);
            sessions.insert(key(name), Arc::clone(&session));
            (session, generation, received)
        });
        drop(sessions);
        for old in abandoned.into_iter().chain(replaced) {
            old.dissolve(self.inbound.as_ref());
        }
        let welcome = v1::Welcome {
            cluster: self.identity.cluster.as_ref().to_owned(),
            instance: self.identity.instance.as_str().to_owned(),
            version: self.identity.version.as_ref().to_owned(),
            resumed,
            received,
            frame_limit: u64::try_from(self.options.frame_limit).unwrap_or(u64::MAX),
            session: name,
        };
        (session, generation, welcome)
    }

    /// Reads a connection to its end, and keeps the session for a while after it.
    async fn read(
        self: Arc<Self>,
        key: Key,
        session: Arc<Session>,
        generation: Generation,
        mut incoming: Streaming<v1::Packet>,
    ) {
        loop {
            let batch = match incoming.message().await {
                Ok(Some(v1::Packet { body: Some(Body::Batch(batch)) })) => batch,
                Ok(Some(_)) => continue,
                Ok(None) => break,
                Err(status) => {
                    tracing::debug!(peer = %session.peer.instance, %status, "a peer's connection broke");
                    break;
                }
            };
            if let Err(violation) = session.take(generation, batch, self.inbound.as_ref()) {
                tracing::debug!(peer = %session.peer.instance, %violation, "a peer's connection ends");
                break;
            }
            // What was answered goes out before the next batch is handled, so that the peer has something to do meanwhile.
            tokio::task::yield_now().await;
        }
        drop(incoming);
        if !session.link.close(generation) {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(self.options.retention) => {}
            () = self.stop.cancelled() => return,
        }
        let mut sessions = self.sessions();
        let current = sessions.get(&key).is_some_and(|known| Arc::ptr_eq(known, &session));
        if current && session.link.is_closed_since(generation) {
            sessions.remove(&key);
            drop(sessions);
            session.dissolve(self.inbound.as_ref());
        }
    }
}

struct Service(Arc<Shared>);

type Packets = Pin<Box<dyn Stream<Item = Result<v1::Packet, Status>> + Send>>;

#[tonic::async_trait]
impl peer_server::Peer for Service {
    type ExchangeStream = Packets;

    async fn exchange(
        &self,
        request: tonic::Request<Streaming<v1::Packet>>,
    ) -> Result<tonic::Response<Packets>, Status> {
        let shared = Arc::clone(&self.0);
        if shared.stop.is_cancelled() {
            return Err(Status::unavailable("this runner is shutting down"));
        }
        let remote = request.remote_addr();
        let mut incoming = request.into_inner();
        let first = timeout(shared.options.connect_timeout, incoming.message()).await;
        let hello = match first {
            Ok(Ok(Some(v1::Packet { body: Some(Body::Hello(hello)) }))) => hello,
            Ok(Err(status)) => return Err(status),
            Ok(Ok(_)) => return Ok(refuse(Refusal::Protocol("the first packet is no hello".to_owned()))),
            Err(_) => return Err(Status::deadline_exceeded("no hello came")),
        };
        let peer = match shared.check(&hello, remote) {
            Ok(peer) => peer,
            Err(refusal) => {
                tracing::warn!(?remote, instance = %hello.instance, %refusal, "a peer is not let in");
                return Ok(refuse(refusal));
            }
        };
        let instance = peer.instance.clone();
        let (session, generation, welcome) = shared.enter(peer, &hello);
        let key = (instance, welcome.session);
        let outgoing = Outgoing::new(Arc::clone(&session.link), generation, Body::Welcome(welcome));
        let supervisor = shared.options.health.supervisor();
        tokio::spawn(
            supervisor.supervise_panics("peer sessions", shared.read(key, session, generation, incoming)),
        );
        Ok(tonic::Response::new(Box::pin(outgoing.map(Ok))))
    }
}

fn refuse(refusal: Refusal) -> tonic::Response<Packets> {
    use v1::refusal::Reason;
    let reason = match &refusal {
        Refusal::Cluster(_) => Reason::Cluster,
        Refusal::Credential(_) => Reason::Credential,
        Refusal::Protocol(_) => Reason::Protocol,
    };
    let refusal = v1::Refusal { reason: reason.into(), message: refusal.to_string() };
    let packet = v1::Packet { body: Some(Body::Refusal(refusal)) };
    tonic::Response::new(Box::pin(tokio_stream::once(Ok(packet))))
}
