//! The persisted requests of a shard that are in memory, and who waits for them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Error;
use super::job::{Answer, Delivered, Interrupt, Waiter};
use crate::message::{IdempotencyKey, Outcome, PayloadDigest, Snowflake};
use crate::store::{self, Message};

/// One persisted request.
#[derive(Default)]
struct Tracked {
    waiters: Vec<Waiter>,
    interrupt: Arc<Interrupt>,
    key: Option<IdempotencyKey>,
    /// Whether the message itself is in memory. If not, it is in the database, and only those who wait for it are here.
    here: bool,
}

/// Persisted requests by id and by key: a message that comes twice runs once, and all who asked get its reply.
#[derive(Default)]
pub(super) struct Requests {
    tracked: HashMap<Snowflake, Tracked>,
    keys: HashMap<IdempotencyKey, (Snowflake, PayloadDigest)>,
    /// How often open work is being read from the database.
    readers: usize,
    /// What has ended since the first of them began: what they read may still have it.
    ended: HashSet<Snowflake>,
}

/// Whether a message is new.
pub(super) enum Entry {
    /// It is, and is tracked from now on.
    New(Arc<Interrupt>),
    /// It is under way already; whoever waits for it was added.
    Known,
}

impl Requests {
    /// Open work is going to be read. What ends until then is remembered, so that it is not taken for open.
    pub(super) fn begin_reading(&mut self) {
        self.readers += 1;
    }

    /// What was read has been taken in.
    pub(super) fn end_reading(&mut self) {
        self.readers = self.readers.saturating_sub(1);
        if self.readers == 0 {
            self.ended = HashSet::new();
        }
    }

    /// Whether a request that was read as open has ended since.
    pub(super) fn has_ended(&self, id: Snowflake) -> bool {
        self.ended.contains(&id)
    }

    /// Takes note of a message and of who waits for it.
    pub(super) fn enter(&mut self, message: &Message, waiter: Option<Waiter>) -> Entry {
        let id = message.envelope.id;
        let key = message.envelope.key;
        let first = match key.and_then(|key| self.keys.get(&key)) {
            Some((first, body)) if *body == message.body() => *first,
            Some((first, _)) => {
                if let Some(waiter) = waiter {
                    waiter.answer(Err(store::Error::KeyReused { earlier: *first }.into()));
                }
                return Entry::Known;
            }
            None => id,
        };
        if let Some(tracked) = self.tracked.get_mut(&first)
            && tracked.here
        {
            tracked.waiters.extend(waiter);
            return Entry::Known;
        }
        if let Some(key) = key {
            self.keys.insert(key, (id, message.body()));
        }
        // Those who came before the message wait for it from now on.
        let tracked = self.tracked.entry(id).or_default();
        tracked.waiters.extend(waiter);
        tracked.key = key;
        tracked.here = true;
        Entry::New(Arc::clone(&tracked.interrupt))
    }

    /// Adds somebody who waits for a request. Whether its message is in memory.
    pub(super) fn join(&mut self, id: Snowflake, waiter: Waiter) -> bool {
        let tracked = self.tracked.entry(id).or_default();
        tracked.waiters.push(waiter);
        tracked.here
    }

    /// Tells all who wait for a request whose message is not in memory.
    pub(super) fn answer_absent(&mut self, id: Snowflake, answer: &Answer) {
        if self.tracked.get(&id).is_some_and(|tracked| !tracked.here) {
            self.answer(id, answer);
        }
    }

    /// Whether anybody waits only for the message to be in good hands.
    pub(super) fn is_awaited_for_acceptance(&self, id: Snowflake) -> bool {
        self.tracked
            .get(&id)
            .is_some_and(|tracked| tracked.waiters.iter().any(Waiter::is_content_with_acceptance))
    }

    /// Tells those who wait for nothing more that the message is stored.
    pub(super) fn accepted(&mut self, id: Snowflake) {
        let Some(tracked) = self.tracked.get_mut(&id) else { return };
        let content = tracked.waiters.extract_if(.., |waiter| waiter.is_content_with_acceptance());
        for waiter in content {
            waiter.answer(Ok(Delivered::Accepted(id)));
        }
    }

    /// Tells all who wait for a request. Others may still come to wait for it.
    pub(super) fn tell(&mut self, id: Snowflake, answer: &Answer) {
        let waiters = self.tracked.get_mut(&id).map(|tracked| std::mem::take(&mut tracked.waiters));
        for waiter in waiters.into_iter().flatten() {
            waiter.answer(answer.clone());
        }
    }

    /// Forgets a request and tells all who wait for it.
    pub(super) fn answer(&mut self, id: Snowflake, answer: &Answer) {
        if self.readers > 0 && answer.is_ok() {
            self.ended.insert(id);
        }
        let Some(tracked) = self.tracked.remove(&id) else { return };
        if let Some(key) = tracked.key {
            self.keys.remove(&key);
        }
        for waiter in tracked.waiters {
            let content = waiter.is_content_with_acceptance() && answer.is_ok();
            waiter.answer(if content { Ok(Delivered::Accepted(id)) } else { answer.clone() });
        }
    }

    /// Forgets a request that turned out to be another one's duplicate, and tells all who wait for it.
    pub(super) fn duplicate(&mut self, id: Snowflake, first: Snowflake, outcome: Outcome) {
        if self.readers > 0 {
            self.ended.extend([id, first]);
        }
        let Some(tracked) = self.tracked.remove(&id) else { return };
        if let Some(key) = tracked.key {
            self.keys.remove(&key);
        }
        for waiter in tracked.waiters {
            let answer = if waiter.is_content_with_acceptance() {
                Delivered::Accepted(first)
            } else {
                Delivered::Ended(outcome.clone())
            };
            waiter.answer(Ok(answer));
        }
    }

    /// Moves those who wait for a request to the one whose duplicate it is. False if that one is not in memory; then they are
    /// tracked under its id.
    pub(super) fn follow(&mut self, id: Snowflake, first: Snowflake) -> bool {
        let Some(mut tracked) = self.tracked.remove(&id) else { return true };
        if let Some(key) = tracked.key.take() {
            self.keys.remove(&key);
        }
        let content = tracked.waiters.extract_if(.., |waiter| waiter.is_content_with_acceptance());
        for waiter in content {
            waiter.answer(Ok(Delivered::Accepted(first)));
        }
        match self.tracked.get_mut(&first) {
            Some(there) => {
                there.waiters.append(&mut tracked.waiters);
                there.here
            }
            None => {
                tracked.here = false;
                self.tracked.insert(first, tracked);
                false
            }
        }
    }

    /// Interrupts a request that is in memory.
    pub(super) fn interrupt(&self, id: Snowflake) -> bool {
        self.tracked.get(&id).map(|tracked| tracked.interrupt.request()).is_some()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.tracked.len()
    }

    /// Forgets all and tells everybody why.
    pub(super) fn refuse_all(&mut self, error: &Error) {
        self.keys.clear();
        for (_, tracked) in self.tracked.drain() {
            for waiter in tracked.waiters {
                waiter.answer(Err(error.clone()));
            }
        }
    }
}
