//! A TCP proxy that can cut, stall and refuse.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use cleat_runner::transport::Address;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A network between a dialling peer and an accepting one.
pub struct Proxy {
    here: SocketAddr,
    shared: Arc<Shared>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    target: Mutex<SocketAddr>,
    stalled: watch::Sender<bool>,
    answers_stalled: watch::Sender<bool>,
    dialled: watch::Sender<usize>,
    connections: Mutex<CancellationToken>,
}

impl Proxy {
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            stalled: watch::Sender::new(false),
            answers_stalled: watch::Sender::new(false),
            dialled: watch::Sender::new(0),
            connections: Mutex::default(),
        });
        let here = listener.local_addr().unwrap();
        let accepting = Mutex::new(Some(tokio::spawn(accept(listener, Arc::clone(&shared)))));
        Self { here, shared, accepting }
    }

    /// Where to dial.
    pub fn address(&self) -> Address {
        self.here.into()
    }

    /// Where new connections go from now on.
    pub fn point_at(&self, target: SocketAddr) {
        *self.shared.target.lock().unwrap() = target;
    }

    /// How many connections there have been.
    pub fn dialled(&self) -> watch::Receiver<usize> {
        self.shared.dialled.subscribe()
    }

    /// Breaks all connections; new ones are accepted.
    pub fn cut(&self) {
        std::mem::take(&mut *self.shared.connections.lock().unwrap()).cancel();
    }

    /// Passes nothing on, in both directions, or goes on with it.
    pub fn stall(&self, stalled: bool) {
        self.shared.stalled.send_replace(stalled);
    }

    /// Passes nothing on to the side that dialled, or goes on with it.
    pub fn stall_answers(&self, stalled: bool) {
        self.shared.answers_stalled.send_replace(stalled);
    }

    /// Breaks all connections and accepts no new ones.
    pub async fn refuse(&self) {
        let accepting = self.accepting.lock().unwrap().take();
        if let Some(task) = accepting {
            task.abort();
            let _ = task.await;
        }
        self.cut();
    }

    /// Accepts connections again.
    pub async fn accept(&self) {
        let listener = TcpListener::bind(self.here).await.unwrap();
        *self.accepting.lock().unwrap() = Some(tokio::spawn(accept(listener, Arc::clone(&self.shared))));
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let (near, _) = listener.accept().await.unwrap();
        shared.dialled.send_modify(|times| *times += 1);
        let target = *shared.target.lock().unwrap();
        let cut = shared.connections.lock().unwrap().clone();
        let both = shared.stalled.subscribe();
        let (asking, answering) = (vec![both.clone()], vec![both, shared.answers_stalled.subscribe()]);
        tokio::spawn(async move {
            let Ok(far) = TcpStream::connect(target).await else { return };
            let (near_read, near_write) = near.into_split();
            let (far_read, far_write) = far.into_split();
            tokio::select! {
                () = cut.cancelled() => {}
                () = pass(near_read, far_write, asking) => {}
                () = pass(far_read, near_write, answering) => {}
            }
        });
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut gates: Vec<watch::Receiver<bool>>) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        pass_gates(&mut gates).await;
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(length) => {
                pass_gates(&mut gates).await;
                if to.write_all(&buffer[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn pass_gates(gates: &mut [watch::Receiver<bool>]) {
    for gate in gates {
        gate.wait_for(|stalled| !stalled).await.unwrap();
    }
}
