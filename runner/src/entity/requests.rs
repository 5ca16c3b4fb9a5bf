//! The persisted requests of a shard that are in memory, and who waits for them.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use xxhash_rust::xxh3::Xxh3Default;

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
    /// When it was to be handled, if that was said.
    due: Option<SystemTime>,
    /// Whether the message itself is in memory. If not, it is in the database, and only those who wait for it are here.
    here: bool,
    /// Whether the message is known to be in the database.
    stored: bool,
    /// Fingerprint of entity and method: the same id with another one is another request.
    fingerprint: u64,
}

/// Fingerprint of what a message is for. Its payload has no part in it: it may be large.
fn fingerprint(message: &Message) -> u64 {
    let envelope = &message.envelope;
    let mut hasher = Xxh3Default::new();
    for part in [envelope.address.entity_type.as_str(), envelope.address.id.as_str(), &envelope.method] {
        hasher.update(part.as_bytes());
        hasher.update(&[0]);
    }
    hasher.digest()
}

/// Persisted requests by id and by key: a message that comes twice runs once, and all who asked get its reply.
#[derive(Default)]
pub(super) struct Requests {
    tracked: HashMap<Snowflake, Tracked>,
    keys: HashMap<IdempotencyKey, (Snowflake, PayloadDigest)>,
    /// The reads of open messages that are under way, numbered in the order in which they began.
    readings: BTreeSet<u64>,
    begun: u64,
    /// What has ended since the first of them began: they may bring it once more.
    ended: HashSet<Snowflake>,
    /// The same in order, each with the number of the last read that had begun by then.
    order: VecDeque<(u64, Snowflake)>,
}

/// Whether a message is new.
pub(super) enum Entry {
    /// It is, and is tracked from now on.
    New(Arc<Interrupt>),
    /// It is under way already; whoever waits for it was added.
    Known,
}

