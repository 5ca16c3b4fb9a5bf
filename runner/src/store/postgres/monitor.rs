//! Monitor of the PostgreSQL server: transaction id age, holder of the xmin horizon, connections, and settings that durability depends on.
//!
//! Each runner asks once a minute, with a few cheap statements. Nothing depends on it but metrics and health findings.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::connect::Target;
use crate::health::{Health, Reason};
use crate::store::Metrics;

/// How the database is monitored.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How often.
    pub every: Duration,
    /// How long the xmin horizon may be held before that is reported.
    pub horizon: Duration,
    /// Which part of the transaction ids may be used before that is reported.
    pub ids: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { every: Duration::from_secs(60), horizon: Duration::from_secs(600), ids: 0.5 }
    }
}

/// After so many transaction ids PostgreSQL has to refuse writes.
const WRAPAROUND: f64 = 2_147_483_648.0;

/// Starts the monitor of a store. It runs until it is aborted.
pub(super) fn start(pool: &PgPool, target: &Target, options: &super::Options) -> JoinHandle<()> {
    let monitor = Monitor {
        pool: pool.clone(),
        target: target.clone(),
        options: options.monitor,
        runner: options.most_connections(),
        health: options.health.clone(),
        metrics: options.metrics.clone(),
    };
    let supervisor = options.health.supervisor();
    supervisor.spawn_restarting("database monitor", &CancellationToken::new(), move || monitor.clone().run())
}

#[derive(Clone)]
struct Monitor {
    pool: PgPool,
    target: Target,
    options: Options,
    /// The most connections of this runner.
    runner: u32,
    health: Health,
    metrics: Option<Metrics>,
}

/// The oldest snapshot that keeps dead rows from being removed.
#[derive(Debug)]
struct Holder {
    kind: String,
    who: String,
    /// How to end it.
    remedy: String,
    /// Its transaction id, without wraparound.
    xmin: i64,
    /// For how long it has been there, if the server says so.
    seconds: Option<f64>,
}

impl Monitor {
    async fn run(self) {
        let mut held: Option<(i64, Instant)> = None;
        loop {
            if let Err(error) = self.check(&mut held).await {
                let error: &dyn std::error::Error = &error;
                tracing::debug!(error, "the database could not be monitored, and is with the next look");
            }
            tokio::time::sleep(self.options.every).await;
        }
    }

    async fn check(&self, held: &mut Option<(i64, Instant)>) -> Result<(), sqlx::Error> {
        let server = sqlx::query(SERVER).fetch_one(&self.pool).await?;
        self.check_ids(&server).await?;
        self.check_connections(&server)?;
        self.check_privileges().await?;
        let holder = sqlx::query(HOLDER).fetch_optional(&self.pool).await?;
        self.check_horizon(holder.map(|row| Holder::read(&row)).transpose()?, held);
        Ok(())
    }

    async fn check_ids(&self, server: &PgRow) -> Result<(), sqlx::Error> {
        let database: String = server.try_get("oldest")?;
        let ages: [(&str, i64); 2] =
            [("xid", server.try_get("xid_age")?), ("multixact", server.try_get("multixact_age")?)];
        let mut found = None;
        for (kind, age) in ages {
            let ratio = age as f64 / WRAPAROUND;
            if let Some(metrics) = &self.metrics {
                metrics.xid_age.with_label_values(&[kind]).set(age);
                metrics.xid_ratio.with_label_values(&[kind]).set(ratio);
            }
            if ratio >= self.options.ids {
                found = Some(kind);
            }
        }
        let Some(kind) = found else {
            self.health.clear(Reason::TransactionIdsRunningOut);
            return Ok(());
        };
        let table = if server.try_get("is_ours")? {
            let table: Option<String> = sqlx::query_scalar(OLDEST_TABLE).fetch_optional(&self.pool).await?;
            table.map(|table| format!(", where {table} is the oldest table")).unwrap_or_default()
        } else {
            String::new()
        };
        self.health.report(
            Reason::TransactionIdsRunningOut,
            format!(
                "{:.0} percent of PostgreSQL's {kind} ids are in use, the oldest of them in database {database}{table}; when all are, \
                 PostgreSQL refuses writes. Run VACUUM (FREEZE) there, check that autovacuum runs, and look for a held xmin horizon",
                self.options.ids * 100.0
            ),
        );
        Ok(())
    }

