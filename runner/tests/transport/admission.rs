//! Who is let in, and what is too large.

use std::sync::Arc;

use cleat_proto::v1::{self, frame::Kind, packet::Body, peer_client::PeerClient};
use cleat_runner::message::Outcome;
use cleat_runner::shard::Instance;
use cleat_runner::transport::{Error, Health, Identity, Options, Peers, Refusal, SharedToken};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Endpoint;

use crate::world::*;

#[tokio::test]
async fn a_wrong_credential_is_refused_with_its_reason() {
    let acceptor = Acceptor::start(options()).await;
    let peers = Peers::new(identity("dialler"), Arc::new(SharedToken::new("guessed")), options());
    let error = soon(peers.call(&acceptor.address(), envelope(1, "echo", ""))).await.unwrap_err();
    assert!(
        matches!(&error, Error::Denied { refusal: Refusal::Credential(text), .. } if text.contains("token")),
        "{error}"
    );
    assert!(!error.may_have_run());
    let health = peers.health(&acceptor.address());
    assert!(matches!(&*health.borrow(), Health::Denied { .. }));
    assert!(acceptor.handlers.ids().is_empty());
}

#[tokio::test]
async fn a_credential_that_is_rotated_gets_in_without_a_restart() {
    let acceptor = Acceptor::start(options()).await;
    let token = Arc::new(SharedToken::new("old"));
    let peers = Peers::new(identity("dialler"), token.clone(), options());
    soon(peers.call(&acceptor.address(), envelope(1, "echo", ""))).await.unwrap_err();
    token.rotate(vec![TOKEN.to_owned()]);
    let outcome = soon(async {
        loop {
            match peers.call(&acceptor.address(), envelope(2, "echo", "x")).await {
                Err(Error::Denied { .. }) => {}
                other => return other,
            }
        }
    });
    assert_eq!(outcome.await.unwrap(), success("x"));
}

#[tokio::test]
async fn a_peer_of_another_cluster_is_refused_with_both_names() {
    let acceptor = Acceptor::start(options()).await;
    let stranger = Identity { cluster: "another".into(), ..identity("dialler") };
    let peers = Peers::new(stranger, token(), options());
    let error = soon(peers.call(&acceptor.address(), envelope(1, "echo", ""))).await.unwrap_err();
    let Error::Denied { refusal: Refusal::Cluster(text), .. } = &error else { panic!("{error}") };
    assert!(text.contains("another") && text.contains(CLUSTER), "{text}");
}

#[tokio::test]
async fn a_request_that_is_too_large_fails_before_it_is_sent_and_says_by_how_much() {
    let acceptor = Acceptor::start(options()).await;
    let peers = dialler(Options { frame_limit: 10_000, ..options() });
    let error =
        soon(peers.call(&acceptor.address(), envelope(1, "echo", vec![0; 20_000]))).await.unwrap_err();
    assert!(matches!(error, Error::RequestTooLarge { size: 20_001..20_200, limit: 10_000 }), "{error}");
    assert!(acceptor.handlers.ids().is_empty());
}

#[tokio::test]
async fn the_smaller_limit_of_the_accepting_peer_holds_before_and_after_the_handshake() {
    let acceptor = Acceptor::start(Options { frame_limit: 10_000, ..options() }).await;
    let peers = dialler(options());
    for id in 0..2 {
        let request = envelope(id, "echo", vec![0; 20_000]);
        let error = soon(peers.call(&acceptor.address(), request)).await.unwrap_err();
        assert!(matches!(error, Error::RequestTooLarge { size: 20_001..20_200, limit: 10_000 }), "{error}");
    }
    assert!(acceptor.handlers.ids().is_empty());
    soon(peers.call(&acceptor.address(), envelope(3, "echo", ""))).await.unwrap();
}

#[tokio::test]
async fn a_reply_that_is_too_large_fails_its_caller_and_nobody_else() {
    let acceptor = Acceptor::start(options()).await;
    let peers = dialler(Options { frame_limit: 10_000, ..options() });
    let held = peers.request(&acceptor.address(), envelope(1, "hold", ""), None).await.unwrap();
    let error = soon(peers.call(&acceptor.address(), envelope(2, "large", "20000"))).await.unwrap_err();
    assert!(matches!(error, Error::ReplyTooLarge { size: 20_001..20_200, limit: 10_000 }), "{error}");
    assert!(error.may_have_run());
    acceptor.handlers.release(1, success("x"));
    assert_eq!(soon(held.outcome()).await.unwrap(), success("x"));
}

/// A peer that follows no rules but those of the wire.
struct Raw {
    send: mpsc::UnboundedSender<v1::Packet>,
    receive: tonic::Streaming<v1::Packet>,
}

impl Raw {
    async fn dial(acceptor: &Acceptor, first: Body) -> Self {
        let channel = Endpoint::from_shared(format!("http://{}", acceptor.socket)).unwrap();
        let (send, packets) = mpsc::unbounded_channel();
        send.send(v1::Packet { body: Some(first) }).unwrap();
        let mut client = PeerClient::new(channel.connect().await.unwrap());
        let receive = client.exchange(UnboundedReceiverStream::new(packets)).await.unwrap().into_inner();
        Self { send, receive }
    }

