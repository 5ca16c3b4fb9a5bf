//! Random histories of two instances that claim shards from each other and write, checked against a model.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

use super::model::{Answer, Deed, Life, Model, Order, Work, defect};
use super::world::*;
use crate::message::Snowflake;
use crate::shard::{Epoch, Fence, GroupName, ShardId, Slot};
use crate::store::{Attempt, Change, Phase, Progress, Receipt, Store, Write};

/// Several entities per shard, several shards.
const ENTITIES: [&str; 4] = ["apples", "pears", "plums", "größe"];
const REQUESTS: u8 = 5;
const RUNS: u8 = 3;

/// One step of a history.
#[derive(Debug, Clone)]
enum Step {
    /// An instance claims the shard of an entity, with an epoch so much above the newest.
    Claim { who: usize, entity: usize, raise: i64 },
    /// An instance submits writes one after the other without waiting, whether it owns the shards or not.
    Write { who: usize, orders: Vec<Order> },
}

fn deed() -> impl Strategy<Value = Deed> {
    let identity = (proptest::option::of(0..2u8), 0..2u8);
    prop_oneof![
        3 => identity.clone().prop_map(|(key, payload)| Deed::Accept { key, payload }),
        2 => identity.prop_map(|(key, payload)| Deed::FinishNew { key, payload }),
        3 => Just(Deed::FinishStored),
        1 => Just(Deed::Attempt),
        2 => Just(Deed::Bury),
        1 => Just(Deed::Replay),
        1 => Just(Deed::Drop),
    ]
}

fn work() -> impl Strategy<Value = Work> {
    let offset = prop_oneof![8 => Just(0i64), 1 => Just(1), 1 => Just(-1)];
    let run = 0..RUNS;
    prop_oneof![
        2 => run.clone().prop_map(|run| Work::Begin { run }),
        5 => (run.clone(), offset, 1..4u8).prop_map(|(run, offset, count)| Work::Append { run, offset, count }),
        4 => (run.clone(), proptest::sample::select(&Phase::ALL[..]))
            .prop_map(|(run, phase)| Work::Become { run, phase }),
        2 => (run.clone(), run).prop_map(|(from, to)| Work::Renew { from, to }),
    ]
}

fn order() -> impl Strategy<Value = Order> {
    let offset = prop_oneof![6 => Just(0i64), 1 => Just(1), 1 => Just(-1)];
    let deed = proptest::option::weighted(0.8, (0..REQUESTS, deed()));
    let parts = (0..ENTITIES.len(), deed, proptest::option::of(offset), proptest::option::of(work()));
    parts.prop_map(|(entity, deed, state, work)| Order { entity, deed, state, work })
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0..2usize;
    prop_oneof![
        1 => (who.clone(), 0..ENTITIES.len(), prop_oneof![1 => Just(0), 4 => Just(1), 1 => Just(3)])
            .prop_map(|(who, entity, raise)| Step::Claim { who, entity, raise }),
        3 => (who, proptest::collection::vec(order(), 1..12))
            .prop_map(|(who, orders)| Step::Write { who, orders }),
    ]
}

/// Two stores give the answers of the model, whatever they do to each other.
pub async fn stores_answer_as_the_model_predicts<D: Database>(world: World<D>) {
    // Every history has a database of its own; this one is only there because every case gets one.
    drop(world);
    let runtime = tokio::runtime::Handle::current();
    let run = move || {
        let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
        let cases = asked.unwrap_or(D::CASES);
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let histories = proptest::collection::vec(step(), 1..20);
        let answer = TestRunner::new(config).run(&histories, |steps| runtime.block_on(history::<D>(steps)));
        match answer {
            Ok(()) => {}
            Err(TestError::Fail(why, steps)) => panic!("{why}\nin the history {steps:#?}"),
            Err(TestError::Abort(why)) => panic!("{why}"),
        }
    };
    tokio::task::spawn_blocking(run).await.unwrap();
}

async fn history<D: Database>(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let world = World::<D>::new().await;
    let stores = [world.store("a").await, world.store("b").await];
    let mut play =
        Play { world, stores, owners: HashMap::new(), held: HashMap::new(), model: Model::default() };
    for step in steps {
        match step {
            Step::Claim { who, entity, raise } => play.claim(who, entity, raise).await?,
            Step::Write { who, orders } => play.write(who, &orders).await?,
        }
    }
    play.check().await
}

