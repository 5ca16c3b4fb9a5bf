//! A message that comes alone, and an entry of a journal that commits with a user's transaction.
//!
//! Gathering columns and joining them pays for a crowd and not for one: these statements are plain inserts behind the same fence. Messages
//! only if they certainly come for the first time: a look for their earlier end would open every partition of finished messages.

use sqlx::postgres::PgConnection;

use super::connect::{Identity, Transaction};
use super::groups::Groups;
use crate::message::codec::time::to_millis;
use crate::shard::Fence;
use crate::store::row::Extra;
use crate::store::{Change, Error, Message, Write};

/// The message of a batch that is nothing but one new message without a key.
pub(super) fn only(batch: &[Write]) -> Option<(&Fence, &Message)> {
    match batch {
        [Write { fence, changes }] => match changes.as_slice() {
            [Change::Accept(message)] if message.envelope.key.is_none() && !message.resent => {
                Some((fence, message))
            }
            _ => None,
        },
        _ => None,
    }
}

/// A message as parameters.
pub(super) struct Lone<'a> {
    fence: &'a Fence,
    message: &'a Message,
    shard_group: i16,
    generation: i32,
    group: i16,
    extra: Option<Vec<u8>>,
}

impl<'a> Lone<'a> {
    pub(super) fn new(fence: &'a Fence, message: &'a Message, groups: &Groups) -> Result<Self, Error> {
        let owner = groups.get(&fence.shard.group)?;
        Ok(Self {
            fence,
            message,
            shard_group: owner.number,
            generation: owner.map.generation(),
            group: groups.get(&message.group)?.number,
            extra: Extra::column(&message.envelope)?,
        })
    }

    /// Stores it. None if that was not to be: the fence has fallen, or the message was there already.
    pub(super) async fn insert(
        self,
        identity: &Identity,
        connection: &mut PgConnection,
    ) -> Result<Option<Transaction>, sqlx::Error> {
        let envelope = &self.message.envelope;
        let number: Option<i64> = sqlx::query_scalar(
            "INSERT INTO cleat.messages (id, grp, slot, seq, entity_type, entity_id, method, payload, extra, due)
             SELECT $7::bigint, $8::smallint, $9::int, $10::bigint, $11::text, $12::text, $13::text, $14::bytea, $15::bytea, $16::bigint
             WHERE cleat.stands($1, $2, $3, $4, $5, $6)
             ON CONFLICT (id) DO NOTHING RETURNING pg_current_xact_id()::text::bigint",
        )
        .bind(identity.lock)
        .bind(identity.instance.as_str())
        .bind(self.shard_group)
        .bind(i32::from(self.fence.shard.id))
        .bind(self.generation)
        .bind(self.fence.epoch.get())
        .bind(envelope.id.get())
        .bind(self.group)
        .bind(i32::from(envelope.address.slot().get()))
        .bind(self.message.seq.get())
        .bind(envelope.address.entity_type.as_str())
        .bind(envelope.address.id.as_str())
        .bind(&envelope.method)
        .bind(envelope.payload.as_ref())
        .bind(self.extra)
        .bind(envelope.deliver_at.map(to_millis))
        .fetch_optional(connection)
        .await?;
        Ok(number.map(Transaction))
    }
}

/// The only entry of a write, as parameters.
pub(super) struct Entry<'a> {
    fence: &'a Fence,
    group: i16,
    generation: i32,
    run: i64,
    place: i64,
    entry: &'a [u8],
}

impl<'a> Entry<'a> {
    /// The entry of a write that is nothing but one.
    pub(super) fn only(write: &'a Write, groups: &Groups) -> Option<Self> {
        let [Change::Journal { run, from, entries }] = write.changes.as_slice() else { return None };
        let [entry] = entries.as_slice() else { return None };
        let owner = groups.get(&write.fence.shard.group).ok()?;
        let (group, generation) = (owner.number, owner.map.generation());
        Some(Self { fence: &write.fence, group, generation, run: run.get(), place: *from, entry })
    }

    /// Stores it in the transaction that was begun. None if that was not to be: the fence has fallen, the transaction is another one,
    /// or the journal does not end there.
    pub(super) async fn insert(
        self,
        identity: &Identity,
        connection: &mut PgConnection,
    ) -> Result<Option<Transaction>, sqlx::Error> {
        let number: Option<i64> = sqlx::query_scalar(
            "INSERT INTO cleat.journal (run, seq, epoch, entry)
             SELECT $7::bigint, $8::bigint, $6, $9::bytea
             WHERE cleat.stands($1, $2, $3, $4, $5, $6) AND current_setting('cleat.transaction', true) = 'open'
               AND ($8::bigint = 0 OR EXISTS (SELECT 1 FROM cleat.journal WHERE run = $7::bigint AND seq = $8::bigint - 1))
             ON CONFLICT (run, seq) DO NOTHING RETURNING pg_current_xact_id()::text::bigint",
        )
        .bind(identity.lock)
        .bind(identity.instance.as_str())
        .bind(self.group)
        .bind(i32::from(self.fence.shard.id))
        .bind(self.generation)
        .bind(self.fence.epoch.get())
        .bind(self.run)
        .bind(self.place)
        .bind(self.entry)
        .fetch_optional(connection)
        .await?;
        Ok(number.map(Transaction))
    }
}
