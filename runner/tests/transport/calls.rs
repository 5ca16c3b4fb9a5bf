//! Requests and what comes back.

use cleat_runner::message::{Outcome, Snowflake};
use cleat_runner::shard::{GroupName, ShardId};
use cleat_runner::transport::{Cause, Error, Interrupt, Moved, NotConnected};
use tokio::task::JoinSet;

use crate::world::*;

#[tokio::test]
async fn a_request_is_answered() {
    let acceptor = Acceptor::start(options()).await;
    let peers = dialler(options());
    let outcome = soon(peers.call(&acceptor.address(), envelope(1, "echo", "hello"))).await.unwrap();
    assert_eq!(outcome, success("hello"));
}

#[tokio::test]
async fn a_failure_and_a_defect_come_back_as_they_are() {
    let acceptor = Acceptor::start(options()).await;
    let peers = dialler(options());
    let failure = soon(peers.call(&acceptor.address(), envelope(1, "fail", ""))).await.unwrap();
    assert_eq!(failure, Outcome::failure("OutOfStock", "there are none left"));
    let defect = soon(peers.call(&acceptor.address(), envelope(2, "break", ""))).await.unwrap();
    assert_eq!(defect, Outcome::defect("Panicked", "oh"));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_callers_each_gets_its_own_answer() {
    let acceptor = Acceptor::start(options()).await;
    let peers = dialler(options());
    let mut callers = JoinSet::new();
    for caller in 0..64i64 {
        let (peers, address) = (peers.clone(), acceptor.address());
        callers.spawn(async move {
            for n in 0..200 {
                let text = format!("{caller} {n}");
                let answer = peers.call(&address, envelope(caller * 1000 + n, "echo", text.clone())).await;
                assert_eq!(answer.unwrap(), success(text));
            }
        });
    }
    soon(callers.join_all()).await;
    assert_eq!(acceptor.handlers.ids().len(), 64 * 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_arrive_in_the_order_in_which_they_were_sent() {
    let acceptor = Acceptor::start(options()).await;
    let peers = dialler(options());
    let mut replies = Vec::new();
    for id in 0..5000 {
        replies.push(peers.request(&acceptor.address(), envelope(id, "echo", ""), None).await.unwrap());
    }
    for reply in replies {
        soon(reply.outcome()).await.unwrap();
    }
    assert_eq!(acceptor.handlers.ids(), (0..5000).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_request_that_is_dropped_without_an_answer_does_not_hang() {
    let acceptor = Acceptor::start(options()).await;
    let peers = dialler(options());
    let error = soon(peers.call(&acceptor.address(), envelope(1, "drop", ""))).await.unwrap_err();
    assert!(matches!(error, Error::Abandoned(_)), "{error}");
    assert!(error.may_have_run());
}

#[tokio::test]
async fn a_peer_that_drains_turns_requests_away_unrun() {
    let acceptor = Acceptor::start(options()).await;
    let peers = dialler(options());
    let error = soon(peers.call(&acceptor.address(), envelope(1, "away", ""))).await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable(text) if text == "draining"), "{error}");
    assert!(!error.may_have_run());
}

#[tokio::test]
async fn a_request_for_a_shard_that_moved_is_redirected_to_its_holder() {
    let (old, new) = (Acceptor::start(options()).await, Acceptor::start(options()).await);
    let shard = ShardId::new(GroupName::default(), 17);
    let moved = Moved { shard, holder: Some(new.holder()) };
    *old.handlers.moved.lock().unwrap() = Some(moved.clone());
    let peers = dialler(options());
    let error = soon(peers.call(&old.address(), envelope(1, "moved", "x"))).await.unwrap_err();
    assert!(matches!(&error, Error::Moved(told) if *told == moved), "{error}");
    assert!(!error.may_have_run());
    let outcome = soon(peers.call_following(&old.address(), envelope(2, "moved", "x"), 1)).await.unwrap();
    assert_eq!(outcome, success("x"));
    assert_eq!(new.handlers.ids(), [2]);
}

#[tokio::test]
async fn a_shard_whose_holder_is_not_known_is_told_as_such() {
    let acceptor = Acceptor::start(options()).await;
    let moved = Moved { shard: ShardId::new(GroupName::default(), 17), holder: None };
    *acceptor.handlers.moved.lock().unwrap() = Some(moved.clone());
    let peers = dialler(options());
    let error =
        soon(peers.call_following(&acceptor.address(), envelope(1, "moved", ""), 3)).await.unwrap_err();
    assert!(matches!(error, Error::Moved(told) if told == moved));
    assert_eq!(acceptor.handlers.ids(), [1]);
}

#[tokio::test]
async fn a_hint_arrives_once_there_is_a_stream_and_is_refused_before() {
    let mut acceptor = Acceptor::start(options()).await;
    let peers = dialler(options());
    let (address, shard) = (acceptor.address(), ShardId::new(GroupName::default(), 3));
    assert_eq!(peers.hint(&address, &shard), Err(NotConnected(address.clone())));
    let mut health = peers.health(&address);
    soon(health.wait_for(|health| health.instance().is_some())).await.unwrap();
    peers.hint(&address, &shard).unwrap();
    assert_eq!(acceptor.event().await, Event::Hint(shard));
}

#[tokio::test]
async fn a_request_is_interrupted_by_its_caller_and_by_others() {
    let mut acceptor = Acceptor::start(options()).await;
    let peers = dialler(options());
    let address = acceptor.address();
    let replies = peers.request(&address, envelope(1, "hold", ""), None).await.unwrap();
    acceptor.handlers.delivered(1).await;
    let request = Snowflake::new(1);
    replies.interrupt();
    assert_eq!(acceptor.event().await, Event::Interrupt(Interrupt { request, cause: Cause::Asked }));
    peers.interrupt(&address, request).unwrap();
    assert_eq!(acceptor.event().await, Event::Interrupt(Interrupt { request, cause: Cause::Asked }));
    acceptor.handlers.release(1, Outcome::defect("Interrupted", ""));
    assert_eq!(soon(replies.outcome()).await.unwrap(), Outcome::defect("Interrupted", ""));
}

#[tokio::test]
async fn a_ping_comes_back() {
    let acceptor = Acceptor::start(options()).await;
    let peers = dialler(options());
    soon(peers.call(&acceptor.address(), envelope(1, "echo", ""))).await.unwrap();
    soon(peers.ping(&acceptor.address())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_callers_that_go_away_disturb_nobody_else() {
    let mut acceptor = Acceptor::start(options()).await;
    let peers = dialler(options());
    let address = acceptor.address();
    soon(peers.call(&address, envelope(0, "echo", ""))).await.unwrap();
    let mut health = peers.health(&address);
    health.mark_unchanged();

    let mut others = JoinSet::new();
    for caller in 0..8 {
        let (peers, address) = (peers.clone(), address.clone());
        others.spawn(async move {
            for n in 0..2000i64 {
                let id = 1_000_000 + caller * 10_000 + n;
                assert_eq!(peers.call(&address, envelope(id, "echo", "x")).await.unwrap(), success("x"));
            }
        });
    }
    let dropping = async {
        for id in 1..=10_000 {
            drop(peers.request(&address, envelope(id, "hold", ""), None).await.unwrap());
        }
    };
    soon(async { tokio::join!(dropping, others.join_all()) }).await;

    for id in 1..=10_000 {
        let gone = Interrupt { request: Snowflake::new(id), cause: Cause::CallerGone };
        assert_eq!(acceptor.event().await, Event::Interrupt(gone));
    }
    assert!(!health.has_changed().unwrap(), "the connection was disturbed");
    for (_, responder) in acceptor.handlers.held.lock().unwrap().drain() {
        assert!(responder.is_gone());
    }
}
