//! What each change does to the tables.

use std::collections::HashMap;

use sqlx::SqliteConnection;

use super::error::convert;
use super::schema::Group;
use crate::message::codec;
use crate::message::codec::time;
use crate::message::{Chunk, Outcome, PayloadDigest, Sequence, Snowflake};
use crate::shard::{Epoch, GroupName, Slot};
use crate::store::row::{Extra, status};
use crate::store::{Attempt, Basis, Change, Error, Finish, Message, Request, StateChange, Timer, Write};

/// Why a write is not done.
pub(super) enum Halt {
    /// Its request is there already.
    Duplicate { request: Snowflake, outcome: Option<Outcome> },
    /// Something else is in its way.
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<sqlx::Error> for Halt {
    fn from(error: sqlx::Error) -> Self {
        Self::Failed(convert(error))
    }
}

impl From<codec::Error> for Halt {
    fn from(error: codec::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// A request that was stored before.
struct Earlier {
    request: Snowflake,
    outcome: Option<Outcome>,
    /// Whether it has the key of the new one, but not its payload.
    differs: bool,
}

/// A transaction that has the right to write.
pub(super) struct Transaction<'c> {
    pub(super) connection: &'c mut SqliteConnection,
    pub(super) groups: &'c HashMap<GroupName, Group>,
    pub(super) now: i64,
}

impl Transaction<'_> {
    /// Runs a statement that takes nothing and gives nothing.
    pub(super) async fn run(&mut self, statement: &'static str) -> Result<(), Error> {
        sqlx::query(statement).execute(&mut *self.connection).await.map_err(convert)?;
        Ok(())
    }

    /// Does all changes of a write, up to the first that cannot be done.
    pub(super) async fn apply(&mut self, write: &Write) -> Result<(), Halt> {
        let epoch = write.fence.epoch;
        for change in &write.changes {
            match change {
                Change::Accept(message) => {
                    self.refuse_duplicate(message).await?;
                    self.insert(message).await?;
                }
                Change::Send(message) => {
                    if self.earlier(message).await?.is_none() {
                        self.insert(message).await?;
                    }
                }
                Change::Finish(finish) => self.finish(finish, epoch).await?,
                Change::State(state) => self.state(state, epoch).await?,
                Change::Attempt(attempt) => self.attempt(attempt).await?,
                Change::Bury { request, outcome, error } => {
                    self.bury(*request, outcome, error, epoch).await?;
                }
                Change::Replay { request, seq } => self.replay(*request, *seq).await?,
                Change::Drop { request } => self.forget(*request).await?,
                Change::Chunk { request, slot, chunk } => {
                    self.chunk(*request, (&write.fence.shard.group, *slot), chunk).await?;
                }
                Change::Ack { request, sequence } => self.acknowledge(*request, *sequence).await?,
                Change::SetTimer(timer) => self.set_timer(timer).await?,
                Change::ClearTimer { address, name } => {
                    let delete =
                        "DELETE FROM cleat_timers WHERE entity_type = ? AND entity_id = ? AND name = ?";
                    let delete = sqlx::query(delete).bind(address.entity_type.as_str());
                    delete.bind(address.id.as_str()).bind(name).execute(&mut *self.connection).await?;
                }
                Change::Begin(new) => self.begin(new, epoch).await?,
                Change::Journal { run, slot, from, entries } => {
                    self.journal(*run, *slot, *from, entries, &write.fence).await?;
                }
                Change::Execution(change) => self.change_execution(change, epoch).await?,
                Change::Renew { address, from, to, summary } => {
                    self.renew(address, *from, *to, summary, &write.fence).await?;
                }
            }
        }
        Ok(())
    }

    pub(super) async fn group(&mut self, name: &GroupName) -> Result<i64, Error> {
        if let Some(group) = self.groups.get(name) {
            return Ok(group.number);
        }
        // Somebody else may have added it since this store was opened.
        let select = "SELECT grp FROM cleat_groups WHERE name = ?";
        let select = sqlx::query_scalar(select).bind(name.as_str());
        let number = select.fetch_optional(&mut *self.connection).await.map_err(convert)?;
        number.ok_or_else(|| Error::NoSuchGroup(name.clone()))
    }

