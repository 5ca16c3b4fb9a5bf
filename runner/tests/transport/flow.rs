//! Nobody fills the memory of anybody.

use std::pin::pin;
use std::time::Duration;

use cleat_runner::message::Body;
use cleat_runner::transport::{Health, Options};
use futures::poll;
use tokio::task::JoinSet;

use crate::proxy::Proxy;
use crate::world::*;

#[tokio::test]
async fn callers_beyond_the_window_wait_until_an_earlier_request_is_answered() {
    let acceptor = Acceptor::start(options()).await;
    let peers = dialler(Options { window: 4 << 10, ..options() });
    let address = acceptor.address();
    let mut replies = Vec::new();
    for id in 0..4 {
        replies.push(peers.request(&address, envelope(id, "hold", ""), None).await.unwrap());
    }
    acceptor.handlers.delivered(4).await;
    let mut fifth = pin!(peers.request(&address, envelope(4, "hold", ""), None));
    assert!(poll!(&mut fifth).is_pending());
    acceptor.handlers.release(2, success("done"));
    let fifth = soon(fifth).await.unwrap();
    assert_eq!(acceptor.handlers.delivered(5).await[4].id, 4);
    assert_eq!(soon(replies.remove(2).outcome()).await.unwrap(), success("done"));
    acceptor.handlers.release(4, success("done"));
    assert_eq!(soon(fifth.outcome()).await.unwrap(), success("done"));
}

#[tokio::test]
async fn a_large_request_counts_as_many_small_ones() {
    let acceptor = Acceptor::start(options()).await;
    let peers = dialler(Options { window: 4 << 10, ..options() });
    let address = acceptor.address();
    let large = peers.request(&address, envelope(0, "hold", vec![0; 3 << 10]), None).await.unwrap();
    let mut small = pin!(peers.request(&address, envelope(1, "echo", vec![0; 1 << 10]), None));
    assert!(poll!(&mut small).is_pending());
    drop(large);
    let small = soon(small).await.unwrap();
    soon(small.outcome()).await.unwrap();
}

#[tokio::test]
async fn a_request_that_was_admitted_does_not_count_any_more() {
    let acceptor = Acceptor::start(options()).await;
    let peers = dialler(Options { window: 1 << 10, ..options() });
    let mut replies = Vec::new();
    for id in 0..100 {
        let request = envelope(id, "admit", "");
        replies.push(soon(peers.request(&acceptor.address(), request, None)).await.unwrap());
    }
    assert_eq!(acceptor.handlers.delivered(100).await.len(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_stops_reading_holds_its_callers_and_only_them() {
    let (stalled, other) = (Acceptor::start(options()).await, Acceptor::start(options()).await);
    let proxy = Proxy::start(stalled.socket).await;
    let peers = dialler(Options { window: 1 << 20, ..options() });
    soon(peers.call(&proxy.address(), envelope(0, "echo", ""))).await.unwrap();
    proxy.stall(true);

    let mut callers = JoinSet::new();
    for id in 1..=64 {
        let (peers, address) = (peers.clone(), proxy.address());
        callers.spawn(async move {
            for n in 0..4 {
                let payload = vec![0; 64 << 10];
                let answer = peers.call(&address, envelope(id * 100 + n, "echo", payload)).await.unwrap();
                assert!(matches!(answer, cleat_runner::message::Outcome::Success(bytes) if bytes.len() == 64 << 10));
            }
        });
    }
    for id in 0..100 {
        soon(peers.call(&other.address(), envelope(id, "echo", ""))).await.unwrap();
    }
    // The window is full: one more caller cannot even send.
    let address = proxy.address();
    let mut late = pin!(peers.request(&address, envelope(9, "echo", vec![0; 64 << 10]), None));
    assert!(poll!(&mut late).is_pending());
    assert_eq!(stalled.handlers.ids().len(), 1);

    proxy.stall(false);
    soon(callers.join_all()).await;
    soon(soon(late).await.unwrap().outcome()).await.unwrap();
    let mut ids = stalled.handlers.ids();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 1 + 64 * 4 + 1);
    assert_eq!(stalled.handlers.ids().len(), ids.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_that_the_caller_does_not_read_hold_the_stream_that_makes_them() {
    let options = Options { backlog: 64 << 10, chunk_window: u16::MAX, ..options() };
    let acceptor = Acceptor::start(options.clone()).await;
    let proxy = Proxy::start(acceptor.socket).await;
    let peers = dialler(options);
    let mut replies = peers.request(&proxy.address(), envelope(1, "flood", "4000"), None).await.unwrap();
    soon(replies.next()).await.unwrap().unwrap();
    proxy.stall(true);
    // The stream goes on until all buffers on the way are full, and then stands still long before its end.
    let mut sent = acceptor.handlers.sent.subscribe();
    while tokio::time::timeout(Duration::from_millis(500), sent.changed()).await.is_ok() {}
    assert!(*sent.borrow() < 3999, "nothing held the stream");
    proxy.stall(false);
    let mut last = 0;
    while let Some(Ok(Body::Chunk(chunk))) = soon(replies.next()).await {
        assert_eq!(chunk.sequence.0, last + 1);
        last = chunk.sequence.0;
    }
    assert_eq!(last, 3999);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_silent_too_long_is_taken_for_lost_and_made_anew() {
    let quick = Options {
        keep_alive: Duration::from_millis(100),
        keep_alive_timeout: Duration::from_millis(200),
        connect_timeout: Duration::from_millis(500),
        ..options()
    };
    let acceptor = Acceptor::start(options()).await;
    let proxy = Proxy::start(acceptor.socket).await;
    let peers = dialler(quick);
    soon(peers.call(&proxy.address(), envelope(1, "echo", ""))).await.unwrap();
    let mut health = peers.health(&proxy.address());
    proxy.stall(true);
    let waiting = peers.request(&proxy.address(), envelope(2, "echo", "x"), None).await.unwrap();
    soon(health.wait_for(|health| matches!(health, Health::Lost { .. }))).await.unwrap();
    proxy.stall(false);
    assert_eq!(soon(waiting.outcome()).await.unwrap(), success("x"));
    assert_eq!(acceptor.handlers.ids(), [1, 2]);
}
