//! The rows of a batch, column by column, as `unnest` wants them.

use std::collections::HashMap;

use bytes::Bytes;
use sqlx::Arguments;
use sqlx::error::BoxDynError;
use sqlx::postgres::PgArguments;

use super::executions::{Base, Executions};
use super::fences::Fences;
use super::groups::Groups;
use crate::message::codec::time::to_millis;
use crate::message::{Chunk, EntityAddress, Snowflake, codec};
use crate::shard::{Fence, Slot};
use crate::store::row::{Extra, status};
use crate::store::{Basis, Change, Error, Finish, Message, Request, StateChange, Timer, Write};

/// Declares the columns of one kind of row: a vector each, filled and bound in the same order.
macro_rules! rows {
    ($(#[$doc:meta])* $name:ident<$life:lifetime> { $($column:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Default)]
        pub(super) struct $name<$life> {
            fence: Vec<i32>,
            $($column: Vec<$type>,)*
            life: std::marker::PhantomData<&$life ()>,
        }

        impl<$life> $name<$life> {
            pub(super) fn is_empty(&self) -> bool {
                self.fence.is_empty()
            }

            #[allow(clippy::too_many_arguments)] // One for each column.
            fn push(&mut self, fence: i32, $($column: $type),*) {
                self.fence.push(fence);
                $(self.$column.push($column);)*
            }

            fn bind(&self, to: &mut PgArguments) -> Result<(), BoxDynError> {
                if self.is_empty() {
                    return Ok(());
                }
                to.add(&self.fence)?;
                $(to.add(&self.$column)?;)*
                Ok(())
            }
        }
    };
}

rows!(Keys<'a> { key: &'a [u8], id: i64, body: Vec<u8>, grp: i16, slot: i32 });
rows!(Messages<'a> {
    id: i64, grp: i16, slot: i32, seq: i64, entity_type: &'a str, entity_id: &'a str, method: &'a str,
    payload: &'a [u8], extra: Option<Vec<u8>>, due: Option<i64>, key: Option<&'a [u8]>, resent: bool,
});
rows!(Ids<'a> { id: i64 });
rows!(Outcomes<'a> {
    id: i64, grp: i16, slot: i32, entity_type: &'a str, entity_id: &'a str, method: &'a str, status: i16,
    reply: Vec<u8>, key: Option<&'a [u8]>,
});
rows!(Finished<'a> { id: i64, status: i16, reply: Vec<u8> });
rows!(States<'a> {
    entity_type: &'a str, entity_id: &'a str, grp: i16, slot: i32, base: i64, version: i64, value: &'a [u8],
});
rows!(Attempts<'a> { id: i64, attempt: i32, due: i64, error: &'a str });
rows!(Buried<'a> { id: i64, status: i16, reply: Vec<u8>, error: &'a str });
rows!(Replayed<'a> { id: i64, seq: i64 });
rows!(Chunks<'a> { id: i64, sequence: i32, items: Vec<u8>, slot: i32 });
rows!(Acks<'a> { id: i64, sequence: i32 });
rows!(Timers<'a> {
    entity_type: &'a str, entity_id: &'a str, name: &'a str, grp: i16, slot: i32, due: i64, payload: &'a [u8],
});
rows!(Cleared<'a> { entity_type: &'a str, entity_id: &'a str, name: &'a str });
rows!(Begun<'a> {
    entity_type: &'a str, entity_id: &'a str, grp: i16, slot: i32, run: i64, phase: i16, active: bool, started: i64,
    ended: Option<i64>, input: &'a [u8], summary: &'a [u8],
});
rows!(Continued<'a> {
    entity_type: &'a str, entity_id: &'a str, base: i64, run: i64, phase: i16, active: bool, ended: Option<i64>,
    summary: &'a [u8],
});
rows!(Former<'a> { entity_type: &'a str, entity_id: &'a str, run: i64, slot: i32 });
rows!(Journal<'a> { run: i64, seq: i64, prior: Option<i64>, entry: &'a [u8], slot: i32 });

/// All rows of a batch, by kind.
#[derive(Default)]
pub(super) struct Columns<'a> {
    /// The number of each write's fence.
    pub(super) writes: Vec<i32>,
    numbers: HashMap<&'a Fence, i32>,
    fences: Fences,
    lost: bool,
    states: HashMap<&'a EntityAddress, Run<'a>>,
    pub(super) keys: Keys<'a>,
    pub(super) messages: Messages<'a>,
    pub(super) depended: Ids<'a>,
    pub(super) sent: Ids<'a>,
    pub(super) outcomes: Outcomes<'a>,
    pub(super) finished: Finished<'a>,
    pub(super) created: States<'a>,
    pub(super) changed: States<'a>,
    pub(super) attempts: Attempts<'a>,
    pub(super) buried: Buried<'a>,
    pub(super) replayed: Replayed<'a>,
    pub(super) dropped: Ids<'a>,
    pub(super) chunks: Chunks<'a>,
    pub(super) acks: Acks<'a>,
    pub(super) timers: Timers<'a>,
    pub(super) cleared: Cleared<'a>,
    executions: Executions<'a>,
    pub(super) begun: Begun<'a>,
    pub(super) continued: Continued<'a>,
    pub(super) former: Former<'a>,
    pub(super) journal: Journal<'a>,
    /// The next place of each journal.
    places: HashMap<Snowflake, i64>,
}