    fn check_connections(&self, server: &PgRow) -> Result<(), sqlx::Error> {
        let (limit, used, runners): (i64, i64, i64) =
            (server.try_get("connection_limit")?, server.try_get("used")?, server.try_get("runners")?);
        if let Some(metrics) = &self.metrics {
            for (kind, count) in [("limit", limit), ("used", used), ("runner", i64::from(self.runner))] {
                metrics.connections.with_label_values(&[kind]).set(count);
            }
        }
        // One more starts during a rolling update.
        let needed = (runners + 1) * i64::from(self.runner);
        self.health.set(
            Reason::ConnectionsExhausted,
            (needed > limit).then(|| {
                format!(
                    "PostgreSQL accepts {limit} connections, and {runners} runners with one more during a rolling update may open {needed}, \
                     {} each: requests fail when there are too few. Raise max_connections, or lower CLEAT_DATABASE_CONNECTIONS and \
                     CLEAT_DATABASE_TRANSACTIONS",
                    self.runner
                )
            }),
        );
        let mut facts = BTreeMap::new();
        for name in SETTINGS {
            let value: Option<String> = server.try_get(name)?;
            facts.insert((*name).to_owned(), value.unwrap_or_default());
        }
        facts.insert("usable_connections".to_owned(), limit.to_string());
        facts.insert("needed_connections".to_owned(), needed.to_string());
        self.health.describe_database(facts);
        Ok(())
    }

    /// After a rotation that changed the user, connections of the earlier one are still open. They may have to be ended: a lane that lost
    /// its connection, and a runner that claims a shard, must know that nothing is committed there any more.
    async fn check_privileges(&self) -> Result<(), sqlx::Error> {
        let options = self.target.options("pool");
        let user = options.get_username();
        let others: Vec<String> = sqlx::query_scalar(OTHER_USERS).bind(user).fetch_all(&self.pool).await?;
        self.health.set(
            Reason::DatabasePrivileges,
            (!others.is_empty()).then(|| {
                let grants = others.iter().map(|other| format!("GRANT {other} TO \"{user}\""));
                format!(
                    "runners of this Cluster have connections of other database users, which the user \"{user}\" of the database URL may not end: \
                     after a lost connection or a crash, writes and claims fail that have to end one. Run {}",
                    grants.collect::<Vec<_>>().join("; ")
                )
            }),
        );
        Ok(())
    }

    fn check_horizon(&self, holder: Option<Holder>, held: &mut Option<(i64, Instant)>) {
        if let Some(metrics) = &self.metrics {
            for kind in HOLDERS {
                metrics.horizon.with_label_values(&[kind]).set(0.0);
            }
        }
        let Some(holder) = holder else {
            *held = None;
            return self.health.clear(Reason::XminHorizonHeld);
        };
        // A slot or a standby is always there: what counts is that its horizon does not move.
        let since = match held {
            Some((xmin, since)) if *xmin == holder.xmin => *since,
            _ => Instant::now(),
        };
        *held = Some((holder.xmin, since));
        let seconds = holder.seconds.unwrap_or_default().max(since.elapsed().as_secs_f64());
        if let Some(metrics) = &self.metrics {
            metrics.horizon.with_label_values(&[&holder.kind]).set(seconds);
        }
        let long = seconds >= self.options.horizon.as_secs_f64();
        self.health.set(
            Reason::XminHorizonHeld,
            long.then(|| {
                format!(
                    "a {} keeps PostgreSQL from removing dead rows: {}. Tables grow and queries get slower until it ends; to end it: {}",
                    holder.kind, holder.who, holder.remedy
                )
            }),
        );
    }
}

impl Holder {
    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            kind: row.try_get("kind")?,
            who: row.try_get("who")?,
            remedy: row.try_get("remedy")?,
            xmin: row.try_get("xmin")?,
            seconds: row.try_get("seconds")?,
        })
    }
}

/// What can hold the horizon, as labels.
pub(in crate::store) const HOLDERS: [&str; 4] = ["transaction", "prepared", "slot", "standby"];

