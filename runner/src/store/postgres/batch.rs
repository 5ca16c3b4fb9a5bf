//! A batch of writes as one statement.
//!
//! Every kind of change that a batch has becomes one part of a single `WITH` statement: one round trip and one commit for all of
//! them. Each part joins its rows with the fences that stand, so a fenced write writes nothing and disturbs nobody. Where a
//! row must find something and does not, the whole statement is taken back (`CL001`), and the writes are tried one by one. So they are
//! where a row must be new and is not: the table's own index says so, which costs less than asking it first (`ON CONFLICT`).

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::{Arguments, AssertSqlSafe, Row};

use super::columns::Columns;
use super::connect::{Identity, Transaction};
use super::machine::now;

/// Statements by the parts that they have.
#[derive(Default)]
pub(super) struct Statements {
    composed: HashMap<u32, Arc<str>>,
    /// Whether they are the last of a user's transaction, and refuse to be anything else.
    within: bool,
}

/// What came of a batch that was committed.
pub(super) struct Applied {
    /// Whether each fence stood, by its number.
    pub(super) standing: Vec<bool>,
    /// The number of each write's fence.
    pub(super) fences: Vec<i32>,
    /// The messages that were stored.
    pub(super) stored: Vec<i64>,
    /// Which transaction it was.
    pub(super) transaction: Transaction,
}

/// One part of the statement: a `WITH` query, its parameters, and what must be true after it.
struct Part {
    /// The name of its first query.
    name: &'static str,
    present: bool,
    /// Whether that query must give as many rows as were asked for.
    strict: bool,
    /// `{}` stands for the next parameter; the first is the fence of each row.
    sql: &'static str,
}