/// States of one entity that follow each other in a batch: only the last is stored.
struct Run<'a> {
    fence: i32,
    base: i64,
    last: &'a StateChange,
}

impl<'a> Columns<'a> {
    /// The rows of a batch.
    ///
    /// If an earlier attempt to write them was lost sight of, all of its messages may have been stored before.
    pub(super) fn of(batch: &'a [Write], groups: &Groups, lost: bool) -> Result<Self, Error> {
        let mut columns = Self { lost, ..Self::default() };
        for write in batch {
            let fence = columns.fence(&write.fence, groups)?;
            columns.writes.push(fence);
            for change in &write.changes {
                columns.add(fence, change, groups)?;
                if let (Change::Accept(message), true) = (change, write.changes.len() > 1) {
                    columns.depended.push(fence, message.envelope.id.get());
                }
                if let Change::Send(message) = change
                    && (lost || message.resent)
                {
                    columns.sent.push(fence, message.envelope.id.get());
                }
            }
        }
        columns.settle_states(groups)?;
        columns.settle_executions(groups)?;
        Ok(columns)
    }

    /// The number of a fence, from 1, as PostgreSQL counts.
    fn fence(&mut self, fence: &'a Fence, groups: &Groups) -> Result<i32, Error> {
        if let Some(number) = self.numbers.get(fence) {
            return Ok(*number);
        }
        self.fences.push(fence, groups)?;
        let number = i32::try_from(self.fences.epochs.len()).unwrap_or(i32::MAX);
        self.numbers.insert(fence, number);
        Ok(number)
    }

    fn add(&mut self, fence: i32, change: &'a Change, groups: &Groups) -> Result<(), Error> {
        match change {
            Change::Accept(message) | Change::Send(message) => self.message(fence, message, groups)?,
            Change::Finish(Finish { outcome, request: Request::New(message) }) => {
                let envelope = &message.envelope;
                self.key(fence, message, groups)?;
                self.outcomes.push(
                    fence,
                    envelope.id.get(),
                    groups.get(&message.group)?.number,
                    i32::from(envelope.address.slot().get()),
                    envelope.address.entity_type.as_str(),
                    envelope.address.id.as_str(),
                    &envelope.method,
                    status::of(outcome),
                    codec::encode(outcome)?,
                    envelope.key.as_ref().map(|key| key.as_bytes().as_slice()),
                );
            }
            Change::Finish(Finish { outcome, request: Request::Stored(id) }) => {
                self.finished.push(fence, id.get(), status::of(outcome), codec::encode(outcome)?);
            }
            Change::State(state) => {
                let run =
                    self.states.entry(&state.address).or_insert(Run { fence, base: state.base, last: state });
                run.last = state;
            }
            Change::Attempt(attempt) => self.attempts.push(
                fence,
                attempt.request.get(),
                attempt.attempt,
                to_millis(attempt.due),
                &attempt.error,
            ),
            Change::Bury { request, outcome, error } => {
                self.buried.push(fence, request.get(), status::of(outcome), codec::encode(outcome)?, error);
            }
            Change::Replay { request, seq } => self.replayed.push(fence, request.get(), seq.get()),
            Change::Drop { request } => self.dropped.push(fence, request.get()),
            Change::Chunk { request, slot, chunk: Chunk { sequence, items } } => {
                let items = codec::encode::<Vec<Bytes>>(items)?;
                self.chunks.push(fence, request.get(), sequence.0, items, i32::from(slot.get()));
            }
            Change::Ack { request, sequence } => self.acks.push(fence, request.get(), sequence.0),
            Change::SetTimer(timer) => self.timer(fence, timer, groups)?,
            Change::ClearTimer { address, name } => {
                self.cleared.push(fence, address.entity_type.as_str(), address.id.as_str(), name);
            }
            Change::Begin(new) => self.executions.begin(fence, new)?,
            Change::Execution(change) => self.executions.change(fence, change)?,
            Change::Renew { address, from, to, summary } => {
                self.executions.renew(fence, address, *from, *to, summary)?;
                let (kind, id) = (address.entity_type.as_str(), address.id.as_str());
                self.former.push(fence, kind, id, from.get(), i32::from(address.slot().get()));
            }
            Change::Journal { run, slot, from, entries } => {
                self.journal(fence, (*run, *slot), *from, entries)?;
            }
        }
        Ok(())
    }