    fn hello() -> v1::Hello {
        v1::Hello {
            cluster: CLUSTER.to_owned(),
            instance: Instance::random().as_str().to_owned(),
            credential: TOKEN.to_owned(),
            frame_limit: 1 << 20,
            chunk_window: 4,
            ..Default::default()
        }
    }

    fn send(&self, first: u64, frame: Kind) {
        let frames = v1::Frame { kind: Some(frame) }.encode_length_delimited_to_vec().into();
        let batch = v1::Batch { first, received: 0, frames };
        self.send.send(v1::Packet { body: Some(Body::Batch(batch)) }).unwrap();
    }

    async fn packet(&mut self) -> Option<Body> {
        soon(self.receive.message()).await.unwrap().and_then(|packet| packet.body)
    }

    async fn frame(&mut self) -> Kind {
        match self.packet().await {
            Some(Body::Batch(mut batch)) => {
                v1::Frame::decode_length_delimited(&mut batch.frames).unwrap().kind.unwrap()
            }
            other => panic!("{other:?}"),
        }
    }
}

fn request(call: u64, resent: bool, persisted: bool, payload: usize) -> Kind {
    Kind::Request(v1::Request {
        call,
        resent,
        after: None,
        envelope: Some(v1::Envelope {
            id: i64::try_from(call).unwrap(),
            entity_type: "test".to_owned(),
            entity_id: "one".to_owned(),
            method: "echo".to_owned(),
            payload: vec![0; payload].into(),
            persisted,
            ..Default::default()
        }),
    })
}

#[tokio::test]
async fn a_volatile_request_that_may_have_run_is_not_run_and_a_persisted_one_is() {
    let acceptor = Acceptor::start(options()).await;
    let mut raw = Raw::dial(&acceptor, Body::Hello(Raw::hello())).await;
    assert!(matches!(raw.packet().await, Some(Body::Welcome(welcome)) if !welcome.resumed));
    raw.send(1, request(1, true, false, 0));
    let Kind::Rejected(rejected) = raw.frame().await else { panic!("it was run") };
    assert_eq!(rejected.reason(), v1::rejected::Reason::Resent);
    raw.send(2, request(2, true, true, 0));
    assert!(matches!(raw.frame().await, Kind::End(end) if end.call == 2));
    assert_eq!(acceptor.handlers.ids(), [2]);
}

#[tokio::test]
async fn a_frame_that_comes_twice_is_handled_once_and_one_that_is_missing_ends_the_connection() {
    let acceptor = Acceptor::start(options()).await;
    let mut raw = Raw::dial(&acceptor, Body::Hello(Raw::hello())).await;
    raw.packet().await;
    raw.send(1, request(1, false, false, 0));
    raw.send(1, request(1, false, false, 0));
    raw.send(2, request(2, false, false, 0));
    acceptor.handlers.delivered(2).await;
    assert_eq!(acceptor.handlers.ids(), [1, 2]);
    raw.send(4, request(4, false, false, 0));
    while raw.packet().await.is_some() {}
    assert_eq!(acceptor.handlers.ids(), [1, 2]);
}

#[tokio::test]
async fn a_request_larger_than_the_accepting_peer_takes_is_refused_there_as_well() {
    let acceptor = Acceptor::start(Options { frame_limit: 1000, ..options() }).await;
    let mut raw = Raw::dial(&acceptor, Body::Hello(Raw::hello())).await;
    assert!(matches!(raw.packet().await, Some(Body::Welcome(welcome)) if welcome.frame_limit == 1000));
    raw.send(1, request(1, false, false, 2000));
    let Kind::Rejected(rejected) = raw.frame().await else { panic!("it was run") };
    assert_eq!(rejected.reason(), v1::rejected::Reason::RequestTooLarge);
    assert_eq!(rejected.limit, 1000);
    assert!(rejected.size > 2000);
}

#[tokio::test]
async fn an_envelope_that_is_not_well_formed_is_refused() {
    let acceptor = Acceptor::start(options()).await;
    let mut raw = Raw::dial(&acceptor, Body::Hello(Raw::hello())).await;
    raw.packet().await;
    raw.send(1, Kind::Request(v1::Request { call: 1, ..Default::default() }));
    let Kind::Rejected(rejected) = raw.frame().await else { panic!("it was run") };
    assert_eq!(rejected.reason(), v1::rejected::Reason::Invalid);
}

#[tokio::test]
async fn whoever_does_not_say_hello_is_refused() {
    let acceptor = Acceptor::start(options()).await;
    let mut raw = Raw::dial(&acceptor, Body::Batch(v1::Batch::default())).await;
    let Some(Body::Refusal(refusal)) = raw.packet().await else { panic!("it was let in") };
    assert_eq!(refusal.reason(), v1::refusal::Reason::Protocol);
    assert!(raw.packet().await.is_none());
}

#[tokio::test]
async fn large_messages_within_the_limit_pass_in_both_directions() {
    let acceptor = Acceptor::start(options()).await;
    let peers = dialler(options());
    let payload = vec![3; 7 << 20];
    let outcome = soon(peers.call(&acceptor.address(), envelope(1, "echo", payload.clone()))).await.unwrap();
    assert!(matches!(outcome, Outcome::Success(bytes) if bytes == payload));
}
