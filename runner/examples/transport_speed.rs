//! Measures small unary requests between two peers on loopback: `cargo run --release --example transport_speed [CALLERS] [SECONDS] [BYTES]`.
//!
//! Each side has a runtime of its own in this process. The answer to a request is its payload.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use cleat_runner::message::{
    EntityAddress, Envelope, Headers, Outcome, Sequence, Snowflake, Uninterruptible,
};
use cleat_runner::shard::{Instance, ShardId};
use cleat_runner::transport::{
    Address, Identity, Inbound, Interrupt, Options, Peers, Request, Responder, Server, SharedToken,
};
use tokio_util::sync::CancellationToken;

struct Echo;

impl Inbound for Echo {
    fn request(&self, request: Request, responder: Responder) {
        responder.end(Outcome::Success(request.envelope.payload));
    }

    fn interrupt(&self, _: Interrupt) {}

    fn acknowledge(&self, _: Snowflake, _: Sequence) {}

    fn hint(&self, _: ShardId) {}
}

fn identity(name: &str) -> Identity {
    Identity { cluster: "speed".into(), instance: Instance::new(name), version: "1".into() }
}

fn runtime(threads: usize) -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?)
}

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = |default: usize| arguments.next().map_or(Ok(default), |text| text.parse());
    let (callers, seconds, bytes, threads) = (argument(64)?, argument(5)?, argument(32)?, argument(1)?);

    let token = Arc::new(SharedToken::new("secret"));
    let (serving, calling) = (runtime(threads)?, runtime(threads)?);
    let listener = serving.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let address = Address::from(listener.local_addr()?);
    let server = Server::new(identity("server"), token.clone(), Arc::new(Echo), Options::default());
    serving.spawn(server.serve(listener, CancellationToken::new()));

    let peers = {
        let _inside = calling.enter();
        Peers::new(identity("client"), token, Options::default())
    };
    let (over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let envelope = Envelope {
        id: Snowflake::new(1),
        address: EntityAddress::new("counter", "order-42")?,
        method: "increment".to_owned(),
        payload: vec![7; bytes].into(),
        persisted: false,
        key: None,
        deliver_at: None,
        uninterruptible: Uninterruptible::No,
        trace: None,
        headers: Headers::new(),
    };
    let begun = Instant::now();
    let latencies = calling.block_on(async {
        let tasks: Vec<_> = (0..callers)
            .map(|_| {
                let (peers, address, envelope) = (peers.clone(), address.clone(), envelope.clone());
                let (over, count) = (over.clone(), count.clone());
                tokio::spawn(async move {
                    let mut latencies = Vec::new();
                    while !over.load(Ordering::Relaxed) {
                        let begun = Instant::now();
                        peers.call(&address, envelope.clone()).await?;
                        latencies.push(begun.elapsed());
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    anyhow::Ok(latencies)
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_secs(u64::try_from(seconds)?)).await;
        over.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await??);
        }
        anyhow::Ok(all)
    })?;
    let took = begun.elapsed();
    let mut latencies = latencies;
    latencies.sort_unstable();
    let done = count.load(Ordering::Relaxed);
    let rate = u128::from(done) * 1_000_000 / took.as_micros().max(1);
    let at = |percent: usize| latencies.get(latencies.len() * percent / 100).copied().context("no calls");
    println!("{callers} callers, {bytes} bytes: {rate} requests/s, p50 {:?}, p99 {:?}", at(50)?, at(99)?);
    Ok(())
}