    fn message(&mut self, fence: i32, message: &'a Message, groups: &Groups) -> Result<(), Error> {
        let envelope = &message.envelope;
        self.key(fence, message, groups)?;
        self.messages.push(
            fence,
            envelope.id.get(),
            groups.get(&message.group)?.number,
            i32::from(envelope.address.slot().get()),
            message.seq.get(),
            envelope.address.entity_type.as_str(),
            envelope.address.id.as_str(),
            &envelope.method,
            &envelope.payload,
            Extra::column(envelope)?,
            envelope.deliver_at.map(to_millis),
            envelope.key.as_ref().map(|key| key.as_bytes().as_slice()),
            message.resent || self.lost,
        );
        Ok(())
    }

    fn key(&mut self, fence: i32, message: &'a Message, groups: &Groups) -> Result<(), Error> {
        if let Some(key) = &message.envelope.key {
            let body = message.body().as_bytes().to_vec();
            let slot = i32::from(message.envelope.address.slot().get());
            let group = groups.get(&message.group)?.number;
            self.keys.push(fence, key.as_bytes(), message.envelope.id.get(), body, group, slot);
        }
        Ok(())
    }

    fn timer(&mut self, fence: i32, timer: &'a Timer, groups: &Groups) -> Result<(), Error> {
        self.timers.push(
            fence,
            timer.address.entity_type.as_str(),
            timer.address.id.as_str(),
            &timer.name,
            groups.get(&timer.group)?.number,
            i32::from(timer.address.slot().get()),
            to_millis(timer.due),
            &timer.payload,
        );
        Ok(())
    }

    fn settle_states(&mut self, groups: &Groups) -> Result<(), Error> {
        let mut runs: Vec<_> = std::mem::take(&mut self.states).into_values().collect();
        // Two lanes that touch rows in one order cannot wait for each other.
        runs.sort_unstable_by_key(|run| &run.last.address);
        for Run { fence, base, last } in runs {
            let rows = if base == 0 { &mut self.created } else { &mut self.changed };
            rows.push(
                fence,
                last.address.entity_type.as_str(),
                last.address.id.as_str(),
                groups.get(&last.group)?.number,
                i32::from(last.address.slot().get()),
                base,
                last.base + 1,
                &last.value,
            );
        }
        Ok(())
    }

    /// Only the first entry of those that follow each other has to find the one before it.
    fn journal(
        &mut self,
        fence: i32,
        (run, slot): (Snowflake, Slot),
        from: i64,
        entries: &'a [Bytes],
    ) -> Result<(), Error> {
        let known = self.places.get(&run).copied();
        if known.is_some_and(|place| place != from) {
            return Err(Basis::Journal { run, place: from }.into());
        }
        let mut prior = if known.is_none() && from > 0 { Some(from - 1) } else { None };
        let mut next = from;
        for entry in entries {
            self.journal.push(fence, run.get(), next, prior.take(), entry, i32::from(slot.get()));
            next += 1;
        }
        if next > from {
            self.places.insert(run, next);
        }
        Ok(())
    }

    fn settle_executions(&mut self, groups: &Groups) -> Result<(), Error> {
        for (address, chain) in std::mem::take(&mut self.executions).settle() {
            let (kind, id) = (address.entity_type.as_str(), address.id.as_str());
            let (run, phase, active) = (chain.run.get(), chain.phase.number(), chain.active);
            let (ended, summary) = (chain.ended.map(to_millis), chain.summary);
            match chain.base {
                Base::New(new) => self.begun.push(
                    chain.fence,
                    kind,
                    id,
                    groups.get(&new.group)?.number,
                    i32::from(address.slot().get()),
                    run,
                    phase,
                    active,
                    to_millis(new.started),
                    ended,
                    &new.input,
                    summary,
                ),
                Base::Run(base) => {
                    self.continued.push(chain.fence, kind, id, base.get(), run, phase, active, ended, summary)
                }
            }
        }
        Ok(())
    }

    /// Binds everything, in the order of the parts.
    pub(super) fn bind(&self, to: &mut PgArguments) -> Result<(), BoxDynError> {
        to.add(&self.fences.grps)?;
        to.add(&self.fences.shards)?;
        to.add(&self.fences.generations)?;
        to.add(&self.fences.epochs)?;
        self.keys.bind(to)?;
        self.messages.bind(to)?;
        self.depended.bind(to)?;
        self.sent.bind(to)?;
        self.outcomes.bind(to)?;
        self.finished.bind(to)?;
        self.created.bind(to)?;
        self.changed.bind(to)?;
        self.attempts.bind(to)?;
        self.buried.bind(to)?;
        self.replayed.bind(to)?;
        self.dropped.bind(to)?;
        self.chunks.bind(to)?;
        self.acks.bind(to)?;
        self.timers.bind(to)?;
        self.cleared.bind(to)?;
        self.begun.bind(to)?;
        self.continued.bind(to)?;
        self.former.bind(to)?;
        self.journal.bind(to)
    }
}
