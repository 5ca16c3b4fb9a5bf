//! Our Leases, served to the runners' processes, and counted.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use async_trait::async_trait;
use cleat_runner::lease::{
    Claim, Error, Event, Leases, Lock, Memory, Name, Runner, ShardRecord, Swap, remote,
};
use futures::stream::BoxStream;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Leases at an address, until this is dropped.
pub(super) struct Served {
    pub(super) address: SocketAddr,
    counted: Arc<Counted>,
    task: JoinHandle<()>,
}

impl Served {
    pub(super) async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let counted = Arc::new(Counted { leases: Memory::new(), writes: AtomicU32::new(0) });
        let leases: Arc<dyn Leases> = Arc::<Counted>::clone(&counted);
        let task = tokio::spawn(async move {
            if let Err(error) = remote::serve(leases, listener).await {
                eprintln!("the leases are not served any more: {error}");
            }
        });
        Ok(Self { address, counted, task })
    }

    /// Writes so far: what would be requests to the API server.
    pub(super) fn writes(&self) -> f64 {
        f64::from(self.counted.writes.load(Ordering::Relaxed))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Counted {
    leases: Memory,
    writes: AtomicU32,
}

impl Counted {
    fn count(&self) -> &Memory {
        self.writes.fetch_add(1, Ordering::Relaxed);
        &self.leases
    }
}

#[async_trait]
impl Leases for Counted {
    async fn register(&self, name: &Name, runner: &Runner) -> Result<Lock, Error> {
        self.count().register(name, runner).await
    }

    async fn renew(&self, lock: &Lock, runner: &Runner) -> Result<Lock, Error> {
        self.count().renew(lock, runner).await
    }

    async fn release(&self, lock: &Lock) -> Result<(), Error> {
        self.count().release(lock).await
    }

    async fn claim(&self, claim: &Claim) -> Result<Swap, Error> {
        self.count().claim(claim).await
    }

    async fn free(&self, record: &ShardRecord) -> Result<Swap, Error> {
        self.count().free(record).await
    }

    fn watch(&self) -> BoxStream<'static, Event> {
        self.leases.watch()
    }
}
