//! What the connection tells of a peer.

use std::time::Duration;

use cleat_runner::transport::{Health, Options};

use crate::proxy::Proxy;
use crate::world::*;

#[tokio::test]
async fn health_follows_the_connection() {
    let (old, new) = (Acceptor::start(options()).await, Acceptor::start(options()).await);
    let proxy = Proxy::start(old.socket).await;
    let peers = dialler(options());
    let mut health = peers.health(&proxy.address());
    assert_eq!(*health.borrow(), Health::Connecting);
    let connected = |to: &Acceptor| Health::Connected { instance: to.instance.clone() };
    soon(health.wait_for(|health| *health == connected(&old))).await.unwrap();

    proxy.refuse().await;
    let refused =
        soon(health.wait_for(|health| matches!(health, Health::Refused { .. }))).await.unwrap().clone();
    // It says since when, and stays what it is as long as nothing listens.
    let waited = tokio::time::timeout(Duration::from_millis(200), health.changed()).await;
    assert!(waited.is_err());
    assert_eq!(*health.borrow(), refused);

    proxy.point_at(new.socket);
    proxy.accept().await;
    soon(health.wait_for(|health| *health == connected(&new))).await.unwrap();

    peers.forget(&proxy.address(), None);
    soon(health.wait_for(|health| *health == Health::Closed)).await.unwrap();
}

#[tokio::test]
async fn a_host_that_does_not_answer_is_lost_and_not_refused() {
    // Whoever connects here waits for an answer that never comes.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peers = dialler(Options { connect_timeout: Duration::from_millis(50), ..options() });
    let mut health = peers.health(&silent.local_addr().unwrap().into());
    soon(health.wait_for(|health| matches!(health, Health::Lost { .. }))).await.unwrap();
}

#[tokio::test]
async fn a_peer_that_nobody_needs_or_watches_is_not_dialled_forever() {
    let acceptor = Acceptor::start(options()).await;
    let proxy = Proxy::start(acceptor.socket).await;
    let peers = dialler(Options { patience: Duration::from_millis(50), ..options() });
    soon(peers.call(&proxy.address(), envelope(1, "echo", ""))).await.unwrap();
    let watching = peers.health(&proxy.address());
    proxy.refuse().await;
    let mut weak = watching.clone();
    drop(watching);
    soon(weak.wait_for(|health| matches!(health, Health::Refused { .. }))).await.unwrap();
    drop(weak);
    // It closes by itself, which can only be seen from a watcher that comes too late: a new one is connecting.
    soon(async {
        while !matches!(&*peers.health(&proxy.address()).borrow(), Health::Connecting) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    proxy.accept().await;
    assert_eq!(soon(peers.call(&proxy.address(), envelope(2, "echo", "x"))).await.unwrap(), success("x"));
}