    /// The request that was stored with this one's id, or else with its key.
    async fn earlier(&mut self, message: &Message) -> Result<Option<Earlier>, Halt> {
        let id = message.envelope.id;
        let select = "SELECT EXISTS (SELECT 1 FROM cleat_messages WHERE id = ?1), \
                      (SELECT reply FROM cleat_outcomes WHERE id = ?1), coalesce( \
                      (SELECT entity_type = ?2 AND entity_id = ?3 AND method = ?4 FROM cleat_outcomes WHERE id = ?1), \
                      (SELECT entity_type = ?2 AND entity_id = ?3 AND method = ?4 FROM cleat_messages WHERE id = ?1), \
                      true)";
        let envelope = &message.envelope;
        let select = sqlx::query_as(select)
            .bind(id.get())
            .bind(envelope.address.entity_type.as_str())
            .bind(envelope.address.id.as_str())
            .bind(envelope.method.as_str());
        let (open, reply, same): (bool, Option<Vec<u8>>, bool) =
            select.fetch_one(&mut *self.connection).await?;
        if !same {
            return Err(Error::IdReused { request: id }.into());
        }
        if open || reply.is_some() {
            return Ok(Some(Earlier { request: id, outcome: read_reply(reply)?, differs: false }));
        }
        let Some(key) = &message.envelope.key else { return Ok(None) };
        let select = "SELECT k.id, k.body = ?, o.reply FROM cleat_keys k \
                      LEFT JOIN cleat_outcomes o ON o.id = k.id WHERE k.key = ?";
        let body = message.body();
        let select = sqlx::query_as(select).bind(body.as_bytes().as_slice()).bind(key.as_bytes().as_slice());
        let found: Option<(i64, bool, Option<Vec<u8>>)> =
            select.fetch_optional(&mut *self.connection).await?;
        let Some((id, same, reply)) = found else { return Ok(None) };
        Ok(Some(Earlier { request: Snowflake::new(id), outcome: read_reply(reply)?, differs: !same }))
    }

    async fn refuse_duplicate(&mut self, message: &Message) -> Result<(), Halt> {
        match self.earlier(message).await? {
            None => Ok(()),
            Some(Earlier { request: earlier, differs: true, .. }) => Err(Error::KeyReused { earlier }.into()),
            Some(Earlier { request, outcome, .. }) => Err(Halt::Duplicate { request, outcome }),
        }
    }

    async fn insert(&mut self, message: &Message) -> Result<(), Halt> {
        let group = self.group(&message.group).await?;
        let envelope = &message.envelope;
        let insert = "INSERT INTO cleat_messages \
                      (id, grp, slot, seq, entity_type, entity_id, method, payload, extra, due, key) \
                      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let insert = sqlx::query(insert).bind(envelope.id.get()).bind(group);
        let insert = insert.bind(envelope.address.slot().get()).bind(message.seq.get());
        let insert = insert.bind(envelope.address.entity_type.as_str()).bind(envelope.address.id.as_str());
        let insert = insert.bind(&envelope.method).bind(&envelope.payload[..]);
        let insert = insert.bind(Extra::column(envelope)?).bind(envelope.deliver_at.map(time::to_millis));
        let insert = insert.bind(envelope.key.as_ref().map(|key| key.as_bytes().as_slice()));
        insert.execute(&mut *self.connection).await?;
        self.remember_key(message).await
    }

    async fn remember_key(&mut self, message: &Message) -> Result<(), Halt> {
        let Some(key) = &message.envelope.key else { return Ok(()) };
        let body = message.body();
        let group = self.group(&message.group).await?;
        let insert = "INSERT INTO cleat_keys (key, id, body, grp, slot) VALUES (?, ?, ?, ?, ?)";
        let insert = sqlx::query(insert).bind(key.as_bytes().as_slice()).bind(message.envelope.id.get());
        let insert = insert.bind(body.as_bytes().as_slice()).bind(group);
        insert.bind(message.envelope.address.slot().get()).execute(&mut *self.connection).await?;
        Ok(())
    }

    async fn finish(&mut self, finish: &Finish, epoch: Epoch) -> Result<(), Halt> {
        match &finish.request {
            Request::New(message) => self.finish_new(message, &finish.outcome, epoch).await,
            Request::Stored(request) => {
                if self.finish_stored(*request, &finish.outcome, epoch).await? {
                    return Ok(());
                }
                let select = "SELECT reply FROM cleat_outcomes WHERE id = ?";
                let select = sqlx::query_scalar(select).bind(request.get());
                let reply = select.fetch_optional(&mut *self.connection).await?;
                Err(match read_reply(reply)? {
                    Some(outcome) => Halt::Duplicate { request: *request, outcome: Some(outcome) },
                    None => Error::NotOpen { request: *request }.into(),
                })
            }
        }
    }

