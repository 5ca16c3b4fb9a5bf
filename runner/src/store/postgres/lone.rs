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

/// The longest entry that goes into the text of a statement. Longer ones travel as they are, by a message of their own.
const LONGEST: usize = 8192;

/// The only entry of a write, as parameters.
pub(super) struct Entry<'a> {
    fence: &'a Fence,
    group: i16,
    generation: i32,
    slot: u16,
    run: i64,
    place: i64,
    entry: &'a [u8],
}

impl<'a> Entry<'a> {
    /// The entry of a write that is nothing but one.
    pub(super) fn only(write: &'a Write, groups: &Groups) -> Option<Self> {
        let [Change::Journal { run, slot, from, entries }] = write.changes.as_slice() else { return None };
        let [entry] = entries.as_slice() else { return None };
        let owner = groups.get(&write.fence.shard.group).ok()?;
        let (group, generation) = (owner.number, owner.map.generation());
        let (slot, run) = (slot.get(), run.get());
        Some(Self { fence: &write.fence, group, generation, slot, run, place: *from, entry })
    }

    /// The statement that stores it in the transaction that was begun, or fails: the fence has fallen, the transaction is another one,
    /// or the journal does not end there. None if it does not fit into the text of a statement.
    ///
    /// Nothing in it depends on what the user may have set: neither the search path nor how strings are read.
    pub(super) fn statement(&self, identity: &Identity) -> Option<String> {
        let instance = identity.instance.as_str();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if self.entry.len() > LONGEST || !instance.bytes().all(plain) {
            return None;
        }
        let mut entry = String::with_capacity(self.entry.len() * 2);
        for byte in self.entry {
            entry.extend(
                [byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])),
            );
        }
        Some(format!(
            "SELECT cleat.enter({}, '{instance}', {}::smallint, {}, {}, {}, {}, {}, {}, pg_catalog.decode('{entry}', 'hex'))",
            identity.lock,
            self.group,
            self.fence.shard.id,
            self.generation,
            self.fence.epoch.get(),
            self.slot,
            self.run,
            self.place,
        ))
    }

    /// Whether it is there, written by this owner of the shard.
    pub(super) async fn is_there(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let epoch: Option<i64> =
            sqlx::query_scalar("SELECT epoch FROM cleat.journal WHERE run = $1 AND seq = $2")
                .bind(self.run)
                .bind(self.place)
                .fetch_optional(connection)
                .await?;
        Ok(epoch == Some(self.fence.epoch.get()))
    }
}
