//! What connections prove: with real sockets and in real time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cleat_runner::lease::{Boot, Memory, Name, Timing};
use cleat_runner::message::{Sequence, Snowflake};
use cleat_runner::shard::ownership::{Handle, Metrics, Options, Parts, Service};
use cleat_runner::shard::{Instance, ShardId};
use cleat_runner::transport::{
    self, Address, Identity, Inbound, Interrupt, Peers, Request, Responder, Server, SharedToken,
};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ledger::Ledger;
use crate::recorder::{History, Recorder};
use crate::world::{SHARDS, map};

/// A runner that answers nothing: only that it listens matters.
struct Deaf;

impl Inbound for Deaf {
    fn request(&self, _: Request, _: Responder) {}
    fn interrupt(&self, _: Interrupt) {}
    fn acknowledge(&self, _: Snowflake, _: Sequence) {}
    fn hint(&self, _: ShardId) {}
}

struct Runner {
    handle: Handle,
    task: JoinHandle<()>,
    server: Mutex<Option<JoinHandle<()>>>,
    stop: CancellationToken,
    address: Address,
}

async fn start(
    leases: &Memory,
    ledger: &Ledger,
    history: &Arc<Mutex<History>>,
    name: &str,
    at: Option<&Address>,
    timing: Timing,
) -> Runner {
    let listener = TcpListener::bind(at.map_or("127.0.0.1:0", Address::as_str)).await.unwrap();
    let address = Address::from(listener.local_addr().unwrap());
    let instance = Instance::random();
    let identity = Identity { cluster: "one".into(), instance: instance.clone(), version: "1".into() };
    let token = Arc::new(SharedToken::new("secret"));
    let options = transport::Options {
        backoff: transport::Backoff { first: Duration::from_millis(20), longest: Duration::from_millis(200) },
        keep_alive_timeout: Duration::from_secs(1),
        ..transport::Options::default()
    };
    let server = Server::new(identity.clone(), token.clone(), Arc::new(Deaf), options.clone());
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let server = tokio::spawn(async move {
        server.serve(listener, stopped).await.unwrap();
    });
    let parts = Parts {
        leases: Arc::new(leases.connect()),
        epochs: Arc::new(ledger.door(instance, map())),
        clock: Arc::new(Boot),
        peers: Some(Peers::new(identity, token, options)),
        metrics: Metrics::hidden().unwrap(),
    };
    let settle = Duration::from_millis(50);
    let service = Service::new(
        Options { timing, settle, ..Options::new(Name::new(name).unwrap(), address.clone()) },
        parts,
    );
    let handle = service.handle();
    let host = Recorder::new(Arc::clone(history), handle.clone(), Duration::from_millis(10));
    let task = tokio::spawn(service.run(Arc::new(host)));
    Runner { handle, task, server: Mutex::new(Some(server)), stop, address }
}

impl Runner {
    async fn serves(&self, count: u16) {
        let mut status = self.handle.status();
        let served = status.wait_for(|status| status.serving == usize::from(count));
        tokio::time::timeout(Duration::from_secs(30), served).await.expect("in time").unwrap();
    }

    /// As if its process had ended: nothing renews, nothing listens.
    async fn kill(&self, history: &Mutex<History>) {
        self.task.abort();
        self.stop.cancel();
        let server = self.server.lock().unwrap().take().unwrap();
        server.await.unwrap();
        history.lock().unwrap().forget(self.handle.instance());
    }
}

#[tokio::test]
async fn an_address_that_refuses_connections_makes_a_death_certain_sooner() {
    let (leases, ledger, history) = (Memory::new(), Ledger::default(), Arc::default());
    let timing = Timing::new(Duration::from_secs(12), Duration::from_secs(1)).unwrap();
    let a = start(&leases, &ledger, &history, "a", None, timing).await;
    let b = start(&leases, &ledger, &history, "b", None, timing).await;
    tokio::join!(a.serves(SHARDS / 2), b.serves(SHARDS / 2));
    let begun = Instant::now();
    b.kill(&history).await;
    a.serves(SHARDS).await;
    assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
    assert!(history.lock().unwrap().broken.is_empty());
}

#[tokio::test]
async fn another_instance_at_the_same_address_proves_that_the_one_before_is_gone() {
    let (leases, ledger, history) = (Memory::new(), Ledger::default(), Arc::default());
    let timing = Timing::new(Duration::from_secs(60), Duration::from_secs(20)).unwrap();
    let a = start(&leases, &ledger, &history, "a", None, timing).await;
    let b = start(&leases, &ledger, &history, "b", None, timing).await;
    tokio::join!(a.serves(SHARDS / 2), b.serves(SHARDS / 2));
    b.kill(&history).await;
    // Under another name, so that its lock says nothing about the one before.
    let begun = Instant::now();
    let c = start(&leases, &ledger, &history, "c", Some(&b.address), timing).await;
    tokio::join!(a.serves(SHARDS / 2), c.serves(SHARDS / 2));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert!(history.lock().unwrap().broken.is_empty());
}
