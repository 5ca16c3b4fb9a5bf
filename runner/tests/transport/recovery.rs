//! What becomes of requests when connections break and peers are replaced.

use std::time::Duration;

use cleat_runner::message::Snowflake;
use cleat_runner::transport::{Cause, Error, Interrupt, Options};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::proxy::Proxy;
use crate::world::*;

#[tokio::test(flavor = "multi_thread")]
async fn volatile_requests_survive_cuts_and_each_is_delivered_exactly_once() {
    let acceptor = Acceptor::start(options()).await;
    let proxy = Proxy::start(acceptor.socket).await;
    let peers = dialler(options());
    let mut callers = JoinSet::new();
    for caller in 0..32i64 {
        let (peers, address) = (peers.clone(), proxy.address());
        callers.spawn(async move {
            for n in 0..300 {
                let id = caller * 1000 + n;
                // Some are larger than what the proxy passes on at once, so that they are cut in the middle.
                let payload = vec![7; if n % 10 == 0 { 40_000 } else { 10 }];
                let answer = peers.call(&address, envelope(id, "echo", payload.clone())).await.unwrap();
                assert_eq!(answer, success(payload));
            }
        });
    }
    let mut cuts = 0;
    let mut deliveries = acceptor.handlers.deliveries.subscribe();
    let mut next = 200;
    while next < 32 * 300 {
        soon(deliveries.wait_for(|all| all.len() >= next)).await.unwrap();
        proxy.cut();
        cuts += 1;
        next += 200;
    }
    assert!(cuts > 40);
    soon(callers.join_all()).await;
    let delivered = acceptor.handlers.ids();
    let mut once = delivered.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), 32 * 300, "a request was lost");
    assert_eq!(delivered.len(), once.len(), "a request was delivered twice");
    for caller in 0..32 {
        let own: Vec<_> = delivered.iter().filter(|id| **id / 1000 == caller).collect();
        assert!(own.is_sorted(), "the requests of a caller were delivered out of order");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_flight_keep_their_order_across_cuts() {
    let acceptor = Acceptor::start(options()).await;
    let proxy = Proxy::start(acceptor.socket).await;
    let peers = dialler(options());
    let mut replies = Vec::new();
    for id in 0..4000 {
        replies
            .push(peers.request(&proxy.address(), envelope(id, "echo", vec![1; 500]), None).await.unwrap());
        if id % 400 == 200 {
            proxy.cut();
        }
    }
    for reply in replies {
        soon(reply.outcome()).await.unwrap();
    }
    assert_eq!(acceptor.handlers.ids(), (0..4000).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_answer_that_was_given_while_there_was_no_connection_arrives() {
    let acceptor = Acceptor::start(options()).await;
    let proxy = Proxy::start(acceptor.socket).await;
    let peers = dialler(options());
    let replies = peers.request(&proxy.address(), envelope(1, "hold", ""), None).await.unwrap();
    acceptor.handlers.delivered(1).await;
    proxy.refuse().await;
    acceptor.handlers.release(1, success("meanwhile"));
    proxy.accept().await;
    assert_eq!(soon(replies.outcome()).await.unwrap(), success("meanwhile"));
    assert_eq!(acceptor.handlers.ids(), [1]);
}

#[tokio::test]
async fn at_a_new_instance_requests_are_decided_by_their_kind() {
    let (old, new) = (Acceptor::start(options()).await, Acceptor::start(options()).await);
    let proxy = Proxy::start(old.socket).await;
    let peers = dialler(options());
    let address = proxy.address();
    let volatile = peers.request(&address, envelope(1, "hold", ""), None).await.unwrap();
    let first = peers.request(&address, persisted(2, "hold", ""), None).await.unwrap();
    let second = peers.request(&address, persisted(3, "hold", ""), None).await.unwrap();
    old.handlers.delivered(3).await;
    proxy.refuse().await;
    let mut health = peers.health(&address);
    soon(health.wait_for(|health| health.instance().is_none())).await.unwrap();
    let unsent = peers.request(&address, envelope(4, "echo", "late"), None).await.unwrap();
    proxy.point_at(new.socket);
    proxy.accept().await;

    let error = soon(volatile.outcome()).await.unwrap_err();
    let of = old.instance.clone();
    assert!(matches!(&error, Error::ConnectionLost { instance: Some(instance), .. } if *instance == of));
    assert!(error.may_have_run());
    let resent = |id| Delivery { id, resent: true, after: None };
    let fresh = Delivery { id: 4, resent: false, after: None };
    assert_eq!(new.handlers.delivered(3).await, [resent(2), resent(3), fresh]);
    assert_eq!(soon(unsent.outcome()).await.unwrap(), success("late"));
    for (id, replies) in [(2, first), (3, second)] {
        new.handlers.release(id, success("again"));
        assert_eq!(soon(replies.outcome()).await.unwrap(), success("again"));
    }
}

#[tokio::test]
async fn a_welcome_that_is_lost_makes_nobody_take_a_new_instance_for_the_old_one() {
    let (old, new) = (Acceptor::start(options()).await, Acceptor::start(options()).await);
    let proxy = Proxy::start(old.socket).await;
    let peers = dialler(Options { connect_timeout: Duration::from_millis(100), ..options() });
    let volatile = peers.request(&proxy.address(), envelope(1, "hold", ""), None).await.unwrap();
    let kept = peers.request(&proxy.address(), persisted(2, "echo", "x"), None).await.unwrap();
    old.handlers.delivered(2).await;
    proxy.stall_answers(true);
    proxy.point_at(new.socket);
    let mut dialled = proxy.dialled();
    let before = *dialled.borrow_and_update();
    proxy.cut();
    // The new instance is asked in several times, and its welcomes do not come through.
    soon(dialled.wait_for(|times| *times >= before + 3)).await.unwrap();
    proxy.stall_answers(false);
    assert!(matches!(soon(volatile.outcome()).await, Err(Error::ConnectionLost { .. })));
    assert_eq!(soon(kept.outcome()).await.unwrap(), success("x"));
    assert_eq!(new.handlers.ids(), [2]);
}

#[tokio::test]
async fn a_session_that_the_peer_has_dropped_is_like_a_new_instance() {
    let mut acceptor = Acceptor::start(Options { retention: Duration::from_millis(10), ..options() }).await;
    let proxy = Proxy::start(acceptor.socket).await;
    let peers = dialler(options());
    let volatile = peers.request(&proxy.address(), envelope(1, "hold", ""), None).await.unwrap();
    let kept = peers.request(&proxy.address(), persisted(2, "hold", ""), None).await.unwrap();
    acceptor.handlers.delivered(2).await;
    proxy.refuse().await;
    let mut gone = Vec::new();
    for _ in 0..2 {
        match acceptor.event().await {
            Event::Interrupt(Interrupt { request, cause: Cause::CallerGone }) => gone.push(request.get()),
            other => panic!("{other:?}"),
        }
    }
    gone.sort_unstable();
    assert_eq!(gone, [1, 2]);
    proxy.accept().await;
    assert!(matches!(soon(volatile.outcome()).await, Err(Error::ConnectionLost { .. })));
    let deliveries = acceptor.handlers.delivered(3).await;
    assert_eq!(deliveries[2], Delivery { id: 2, resent: true, after: None });
    acceptor.handlers.release(2, success("again"));
    assert_eq!(soon(kept.outcome()).await.unwrap(), success("again"));
}

#[tokio::test]
async fn what_cannot_be_delivered_in_time_fails_and_says_whether_it_may_have_run() {
    let acceptor = Acceptor::start(options()).await;
    let proxy = Proxy::start(acceptor.socket).await;
    let peers = dialler(Options { patience: Duration::from_millis(200), ..options() });
    let sent = peers.request(&proxy.address(), envelope(1, "hold", ""), None).await.unwrap();
    acceptor.handlers.delivered(1).await;
    let mut health = peers.health(&proxy.address());
    proxy.refuse().await;
    soon(health.wait_for(|health| health.instance().is_none())).await.unwrap();
    let unsent = peers.request(&proxy.address(), envelope(2, "hold", ""), None).await.unwrap();
    let error = soon(sent.outcome()).await.unwrap_err();
    assert!(matches!(error, Error::ConnectionLost { .. }), "{error}");
    let error = soon(unsent.outcome()).await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable { address, .. } if *address == proxy.address()), "{error}");
    assert!(!error.may_have_run());

    // The peer is told that the session was given up, and goes on with a new one.
    proxy.accept().await;
    let outcome = soon(async {
        loop {
            match peers.call(&proxy.address(), envelope(3, "echo", "back")).await {
                Err(Error::Unreachable { .. }) => {}
                other => return other,
            }
        }
    });
    assert_eq!(outcome.await.unwrap(), success("back"));
    let mut acceptor = acceptor;
    let gone = Interrupt { request: Snowflake::new(1), cause: Cause::CallerGone };
    assert_eq!(acceptor.event().await, Event::Interrupt(gone));
}

#[tokio::test]
async fn a_peer_that_is_forgotten_fails_its_requests_at_once_and_can_be_dialled_again() {
    let acceptor = Acceptor::start(options()).await;
    let peers = dialler(options());
    let address = acceptor.address();
    let sent = peers.request(&address, envelope(1, "hold", ""), None).await.unwrap();
    acceptor.handlers.delivered(1).await;
    peers.forget(&address, Some(&cleat_runner::shard::Instance::new("somebody else")));
    let mut health = peers.health(&address);
    assert_eq!(health.borrow_and_update().instance(), Some(&acceptor.instance));
    peers.forget(&address, Some(&acceptor.instance));
    assert!(matches!(soon(sent.outcome()).await, Err(Error::ConnectionLost { .. })));
    assert_eq!(soon(peers.call(&address, envelope(2, "echo", "x"))).await.unwrap(), success("x"));
}

#[tokio::test]
async fn a_handle_that_is_closed_fails_what_waits_and_takes_nothing_more() {
    let acceptor = Acceptor::start(options()).await;
    let peers = dialler(options());
    let sent = peers.request(&acceptor.address(), envelope(1, "hold", ""), None).await.unwrap();
    acceptor.handlers.delivered(1).await;
    soon(peers.close()).await;
    assert!(matches!(soon(sent.outcome()).await, Err(Error::ConnectionLost { .. })));
    let late = soon(peers.call(&acceptor.address(), envelope(2, "echo", ""))).await;
    assert!(matches!(late, Err(Error::Forgotten(_))));
}

#[tokio::test]
async fn a_server_that_stops_sends_the_answers_that_it_has() {
    let acceptor = Acceptor::start(options()).await;
    let peers = dialler(options());
    let address = acceptor.address();
    let mut replies = Vec::new();
    for id in 0..100 {
        replies.push(peers.request(&address, envelope(id, "hold", ""), None).await.unwrap());
    }
    acceptor.handlers.delivered(100).await;
    for id in 0..100 {
        acceptor.handlers.release(id, success("last"));
    }
    acceptor.stop().await;
    for reply in replies {
        assert_eq!(soon(reply.outcome()).await.unwrap(), success("last"));
    }
}

#[tokio::test]
async fn a_peer_that_restarts_at_its_address_is_found_again() {
    let acceptor = Acceptor::start(options()).await;
    let peers = dialler(options());
    let (address, socket, before) = (acceptor.address(), acceptor.socket, acceptor.instance.clone());
    soon(peers.call(&address, envelope(1, "echo", ""))).await.unwrap();
    let mut health = peers.health(&address);
    acceptor.stop().await;
    let again = Acceptor::serve(TcpListener::bind(socket).await.unwrap(), options());
    let health = soon(health.wait_for(|health| health.instance().is_some_and(|new| *new != before))).await;
    assert_eq!(health.unwrap().instance(), Some(&again.instance));
    assert_eq!(soon(peers.call(&address, envelope(2, "echo", "x"))).await.unwrap(), success("x"));
}
