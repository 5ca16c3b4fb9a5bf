//! Streams: order, acknowledgement, window, resumption.

use cleat_runner::message::{Body, Sequence, Snowflake};
use cleat_runner::transport::{Cause, Interrupt, Options, Replies};

use crate::proxy::Proxy;
use crate::world::*;

async fn chunk(replies: &mut Replies) -> i32 {
    match soon(replies.next()).await.unwrap().unwrap() {
        Body::Chunk(chunk) => {
            assert_eq!(chunk.items, [chunk.sequence.0.to_string()]);
            chunk.sequence.0
        }
        Body::End(outcome) => panic!("ended with {outcome:?}"),
    }
}

#[tokio::test]
async fn chunks_come_in_order_and_their_acknowledgements_go_back() {
    let mut acceptor = Acceptor::start(options()).await;
    let peers = dialler(options());
    let mut replies = peers.request(&acceptor.address(), envelope(1, "count", "500"), None).await.unwrap();
    for expected in 0..500 {
        assert_eq!(chunk(&mut replies).await, expected);
        replies.acknowledge(Sequence(expected));
        assert_eq!(acceptor.event().await, Event::Acknowledge(Snowflake::new(1), Sequence(expected)));
    }
    assert_eq!(soon(replies.next()).await.unwrap().unwrap(), Body::End(success("counted")));
    assert!(soon(replies.next()).await.is_none());
}

#[tokio::test]
async fn a_stream_goes_no_further_than_its_window_until_it_is_acknowledged() {
    let acceptor = Acceptor::start(options()).await;
    let peers = dialler(Options { chunk_window: 4, ..options() });
    let mut replies = peers.request(&acceptor.address(), envelope(1, "count", "100"), None).await.unwrap();
    for expected in 0..4 {
        assert_eq!(chunk(&mut replies).await, expected);
    }
    // Whatever else is sent meanwhile, the stream stands still: its fifth chunk would overtake nothing.
    for id in 2..100 {
        soon(peers.call(&acceptor.address(), envelope(id, "echo", ""))).await.unwrap();
    }
    assert_eq!(*acceptor.handlers.sent.borrow(), 3);
    replies.acknowledge(Sequence(1));
    assert_eq!(chunk(&mut replies).await, 4);
    assert_eq!(chunk(&mut replies).await, 5);
    assert_eq!(*soon(acceptor.handlers.sent.subscribe().wait_for(|sent| *sent >= 5)).await.unwrap(), 5);
    replies.acknowledge(Sequence(5));
    assert_eq!(soon(replies.outcome()).await.unwrap(), success("counted"));
}

#[tokio::test]
async fn a_stream_whose_reader_goes_away_ends_at_its_source() {
    let mut acceptor = Acceptor::start(options()).await;
    let peers = dialler(options());
    let mut replies =
        peers.request(&acceptor.address(), envelope(1, "count", "1000000"), None).await.unwrap();
    chunk(&mut replies).await;
    drop(replies);
    let gone = Interrupt { request: Snowflake::new(1), cause: Cause::CallerGone };
    assert_eq!(acceptor.event().await, Event::Interrupt(gone));
}

#[tokio::test]
async fn a_stream_survives_cuts_without_losing_or_doubling_a_chunk() {
    let acceptor = Acceptor::start(options()).await;
    let proxy = Proxy::start(acceptor.socket).await;
    let peers = dialler(options());
    let mut replies = peers.request(&proxy.address(), envelope(1, "count", "2000"), None).await.unwrap();
    for expected in 0..2000 {
        assert_eq!(chunk(&mut replies).await, expected);
        replies.acknowledge(Sequence(expected));
        if expected % 100 == 50 {
            proxy.cut();
        }
    }
    assert_eq!(soon(replies.outcome()).await.unwrap(), success("counted"));
    assert_eq!(acceptor.handlers.ids(), [1]);
}

#[tokio::test]
async fn a_persisted_stream_goes_on_at_a_new_instance_after_the_last_chunk_that_came() {
    let (old, new) = (Acceptor::start(options()).await, Acceptor::start(options()).await);
    let proxy = Proxy::start(old.socket).await;
    let peers = dialler(Options { chunk_window: 4, ..options() });
    let mut replies = peers.request(&proxy.address(), persisted(1, "count", "20"), None).await.unwrap();
    for expected in 0..4 {
        assert_eq!(chunk(&mut replies).await, expected);
    }
    proxy.point_at(new.socket);
    proxy.cut();
    assert_eq!(new.handlers.delivered(1).await, [Delivery { id: 1, resent: true, after: Some(3) }]);
    for expected in 4..20 {
        assert_eq!(chunk(&mut replies).await, expected);
        replies.acknowledge(Sequence(expected));
    }
    assert_eq!(soon(replies.outcome()).await.unwrap(), success("counted"));
}

#[tokio::test]
async fn a_caller_that_has_chunks_already_says_so() {
    let acceptor = Acceptor::start(options()).await;
    let peers = dialler(options());
    let after = Some(Sequence(6));
    let mut replies = peers.request(&acceptor.address(), persisted(1, "count", "10"), after).await.unwrap();
    assert_eq!(chunk(&mut replies).await, 7);
    assert_eq!(acceptor.handlers.delivered(1).await[0].after, Some(6));
    assert_eq!(soon(replies.outcome()).await.unwrap(), success("counted"));
}