impl Columns<'_> {
    /// The parts in the order of their parameters.
    #[rustfmt::skip]
    fn parts(&self) -> Vec<Part> {
        vec![
            Part { name: "k", present: !self.keys.is_empty(), strict: false, sql: "
k AS (INSERT INTO cleat.keys (key, id, body, grp, slot)
  SELECT u.key, u.id, u.body, u.grp, u.slot
  FROM unnest({}::int[], {}::bytea[], {}::bigint[], {}::bytea[], {}::smallint[], {}::int[]) AS u (f, key, id, body, grp, slot)
  JOIN fence ON fence.stands[u.f]
  WHERE (SELECT 1 FROM cleat.messages m WHERE m.id = u.id) IS NULL AND (SELECT 1 FROM cleat.outcomes o WHERE o.id = u.id) IS NULL
  ON CONFLICT (key) DO NOTHING RETURNING key)" },
            Part { name: "m", present: !self.messages.is_empty(), strict: false, sql: "
m AS (INSERT INTO cleat.messages (id, grp, slot, seq, entity_type, entity_id, method, payload, extra, due, key)
  SELECT u.id, u.grp, u.slot, u.seq, u.entity_type, u.entity_id, u.method, u.payload, u.extra, u.due, u.key
  FROM unnest({}::int[], {}::bigint[], {}::smallint[], {}::int[], {}::bigint[], {}::text[], {}::text[], {}::text[],
    {}::bytea[], {}::bytea[], {}::bigint[], {}::bytea[], {}::boolean[])
    AS u (f, id, grp, slot, seq, entity_type, entity_id, method, payload, extra, due, key, resent)
  JOIN fence ON fence.stands[u.f]
  WHERE (NOT u.resent OR (SELECT 1 FROM cleat.outcomes o WHERE o.id = u.id) IS NULL) /*keyed*/
  ON CONFLICT (id) DO NOTHING RETURNING id)" },
            // Accepts that other changes depend on.
            Part { name: "md", present: !self.depended.is_empty(), strict: true, sql: "
md AS (SELECT u.f FROM unnest({}::int[], {}::bigint[]) AS u (f, id) JOIN m ON m.id = u.id)" },
            // A message that is sent again may end between this statement's snapshot and its insert. Whoever ended it has
            // committed by then, so a look from now shows it.
            Part { name: "ms", present: !self.sent.is_empty(), strict: false, sql: "
ms AS (SELECT cleat.unfinished(ARRAY(SELECT m.id FROM unnest({}::int[], {}::bigint[]) AS u (f, id) JOIN m ON m.id = u.id)) AS fine)" },
            Part { name: "o", present: !self.outcomes.is_empty(), strict: true, sql: "
o AS (INSERT INTO cleat.outcomes (id, grp, slot, entity_type, entity_id, method, epoch, status, reply, done)
  SELECT u.id, u.grp, u.slot, u.entity_type, u.entity_id, u.method, ($6::bigint[])[u.f], u.status, u.reply, fence.now
  FROM unnest({}::int[], {}::bigint[], {}::smallint[], {}::int[], {}::text[], {}::text[], {}::text[],
    {}::smallint[], {}::bytea[], {}::bytea[])
    AS u (f, id, grp, slot, entity_type, entity_id, method, status, reply, key)
  JOIN fence ON fence.stands[u.f]
  WHERE (SELECT 1 FROM cleat.messages m WHERE m.id = u.id) IS NULL /*keyed*/
  RETURNING id)" },
            Part { name: "d", present: !self.finished.is_empty(), strict: true, sql: "
d AS (DELETE FROM cleat.messages m
  USING unnest({}::int[], {}::bigint[], {}::smallint[], {}::bytea[]) AS u (f, id, status, reply) JOIN fence ON fence.stands[u.f]
  WHERE m.id = u.id
  RETURNING m.id, m.grp, m.slot, m.entity_type, m.entity_id, m.method, ($6::bigint[])[u.f] AS epoch, u.status, u.reply),
d2 AS (INSERT INTO cleat.outcomes (id, grp, slot, entity_type, entity_id, method, epoch, status, reply, done)
  SELECT d.*, (SELECT now FROM fence) FROM d)" },
            Part { name: "si", present: !self.created.is_empty(), strict: true, sql: "
si AS (INSERT INTO cleat.states (entity_type, entity_id, grp, slot, version, epoch, value)
  SELECT u.entity_type, u.entity_id, u.grp, u.slot, u.version, ($6::bigint[])[u.f], u.value
  FROM unnest({}::int[], {}::text[], {}::text[], {}::smallint[], {}::int[], {}::bigint[], {}::bigint[], {}::bytea[])
    AS u (f, entity_type, entity_id, grp, slot, base, version, value)
  JOIN fence ON fence.stands[u.f] RETURNING 1)" },
            Part { name: "su", present: !self.changed.is_empty(), strict: true, sql: "
su AS (UPDATE cleat.states s SET version = u.version, epoch = ($6::bigint[])[u.f], value = u.value
  FROM unnest({}::int[], {}::text[], {}::text[], {}::smallint[], {}::int[], {}::bigint[], {}::bigint[], {}::bytea[])
    AS u (f, entity_type, entity_id, grp, slot, base, version, value)
  JOIN fence ON fence.stands[u.f]
  WHERE s.entity_type = u.entity_type AND s.entity_id = u.entity_id AND s.version = u.base RETURNING 1)" },
            Part { name: "a", present: !self.attempts.is_empty(), strict: true, sql: "
a AS (UPDATE cleat.messages m SET attempt = u.attempt, due = u.due, error = u.error
  FROM unnest({}::int[], {}::bigint[], {}::int[], {}::bigint[], {}::text[]) AS u (f, id, attempt, due, error)
  JOIN fence ON fence.stands[u.f] WHERE m.id = u.id RETURNING 1)" },
            Part { name: "b", present: !self.buried.is_empty(), strict: true, sql: "
b AS (DELETE FROM cleat.messages m
  USING unnest({}::int[], {}::bigint[], {}::smallint[], {}::bytea[], {}::text[]) AS u (f, id, status, reply, error)
  JOIN fence ON fence.stands[u.f] WHERE m.id = u.id
  RETURNING m.id, m.grp, m.slot, m.seq, m.entity_type, m.entity_id, m.method, m.payload, m.extra, m.attempt, m.key,
    ($6::bigint[])[u.f] AS epoch, u.status, u.reply, u.error),
b2 AS (INSERT INTO cleat.dead_letters
    (id, grp, slot, seq, entity_type, entity_id, method, payload, extra, attempt, error, key, died)
  SELECT id, grp, slot, seq, entity_type, entity_id, method, payload, extra, attempt, error, key, (SELECT now FROM fence) FROM b),
b3 AS (INSERT INTO cleat.outcomes (id, grp, slot, entity_type, entity_id, method, epoch, status, reply, done)
  SELECT id, grp, slot, entity_type, entity_id, method, epoch, status, reply, (SELECT now FROM fence) FROM b)" },
            Part { name: "r", present: !self.replayed.is_empty(), strict: true, sql: "
r AS (DELETE FROM cleat.dead_letters l
  USING unnest({}::int[], {}::bigint[], {}::bigint[]) AS u (f, id, seq) JOIN fence ON fence.stands[u.f] WHERE l.id = u.id
  RETURNING l.id, l.grp, l.slot, u.seq, l.entity_type, l.entity_id, l.method, l.payload, l.extra, l.key),
r2 AS (INSERT INTO cleat.messages (id, grp, slot, seq, entity_type, entity_id, method, payload, extra, key)
  SELECT * FROM r),
r3 AS (DELETE FROM cleat.outcomes o USING r WHERE o.id = r.id)" },
            Part { name: "x", present: !self.dropped.is_empty(), strict: true, sql: "
x AS (DELETE FROM cleat.dead_letters l
  USING unnest({}::int[], {}::bigint[]) AS u (f, id) JOIN fence ON fence.stands[u.f] WHERE l.id = u.id RETURNING 1)" },
            Part { name: "c", present: !self.chunks.is_empty(), strict: false, sql: "
c AS (INSERT INTO cleat.chunks (id, sequence, items, grp, slot)
  SELECT u.id, u.sequence, u.items, ($3::smallint[])[u.f], u.slot
  FROM unnest({}::int[], {}::bigint[], {}::int[], {}::bytea[], {}::int[]) AS u (f, id, sequence, items, slot)
  JOIN fence ON fence.stands[u.f]
  WHERE (SELECT 1 FROM cleat.streams s WHERE s.id = u.id AND s.acked >= u.sequence) IS NULL
  ON CONFLICT (id, sequence) DO NOTHING)" },
            // Whoever acknowledges knows the request only; the chunks that it has read say where it belongs.
            Part { name: "ka", present: !self.acks.is_empty(), strict: false, sql: "
ka AS MATERIALIZED (SELECT u.id, u.sequence FROM unnest({}::int[], {}::bigint[], {}::int[]) AS u (f, id, sequence)
  JOIN fence ON fence.stands[u.f]),
ka2 AS (INSERT INTO cleat.streams (id, acked, grp, slot)
  SELECT ka.id, ka.sequence, c.grp, c.slot FROM ka
  LEFT JOIN LATERAL (SELECT c.grp, c.slot FROM cleat.chunks c WHERE c.id = ka.id LIMIT 1) AS c ON true
  ON CONFLICT (id) DO UPDATE SET acked = greatest(cleat.streams.acked, excluded.acked)),
ka3 AS (DELETE FROM cleat.chunks c USING ka WHERE c.id = ka.id AND c.sequence <= ka.sequence)" },
            Part { name: "ts", present: !self.timers.is_empty(), strict: false, sql: "
ts AS (INSERT INTO cleat.timers (entity_type, entity_id, name, grp, slot, due, payload)
  SELECT u.entity_type, u.entity_id, u.name, u.grp, u.slot, u.due, u.payload
  FROM unnest({}::int[], {}::text[], {}::text[], {}::text[], {}::smallint[], {}::int[], {}::bigint[], {}::bytea[])
    AS u (f, entity_type, entity_id, name, grp, slot, due, payload)
  JOIN fence ON fence.stands[u.f]
  ON CONFLICT (entity_type, entity_id, name) DO UPDATE SET due = excluded.due, payload = excluded.payload)" },
            Part { name: "tc", present: !self.cleared.is_empty(), strict: false, sql: "
tc AS (DELETE FROM cleat.timers t
  USING unnest({}::int[], {}::text[], {}::text[], {}::text[]) AS u (f, entity_type, entity_id, name)
  JOIN fence ON fence.stands[u.f]
  WHERE t.entity_type = u.entity_type AND t.entity_id = u.entity_id AND t.name = u.name)" },
            Part { name: "ei", present: !self.begun.is_empty(), strict: true, sql: "
ei AS (INSERT INTO cleat.executions
    (entity_type, entity_id, grp, slot, run, epoch, phase, active, started, ended, input, summary)
  SELECT u.entity_type, u.entity_id, u.grp, u.slot, u.run, ($6::bigint[])[u.f], u.phase, u.active, u.started, u.ended, u.input,
    u.summary
  FROM unnest({}::int[], {}::text[], {}::text[], {}::smallint[], {}::int[], {}::bigint[], {}::smallint[], {}::boolean[],
    {}::bigint[], {}::bigint[], {}::bytea[], {}::bytea[])
    AS u (f, entity_type, entity_id, grp, slot, run, phase, active, started, ended, input, summary)
  JOIN fence ON fence.stands[u.f] RETURNING 1)" },
            Part { name: "eu", present: !self.continued.is_empty(), strict: true, sql: "
eu AS (UPDATE cleat.executions e SET run = u.run, epoch = ($6::bigint[])[u.f], phase = u.phase, active = u.active,
    ended = u.ended, summary = u.summary
  FROM unnest({}::int[], {}::text[], {}::text[], {}::bigint[], {}::bigint[], {}::smallint[], {}::boolean[], {}::bigint[],
    {}::bytea[]) AS u (f, entity_type, entity_id, base, run, phase, active, ended, summary)
  JOIN fence ON fence.stands[u.f]
  WHERE e.entity_type = u.entity_type AND e.entity_id = u.entity_id AND e.run = u.base RETURNING 1)" },
            Part { name: "ef", present: !self.former.is_empty(), strict: false, sql: "
ef AS (INSERT INTO cleat.former_runs (entity_type, entity_id, run, grp, slot)
  SELECT u.entity_type, u.entity_id, u.run, ($3::smallint[])[u.f], u.slot
  FROM unnest({}::int[], {}::text[], {}::text[], {}::bigint[], {}::int[]) AS u (f, entity_type, entity_id, run, slot)
  JOIN fence ON fence.stands[u.f] ON CONFLICT DO NOTHING)" },
            Part { name: "j", present: !self.journal.is_empty(), strict: true, sql: "
j AS (INSERT INTO cleat.journal (run, seq, epoch, entry, grp, slot)
  SELECT u.run, u.seq, ($6::bigint[])[u.f], u.entry, ($3::smallint[])[u.f], u.slot
  FROM unnest({}::int[], {}::bigint[], {}::bigint[], {}::bigint[], {}::bytea[], {}::int[]) AS u (f, run, seq, prior, entry, slot)
  JOIN fence ON fence.stands[u.f]
  WHERE u.prior IS NULL OR (SELECT 1 FROM cleat.journal p WHERE p.run = u.run AND p.seq = u.prior) IS NOT NULL
  RETURNING 1)" },
        ]
    }

    /// Does the whole batch in one statement.
    pub(super) async fn execute(
        self,
        statements: &mut Statements,
        identity: &Identity,
        connection: &mut PgConnection,
    ) -> Result<Applied, sqlx::Error> {
        let statement = statements.of(&self);
        let arguments = self.arguments(identity).map_err(sqlx::Error::Encode)?;
        let row = sqlx::query_with(AssertSqlSafe(statement), arguments).fetch_one(connection).await?;
        Ok(Applied {
            standing: row.try_get(0)?,
            fences: self.writes,
            stored: row.try_get(1)?,
            transaction: Transaction(row.try_get(3)?),
        })
    }

    fn arguments(&self, identity: &Identity) -> Result<PgArguments, sqlx::error::BoxDynError> {
        let mut to = PgArguments::default();
        to.add(identity.lock)?;
        to.add(identity.instance.as_str())?;
        self.bind(&mut to)?;
        Ok(to)
    }
}

impl Statements {
    /// For the end of a transaction that [`super::transaction`] began.
    pub(super) fn within_a_transaction() -> Self {
        Self { within: true, ..Self::default() }
    }

    fn of(&mut self, columns: &Columns<'_>) -> Arc<str> {
        let parts = columns.parts();
        let mask = parts.iter().fold(0, |mask, part| mask << 1 | u32::from(part.present));
        let within = self.within;
        Arc::clone(self.composed.entry(mask).or_insert_with(|| compose(&parts, within).into()))
    }
}

/// The parameters that every statement begins with: lock, instance, groups, shards, generations, epochs.
const COMMON: usize = 6;

fn compose(parts: &[Part], within: bool) -> String {
    let has = |name: &str| parts.iter().any(|part| part.present && part.name == name);
    let keyed = if has("k") { "AND (u.key IS NULL OR u.key IN (SELECT key FROM k))" } else { "" };
    // What ends is stamped with the database's own time: retention is decided by that, and not by the clock of whoever wrote it.
    let mut sql = String::from(concat!(
        "WITH fence AS MATERIALIZED (SELECT cleat.fence($1, $2, $3::smallint[], $4::int[], $5::int[], $6::bigint[]) AS stands, ",
        now!(),
        " AS now)",
    ));
    let mut next = COMMON;
    let mut checks = vec!["true".to_owned()];
    for part in parts.iter().filter(|part| part.present) {
        let first = next + 1;
        sql.push(',');
        for (place, piece) in part.sql.replace("/*keyed*/", keyed).split("{}").enumerate() {
            if place > 0 {
                next += 1;
                // Writing to a String cannot fail.
                let _ = write!(sql, "${next}");
            }
            sql.push_str(piece);
        }
        if part.strict {
            let name = part.name;
            checks.push(format!(
                "(SELECT count(*) FROM {name}) = (SELECT count(*) FROM unnest(${first}::int[]) AS u (f) JOIN fence ON fence.stands[u.f])"
            ));
        }
    }
    if within {
        checks.push("current_setting('cleat.transaction', true) = 'open'".to_owned());
    }
    if has("ms") {
        checks.push("(SELECT fine FROM ms)".to_owned());
    }
    let stored = if has("m") { "SELECT id FROM m" } else { "SELECT 0::bigint WHERE false" };
    let _ = write!(
        sql,
        "\nSELECT (SELECT stands FROM fence), ARRAY({stored}), CASE WHEN {} THEN 0 ELSE cleat.abort() END,
  pg_current_xact_id()::text::bigint",
        checks.join("\n  AND ")
    );
    sql
}