    async fn finish_new(&mut self, message: &Message, outcome: &Outcome, epoch: Epoch) -> Result<(), Halt> {
        self.refuse_duplicate(message).await?;
        let group = self.group(&message.group).await?;
        let address = &message.envelope.address;
        let insert = "INSERT INTO cleat_outcomes \
                      (id, grp, slot, entity_type, entity_id, method, epoch, status, reply, done) \
                      VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let insert = sqlx::query(insert).bind(message.envelope.id.get()).bind(group);
        let insert = insert.bind(address.slot().get()).bind(address.entity_type.as_str());
        let insert = insert.bind(address.id.as_str()).bind(&message.envelope.method).bind(epoch.get());
        let insert = insert.bind(status::of(outcome)).bind(codec::encode(outcome)?).bind(self.now);
        insert.execute(&mut *self.connection).await?;
        self.remember_key(message).await
    }

    /// Moves a message to the outcomes, if it is open.
    async fn finish_stored(
        &mut self,
        request: Snowflake,
        outcome: &Outcome,
        epoch: Epoch,
    ) -> Result<bool, Halt> {
        let insert = "INSERT INTO cleat_outcomes \
                      (id, grp, slot, entity_type, entity_id, method, epoch, status, reply, done) \
                      SELECT id, grp, slot, entity_type, entity_id, method, ?, ?, ?, ? \
                      FROM cleat_messages WHERE id = ?";
        let insert = sqlx::query(insert).bind(epoch.get()).bind(status::of(outcome));
        let insert = insert.bind(codec::encode(outcome)?).bind(self.now).bind(request.get());
        let open = insert.execute(&mut *self.connection).await?.rows_affected() == 1;
        if open {
            let delete = "DELETE FROM cleat_messages WHERE id = ?";
            sqlx::query(delete).bind(request.get()).execute(&mut *self.connection).await?;
        }
        Ok(open)
    }

    async fn state(&mut self, state: &StateChange, epoch: Epoch) -> Result<(), Halt> {
        let group = self.group(&state.group).await?;
        let (kind, id) = (state.address.entity_type.as_str(), state.address.id.as_str());
        let query = if state.base == 0 {
            let insert = "INSERT INTO cleat_states (value, epoch, version, grp, slot, entity_type, entity_id) \
                          VALUES (?, ?, 1, ?, ?, ?, ?) ON CONFLICT DO NOTHING";
            let insert = sqlx::query(insert).bind(&state.value[..]).bind(epoch.get());
            insert.bind(group).bind(state.address.slot().get()).bind(kind).bind(id)
        } else {
            let update = "UPDATE cleat_states SET value = ?, epoch = ?, version = version + 1, grp = ? \
                          WHERE entity_type = ? AND entity_id = ? AND version = ?";
            let update = sqlx::query(update).bind(&state.value[..]).bind(epoch.get());
            update.bind(group).bind(kind).bind(id).bind(state.base)
        };
        match query.execute(&mut *self.connection).await?.rows_affected() {
            1 => Ok(()),
            _ => {
                let basis = Basis::State { address: state.address.clone(), version: state.base };
                Err(Error::from(basis).into())
            }
        }
    }

    async fn attempt(&mut self, attempt: &Attempt) -> Result<(), Halt> {
        let update = "UPDATE cleat_messages SET attempt = ?, due = ?, error = ? WHERE id = ?";
        let update = sqlx::query(update).bind(attempt.attempt).bind(time::to_millis(attempt.due));
        let update = update.bind(&attempt.error).bind(attempt.request.get());
        let done = update.execute(&mut *self.connection).await?.rows_affected();
        expect_one(done, attempt.request)
    }

    async fn bury(
        &mut self,
        request: Snowflake,
        outcome: &Outcome,
        error: &str,
        epoch: Epoch,
    ) -> Result<(), Halt> {
        let insert = "INSERT INTO cleat_dead_letters \
                      (id, grp, slot, seq, entity_type, entity_id, method, payload, extra, attempt, error, key, died) \
                      SELECT id, grp, slot, seq, entity_type, entity_id, method, payload, extra, attempt, ?, key, ? \
                      FROM cleat_messages WHERE id = ?";
        let insert = sqlx::query(insert).bind(error).bind(self.now).bind(request.get());
        let buried = insert.execute(&mut *self.connection).await?.rows_affected();
        expect_one(buried, request)?;
        self.finish_stored(request, outcome, epoch).await?;
        Ok(())
    }

