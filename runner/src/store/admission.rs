//! Which writes can share a transaction.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, RandomState};

use super::{Change, ExecutionChange, Finish, Message, Request, Write};

/// Decides, write by write, whether the next one may join a batch.
///
/// A batch is done in a few statements that do not see each other's rows, so no two writes of it may touch the same
/// message, key, chunk or timer. States may follow each other: of a run of versions only the last is stored. So may changes of
/// one execution, and entries of one journal.
///
/// Rows are told apart by a hash. Two that collide by chance only end a batch early.
pub(super) struct Admission {
    room: usize,
    bytes: usize,
    empty: bool,
    hasher: RandomState,
    rows: HashSet<u64>,
    versions: HashMap<u64, i64>,
}

impl Admission {
    /// An empty batch with room for so many writes and bytes.
    pub(super) fn new(writes: usize, bytes: usize) -> Self {
        Self {
            room: writes,
            bytes,
            empty: true,
            hasher: RandomState::new(),
            rows: HashSet::new(),
            versions: HashMap::new(),
        }
    }

    /// Whether the write joins the batch. After the first that does not, the batch is closed. The first of a batch always
    /// joins.
    pub(super) fn admit(&mut self, write: &Write) -> bool {
        let size: usize = write.changes.iter().map(size).sum();
        let fits = self.room > 0 && size <= self.bytes;
        let apart = write.changes.iter().all(|change| self.touch(change));
        let admitted = self.empty || (fits && apart);
        self.empty = false;
        self.room = self.room.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(size);
        admitted
    }

    fn touch(&mut self, change: &Change) -> bool {
        match change {
            Change::Accept(message) | Change::Send(message) => self.message(message),
            Change::Finish(Finish { request: Request::New(message), .. }) => self.message(message),
            Change::Finish(Finish { request: Request::Stored(id), .. }) => self.row(("message", id)),
            Change::Attempt(attempt) => self.row(("message", attempt.request)),
            Change::Bury { request, .. } | Change::Replay { request, .. } | Change::Drop { request } => {
                self.row(("message", request))
            }
            Change::Chunk { request, chunk, .. } => self.row(("chunk", request, chunk.sequence)),
            Change::Ack { request, .. } => self.row(("ack", request)),
            Change::SetTimer(timer) => self.row(("timer", &timer.address, &timer.name)),
            Change::ClearTimer { address, name } => self.row(("timer", address, name)),
            Change::State(state) => self.follows(("state", &state.address), Some(state.base), state.base + 1),
            Change::Begin(new) => self.follows(("execution", &new.address), None, new.run.get()),
            Change::Execution(ExecutionChange { address, run, .. }) => {
                self.follows(("execution", address), Some(run.get()), run.get())
            }
            Change::Renew { address, from, to, .. } => {
                self.follows(("execution", address), Some(from.get()), to.get())
            }
            Change::Journal { run, from, entries, .. } => {
                let count = i64::try_from(entries.len()).unwrap_or(i64::MAX);
                self.follows(("journal", run), Some(*from), from.saturating_add(count))
            }
        }
    }

    fn message(&mut self, message: &Message) -> bool {
        let fresh = self.row(("message", message.envelope.id));
        fresh && message.envelope.key.is_none_or(|key| self.row(("key", key)))
    }

    /// Whether something that changes step by step is as far as the next step needs it, or not in the batch yet.
    fn follows(&mut self, what: impl Hash, base: Option<i64>, next: i64) -> bool {
        let before = self.versions.insert(self.hasher.hash_one(what), next);
        before.is_none_or(|version| Some(version) == base)
    }

    fn row(&mut self, row: impl Hash) -> bool {
        self.rows.insert(self.hasher.hash_one(row))
    }
}