struct Play<D> {
    world: World<D>,
    stores: [Arc<dyn Store>; 2],
    /// The newest epoch of each shard, and whose it is.
    owners: HashMap<ShardId, (i64, usize)>,
    /// The last epoch of each shard that an instance got.
    held: HashMap<(usize, ShardId), i64>,
    model: Model,
}

impl<D: Database> Play<D> {
    fn shard(&self, entity: usize) -> ShardId {
        let map = self.stores[0].maps().iter().find(|map| *map.group() == GroupName::default()).unwrap();
        map.shard_of(ENTITIES[entity])
    }

    async fn claim(&mut self, who: usize, entity: usize, raise: i64) -> Result<(), TestCaseError> {
        let shard = self.shard(entity);
        let newest = self.owners.get(&shard).copied();
        let epoch = newest.map_or(0, |(epoch, _)| epoch) + raise;
        let wins = raise > 0 || newest.is_some_and(|(_, owner)| owner == who);
        let fence = Fence { shard: shard.clone(), epoch: Epoch::new(epoch) };
        let answer = self.stores[who].claim(&[fence]).await.unwrap().pop().unwrap();
        prop_assert_eq!(answer.is_ok(), wins, "claim of {} by {}: {:?}", shard, who, answer);
        if wins {
            self.owners.insert(shard.clone(), (epoch, who));
            self.held.insert((who, shard), epoch);
        }
        Ok(())
    }

    async fn write(&mut self, who: usize, orders: &[Order]) -> Result<(), TestCaseError> {
        let mut pending: Vec<(Order, Vec<Answer>, Receipt)> = Vec::new();
        for order in orders {
            let shard = self.shard(order.entity);
            let epoch = self.held.get(&(who, shard.clone())).copied().unwrap_or(0);
            let owns = self.owners.get(&shard) == Some(&(epoch, who));
            let changes = self.changes(order);
            let world = &self.world;
            let expected = if owns {
                self.model.write(order, |entity, request| id(world, entity, request))
            } else {
                vec![Answer::Failed("Fenced")]
            };
            let write = Write { fence: Fence { shard, epoch: Epoch::new(epoch) }, changes };
            pending.push((*order, expected, self.stores[who].submit(write).await.unwrap()));
        }
        for (order, expected, receipt) in pending {
            let answer = receipt.await.map_or_else(|error| Answer::Failed(error.reason()), Answer::Done);
            prop_assert!(expected.contains(&answer), "{order:?}: {answer:?}, but expected {expected:?}");
        }
        Ok(())
    }

    fn changes(&self, order: &Order) -> Vec<Change> {
        let entity = ENTITIES[order.entity];
        let mut changes = Vec::new();
        if let Some(offset) = order.state {
            changes.push(state(entity, self.model.version(order.entity) + offset, "v"));
        }
        changes.extend(order.work.map(|work| self.work(order.entity, work)));
        let Some((number, deed)) = order.deed else { return changes };
        let request = id(&self.world, order.entity, number);
        let message = |key: Option<u8>, payload: u8| {
            let mut message = self.world.message(number_of(order.entity, number), entity);
            message.envelope.key = key.map(|key| key_of(entity, &key.to_string()));
            message.envelope.payload = vec![payload].into();
            message
        };
        changes.push(match deed {
            Deed::Accept { key, payload } => Change::Accept(message(key, payload)),
            Deed::FinishNew { key, payload } => finish_new(&message(key, payload), "ok"),
            Deed::FinishStored => self.world.finish(number_of(order.entity, number), "ok"),
            Deed::Attempt => {
                let (due, error) = (self.world.now, "again".to_owned());
                Change::Attempt(Attempt { request, attempt: 1, due, error })
            }
            Deed::Bury => Change::Bury { request, outcome: defect(), error: "enough".to_owned() },
            Deed::Replay => Change::Replay { request, seq: request },
            Deed::Drop => Change::Drop { request },
        });
        changes
    }

