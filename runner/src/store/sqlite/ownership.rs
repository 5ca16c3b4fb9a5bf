//! Who owns which shard.

use std::collections::HashMap;

use sqlx::SqliteConnection;

use super::error::convert;
use super::schema::Group;
use crate::shard::{Epoch, Fence, GroupName, Instance, ShardId};
use crate::store::{Error, Holding};

/// Raises the epoch of a shard, or finds that somebody else has. To be called within a transaction that may write: since
/// there is only one of them at a time, nothing of an earlier owner is in flight.
pub(super) async fn claim(
    connection: &mut SqliteConnection,
    groups: &HashMap<GroupName, Group>,
    instance: &Instance,
    fence: &Fence,
) -> Result<Result<(), Error>, Error> {
    let Some(group) = groups.get(&fence.shard.group) else {
        return Ok(Err(Error::NoSuchGroup(fence.shard.group.clone())));
    };
    let raise = "UPDATE cleat_shards SET epoch = ?1, instance = ?2 \
                 WHERE grp = ?3 AND shard = ?4 AND generation = ?5 \
                 AND (epoch < ?1 OR (epoch = ?1 AND instance = ?2))";
    let raise = sqlx::query(raise).bind(fence.epoch.get()).bind(instance.as_str());
    let raise = raise.bind(group.number).bind(fence.shard.id).bind(group.map.generation());
    let raised = raise.execute(connection).await.map_err(convert)?.rows_affected();
    Ok(if raised == 1 { Ok(()) } else { Err(Error::Fenced { shard: fence.shard.clone() }) })
}

/// The newest epoch of every shard of a group.
pub(super) async fn holdings(
    connection: &mut SqliteConnection,
    group: &Group,
) -> Result<Vec<Holding>, Error> {
    let select = "SELECT shard, epoch, instance FROM cleat_shards WHERE grp = ? ORDER BY shard";
    let select = sqlx::query_as(select).bind(group.number);
    let rows: Vec<(u16, i64, String)> = select.fetch_all(connection).await.map_err(convert)?;
    let holding = |(id, epoch, instance)| Holding {
        shard: ShardId::new(group.map.group().clone(), id),
        epoch: Epoch::new(epoch),
        instance,
    };
    Ok(rows.into_iter().map(holding).collect())
}
