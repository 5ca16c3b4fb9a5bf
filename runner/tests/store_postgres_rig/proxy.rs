//! A proxy between a store and its database that cuts connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Passes bytes on, and cuts a connection before or after a request that it counts.
pub struct Proxy {
    /// Where to connect instead.
    pub url: String,
    /// How many more requests pass; then connections are cut. High numbers are never reached.
    pub left: Arc<AtomicU32>,
    /// Whether the cut comes after the request was passed on.
    pub forward: bool,
}

impl Proxy {
    pub const NEVER: u32 = 1 << 30;

    pub async fn start(url: &str, forward: bool) -> Self {
        Self::with(url, forward, Cut { what: b"", hold: false }).await
    }

    /// The same, counting only requests that contain something. One that is passed on is done before the cut.
    pub async fn counting(url: &str, forward: bool, what: &'static [u8]) -> Self {
        Self::with(url, forward, Cut { what, hold: false }).await
    }

    /// The same, but nothing is cut: the client waits for an answer until it dies.
    pub async fn holding(url: &str, forward: bool, what: &'static [u8]) -> Self {
        Self::with(url, forward, Cut { what, hold: true }).await
    }

    async fn with(url: &str, forward: bool, how: Cut) -> Self {
        let port: u16 = url.rsplit(':').next().unwrap().split('/').next().unwrap().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let left = Arc::new(AtomicU32::new(Self::NEVER));
        let counter = Arc::clone(&left);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                tokio::spawn(pass(client, server, Arc::clone(&counter), forward, how));
            }
        });
        Self { url: url.replace(&format!(":{port}/"), &format!(":{own}/")), left, forward }
    }

    /// Cuts the connection of one of the next requests, and comes back when that has happened.
    pub async fn cut(&self, after: u32) {
        self.left.store(after, Ordering::Relaxed);
        let wait = async {
            while self.left.load(Ordering::Relaxed) < Self::NEVER / 2 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(super::PATIENCE, wait).await.expect("somebody still sends requests");
    }
}

/// What counts, and what becomes of a connection that is cut.
#[derive(Clone, Copy)]
struct Cut {
    what: &'static [u8],
    hold: bool,
}

async fn pass(
    mut client: TcpStream,
    mut server: TcpStream,
    left: Arc<AtomicU32>,
    forward: bool,
    Cut { what, hold }: Cut,
) {
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(n @ 1..) = read else { return };
                let counts = what.is_empty() || up[..n].windows(what.len()).any(|part| part == what);
                let cut = counts && left.fetch_sub(1, Ordering::Relaxed) == 1;
                if (!cut || forward) && server.write_all(&up[..n]).await.is_err() {
                    return;
                }
                if cut && forward && !what.is_empty() {
                    // The server has done what it was asked, and only its answer is lost.
                    let _ = server.read(&mut down).await;
                }
                if cut {
                    left.store(Proxy::NEVER, Ordering::Relaxed);
                }
                if cut && hold {
                    let _ = client.read(&mut up).await;
                }
                if cut {
                    if hold || forward && !what.is_empty() {
                        return;
                    }
                    // The client hears nothing more; the server may do what it was asked, or not get to it.
                    drop(client);
                    if forward {
                        let _ = tokio::time::timeout(Duration::from_millis(20), server.read(&mut down)).await;
                    }
                    return;
                }
            }
            read = server.read(&mut down) => {
                let Ok(n @ 1..) = read else { return };
                if client.write_all(&down[..n]).await.is_err() {
                    return;
                }
            }
        }
    }
}
