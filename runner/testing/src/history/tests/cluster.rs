//! A correct cluster in a few lines: it does what it is told in any order that is allowed.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use crate::history::{Action, Answer, Entity, History, Operation, Seen, Written};

const ENTITIES: u8 = 3;
const CLIENTS: u8 = 4;

/// What is to happen next, as numbers that each step reads in its own way.
pub fn choices() -> impl Strategy<Value = Vec<(u8, u8, u8)>> {
    proptest::collection::vec((0u8..8, any::<u8>(), any::<u8>()), 0..200)
}

/// An operation that has begun.
struct Begun {
    entity: u8,
    at: u64,
    /// The message, unless it reads.
    message: Option<u64>,
}

#[derive(Default)]
struct Cluster {
    now: u64,
    messages: u64,
    busy: BTreeMap<u8, Begun>,
    /// Messages that will be handled, in order.
    waiting: BTreeMap<u8, VecDeque<u64>>,
    /// Messages that may or may not be handled some time.
    astray: Vec<(u8, u64)>,
    lists: BTreeMap<u8, Vec<u64>>,
    epochs: BTreeMap<u8, i64>,
    history: History,
}

/// The history of a correct cluster to which this happens.
pub fn history(choices: &[(u8, u8, u8)]) -> History {
    let mut cluster = Cluster::default();
    for (what, which, how) in choices {
        cluster.now += 1;
        match what {
            0..=2 => cluster.begin(which % CLIENTS, which / CLIENTS % ENTITIES, how % 3 == 0),
            3 | 4 => cluster.end(which % CLIENTS, how % 4),
            5 | 6 => cluster.handle(which % ENTITIES),
            _ if how % 2 == 0 => cluster.claim(which % ENTITIES),
            _ => cluster.arrive(usize::from(*which)),
        }
    }
    cluster.rest()
}

fn name(entity: u8) -> String {
    format!("entity-{entity}")
}

impl Cluster {
    fn begin(&mut self, client: u8, entity: u8, reads: bool) {
        if self.busy.contains_key(&client) {
            return;
        }
        self.messages += 1;
        let message = (!reads).then_some(self.messages);
        self.busy.insert(client, Begun { entity, at: self.now, message });
    }

    /// Handles the next message that waits.
    fn handle(&mut self, entity: u8) {
        if let Some(message) = self.waiting.entry(entity).or_default().pop_front() {
            self.apply(entity, message);
        }
    }

    fn apply(&mut self, entity: u8, message: u64) -> usize {
        if !self.epochs.contains_key(&entity) {
            self.claim(entity);
        }
        let epoch = self.epochs[&entity];
        self.history.writes.push(written(entity, epoch));
        let list = self.lists.entry(entity).or_default();
        list.push(message);
        list.len()
    }

    /// Somebody else takes the shard.
    fn claim(&mut self, entity: u8) {
        let epoch = self.epochs.entry(entity).or_insert(0);
        *epoch += 1;
        self.history.claims.push(written(entity, *epoch));
    }

    /// A message that nobody waits for any more arrives after all.
    fn arrive(&mut self, which: usize) {
        if !self.astray.is_empty() {
            let (entity, message) = self.astray.swap_remove(which % self.astray.len());
            self.waiting.entry(entity).or_default().push_back(message);
        }
    }

    fn end(&mut self, client: u8, how: u8) {
        let Some(Begun { entity, at, message }) = self.busy.remove(&client) else { return };
        let action = match (message, how) {
            (None, _) => {
                let list = self.lists.entry(entity).or_default();
                Action::Read(Seen { length: list.len(), last: list.last().copied() })
            }
            (Some(message), 0) => Action::Send { message, answer: Answer::NotRun },
            (Some(message), 1) => {
                self.astray.push((entity, message));
                Action::Send { message, answer: Answer::Unknown }
            }
            (Some(message), 2) => {
                self.waiting.entry(entity).or_default().push_back(message);
                Action::Send { message, answer: Answer::Accepted }
            }
            (Some(message), _) => {
                // Everything that was accepted before comes first.
                while self.waiting.get(&entity).is_some_and(|waiting| !waiting.is_empty()) {
                    self.handle(entity);
                }
                Action::Send { message, answer: Answer::Handled(self.apply(entity, message)) }
            }
        };
        self.history.operations.push(Operation {
            client: client.into(),
            entity: name(entity),
            action,
            during: (at, self.now),
        });
    }

    /// Lets everything come to rest.
    fn rest(mut self) -> History {
        for entity in 0..ENTITIES {
            while self.waiting.get(&entity).is_some_and(|waiting| !waiting.is_empty()) {
                self.handle(entity);
            }
        }
        let ended = |(entity, handled): (u8, Vec<u64>)| {
            let rows = Some(handled.iter().rev().copied().collect());
            (name(entity), Entity { outcomes: handled.len(), open: Vec::new(), rows, handled })
        };
        self.history.entities = self.lists.into_iter().map(ended).collect();
        self.history
    }
}

fn written(entity: u8, epoch: i64) -> Written {
    Written { shard: entity.to_string(), epoch, instance: format!("instance-{epoch}") }
}