/// What a change costs on the wire, roughly.
fn size(change: &Change) -> usize {
    const ROW: usize = 64;
    ROW + match change {
        Change::Accept(message) | Change::Send(message) => message.envelope.payload.len(),
        Change::State(state) => state.value.len(),
        Change::Chunk { chunk, .. } => chunk.items.iter().map(bytes::Bytes::len).sum(),
        Change::Begin(new) => new.input.len() + new.summary.len(),
        Change::Execution(ExecutionChange { summary, .. }) | Change::Renew { summary, .. } => summary.len(),
        Change::Journal { entries, .. } => entries.iter().map(|entry| ROW + entry.len()).sum(),
        Change::SetTimer(timer) => timer.payload.len(),
        Change::Finish(finish) => match &finish.outcome {
            crate::message::Outcome::Success(reply) => reply.len(),
            _ => 0,
        },
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::message::{EntityAddress, Snowflake};
    use crate::shard::{Epoch, Fence, GroupName, ShardId, Slot};
    use crate::store::StateChange;

    fn write(change: Change) -> Write {
        Write::one(Fence { shard: ShardId::new(GroupName::default(), 0), epoch: Epoch::new(1) }, change)
    }

    fn state(id: &str, base: i64) -> Write {
        write(Change::State(StateChange {
            address: EntityAddress::new("counter", id).unwrap(),
            group: GroupName::default(),
            base,
            value: Bytes::from_static(&[0; 100]),
        }))
    }

    fn drop_letter(id: i64) -> Write {
        write(Change::Drop { request: Snowflake::new(id) })
    }

    #[test]
    fn one_message_is_touched_once_per_batch() {
        let mut batch = Admission::new(10, 10_000);
        assert!(batch.admit(&drop_letter(1)));
        assert!(batch.admit(&drop_letter(2)));
        assert!(!batch.admit(&drop_letter(1)));
    }

    #[test]
    fn states_that_follow_each_other_share_a_batch_and_others_do_not() {
        let mut batch = Admission::new(10, 10_000);
        assert!(batch.admit(&state("a", 4)));
        assert!(batch.admit(&state("a", 5)));
        assert!(batch.admit(&state("b", 0)));
        assert!(!batch.admit(&state("a", 7)));
    }

    fn journal(run: i64, from: i64, entries: usize) -> Write {
        let entries = vec![Bytes::from_static(b"entry"); entries];
        write(Change::Journal { run: Snowflake::new(run), slot: Slot::of("x"), from, entries })
    }

    fn renew(id: &str, from: i64, to: i64) -> Write {
        let address = EntityAddress::new("order", id).unwrap();
        let (from, to) = (Snowflake::new(from), Snowflake::new(to));
        write(Change::Renew { address, from, to, summary: Bytes::new() })
    }

    #[test]
    fn entries_of_a_journal_that_follow_each_other_share_a_batch_and_others_do_not() {
        let mut batch = Admission::new(10, 10_000);
        assert!(batch.admit(&journal(1, 4, 2)));
        assert!(batch.admit(&journal(1, 6, 1)));
        assert!(batch.admit(&journal(2, 4, 1)));
        assert!(!batch.admit(&journal(1, 6, 1)));
    }

    #[test]
    fn changes_of_an_execution_share_a_batch_as_long_as_each_knows_the_run() {
        let mut batch = Admission::new(10, 10_000);
        assert!(batch.admit(&renew("a", 1, 2)));
        assert!(batch.admit(&renew("a", 2, 3)));
        assert!(batch.admit(&renew("b", 2, 3)));
        assert!(!batch.admit(&renew("a", 2, 4)));
    }

    #[test]
    fn a_batch_ends_at_its_limits_but_always_has_one_write() {
        let mut narrow = Admission::new(1, 10_000);
        assert!(narrow.admit(&drop_letter(1)));
        assert!(!narrow.admit(&drop_letter(2)));
        let mut small = Admission::new(10, 100);
        assert!(small.admit(&state("huge", 0)));
        assert!(!small.admit(&drop_letter(2)));
    }
}