    fn work(&self, entity: usize, work: Work) -> Change {
        let name = ENTITIES[entity];
        match work {
            Work::Begin { run } => self.world.begin(number_of(entity, RUN + run), name),
            Work::Append { run, offset, count } => {
                let from = self.model.place(entity, run, offset);
                let places = from..from + i64::from(count);
                let entries = places.map(|place| place.to_string().into()).collect();
                Change::Journal {
                    run: id(&self.world, entity, RUN + run),
                    slot: Slot::of("x"),
                    from,
                    entries,
                }
            }
            Work::Become { run, phase } => self.world.became(number_of(entity, RUN + run), name, phase),
            Work::Renew { from, to } => {
                self.world.renew(name, number_of(entity, RUN + from), number_of(entity, RUN + to))
            }
        }
    }

    /// Executions and journals are those of the model.
    async fn check_executions(&self) -> Result<(), TestCaseError> {
        let store = &self.stores[0];
        let (mut active, mut expected) = (BTreeSet::new(), BTreeSet::new());
        for (entity, name) in ENTITIES.iter().enumerate() {
            let stored = store.execution(&workflow(name)).await.unwrap();
            let found = stored.as_ref().map(|stored| (stored.execution.run, stored.execution.phase));
            let model = self.model.executions.get(&entity).copied();
            let wanted = model.map(|(run, phase)| (id(&self.world, entity, RUN + run), phase));
            prop_assert_eq!(found, wanted, "execution of {}", name);
            if let Some(stored) = stored {
                prop_assert_eq!(stored.ended.is_some(), stored.execution.phase.is_final());
                if matches!(stored.execution.phase, Phase::Running | Phase::Cancelling) {
                    expected.insert(workflow(name));
                }
            }
            for run in 0..RUNS {
                let journal = store.journal(id(&self.world, entity, RUN + run), 0, 1000).await.unwrap();
                let length = self.model.length(entity, run);
                let wanted: Vec<_> = (0..length).map(|place| place.to_string()).collect();
                prop_assert_eq!(journal, wanted, "journal of {} run {}", name, run);
            }
        }
        let shards: Vec<_> = store.maps()[0].ids().chain(store.maps()[1].ids()).collect();
        for stored in store.active_executions(&shards, None, 1000).await.unwrap() {
            active.insert(stored.execution.address);
        }
        prop_assert_eq!(active, expected);
        Ok(())
    }

    /// What is stored in the end is what the model has.
    async fn check(&self) -> Result<(), TestCaseError> {
        self.check_executions().await?;
        let store = &self.stores[0];
        let (mut open, mut dead) = (BTreeSet::new(), BTreeSet::new());
        for (entity, name) in ENTITIES.iter().enumerate() {
            let version = store.state(&address(name)).await.unwrap().map_or(0, |state| state.version);
            prop_assert_eq!(version, self.model.version(entity), "version of {}", name);
            for number in 0..REQUESTS {
                let request = id(&self.world, entity, number);
                let life = self.model.requests.get(&(entity, number));
                let expected = match life {
                    None => Progress::Unknown,
                    Some(Life::Open) => Progress::Open,
                    Some(Life::Ended(outcome) | Life::Buried(outcome)) => Progress::Done(outcome.clone()),
                };
                prop_assert_eq!(store.progress(request).await.unwrap(), expected, "request {}", request);
                match life {
                    Some(Life::Open) => drop(open.insert(request)),
                    Some(Life::Buried(_)) => drop(dead.insert(request)),
                    _ => {}
                }
            }
        }
        let mut found = BTreeSet::new();
        for shard in store.maps()[0].ids().chain(store.maps()[1].ids()) {
            found
                .extend(ids(&store.open_messages(std::slice::from_ref(&shard), everything()).await.unwrap()));
        }
        prop_assert_eq!(found, open);
        let letters = store.dead_letters(&GroupName::default(), None, 100).await.unwrap();
        let letters: BTreeSet<_> = letters.iter().map(|letter| letter.message.envelope.id).collect();
        prop_assert_eq!(letters, dead);
        for store in &self.stores {
            store.close().await;
        }
        Ok(())
    }
}

/// Runs have other numbers than requests.
const RUN: u8 = 50;

fn number_of(entity: usize, request: u8) -> i64 {
    i64::try_from(entity).unwrap() * 100 + i64::from(request)
}

fn id<D: Database>(world: &World<D>, entity: usize, request: u8) -> Snowflake {
    world.id(number_of(entity, request))
}
