//! A runner that stands still, and wakes up when it is somebody else's turn.

use std::collections::BTreeSet;
use std::sync::Arc;

use cleat_runner::message::{EntityAddress, Envelope, Headers, Outcome, Snowflake, Uninterruptible, codec};
use cleat_runner::shard::{GroupName, Instance, ShardMap};
use cleat_runner::transport::{self, Address, Identity, Peers, SharedToken};

use crate::audit;
use crate::cluster::{Cluster, PATIENCE, Settings, locks, millis};
use crate::list::Seen;
use crate::load::Load;
use crate::runner::SHARDS;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_stood_still_for_longer_than_its_lock_spoils_nothing() {
    let mut cluster = Cluster::start(locks(millis(3000))).await;
    let load = Load::start(&cluster, 7);
    load.goes_on(20).await;
    cluster.runner("b").process.pause().await.unwrap();
    let instances = cluster.runners.iter().filter(|(name, _)| *name != "b");
    let others: BTreeSet<_> = instances.map(|(_, runner)| runner.instance.as_str().to_owned()).collect();
    cluster.owned_by(others).await;
    load.goes_on(20).await;
    cluster.runner("b").process.resume().unwrap();
    // It is one of them again, in new epochs.
    cluster.settled().await;
    load.goes_on(20).await;
    load.stop().await.check(&cluster).await;
    cluster.stop().await;
}

/// Asks a runner itself, whoever owns the entity.
struct Direct {
    peers: Peers,
    to: Address,
}

impl Direct {
    fn new(to: Address) -> Self {
        let identity =
            Identity { cluster: "cluster".into(), instance: Instance::random(), version: "1".into() };
        let token = Arc::new(SharedToken::new("a secret of these processes"));
        let options = transport::Options {
            keep_alive: PATIENCE,
            keep_alive_timeout: PATIENCE,
            patience: PATIENCE,
            ..transport::Options::default()
        };
        Self { peers: Peers::new(identity, token, options), to }
    }

    async fn read(&self, number: i64, method: &str, list: &str) -> Result<Seen, transport::Error> {
        let envelope = Envelope {
            id: Snowflake::new(number),
            address: EntityAddress::new("list", list).unwrap(),
            method: method.to_owned(),
            payload: codec::encode(&()).unwrap().into(),
            persisted: false,
            key: None,
            deliver_at: None,
            uninterruptible: Uninterruptible::default(),
            trace: None,
            headers: Headers::default(),
        };
        match self.peers.call(&self.to, envelope).await? {
            Outcome::Success(seen) => Ok(codec::decode(&seen).unwrap()),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_stood_still_answers_no_read_from_its_old_memory() {
    let mut cluster = Cluster::start(locks(millis(3000))).await;
    // Lists of the runner that is to stand still, each with one message.
    let owners = audit::owners(&cluster.url).await.unwrap();
    let b = cluster.runner("b").instance.as_str().to_owned();
    let map = ShardMap::new(GroupName::default(), SHARDS).unwrap();
    let of_b = |list: &String| owners[&i32::from(map.shard_of(list).id)].1 == b;
    let lists: Vec<_> = (0..).map(|number| format!("list-{number}")).filter(of_b).take(8).collect();
    for list in &lists {
        assert_eq!(cluster.client.append(list, &1).await.unwrap(), 1);
    }
    let direct = Arc::new(Direct::new(cluster.runner("b").at.into()));
    assert_eq!(direct.read(1, "read", &lists[0]).await.unwrap(), (1, Some(1)), "it is asked directly");
    // Some are asked before it stands still and would be answered after it woke up, some are asked meanwhile.
    let ask = |number: i64, method: &'static str, list: &String| {
        let (direct, list) = (Arc::clone(&direct), list.clone());
        tokio::spawn(async move { direct.read(number, method, &list).await })
    };
    let mut asked: Vec<_> =
        (10..).zip(&lists).map(|(number, list)| ask(number, "read_slowly", list)).collect();
    // What was sent before a ping has arrived when that comes back.
    direct.peers.ping(&direct.to).await.unwrap();
    let runner = cluster.runner("b");
    runner.process.pause().await.unwrap();
    asked.extend((200..).zip(&lists).map(|(number, list)| ask(number, "read", list)));
    // Somebody else goes on with them.
    for list in &lists {
        assert_eq!(cluster.client.append(list, &2).await.unwrap(), 2);
    }
    assert!(asked.iter().all(|question| !question.is_finished()), "it stands still");
    cluster.runner("b").process.resume().unwrap();
    for question in asked {
        let answer =
            tokio::time::timeout(PATIENCE, question).await.expect("no question is left open").unwrap();
        // It may say that it does not own it, or own it again by now. What it remembers is nobody's business.
        assert!(!matches!(answer, Ok((1, _))), "{answer:?}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_request_that_may_have_run_nobody_says_that_it_was_not() {
    // Longer than the test: nobody takes over.
    let settings = Settings { timing: locks(PATIENCE), patience: millis(5000), ..Settings::default() };
    let mut cluster = Cluster::start_with(settings, async |_, at| at).await;
    let load = Load::start(&cluster, 8);
    load.goes_on(10).await;
    cluster.runner("b").process.pause().await.unwrap();
    // It stands still for longer than anybody waits.
    load.fails().await;
    let notes = load.stop().await;
    cluster.runner("b").process.resume().unwrap();
    // What it had taken is handled now, whatever its senders were told.
    notes.check(&cluster).await;
    cluster.stop().await;
}
