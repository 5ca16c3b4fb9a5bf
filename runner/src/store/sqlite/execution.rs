//! Executions and their journals.

use bytes::Bytes;
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, SqliteConnection};

use super::change::{Halt, Transaction};
use super::error::convert;
use super::read::{address, get, slots};
use super::schema::Group;
use crate::message::codec::time;
use crate::message::{EntityAddress, EntityType, Snowflake};
use crate::shard::{Epoch, Fence, GroupName, ShardId, Slot};
use crate::store::{Basis, Cursor, Error, Execution, ExecutionChange, Filter, Phase, StoredExecution};

impl Transaction<'_> {
    pub(super) async fn begin(&mut self, new: &Execution, epoch: Epoch) -> Result<(), Halt> {
        let group = self.group(&new.group).await?;
        let insert = "INSERT INTO cleat_executions (entity_type, entity_id, grp, slot, run, epoch, phase, \
                      active, started, input, summary) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) \
                      ON CONFLICT DO NOTHING";
        let insert = sqlx::query(insert).bind(new.address.entity_type.as_str()).bind(new.address.id.as_str());
        let insert = insert.bind(group).bind(new.address.slot().get()).bind(new.run.get()).bind(epoch.get());
        let insert = insert.bind(new.phase.number()).bind(new.active).bind(time::to_millis(new.started));
        let insert = insert.bind(&new.input[..]).bind(&new.summary[..]);
        let begun = insert.execute(&mut *self.connection).await?.rows_affected();
        found(begun, Basis::Vacancy { address: new.address.clone() })
    }

    pub(super) async fn journal(
        &mut self,
        run: Snowflake,
        slot: Slot,
        from: i64,
        entries: &[Bytes],
        fence: &Fence,
    ) -> Result<(), Halt> {
        let group = self.group(&fence.shard.group).await?;
        for (place, entry) in (from..).zip(entries) {
            let insert = "INSERT INTO cleat_journal (run, seq, epoch, entry, grp, slot) SELECT ?1, ?2, ?3, ?4, ?5, ?6 \
                          WHERE ?2 = 0 OR EXISTS (SELECT 1 FROM cleat_journal WHERE run = ?1 AND seq = ?2 - 1) \
                          ON CONFLICT DO NOTHING";
            let insert = sqlx::query(insert).bind(run.get()).bind(place).bind(fence.epoch.get());
            let insert = insert.bind(&entry[..]).bind(group).bind(slot.get());
            let added = insert.execute(&mut *self.connection).await?.rows_affected();
            found(added, Basis::Journal { run, place })?;
        }
        Ok(())
    }

    pub(super) async fn change_execution(
        &mut self,
        change: &ExecutionChange,
        epoch: Epoch,
    ) -> Result<(), Halt> {
        let update = "UPDATE cleat_executions SET epoch = ?, phase = ?, active = ?, ended = ?, summary = ? \
                      WHERE entity_type = ? AND entity_id = ? AND run = ?";
        let update = sqlx::query(update).bind(epoch.get()).bind(change.phase.number()).bind(change.active);
        let update = update.bind(change.ended.map(time::to_millis)).bind(&change.summary[..]);
        let update = update.bind(change.address.entity_type.as_str()).bind(change.address.id.as_str());
        let changed = update.bind(change.run.get()).execute(&mut *self.connection).await?.rows_affected();
        found(changed, Basis::Execution { address: change.address.clone(), run: change.run })
    }

    pub(super) async fn renew(
        &mut self,
        of: &EntityAddress,
        from: Snowflake,
        to: Snowflake,
        summary: &[u8],
        fence: &Fence,
    ) -> Result<(), Halt> {
        let group = self.group(&fence.shard.group).await?;
        let (kind, id) = (of.entity_type.as_str(), of.id.as_str());
        let update = "UPDATE cleat_executions \
                      SET run = ?, epoch = ?, phase = ?, active = TRUE, ended = NULL, summary = ? \
                      WHERE entity_type = ? AND entity_id = ? AND run = ?";
        let update = sqlx::query(update).bind(to.get()).bind(fence.epoch.get()).bind(Phase::Running.number());
        let update = update.bind(summary).bind(kind).bind(id).bind(from.get());
        let renewed = update.execute(&mut *self.connection).await?.rows_affected();
        found(renewed, Basis::Execution { address: of.clone(), run: from })?;
        let note = "INSERT INTO cleat_former_runs (entity_type, entity_id, run, grp, slot) VALUES (?, ?, ?, ?, ?) \
                    ON CONFLICT DO NOTHING";
        let note = sqlx::query(note).bind(kind).bind(id).bind(from.get()).bind(group).bind(of.slot().get());
        note.execute(&mut *self.connection).await?;
        Ok(())
    }
}

fn found(rows: u64, basis: Basis) -> Result<(), Halt> {
    if rows == 1 { Ok(()) } else { Err(Error::from(basis).into()) }
}

const COLUMNS: &str = "entity_type, entity_id, run, phase, active, started, ended, input, summary";

