//! Envelopes that are sent more than once under one id, and rejections by another runner.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cleat_runner::entity::Request;
use cleat_runner::message::{EntityAddress, EntityType, Envelope, Outcome, codec};
use cleat_runner::prelude::*;
use tokio::sync::Notify;

use crate::nodes::{Runner, World, settled, until};
use crate::{envelope_for, id_of_type_on, within};

/// Counts how often its handlers run, without any state of its own.
#[entity(name = "echo")]
#[derive(Clone, Default)]
struct Echo {
    runs: Arc<AtomicUsize>,
    open: Arc<Notify>,
}

#[entity_impl]
impl Echo {
    #[rpc(persisted)]
    pub async fn say(&self, text: String) -> Result<String, Never> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        Ok(text)
    }

    #[rpc(persisted)]
    pub async fn wait(&self, text: String) -> Result<String, Never> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        self.open.notified().await;
        Ok(text)
    }
}

fn echo() -> EntityType {
    EntityType::new("echo").unwrap()
}

fn say(runner: &Runner, id: &str, method: &str) -> Envelope {
    envelope_for(runner, EntityAddress::new("echo", id).unwrap(), method, &"hello")
}

fn hello() -> Outcome {
    Outcome::Success(codec::encode("hello").unwrap().into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envelope_that_is_sent_twice_runs_a_stateless_handler_once() {
    let world = World::new().await;
    let (a, b) = (world.start("a").await, world.start("b").await);
    let entity = Echo::default();
    for runner in [&a, &b] {
        entity.clone().register(&runner.node).unwrap();
    }
    settled(&[&a, &b]).await;
    for owner in [&a, &b] {
        let id = id_of_type_on(owner, &echo());
        entity.runs.store(0, Ordering::SeqCst);
        // After it has ended: the kept reply.
        let envelope = say(&a, &id, "say");
        for sender in [&a, &a, &b] {
            assert_eq!(within(sender.node.send(envelope.clone())).await.unwrap(), hello());
        }
        let stored = within(b.node.notify(envelope.clone())).await.unwrap();
        assert_eq!(stored.id, envelope.id);
        assert_eq!(entity.runs.load(Ordering::SeqCst), 1);
        // While it runs: all wait for the same end.
        let envelope = say(&a, &id, "wait");
        let sent: Vec<_> = [&a, &b, &a]
            .map(|sender| {
                let (node, envelope) = (sender.node.clone(), envelope.clone());
                tokio::spawn(async move { node.send(envelope).await })
            })
            .into();
        until("it runs", || entity.runs.load(Ordering::SeqCst) == 2).await;
        entity.open.notify_one();
        for sent in sent {
            assert_eq!(within(sent).await.unwrap().unwrap(), hello());
        }
        assert_eq!(entity.runs.load(Ordering::SeqCst), 2);
    }
    a.node.shutdown().await;
    b.node.shutdown().await;
}

/// A runner that is not told that an envelope was sent before runs it again, and finds the conflict when it commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_that_conflicts_with_a_kept_reply_is_decided_immediately() {
    let world = World::new().await;
    let a = world.start("a").await;
    let entity = Echo::default();
    entity.clone().register(&a.node).unwrap();
    settled(&[&a]).await;
    let id = id_of_type_on(&a, &echo());
    let envelope = say(&a, &id, "say");
    let begun = Instant::now();
    for _ in 0..5 {
        let request = Request::new(envelope.clone());
        let answer = within(a.node.router().request(request)).await.unwrap();
        assert_eq!(answer, cleat_runner::entity::Delivered::Ended(hello()));
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "a lane was blocked for {:?}", begun.elapsed());
    a.node.shutdown().await;
}