    async fn replay(&mut self, request: Snowflake, seq: Snowflake) -> Result<(), Halt> {
        let insert = "INSERT INTO cleat_messages \
                      (id, grp, slot, seq, entity_type, entity_id, method, payload, extra, key) \
                      SELECT id, grp, slot, ?, entity_type, entity_id, method, payload, extra, key \
                      FROM cleat_dead_letters WHERE id = ?";
        let insert = sqlx::query(insert).bind(seq.get()).bind(request.get());
        let raised = insert.execute(&mut *self.connection).await?.rows_affected();
        expect_one(raised, request)?;
        let delete = "DELETE FROM cleat_outcomes WHERE id = ?";
        sqlx::query(delete).bind(request.get()).execute(&mut *self.connection).await?;
        let delete = "DELETE FROM cleat_dead_letters WHERE id = ? RETURNING key, payload, grp, slot";
        let delete = sqlx::query_as(delete).bind(request.get());
        let (key, payload, group, slot): (Option<Vec<u8>>, Vec<u8>, i64, i64) =
            delete.fetch_one(&mut *self.connection).await?;
        if let Some(key) = key {
            // The key went with the outcome if that was kept for a shorter time than the dead letter.
            let body = PayloadDigest::new(&payload);
            let insert = "INSERT INTO cleat_keys (key, id, body, grp, slot) VALUES (?, ?, ?, ?, ?) \
                          ON CONFLICT DO NOTHING";
            let insert = sqlx::query(insert).bind(key).bind(request.get()).bind(body.as_bytes().as_slice());
            insert.bind(group).bind(slot).execute(&mut *self.connection).await?;
        }
        Ok(())
    }

    async fn forget(&mut self, request: Snowflake) -> Result<(), Halt> {
        let delete = "DELETE FROM cleat_dead_letters WHERE id = ?";
        let dropped = sqlx::query(delete).bind(request.get()).execute(&mut *self.connection).await?;
        expect_one(dropped.rows_affected(), request)
    }

    async fn chunk(
        &mut self,
        request: Snowflake,
        (group, slot): (&GroupName, Slot),
        chunk: &Chunk,
    ) -> Result<(), Halt> {
        let group = self.group(group).await?;
        // One that was acknowledged was stored, too, and does not come back.
        let insert = "INSERT INTO cleat_chunks (id, sequence, items, grp, slot) SELECT ?1, ?2, ?3, ?4, ?5 \
                      WHERE NOT EXISTS (SELECT 1 FROM cleat_streams WHERE id = ?1 AND acked >= ?2) \
                      ON CONFLICT DO NOTHING";
        let insert = sqlx::query(insert).bind(request.get()).bind(chunk.sequence.0);
        let insert = insert.bind(codec::encode(&chunk.items)?).bind(group).bind(slot.get());
        insert.execute(&mut *self.connection).await?;
        Ok(())
    }

    async fn acknowledge(&mut self, request: Snowflake, sequence: Sequence) -> Result<(), Halt> {
        // Whoever acknowledges knows the request only; the chunks that it has read say where it belongs.
        let raise = "INSERT INTO cleat_streams (id, acked, grp, slot) VALUES (?1, ?2, \
                     (SELECT grp FROM cleat_chunks WHERE id = ?1), (SELECT slot FROM cleat_chunks WHERE id = ?1)) \
                     ON CONFLICT (id) DO UPDATE SET acked = max(acked, excluded.acked)";
        sqlx::query(raise).bind(request.get()).bind(sequence.0).execute(&mut *self.connection).await?;
        let delete = "DELETE FROM cleat_chunks WHERE id = ? AND sequence <= ?";
        sqlx::query(delete).bind(request.get()).bind(sequence.0).execute(&mut *self.connection).await?;
        Ok(())
    }

    async fn set_timer(&mut self, timer: &Timer) -> Result<(), Halt> {
        let group = self.group(&timer.group).await?;
        let insert = "INSERT INTO cleat_timers (entity_type, entity_id, name, grp, slot, due, payload) \
                      VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (entity_type, entity_id, name) \
                      DO UPDATE SET grp = excluded.grp, slot = excluded.slot, due = excluded.due, \
                      payload = excluded.payload";
        let insert = sqlx::query(insert).bind(timer.address.entity_type.as_str());
        let insert = insert.bind(timer.address.id.as_str()).bind(&timer.name).bind(group);
        let insert = insert.bind(timer.address.slot().get()).bind(time::to_millis(timer.due));
        insert.bind(&timer.payload[..]).execute(&mut *self.connection).await?;
        Ok(())
    }
}

fn expect_one(rows: u64, request: Snowflake) -> Result<(), Halt> {
    if rows == 1 { Ok(()) } else { Err(Error::NotOpen { request }.into()) }
}

fn read_reply(reply: Option<Vec<u8>>) -> Result<Option<Outcome>, Error> {
    reply.map(|bytes| codec::decode(&bytes)).transpose().map_err(Error::from)
}
