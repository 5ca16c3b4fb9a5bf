//! What the database knows: a log of its writers, and what it has at the end.
//!
//! Triggers note each state and each reply that is written, with its epoch and with the connection that wrote it. Their numbers are
//! drawn when a batch writes. A claim ends only after the batches of the owner before have, so by these numbers, too, no write of an old
//! epoch may come after one of a newer epoch.

use std::collections::BTreeMap;

use cleat_runner::message::codec;
use cleat_runner::shard::{GroupName, ShardMap, Slot};
use cleat_testing::history::{Entity, Written};
use sqlx::{Connection, PgConnection, Row};

use crate::list::ledger;
use crate::runner::SHARDS;

/// Connections call themselves `cleat`, the instance's number, what they do.
const INSTALL: &str = "
    CREATE SCHEMA audit;
    CREATE TABLE audit.writes (n bigserial PRIMARY KEY, slot integer NOT NULL, epoch bigint NOT NULL, writer text NOT NULL);
    CREATE TABLE audit.claims (shard integer NOT NULL, epoch bigint NOT NULL, writer text NOT NULL);
    -- Without a key: a message that is handled twice has two rows.
    CREATE TABLE audit.rows (list text NOT NULL, message bigint NOT NULL);
    CREATE FUNCTION audit.writer() RETURNS text LANGUAGE sql AS
        $$ SELECT split_part(current_setting('application_name'), ' ', 2) $$;
    CREATE FUNCTION audit.wrote() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO audit.writes (slot, epoch, writer) VALUES (NEW.slot, NEW.epoch, audit.writer());
        RETURN NULL;
    END $$;
    CREATE FUNCTION audit.claimed() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO audit.claims VALUES (NEW.shard, NEW.epoch, audit.writer());
        RETURN NULL;
    END $$;
    CREATE TRIGGER wrote AFTER INSERT OR UPDATE ON cleat.states FOR EACH ROW EXECUTE FUNCTION audit.wrote();
    CREATE TRIGGER wrote AFTER INSERT ON cleat.outcomes FOR EACH ROW EXECUTE FUNCTION audit.wrote();
    CREATE TRIGGER claimed AFTER UPDATE ON cleat.shards FOR EACH ROW
        WHEN (OLD.epoch <> NEW.epoch) EXECUTE FUNCTION audit.claimed();
";

/// Begins the log, in a database that has the schema and no owners yet.
pub async fn install(url: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql(INSTALL).execute(&mut connection).await.unwrap();
}

/// The epoch and the owner of each shard that was ever claimed.
pub async fn owners(url: &str) -> Result<BTreeMap<i32, (i64, String)>, sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    let shards = sqlx::query("SELECT shard, epoch, instance FROM cleat.shards WHERE epoch > 0");
    let rows = shards.fetch_all(&mut connection).await?;
    Ok(rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect())
}

/// How many messages are stored and not handled yet.
pub async fn waiting(url: &str) -> Result<i64, sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    sqlx::query_scalar("SELECT count(*) FROM cleat.messages").fetch_one(&mut connection).await
}

/// Who claimed and who wrote.
pub async fn log(url: &str) -> (Vec<Written>, Vec<Written>) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let written = |shard: String, row: &sqlx::postgres::PgRow| Written {
        shard,
        epoch: row.get(1),
        instance: row.get(2),
    };
    let claims = sqlx::query("SELECT shard, epoch, writer FROM audit.claims");
    let claims = claims.fetch_all(&mut connection).await.unwrap();
    let claims = claims.iter().map(|row| written(row.get::<i32, _>(0).to_string(), row)).collect();
    let writes = sqlx::query("SELECT slot, epoch, writer FROM audit.writes ORDER BY n");
    let writes = writes.fetch_all(&mut connection).await.unwrap();
    let map = ShardMap::new(GroupName::default(), SHARDS).unwrap();
    let shard = |row: &sqlx::postgres::PgRow| {
        map.shard_at(Slot::new(u16::try_from(row.get::<i32, _>(0)).unwrap())).id.to_string()
    };
    (claims, writes.iter().map(|row| written(shard(row), row)).collect())
}

/// What the database has of each list, all at one moment: runners may still be at what nobody waits for any more.
pub async fn entities(url: &str) -> BTreeMap<String, Entity> {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let begin = sqlx::raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    begin.execute(&mut connection).await.unwrap();
    let mut entities: BTreeMap<String, Entity> = BTreeMap::new();
    let states = sqlx::query("SELECT entity_id, value FROM cleat.states");
    for row in states.fetch_all(&mut connection).await.unwrap() {
        entities.entry(row.get(0)).or_default().handled = codec::decode(row.get::<&[u8], _>(1)).unwrap();
    }
    let outcomes =
        sqlx::query("SELECT entity_id, count(*) FROM cleat.outcomes WHERE method LIKE 'append%' GROUP BY 1");
    for row in outcomes.fetch_all(&mut connection).await.unwrap() {
        entities.entry(row.get(0)).or_default().outcomes = usize::try_from(row.get::<i64, _>(1)).unwrap();
    }
    for (id, entity) in &mut entities {
        if id.starts_with(&ledger("")) {
            let rows = sqlx::query_scalar("SELECT message FROM audit.rows WHERE list = $1").bind(id);
            let rows: Vec<i64> = rows.fetch_all(&mut connection).await.unwrap();
            entity.rows = Some(rows.into_iter().map(|message| u64::try_from(message).unwrap()).collect());
        }
    }
    let open = sqlx::query("SELECT entity_id, payload FROM cleat.messages");
    for row in open.fetch_all(&mut connection).await.unwrap() {
        let message = codec::decode(row.get::<&[u8], _>(1)).unwrap();
        entities.entry(row.get(0)).or_default().open.push(message);
    }
    entities
}
