//! Waking owners through `LISTEN` and `NOTIFY`.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgListener, PgPool, PgPoolOptions};
use tokio::sync::broadcast;

use super::connect::{Target, unavailable};
use super::groups::Groups;
use crate::shard::ShardId;
use crate::store::{Error, Wake};

const CHANNEL: &str = "cleat_wake";

/// Tells the owners of shards that there is something to read.
pub(super) async fn notify(pool: &PgPool, groups: &Groups, shards: &[ShardId]) -> Result<(), Error> {
    let mut payloads = Vec::with_capacity(shards.len());
    for shard in shards {
        payloads.push(format!("{}/{}", groups.get(&shard.group)?.number, shard.id));
    }
    sqlx::query("SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload")
        .bind(CHANNEL)
        .bind(payloads)
        .execute(pool)
        .await
        .map_err(unavailable)?;
    Ok(())
}

/// Listens until it is aborted. Whenever the connection was away, everything has to be read again.
pub(super) async fn run(target: Target, groups: Arc<Groups>, wakes: broadcast::Sender<Wake>) {
    loop {
        let error = listen(&target, &groups, &wakes).await.err();
        tracing::warn!(error = ?error, "not listening for wakes, connecting again");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn listen(
    target: &Target,
    groups: &Groups,
    wakes: &broadcast::Sender<Wake>,
) -> Result<(), sqlx::Error> {
    // The listener takes its one connection from a pool of its own, so that it never waits for readers.
    let pool = PgPoolOptions::new().max_connections(1).connect_with(target.options("listen")).await?;
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen(CHANNEL).await?;
    // No receiver is fine: then nobody is to be woken.
    let _ = wakes.send(Wake::Everything);
    while let Some(notification) = listener.try_recv().await? {
        if let Some(shard) = parse(notification.payload(), groups) {
            let _ = wakes.send(Wake::Shard(shard));
        }
    }
    Ok(())
}

fn parse(payload: &str, groups: &Groups) -> Option<ShardId> {
    let (number, shard) = payload.split_once('/')?;
    let group = groups.numbered(number.parse().ok()?)?;
    Some(ShardId::new(group.map.group().clone(), shard.parse().ok()?))
}