/// One execution.
pub(super) async fn execution(
    connection: &mut SqliteConnection,
    of: &EntityAddress,
) -> Result<Option<StoredExecution>, Error> {
    // The group may be younger than this store.
    let mut select = QueryBuilder::new("SELECT g.name, ");
    select.push(COLUMNS).push(" FROM cleat_executions JOIN cleat_groups g USING (grp) WHERE entity_type = ");
    select.push_bind(of.entity_type.as_str()).push(" AND entity_id = ").push_bind(of.id.as_str());
    let row = select.build().fetch_optional(connection).await.map_err(convert)?;
    let Some(row) = row else { return Ok(None) };
    let group = GroupName::new(get(&row, "name")?).map_err(|error| Error::corrupt("shard group", error))?;
    stored(&row, &group).map(Some)
}

/// Entries of a journal.
pub(super) async fn journal(
    connection: &mut SqliteConnection,
    run: Snowflake,
    from: i64,
    limit: u32,
) -> Result<Vec<Bytes>, Error> {
    let select = "SELECT entry FROM cleat_journal WHERE run = ? AND seq >= ? ORDER BY seq LIMIT ?";
    let select = sqlx::query_scalar(select).bind(run.get()).bind(from).bind(limit);
    let entries: Vec<Vec<u8>> = select.fetch_all(connection).await.map_err(convert)?;
    Ok(entries.into_iter().map(Bytes::from).collect())
}

/// A page of a shard's active executions.
pub(super) async fn active(
    connection: &mut SqliteConnection,
    group: &Group,
    shard: &ShardId,
    after: Option<&EntityAddress>,
    limit: u32,
) -> Result<Vec<StoredExecution>, Error> {
    let Some((low, high)) = slots(group, shard) else { return Ok(Vec::new()) };
    let mut select = QueryBuilder::new("SELECT ");
    select.push(COLUMNS).push(" FROM cleat_executions WHERE active AND grp = ").push_bind(group.number);
    select.push(" AND slot BETWEEN ").push_bind(low).push(" AND ").push_bind(high);
    if let Some(after) = after {
        select.push(" AND (slot, entity_type, entity_id) > (").push_bind(after.slot().get());
        select.push(", ").push_bind(after.entity_type.as_str());
        select.push(", ").push_bind(after.id.as_str()).push(")");
    }
    select.push(" ORDER BY slot, entity_type, entity_id LIMIT ").push_bind(limit);
    let rows = select.build().fetch_all(connection).await.map_err(convert)?;
    rows.iter().map(|row| stored(row, &shard.group)).collect()
}

/// A page of a listing.
pub(super) async fn executions(
    connection: &mut SqliteConnection,
    group: &Group,
    filter: &Filter,
    after: Option<&Cursor>,
    limit: u32,
) -> Result<Vec<StoredExecution>, Error> {
    let mut select = QueryBuilder::new("SELECT ");
    select.push(COLUMNS).push(" FROM cleat_executions WHERE grp = ").push_bind(group.number);
    if let Some(kind) = &filter.types {
        select.push(" AND entity_type = ").push_bind(kind.as_str());
    }
    if !filter.phases.is_empty() {
        let mut phases = select.push(" AND phase IN (").separated(", ");
        for phase in &filter.phases {
            phases.push_bind(phase.number());
        }
        select.push(")");
    }
    if let Some(since) = filter.since {
        select.push(" AND started >= ").push_bind(time::to_millis(since));
    }
    if let Some(until) = filter.until {
        select.push(" AND started < ").push_bind(time::to_millis(until));
    }
    if let Some(Cursor { started, address }) = after {
        select.push(" AND (started, entity_type, entity_id) < (").push_bind(time::to_millis(*started));
        select.push(", ").push_bind(address.entity_type.as_str());
        select.push(", ").push_bind(address.id.as_str()).push(")");
    }
    select.push(" ORDER BY started DESC, entity_type DESC, entity_id DESC LIMIT ").push_bind(limit);
    let rows = select.build().fetch_all(connection).await.map_err(convert)?;
    rows.iter().map(|row| stored(row, &filter.group)).collect()
}

/// The types of executions of a group.
pub(super) async fn types(
    connection: &mut SqliteConnection,
    group: &Group,
) -> Result<Vec<EntityType>, Error> {
    let select = "SELECT DISTINCT entity_type FROM cleat_executions WHERE grp = ? ORDER BY entity_type";
    let select = sqlx::query_scalar(select).bind(group.number);
    let types: Vec<String> = select.fetch_all(connection).await.map_err(convert)?;
    let read = |kind: &String| EntityType::new(kind).map_err(|error| Error::corrupt("entity type", error));
    types.iter().map(read).collect()
}

fn stored(row: &SqliteRow, group: &GroupName) -> Result<StoredExecution, Error> {
    let execution = Execution {
        address: address(row)?,
        group: group.clone(),
        run: Snowflake::new(get(row, "run")?),
        phase: Phase::stored(get(row, "phase")?)?,
        active: get(row, "active")?,
        started: time::from_millis(get(row, "started")?),
        input: get::<Vec<u8>>(row, "input")?.into(),
        summary: get::<Vec<u8>>(row, "summary")?.into(),
    };
    Ok(StoredExecution { execution, ended: get::<Option<i64>>(row, "ended")?.map(time::from_millis) })
}