/// Settings that are shown, as the columns of [`SERVER`].
const SETTINGS: &[&str] = &[
    "server_version",
    "max_connections",
    "fsync",
    "full_page_writes",
    "data_sync_retry",
    "data_checksums",
    "synchronous_commit",
    "synchronous_standby_names",
    "standbys",
];

const SERVER: &str = "
SELECT (SELECT datname::text FROM pg_database ORDER BY greatest(age(datfrozenxid), mxid_age(datminmxid)) DESC LIMIT 1) AS oldest,
  (SELECT datname = current_database() FROM pg_database ORDER BY greatest(age(datfrozenxid), mxid_age(datminmxid)) DESC LIMIT 1)
    AS is_ours,
  (SELECT max(age(datfrozenxid))::bigint FROM pg_database) AS xid_age,
  (SELECT max(mxid_age(datminmxid))::bigint FROM pg_database) AS multixact_age,
  current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
    - coalesce(current_setting('reserved_connections', true), '0')::bigint AS connection_limit,
  a.used, a.runners,
  current_setting('server_version') AS server_version, current_setting('max_connections') AS max_connections,
  current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
  current_setting('data_sync_retry', true) AS data_sync_retry, current_setting('data_checksums', true) AS data_checksums,
  current_setting('synchronous_commit') AS synchronous_commit,
  current_setting('synchronous_standby_names') AS synchronous_standby_names,
  (SELECT count(*)::text FROM pg_stat_replication) AS standbys
FROM (SELECT count(*) AS used,
    count(DISTINCT split_part(application_name, ' ', 2)) FILTER (WHERE application_name LIKE 'cleat %') AS runners
  FROM pg_stat_activity WHERE datid IS NOT NULL) AS a";

/// A transaction without a snapshot holds the horizon by its own id. Vacuum itself holds nothing.
const HOLDER: &str = "
WITH holders AS (
  SELECT 'transaction' AS kind, greatest(age(backend_xmin), age(backend_xid)) AS age,
    extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds,
    format('process %s of user %s, application \"%s\", %s', pid, usename, application_name, coalesce(state, 'state not visible')) AS who,
    format('SELECT pg_terminate_backend(%s)', pid) AS remedy
  FROM pg_stat_activity
  WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type IS DISTINCT FROM 'autovacuum worker'
  UNION ALL
  SELECT 'prepared', age(transaction), extract(epoch FROM clock_timestamp() - prepared)::float8,
    format('transaction %L that %s prepared', gid, owner), format('ROLLBACK PREPARED %L', gid)
  FROM pg_prepared_xacts WHERE database = current_database()
  UNION ALL
  SELECT 'slot', age(xmin), NULL, format('replication slot %s, %s', slot_name, CASE WHEN active THEN 'in use' ELSE 'not in use' END),
    format('restart its consumer, or SELECT pg_drop_replication_slot(%L)', slot_name)
  FROM pg_replication_slots WHERE xmin IS NOT NULL
  UNION ALL
  SELECT 'standby', age(backend_xmin), NULL, format('standby %s at %s with hot_standby_feedback', application_name, client_addr),
    'end the long query on it, or turn hot_standby_feedback off'
  FROM pg_stat_replication WHERE backend_xmin IS NOT NULL)
SELECT kind, who, remedy, seconds, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - age AS xmin
FROM holders WHERE age > 0 ORDER BY age DESC, seconds DESC NULLS LAST LIMIT 1";

/// Users of our connections whose processes another user may not end. `pg_signal_backend` is not enough: without membership the server
/// does not show whether a process waits for a standby, and one that does must not be ended.
const OTHER_USERS: &str = "
SELECT DISTINCT quote_ident(usename) FROM pg_stat_activity
WHERE application_name LIKE 'cleat %' AND datname = current_database() AND usesysid IS NOT NULL
  AND NOT pg_has_role($1::name, usesysid, 'USAGE')
ORDER BY 1";

const OLDEST_TABLE: &str = "
SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 't', 'm')
ORDER BY greatest(age(relfrozenxid), mxid_age(relminmxid)) DESC LIMIT 1";
