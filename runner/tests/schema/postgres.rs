//! What the schema promises, and how a database of an earlier release gets there beside those who use it.

use bytes::Bytes;
use cleat_runner::message::{Chunk, IdempotencyKey, Sequence};
use cleat_runner::shard::GroupName;
use cleat_runner::store::postgres::{Options, PostgresStore};
use cleat_runner::store::{Change, Hold, Phase, Retention, SCHEMA, Store, Write};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use std::sync::Arc;
use std::time::Duration;

use super::earlier::{building, fourth, snapshot};
use super::store_postgres_rig::*;

/// A database in which text is not compared byte by byte unless somebody says so.
async fn linguistic() -> String {
    let url = database().await;
    let (server, _) = url.rsplit_once('/').unwrap();
    let name = format!("linguistic_{:016x}", rand::random::<u64>());
    let create = format!(
        "CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'en' LC_COLLATE 'C' LC_CTYPE 'C'"
    );
    sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut connect(&url).await).await.unwrap();
    let url = format!("{server}/{name}");
    assert_eq!(number(&url, "SELECT ('a' < 'B')::int::bigint").await, 1, "the default is another order");
    url
}

async fn names(url: &str, query: &'static str) -> Vec<String> {
    sqlx::query_scalar(query).fetch_all(&mut connect(url).await).await.unwrap()
}

/// Columns of tables and indexes whose text is in an order that depends on a library.
const LINGUISTIC: &str =
    "SELECT c.relname || '.' || a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = 'cleat'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
      AND a.attcollation <> 0 AND a.attcollation <> 'pg_catalog.\"C\"'::regcollation ORDER BY 1";