impl Requests {
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
            if tracked.fingerprint != fingerprint(message) {
                tracing::error!(event = "id_reused", request = %first, "two requests have the same id; the later one is rejected");
                if let Some(waiter) = waiter {
                    waiter.answer(Err(store::Error::IdReused { request: first }.into()));
                }
                return Entry::Known;
            }
            match waiter {
                // Whoever waits for no more than that has waited long enough.
                Some(waiter) if tracked.stored && waiter.is_content_with_acceptance() => {
                    waiter.answer(Ok(Delivered::Accepted(first)));
                }
                waiter => tracked.waiters.extend(waiter),
            }
            return Entry::Known;
        }
        if let Some(key) = key {
            self.keys.insert(key, (id, message.body()));
        }
        // Those who came before the message wait for it from now on.
        let tracked = self.tracked.entry(id).or_default();
        tracked.waiters.extend(waiter);
        tracked.key = key;
        tracked.due = message.envelope.deliver_at;
        tracked.here = true;
        tracked.fingerprint = fingerprint(message);
        Entry::New(Arc::clone(&tracked.interrupt))
    }

    /// Takes note of a message that was read, unless it has ended meanwhile.
    pub(super) fn enter_stored(&mut self, message: &Message) -> Option<Entry> {
        let id = message.envelope.id;
        if self.ended.contains(&id) {
            return None;
        }
        let entry = self.enter(message, None);
        if let Some(tracked) = self.tracked.get_mut(&id) {
            tracked.stored = true;
        }
        Some(entry)
    }

    /// A read of open messages begins. Its number.
    pub(super) fn begin_reading(&mut self) -> u64 {
        self.begun += 1;
        self.readings.insert(self.begun);
        self.begun
    }

    /// A read of open messages is over, and what it brought has been taken.
    pub(super) fn end_reading(&mut self, number: u64) {
        self.readings.remove(&number);
        let oldest = self.readings.first().copied().unwrap_or(u64::MAX);
        while let Some((_, id)) = self.order.pop_front_if(|(begun, _)| *begun < oldest) {
            self.ended.remove(&id);
        }
    }

    fn note_end(&mut self, id: Snowflake) {
        if !self.readings.is_empty() && self.ended.insert(id) {
            self.order.push_back((self.begun, id));
        }
    }

    /// How many messages are here whose time has come, and for how long the oldest has been waiting.
    pub(super) fn due(&self, now: SystemTime) -> (usize, Duration) {
        let here = self.tracked.iter().filter(|(_, tracked)| tracked.here);
        let ages = here.filter_map(|(id, tracked)| {
            // An id is made by the clock of whoever sent it, which may be ahead.
            let since = tracked.due.unwrap_or_else(|| id.time().min(now));
            now.duration_since(since).ok()
        });
        ages.fold((0, Duration::ZERO), |(count, oldest), age| (count + 1, oldest.max(age)))
    }

    /// Adds somebody who waits for a request. Whether its message is in memory.
    pub(super) fn join(&mut self, id: Snowflake, waiter: Waiter) -> bool {
        let tracked = self.tracked.entry(id).or_default();
        // Those who read a long stream come and go; now and then is often enough to look for the latter.
        if tracked.waiters.len().is_power_of_two() {
            tracked.waiters.retain(|waiter| !waiter.is_gone());
        }
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
        tracked.stored = true;
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
        if answer.is_ok() {
            self.note_end(id);
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
        self.note_end(id);
        self.note_end(first);
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

    /// Interrupts a request whose message is in memory.
    pub(super) fn interrupt(&self, id: Snowflake) -> bool {
        let here = self.tracked.get(&id).filter(|tracked| tracked.here);
        here.map(|tracked| tracked.interrupt.request()).is_some()
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

#[cfg(test)]
mod tests {
    use super::super::job::ReplyTo;
    use super::*;
    use crate::message::{EntityAddress, Envelope};
    use crate::shard::GroupName;

    fn message(id: i64) -> Message {
        Message {
            envelope: Envelope {
                id: Snowflake::new(id),
                address: EntityAddress::new("a", "b").unwrap(),
                method: "m".to_owned(),
                payload: bytes::Bytes::new(),
                persisted: true,
                key: None,
                deliver_at: None,
                uninterruptible: Default::default(),
                trace: None,
                headers: Default::default(),
            },
            group: GroupName::default(),
            seq: Snowflake::new(id),
            resent: true,
        }
    }

    #[test]
    fn who_only_wants_a_stored_message_to_be_in_good_hands_does_not_wait_for_its_end() {
        let (mut requests, first) = (Requests::default(), Snowflake::new(1));
        let ask = |requests: &mut Requests| {
            let (waiter, answer) = tokio::sync::oneshot::channel();
            let shard = crate::shard::ShardId::new(GroupName::default(), 0);
            let waiter = Waiter::new(super::super::Want::Acceptance, shard, ReplyTo::Waiter(waiter));
            requests.enter(&message(1), Some(waiter));
            answer
        };
        let mut early = ask(&mut requests);
        assert!(early.try_recv().is_err(), "it is not stored yet");
        requests.accepted(first);
        let told = |mut answer: tokio::sync::oneshot::Receiver<Answer>| answer.try_recv().unwrap().unwrap();
        assert_eq!(told(early), Delivered::Accepted(first));
        assert_eq!(told(ask(&mut requests)), Delivered::Accepted(first));
    }

    #[test]
    fn a_message_that_ends_while_it_is_read_does_not_run_again() {
        let mut requests = Requests::default();
        let success = Ok(Delivered::Ended(Outcome::Success(bytes::Bytes::new())));
        let is_new = |entry: Option<Entry>| matches!(entry, Some(Entry::New(_)));
        assert!(is_new(requests.enter_stored(&message(1))));
        assert!(is_new(requests.enter_stored(&message(2))));
        let first = requests.begin_reading();
        requests.answer(Snowflake::new(1), &success);
        requests.answer(Snowflake::new(2), &Err(Error::NoSuchRequest(Snowflake::new(2))));
        // Another read that begins and ends meanwhile changes nothing.
        let second = requests.begin_reading();
        requests.end_reading(second);
        assert!(requests.enter_stored(&message(1)).is_none());
        assert!(is_new(requests.enter_stored(&message(2))), "what has no outcome is still open");
        // A read that began after the end needs not know of it, however many follow each other without a pause.
        let third = requests.begin_reading();
        requests.answer(Snowflake::new(2), &success);
        requests.end_reading(first);
        assert_eq!(requests.ended, HashSet::from([Snowflake::new(2)]));
        requests.end_reading(third);
        assert!(is_new(requests.enter_stored(&message(1))), "nothing is remembered for ever");
        assert!(requests.ended.is_empty() && requests.order.is_empty());
    }
}
