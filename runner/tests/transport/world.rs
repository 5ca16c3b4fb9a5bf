//! Peers to test with.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cleat_runner::message::{
    Chunk, EntityAddress, Envelope, Headers, Outcome, Sequence, Snowflake, Uninterruptible,
};
use cleat_runner::shard::{Instance, ShardId};
use cleat_runner::transport::{
    Address, Backoff, Holder, Identity, Inbound, Interrupt, Moved, Options, Peers, Request, Responder,
    Server, SharedToken,
};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub const CLUSTER: &str = "8a6e0804-2bd0-4672-b79d-d97027f9071a";
pub const TOKEN: &str = "a token of this cluster";

/// Nothing in these tests takes that long unless it hangs.
pub const LONG: Duration = Duration::from_secs(30);

pub async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(LONG, future).await.expect("it should not take so long")
}

/// Short times, so that tests need not wait.
pub fn options() -> Options {
    Options {
        backoff: Backoff { first: Duration::from_millis(5), longest: Duration::from_millis(40) },
        patience: Duration::from_secs(20),
        ..Options::default()
    }
}

pub fn identity(instance: &str) -> Identity {
    Identity { cluster: CLUSTER.into(), instance: Instance::new(instance), version: "0.1.0".into() }
}

pub fn token() -> Arc<SharedToken> {
    Arc::new(SharedToken::new(TOKEN))
}

pub fn dialler(options: Options) -> Peers {
    Peers::new(identity("dialler"), token(), options)
}

pub fn envelope(id: i64, method: &str, payload: impl Into<Bytes>) -> Envelope {
    Envelope {
        id: Snowflake::new(id),
        address: EntityAddress::new("test", "one").unwrap(),
        method: method.to_owned(),
        payload: payload.into(),
        persisted: false,
        key: None,
        deliver_at: None,
        uninterruptible: Uninterruptible::No,
        trace: None,
        headers: Headers::new(),
    }
}

pub fn persisted(id: i64, method: &str, payload: impl Into<Bytes>) -> Envelope {
    Envelope { persisted: true, ..envelope(id, method, payload) }
}

pub fn success(payload: impl Into<Bytes>) -> Outcome {
    Outcome::Success(payload.into())
}

/// What came in at an accepting peer besides requests.
#[derive(Debug, PartialEq)]
pub enum Event {
    Interrupt(Interrupt),
    Acknowledge(Snowflake, Sequence),
    Hint(ShardId),
}

/// One delivery of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    pub id: i64,
    pub resent: bool,
    pub after: Option<i32>,
}

/// A runtime that does what the method's name says.
pub struct Handlers {
    pub deliveries: watch::Sender<Vec<Delivery>>,
    pub held: Mutex<HashMap<i64, Responder>>,
    events: mpsc::UnboundedSender<Event>,
    pub moved: Mutex<Option<Moved>>,
    /// The last chunk that `count` has sent.
    pub sent: watch::Sender<i32>,
}

impl Handlers {
    /// Waits until so many requests were delivered, and gives all of them.
    pub async fn delivered(&self, count: usize) -> Vec<Delivery> {
        let mut deliveries = self.deliveries.subscribe();
        soon(deliveries.wait_for(|all| all.len() >= count)).await.unwrap().clone()
    }

    pub fn ids(&self) -> Vec<i64> {
        self.deliveries.borrow().iter().map(|delivery| delivery.id).collect()
    }

    pub fn release(&self, id: i64, outcome: Outcome) {
        self.held.lock().unwrap().remove(&id).expect("it is held").end(outcome);
    }
}

impl Inbound for Handlers {
    fn request(&self, request: Request, responder: Responder) {
        let Request { envelope, resent, after, .. } = request;
        let id = envelope.id.get();
        self.deliveries.send_modify(|all| {
            all.push(Delivery { id, resent, after: after.map(|sequence| sequence.0) });
        });
        match envelope.method.as_str() {
            "echo" => responder.end(Outcome::Success(envelope.payload)),
            "fail" => responder.end(Outcome::failure("OutOfStock", "there are none left")),
            "break" => responder.end(Outcome::defect("Panicked", "oh")),
            "drop" => drop(responder),
            "away" => responder.unavailable("draining"),
            "large" => responder.end(Outcome::Success(vec![1; payload_number(&envelope)].into())),
            "moved" => match self.moved.lock().unwrap().clone() {
                Some(moved) => responder.moved(moved),
                None => responder.end(Outcome::Success(envelope.payload)),
            },
            "hold" => {
                self.held.lock().unwrap().insert(id, responder);
            }
            "admit" => {
                responder.admit();
                self.held.lock().unwrap().insert(id, responder);
            }
            "count" => {
                let sent = self.sent.clone();
                let (first, last) = (after.map_or(0, |after| after.0 + 1), payload_number(&envelope));
                tokio::spawn(async move {
                    for sequence in first..i32::try_from(last).unwrap() {
                        let items = vec![Bytes::from(sequence.to_string())];
                        let chunk = Chunk { sequence: Sequence(sequence), items };
                        if responder.chunk(chunk).await.is_err() {
                            return;
                        }
                        sent.send_replace(sequence);
                    }
                    responder.end(success("counted"));
                });
            }
            "flood" => {
                let (sent, chunks) = (self.sent.clone(), payload_number(&envelope));
                tokio::spawn(async move {
                    for sequence in 0..i32::try_from(chunks).unwrap() {
                        let chunk =
                            Chunk { sequence: Sequence(sequence), items: vec![vec![0; 16 << 10].into()] };
                        responder.chunk(chunk).await.unwrap();
                        sent.send_replace(sequence);
                    }
                    responder.end(success("flooded"));
                });
            }
            other => panic!("no method {other}"),
        }
    }

    fn interrupt(&self, interrupt: Interrupt) {
        let _ = self.events.send(Event::Interrupt(interrupt));
    }

    fn acknowledge(&self, request: Snowflake, sequence: Sequence) {
        let _ = self.events.send(Event::Acknowledge(request, sequence));
    }

    fn hint(&self, shard: ShardId) {
        let _ = self.events.send(Event::Hint(shard));
    }
}

fn payload_number(envelope: &Envelope) -> usize {
    std::str::from_utf8(&envelope.payload).unwrap().parse().unwrap()
}

/// A peer that accepts.
pub struct Acceptor {
    pub socket: SocketAddr,
    pub instance: Instance,
    pub handlers: Arc<Handlers>,
    pub events: mpsc::UnboundedReceiver<Event>,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Acceptor {
    pub async fn start(options: Options) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::serve(listener, options)
    }

    pub fn serve(listener: TcpListener, options: Options) -> Self {
        let (events, received) = mpsc::unbounded_channel();
        let handlers = Arc::new(Handlers {
            deliveries: watch::Sender::default(),
            held: Mutex::default(),
            events,
            moved: Mutex::default(),
            sent: watch::Sender::new(-1),
        });
        let instance = Instance::random();
        let socket = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let server = Server::new(identity(instance.as_str()), token(), handlers.clone(), options);
        let serving = server.serve(listener, stop.clone());
        let serving = tokio::spawn(async move { serving.await.unwrap() });
        Self { socket, instance, handlers, events: received, stop, serving }
    }

    pub fn address(&self) -> Address {
        self.socket.into()
    }

    pub fn holder(&self) -> Holder {
        Holder { instance: self.instance.clone(), address: self.address() }
    }

    pub async fn event(&mut self) -> Event {
        soon(self.events.recv()).await.unwrap()
    }

    /// Shuts down in good order.
    pub async fn stop(self) {
        self.stop.cancel();
        soon(self.serving).await.unwrap();
    }
}