fn hold(id: &str) -> Hold {
    let address = cleat_runner::message::EntityAddress::new("workflow:order", id).unwrap();
    Hold { address, holder: "somebody".to_owned(), group: GroupName::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn text_is_compared_byte_by_byte_in_every_table_and_index() {
    let url = linguistic().await;
    let store = open(&url, "one").await;
    assert_eq!(names(&url, LINGUISTIC).await, Vec::<String>::new());
    // Pages are in the order in which the other database has them.
    store.hold(&["a", "B", "é", "_"].map(hold)).await.unwrap();
    let mut pages = Vec::new();
    let mut after = None;
    while let Some(next) = store.holds(after.take(), 1).await.unwrap().pop() {
        pages.push(next.address.id.as_str().to_owned());
        after = Some(next);
    }
    assert_eq!(pages, ["B", "_", "a", "é"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_in_another_order_is_migrated_without_writing_its_tables_again() {
    let url = linguistic().await;
    fourth(&url).await;
    let mut session = connect(&url).await;
    let fill = "INSERT INTO cleat.states SELECT 'counter', n::text, 1, n % 65536, 1, 1, '' FROM generate_series(1, 5000) AS n;
        INSERT INTO cleat.executions SELECT 'workflow:order', n::text, 1, n % 65536, n, 1, 4, false, n, n, '', ''
          FROM generate_series(1, 5000) AS n;
        INSERT INTO cleat.holds SELECT 'workflow:order', id, 'x' FROM unnest(ARRAY['a', 'B', 'c']) AS id";
    sqlx::raw_sql(fill).execute(&mut session).await.unwrap();
    let files = "SELECT relname || relfilenode FROM pg_class WHERE relnamespace = 'cleat'::regnamespace
                 AND relname IN ('states', 'executions', 'timers', 'holds', 'journal', 'messages', 'outcomes_rest') ORDER BY 1";
    let before = names(&url, files).await;
    // A runner of the earlier release reads text with a prepared statement.
    let reader = format!("{url}?application_name=cleat%200%20pool");
    let mut reader = PgConnection::connect(&reader).await.unwrap();
    let reads = "SELECT entity_id FROM cleat.holds ORDER BY entity_id LIMIT 1";
    let first: String = sqlx::query_scalar(reads).fetch_one(&mut reader).await.unwrap();
    assert_eq!(first, "a");

    let store = open(&url, "one").await;
    assert_eq!(number(&url, "SELECT max(version)::bigint FROM cleat.migrations").await, i64::from(SCHEMA));
    assert_eq!(names(&url, LINGUISTIC).await, Vec::<String>::new());
    assert_eq!(names(&url, files).await, before, "no table was written again");
    let listed = store.holds(None, 10).await.unwrap();
    assert_eq!(listed.iter().map(|hold| hold.address.id.as_str()).collect::<Vec<_>>(), ["B", "a", "c"]);
    // Its statement would fail for as long as the connection lives, so that is closed.
    assert!(sqlx::query_scalar::<_, String>(reads).fetch_one(&mut reader).await.is_err());
    assert_eq!(number(&url, "SELECT count(*) FROM pg_index WHERE NOT indisvalid").await, 0);
    let keys = "SELECT count(*) FROM pg_constraint WHERE connamespace = 'cleat'::regnamespace AND contype = 'p'
                AND conname IN ('states_pkey', 'timers_pkey', 'executions_pkey', 'former_runs_pkey', 'holds_pkey')";
    assert_eq!(number(&url, keys).await, 5);
    assert!(names(&url, "SELECT name FROM cleat.facts WHERE name = 'migration'").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_binary_writes_to_the_newer_schema() {
    let url = database().await;
    open(&url, "one").await;
    let writes = "INSERT INTO cleat.journal (run, seq, epoch, entry) VALUES (1, 0, 1, '');
        INSERT INTO cleat.keys (key, id, body) VALUES ('k', 1, 'b');
        INSERT INTO cleat.chunks (id, sequence, items) VALUES (1, 0, '');
        INSERT INTO cleat.streams (id, acked) VALUES (1, 0);
        INSERT INTO cleat.former_runs (entity_type, entity_id, run) VALUES ('a', 'b', 1);
        INSERT INTO cleat.forgotten_runs (run) VALUES (1);
        INSERT INTO cleat.holds (entity_type, entity_id, holder) VALUES ('a', 'b', 'c')";
    sqlx::raw_sql(writes).execute(&mut connect(&url).await).await.unwrap();
    let enter =
        "SELECT count(*) FROM pg_proc WHERE pronamespace = 'cleat'::regnamespace AND proname = 'enter'";
    assert_eq!(number(&url, enter).await, 2, "it calls the function without a slot");
}

/// Tables that are not about entities.
const GLOBAL: &str = "SELECT relname::text FROM pg_class c WHERE relnamespace = 'cleat'::regnamespace AND relkind IN ('r', 'p')
    AND relname NOT IN ('facts', 'groups', 'machines', 'migrations', 'shards')
    AND (SELECT count(*) FROM pg_attribute WHERE attrelid = c.oid AND attname IN ('grp', 'slot') AND NOT attisdropped) < 2
    ORDER BY 1";

#[tokio::test(flavor = "multi_thread")]
async fn every_row_can_be_found_by_group_and_slot() {
    let url = database().await;
    let store = open(&url, "one").await;
    assert_eq!(names(&url, GLOBAL).await, Vec::<String>::new(), "tables without a group and a slot");
    claim(&store, 1, 1).await;
    let fence = fence(1, 1);
    let commit = async |changes| store.commit(Write { fence: fence.clone(), changes }).await.unwrap();
    let address = entity(1, 0);
    let slot = address.slot();

    let mut keyed = message(address.clone(), id());
    keyed.envelope.key = Some(IdempotencyKey::from_bytes([7; 16]));
    let request = keyed.envelope.id;
    commit(vec![Change::Accept(keyed)]).await;
    let part = |n| Chunk { sequence: Sequence(n), items: vec![Bytes::from_static(b"item")] };
    commit(vec![Change::Chunk { request, slot, chunk: part(0) }]).await;
    commit(vec![Change::Chunk { request, slot, chunk: part(1) }]).await;
    commit(vec![Change::Ack { request, sequence: Sequence(0) }]).await;
    commit(vec![Change::Ack { request, sequence: Sequence(1) }]).await;
    commit(vec![Change::Chunk { request, slot, chunk: part(2) }]).await;
    let (first, second) = (id(), id());
    let entries = |run| Change::Journal { run, slot, from: 0, entries: vec![Bytes::from_static(b"entry")] };
    commit(vec![begin(&address, first), entries(first)]).await;
    commit(vec![renew(&address, first, second), entries(second)]).await;
    let held = Hold { address: address.clone(), holder: "x".to_owned(), group: GroupName::default() };
    store.hold(std::slice::from_ref(&held)).await.unwrap();
    let placed = "SELECT relname::text FROM pg_class c WHERE relnamespace = 'cleat'::regnamespace AND relkind IN ('r', 'p')
        AND relname IN ('journal', 'keys', 'chunks', 'streams', 'former_runs', 'holds')
        AND (xpath('//r/text()', query_to_xml(format('SELECT count(*) = count(*) FILTER (WHERE slot = %s AND grp = 1) AND count(*) > 0 AS r FROM cleat.%I',
          (SELECT slot FROM cleat.executions), relname), false, true, '')))[1]::text = 'true' ORDER BY 1";
    assert_eq!(names(&url, placed).await, ["chunks", "former_runs", "holds", "journal", "keys", "streams"]);

    // What is forgotten says where its journals were.
    store.release(&[held]).await.unwrap();
    commit(vec![became(&address, second, Phase::Completed)]).await;
    let trap = "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER keep BEFORE DELETE ON cleat.forgotten_runs FOR EACH ROW EXECUTE FUNCTION keep()";
    sqlx::raw_sql(trap).execute(&mut connect(&url).await).await.unwrap();
    let nothing =
        Retention { completed: Duration::ZERO, failed: Duration::ZERO, dead_letters: Duration::ZERO };
    store.clock().set_ahead(3600);
    store.retain(&nothing).await.unwrap();
    let forgotten = "SELECT count(*) FROM cleat.forgotten_runs WHERE grp = 1 AND slot IS NOT NULL";
    assert_eq!(number(&url, forgotten).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_runners_migrates_and_none_waits_inside_a_transaction() {
    let url = database().await;
    fourth(&url).await;
    let backup = snapshot(&url).await;
    let mut opening = tokio::task::JoinSet::new();
    for runner in 0..4 {
        let options = Options { connections: 3, ..options(&url, &format!("runner {runner}")) };
        opening.spawn(async move { PostgresStore::open(options).await.map(Arc::new) });
    }
    building(&url).await;
    assert!(opening.try_join_next().is_none(), "nobody is served before the schema is there");
    // A transaction that waits for the migration would be waited for by the index: neither would ever end.
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'cleat %'
        AND xact_start IS NOT NULL AND query NOT LIKE '%CONCURRENTLY%'";
    for _ in 0..20 {
        assert_eq!(number(&url, waiting).await, 0);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Runners of the earlier release lease machine numbers meanwhile.
    let lease =
        "BEGIN; SET LOCAL lock_timeout = '10s'; SELECT pg_advisory_xact_lock(873318997746924032); COMMIT";
    sqlx::raw_sql(lease).execute(&mut connect(&url).await).await.unwrap();
    backup.close().await.unwrap();
    while let Some(opened) = tokio::time::timeout(PATIENCE, opening.join_next()).await.expect("it hangs") {
        let store = opened.unwrap().unwrap();
        store.lease_machine().await.unwrap();
    }
    assert_eq!(number(&url, "SELECT count(*) FROM cleat.migrations").await, i64::from(SCHEMA));
    assert_eq!(number(&url, "SELECT count(*) FROM pg_index WHERE NOT indisvalid").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_was_interrupted_continues_and_builds_its_index_again() {
    let url = database().await;
    fourth(&url).await;
    let backup = snapshot(&url).await;
    let interrupted = tokio::spawn(PostgresStore::open(options(&url, "one")));
    let builder = building(&url).await;
    sqlx::query("SELECT pg_terminate_backend($1)")
        .bind(builder)
        .execute(&mut connect(&url).await)
        .await
        .unwrap();
    assert!(tokio::time::timeout(PATIENCE, interrupted).await.unwrap().unwrap().is_err());
    assert_eq!(number(&url, "SELECT count(*) FROM pg_index WHERE NOT indisvalid").await, 1);
    backup.close().await.unwrap();
    open(&url, "two").await;
    assert_eq!(number(&url, "SELECT count(*) FROM pg_index WHERE NOT indisvalid").await, 0);
    assert_eq!(number(&url, "SELECT count(*) FROM cleat.migrations").await, i64::from(SCHEMA));
    assert_eq!(names(&url, GLOBAL).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_another_cluster_is_not_migrated() {
    let url = database().await;
    fourth(&url).await;
    let theirs = "INSERT INTO cleat.facts VALUES ('cluster', 'theirs')";
    sqlx::query(theirs).execute(&mut connect(&url).await).await.unwrap();
    let ours = Options { cluster: Some("ours".to_owned()), ..options(&url, "one") };
    assert!(PostgresStore::open(ours).await.is_err());
    assert_eq!(number(&url, "SELECT max(version)::bigint FROM cleat.migrations").await, 4);
}
