//! Leases over a loopback socket, so that the processes of one test share the Leases of one of them.
//!
//! Frames of MessagePack, a length in front of each. A call is a connection with one request and one answer, so that a call that is
//! dropped halfway leaves nothing behind. A watch is a connection with one request and events without end.

mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use self::wire::{Answer, Failure, Request, receive, send};
use super::{Claim, Error, Event, Leases, Lock, Name, Runner, ShardRecord, Swap};

pub use self::wire::Protocol;

/// Serves Leases to whoever connects, for as long as the future is polled. Dropping it closes every connection.
///
/// # Errors
/// When the listener fails. A connection that fails is its client's trouble.
pub async fn serve(leases: Arc<dyn Leases>, listener: TcpListener) -> std::io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                connections.spawn(attend(Arc::clone(&leases), stream));
            }
            Some(ended) = connections.join_next() => {
                if let Ok(Err(error)) = ended {
                    tracing::debug!(%error, "a client of the leases went away");
                }
            }
        }
    }
}

async fn attend(leases: Arc<dyn Leases>, mut stream: TcpStream) -> Result<(), Protocol> {
    stream.set_nodelay(true)?;
    let answer = match receive(&mut stream).await? {
        Request::Register(name, runner) => leases.register(&name, &runner).await.map(Answer::Lock),
        Request::Renew(lock, runner) => leases.renew(&lock, &runner).await.map(Answer::Lock),
        Request::Release(lock) => leases.release(&lock).await.map(|()| Answer::Released),
        Request::Claim(claim) => leases.claim(&claim).await.map(Answer::Swap),
        Request::Free(record) => leases.free(&record).await.map(Answer::Swap),
        Request::Watch => return tell(leases, stream).await,
    };
    send(&mut stream, &answer.unwrap_or_else(|error| Answer::Failed(Failure::from(error)))).await
}

async fn tell(leases: Arc<dyn Leases>, mut stream: TcpStream) -> Result<(), Protocol> {
    let mut events = leases.watch();
    let (mut reading, mut writing) = stream.split();
    loop {
        tokio::select! {
            event = events.next() => match event {
                Some(event) => send(&mut writing, &event).await?,
                None => return Ok(()),
            },
            // The client says nothing more, so this ends when it goes away.
            end = receive::<Request>(&mut reading) => return end.map(|_| ()),
        }
    }
}

/// Leases that another process [serves](serve).
#[derive(Debug, Clone)]
pub struct Remote {
    server: SocketAddr,
}

impl Remote {
    /// How long a watch waits before it connects again.
    const RETRY: Duration = Duration::from_millis(50);

    /// The Leases that are served at that address. Connects when they are used.
    pub fn new(server: SocketAddr) -> Self {
        Self { server }
    }

    async fn open(&self, request: &Request) -> Result<TcpStream, Protocol> {
        let mut stream = TcpStream::connect(self.server).await?;
        stream.set_nodelay(true)?;
        send(&mut stream, request).await?;
        Ok(stream)
    }

    async fn call(&self, request: Request) -> Result<Answer, Error> {
        let exchange = async { receive(&mut self.open(&request).await?).await };
        match exchange.await {
            Ok(Answer::Failed(failure)) => Err(failure.into()),
            Ok(answer) => Ok(answer),
            Err(error) => Err(Error::Unavailable(error.into())),
        }
    }

    async fn lock(&self, request: Request) -> Result<Lock, Error> {
        match self.call(request).await? {
            Answer::Lock(lock) => Ok(lock),
            _ => Err(Error::Unavailable(Protocol::Unexpected.into())),
        }
    }

    async fn swap(&self, request: Request) -> Result<Swap, Error> {
        match self.call(request).await? {
            Answer::Swap(swap) => Ok(swap),
            _ => Err(Error::Unavailable(Protocol::Unexpected.into())),
        }
    }
}

#[async_trait]
impl Leases for Remote {
    async fn register(&self, name: &Name, runner: &Runner) -> Result<Lock, Error> {
        self.lock(Request::Register(name.clone(), runner.clone())).await
    }

    async fn renew(&self, lock: &Lock, runner: &Runner) -> Result<Lock, Error> {
        self.lock(Request::Renew(lock.clone(), runner.clone())).await
    }

    async fn release(&self, lock: &Lock) -> Result<(), Error> {
        self.call(Request::Release(lock.clone())).await.map(|_| ())
    }

    async fn claim(&self, claim: &Claim) -> Result<Swap, Error> {
        self.swap(Request::Claim(claim.clone())).await
    }

    async fn free(&self, record: &ShardRecord) -> Result<Swap, Error> {
        self.swap(Request::Free(record.clone())).await
    }

    fn watch(&self) -> BoxStream<'static, Event> {
        let watch = Watch { remote: self.clone(), state: Connection::Fresh };
        stream::unfold(watch, |mut watch| async { Some((watch.next().await, watch)) }).boxed()
    }
}

/// How a watch is connected.
enum Connection {
    /// Not yet.
    Fresh,
    /// It is.
    Open(TcpStream),
    /// Not any more, and whoever watches has been told.
    Broken,
}

struct Watch {
    remote: Remote,
    state: Connection,
}

impl Watch {
    async fn next(&mut self) -> Event {
        loop {
            match &mut self.state {
                // The stream of events keeps this future, so a frame that was read in part is not lost.
                Connection::Open(stream) => match receive(stream).await {
                    Ok(event) => return event,
                    Err(_) => {
                        self.state = Connection::Broken;
                        return Event::Stalled;
                    }
                },
                Connection::Fresh => match self.remote.open(&Request::Watch).await {
                    Ok(stream) => self.state = Connection::Open(stream),
                    Err(_) => {
                        self.state = Connection::Broken;
                        return Event::Stalled;
                    }
                },
                Connection::Broken => {
                    tokio::time::sleep(Remote::RETRY).await;
                    if let Ok(stream) = self.remote.open(&Request::Watch).await {
                        self.state = Connection::Open(stream);
                    }
                }
            }
        }
    }
}
