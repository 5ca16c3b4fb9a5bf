//! What becomes of commits that wait for a synchronous standby.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cleat_runner::health::{Health, Reason};
use cleat_runner::message::Snowflake;
use cleat_runner::store::postgres::PostgresStore;
use cleat_runner::store::{Change, Committed, Error, Progress, Store, Write};
use cleat_testing::postgres::{Database, Options, Replication, Server, Shutdown, Target};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};
use tokio::task::JoinHandle;

use super::ids;
use super::store_postgres_rig::*;

type Pending = JoinHandle<Result<Committed, Error>>;

/// A database on a primary whose commits wait for a standby.
struct Replicated {
    servers: Replication,
    database: Database,
}

impl Replicated {
    async fn start() -> Self {
        let servers = Replication::start(Options::default()).await.unwrap();
        let database = servers.primary.database().await.unwrap();
        Self { servers, database }
    }

    /// A store that owns shard 1, and whose lane is connected.
    async fn store(&self, patience: Duration) -> Arc<PostgresStore> {
        let mut options = options(&self.database.url, "one");
        options.patience = patience;
        let store = Arc::new(PostgresStore::open(options).await.unwrap());
        claim(&store, 1, 1).await;
        store.commit(accept(&fence(1, 1), id())).await.unwrap();
        store
    }

    async fn pause(&mut self) {
        self.servers.synchronous.pause(Target::All).await.unwrap();
    }

    fn resume(&mut self) {
        self.servers.synchronous.resume(Target::All).unwrap();
    }

    /// The transactions that wait for the standby, as soon as there is another one than before.
    async fn waiting(&self, before: &[Waiter]) -> Vec<Waiter> {
        let mut connection = connect(&self.database.url).await;
        let wait = async {
            loop {
                let waiting: Vec<Waiter> = sqlx::query_as(
                    "SELECT pid, xact_start::text FROM pg_stat_activity
                     WHERE wait_event = 'SyncRep' AND datname = current_database()",
                )
                .fetch_all(&mut connection)
                .await
                .unwrap();
                if waiting.iter().any(|waiter| !before.contains(waiter)) {
                    return waiting;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("a commit waits for the standby")
    }

    async fn tell(&self, statement: &'static str, pid: i32) {
        let told: bool = sqlx::query_scalar(statement)
            .bind(pid)
            .fetch_one(&mut connect(&self.database.url).await)
            .await
            .unwrap();
        assert!(told);
    }

    async fn configure(&self, setting: &str) {
        let set = format!("ALTER DATABASE {} SET {setting}", self.database.name);
        sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut connect(&self.database.url).await).await.unwrap();
    }
}

/// A backend, and when its transaction began.
type Waiter = (i32, String);

const CANCEL: &str = "SELECT pg_cancel_backend($1)";
const TERMINATE: &str = "SELECT pg_terminate_backend($1)";

fn submit(store: &Arc<PostgresStore>, write: Write) -> Pending {
    let store = Arc::clone(store);
    tokio::spawn(async move { store.commit(write).await })
}

/// Commits a user's transaction, in which the user has set something, with a write.
fn transact(store: &Arc<PostgresStore>, setting: &'static str, write: Write) -> Pending {
    let store = Arc::clone(store);
    tokio::spawn(async move {
        let mut transaction = store.begin().await?;
        sqlx::query(setting).execute(transaction.postgres().unwrap()).await.unwrap();
        transaction.commit(write).await
    })
}

/// Every way to commit: a message alone, a batch, a user's transaction, and one that ends with a journal entry.
const WAYS: [&str; 4] = ["message", "batch", "transaction", "journal entry"];

fn commit(store: &Arc<PostgresStore>, way: &str, setting: &'static str) -> Pending {
    let fence = fence(1, 1);
    match way {
        "message" => submit(store, accept(&fence, id())),
        "batch" => submit(store, Write::one(fence.clone(), finish_new(&fence, id()))),
        "transaction" => transact(store, setting, Write::one(fence.clone(), finish_new(&fence, id()))),
        _ => {
            let entry = Change::Journal {
                run: id(),
                slot: entity(1, 0).slot(),
                from: 0,
                entries: vec![Bytes::from_static(b"entry")],
            };
            transact(store, setting, Write::one(fence, entry))
        }
    }
}

/// Whatever is done to a commit that waits for the standby, it is acknowledged only when the standby has it.
async fn only_the_standby_lets_it_succeed(
    replicated: &mut Replicated,
    store: &Arc<PostgresStore>,
    setting: &'static str,
    disturb: Option<&'static str>,
) {
    for way in WAYS {
        replicated.pause().await;
        let pending = commit(store, way, setting);
        let waiting = replicated.waiting(&[]).await;
        if let Some(statement) = disturb {
            replicated.tell(statement, waiting[0].0).await;
            // Whatever comes next waits for the standby, too.
            tokio::select! {
                _ = replicated.waiting(&waiting) => {}
                () = async { while !pending.is_finished() { tokio::time::sleep(Duration::from_millis(5)).await } } => {}
            }
        }
        assert!(!pending.is_finished(), "{way}: {:?}", pending.await);
        replicated.resume();
        let answer = tokio::time::timeout(PATIENCE, pending).await.unwrap().unwrap();
        assert!(matches!(answer, Ok(Committed::Applied)), "{way}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canceled_or_terminated_wait_for_the_standby_is_not_taken_for_success() {
    let mut replicated = Replicated::start().await;
    let store = replicated.store(PATIENCE).await;
    only_the_standby_lets_it_succeed(&mut replicated, &store, "SELECT 1", Some(CANCEL)).await;
    only_the_standby_lets_it_succeed(&mut replicated, &store, "SELECT 1", Some(TERMINATE)).await;
    let quiet = "SET client_min_messages = error";
    only_the_standby_lets_it_succeed(&mut replicated, &store, quiet, Some(CANCEL)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_whose_defaults_do_not_wait_for_the_standby_is_made_to_wait() {
    let mut replicated = Replicated::start().await;
    replicated.configure("client_min_messages = error").await;
    replicated.configure("statement_timeout = '300ms'").await;
    for level in ["off", "local", "remote_write"] {
        replicated.configure(&format!("synchronous_commit = {level}")).await;
        let store = replicated.store(PATIENCE).await;
        let disturb = (level == "local").then_some(CANCEL);
        let setting = "SET synchronous_commit = off";
        only_the_standby_lets_it_succeed(&mut replicated, &store, setting, disturb).await;
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_waits_for_a_standby_in_vain_is_left_alone_and_its_outcome_is_unknown() {
    let mut replicated = Replicated::start().await;
    let store = replicated.store(Duration::from_secs(3)).await;
    let kept = ids(&replicated.database.url).await;
    replicated.servers.synchronous.stop(Shutdown::Fast).await.unwrap();

    let mut before = Vec::new();
    for way in WAYS {
        let pending = commit(&store, way, "SELECT 1");
        let answer = tokio::time::timeout(PATIENCE, pending).await.unwrap().unwrap();
        // A lane that still waits for its last batch has not even sent the next.
        let unsent = way == "batch" && matches!(answer, Err(Error::Unavailable { .. }));
        assert!(unsent || matches!(answer, Err(Error::Unknown { .. })), "{way}: {answer:?}");
        let waiting = replicated.waiting(&[]).await;
        assert!(before.iter().all(|waiter| waiting.contains(waiter)), "{way}: somebody ended a wait");
        before = waiting;
    }
    assert_eq!(ids(&replicated.database.url).await, kept, "nothing is visible that may be lost");

    replicated.servers.synchronous.start_again().await.unwrap();
    let last = id();
    tokio::time::timeout(PATIENCE, async {
        while store.commit(accept(&fence(1, 1), last)).await.is_err() {}
    })
    .await
    .unwrap();
    replicated.servers.primary.kill().await.unwrap();
    replicated.servers.synchronous.promote().await.unwrap();
    let survivors = ids(&replicated.servers.synchronous.url(&replicated.database.name)).await;
    for acknowledged in kept.iter().chain([&last.get()]) {
        assert!(survivors.contains(acknowledged));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_waits_for_a_former_owner_whose_commit_waits_for_the_standby() {
    let mut replicated = Replicated::start().await;
    let former = replicated.store(PATIENCE).await;
    let next = open(&replicated.database.url, "two").await;
    replicated.pause().await;
    let pending = submit(&former, accept(&fence(1, 1), id()));
    let waiting = replicated.waiting(&[]).await;
    let claiming = tokio::spawn({
        let next = Arc::clone(&next);
        async move { claim(&next, 1, 2).await }
    });
    // The claim's own commit waits as well. Once that is let through, the claim has to wait for the owner.
    let both = replicated.waiting(&waiting).await;
    let claimant = both.iter().find(|waiter| !waiting.contains(waiter)).unwrap();
    replicated.tell(CANCEL, claimant.0).await;
    until(
        &replicated.database.url,
        "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)",
    )
    .await;
    // Five times as long as a claim waits for a transaction that is stuck.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(replicated.waiting(&[]).await.contains(&waiting[0]), "the claim terminated a commit that waits");
    assert!(!claiming.is_finished() && !pending.is_finished());
    replicated.resume();
    claiming.await.unwrap();
    assert!(matches!(pending.await.unwrap(), Ok(Committed::Applied)));
}

/// The former owner's wait was ended by somebody, so its rows are visible and nobody but the standby can say whether they last.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_opens_its_shard_only_when_the_standby_has_what_the_former_owner_wrote() {
    let mut replicated = Replicated::start().await;
    let former = replicated.store(PATIENCE).await;
    let next = open(&replicated.database.url, "two").await;
    claim(&next, 1, 2).await;
    claim(&former, 1, 3).await;
    replicated.pause().await;
    let claiming = tokio::spawn({
        let next = Arc::clone(&next);
        async move { claim(&next, 1, 4).await }
    });
    // Whatever the claim waits for is canceled; it may go on only if one of its commits was not.
    let mut before = Vec::new();
    for _ in 0..5 {
        before = replicated.waiting(&before).await;
        for (pid, _) in &before {
            let _ = sqlx::query(CANCEL).bind(pid).execute(&mut connect(&replicated.database.url).await).await;
        }
    }
    replicated.waiting(&before).await;
    assert!(!claiming.is_finished());
    replicated.resume();
    claiming.await.unwrap();
}

/// Whoever is told to try again with the same request must not be told that it was done before the standby has it.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_sent_again_is_recognized_only_when_the_standby_has_it() {
    let mut replicated = Replicated::start().await;
    let store = replicated.store(Duration::from_secs(3)).await;
    replicated.pause().await;
    let request: Snowflake = id();
    let again = |resent| {
        let mut message = message(entity(1, 0), request);
        message.resent = resent;
        submit(&store, Write::one(fence(1, 1), Change::Accept(message)))
    };
    let answer = again(false).await.unwrap();
    assert!(matches!(answer, Err(Error::Unknown { .. })), "{answer:?}");
    let waiting = replicated.waiting(&[]).await;
    for (pid, _) in &waiting {
        replicated.tell(TERMINATE, *pid).await;
    }
    let answer = again(true).await.unwrap();
    assert!(answer.is_err(), "{answer:?}");
    replicated.resume();
    let recognized = async {
        loop {
            if let Ok(answer) = again(true).await.unwrap() {
                return answer;
            }
        }
    };
    let recognized = tokio::time::timeout(PATIENCE, recognized).await.unwrap();
    assert!(matches!(recognized, Committed::Duplicate { .. }), "{recognized:?}");
}

/// The store of a process that notices, and how that process ends.
async fn watched(url: &str, patience: Duration) -> (Arc<PostgresStore>, Health) {
    let (mut options, health) = (options(url, "one"), Health::new());
    options.patience = patience;
    options.health = health.clone();
    let store = Arc::new(PostgresStore::open(options).await.unwrap());
    claim(&store, 1, 1).await;
    store.commit(accept(&fence(1, 1), id())).await.unwrap();
    (store, health)
}

/// Everything fails from then on, and the process has to end.
async fn is_invalid(store: &Arc<PostgresStore>, health: &Health) {
    let failure = tokio::time::timeout(PATIENCE, health.supervisor().failed()).await.unwrap();
    assert_eq!(failure.reason(), "DatabaseReplaced", "{failure}");
    let answers = [
        store.commit(accept(&fence(1, 1), id())).await.map(|_| ()),
        store.progress(id()).await.map(|_| ()),
        store.claim(&[fence(1, 9)]).await.map(|_| ()),
        store.begin().await.map(|_| ()),
        store.state(&entity(1, 0)).await.map(|_| ()),
    ];
    for answer in answers {
        assert_eq!(answer.map_err(|error| error.reason()), Err("DatabaseReplaced"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_standby_is_another_database_and_nothing_is_answered_from_memory_of_the_last() {
    let mut replicated = Replicated::start().await;
    let (store, health) = watched(&replicated.database.url, PATIENCE).await;
    let standby = replicated.servers.synchronous.url(&replicated.database.name);

    // Neither read nor written while it is a standby.
    let mut other = options(&standby, "two");
    other.patience = Duration::from_secs(1);
    let refused = PostgresStore::open(other).await.map(|_| ()).unwrap_err();
    assert_eq!(refused.reason(), "DatabaseUnavailable");

    replicated.servers.primary.kill().await.unwrap();
    replicated.servers.synchronous.promote().await.unwrap();
    store.move_to(&standby).unwrap();
    let answer = store.commit(accept(&fence(1, 1), id())).await;
    assert!(matches!(answer, Err(Error::Unknown { .. } | Error::DatabaseReplaced { .. })), "{answer:?}");
    is_invalid(&store, &health).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_base_backup_has_lost_history_although_its_timeline_is_the_same() {
    let mut server = Server::start(Options::default()).await.unwrap();
    let url = server.database().await.unwrap().url;
    let (store, health) = watched(&url, PATIENCE).await;
    let backup = server.backup().await.unwrap();
    for _ in 0..20 {
        store.commit(accept(&fence(1, 1), id())).await.unwrap();
    }
    server.restore(backup).await.unwrap();
    let answer = store.commit(accept(&fence(1, 1), id())).await;
    assert!(matches!(answer, Err(Error::Unknown { .. } | Error::DatabaseReplaced { .. })), "{answer:?}");
    is_invalid(&store, &health).await;
}

/// The server gives the number of a transaction that wrote nothing out again after a crash.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_or_crash_of_the_same_server_is_no_other_database() {
    let mut server = Server::start(Options::default()).await.unwrap();
    let url = server.database().await.unwrap().url;
    let (store, health) = watched(&url, PATIENCE).await;
    let request = id();
    store.commit(accept(&fence(1, 1), request)).await.unwrap();
    for how in ["fast", "crash", "crash", "immediate"] {
        let mut other = connect(&url).await;
        for _ in 0..50 {
            sqlx::query("SELECT pg_current_xact_id()").execute(&mut other).await.unwrap();
        }
        // Neither the duplicate nor the fenced one writes anything.
        let duplicate = store.commit(accept(&fence(1, 1), request)).await.unwrap();
        assert!(matches!(duplicate, Committed::Duplicate { .. }), "{duplicate:?}");
        let fenced = store.commit(accept(&fence(1, 0), id())).await.unwrap_err();
        assert_eq!(fenced.reason(), "Fenced");
        match how {
            "fast" => server.restart(Shutdown::Fast).await.unwrap(),
            "immediate" => server.restart(Shutdown::Immediate).await.unwrap(),
            _ => {
                server.kill().await.unwrap();
                server.start_again().await.unwrap();
            }
        }
        store.commit(accept(&fence(1, 1), id())).await.unwrap();
        assert_eq!(store.progress(request).await.unwrap(), Progress::Open);
        assert!(health.supervisor().failure().is_none(), "{how}");
    }
}

/// A killed process of the server makes all others end and the server recover, without a new start of the server.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_of_the_primary_made_visible_is_read_only_when_the_standby_has_it() {
    for whole in [true, false] {
        crash(whole).await;
    }
}

async fn crash(whole: bool) {
    let mut replicated = Replicated::start().await;
    let (store, health) = watched(&replicated.database.url, PATIENCE).await;
    replicated.pause().await;
    let request = id();
    let pending = submit(&store, accept(&fence(1, 1), request));
    let waiting = replicated.waiting(&[]).await;
    if whole {
        replicated.servers.primary.kill().await.unwrap();
        replicated.servers.primary.start_again().await.unwrap();
    } else {
        let pid = waiting[0].0.to_string();
        assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        recovered(&replicated.database.url, &pid).await;
    }
    assert!(ids(&replicated.database.url).await.contains(&request.get()), "visible to whoever does not ask");
    let reading = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.progress(request).await }
    });
    replicated.waiting(&[]).await;
    assert!(!reading.is_finished() && !pending.is_finished());
    replicated.resume();
    let answer = tokio::time::timeout(PATIENCE, reading).await.unwrap().unwrap().unwrap();
    assert_eq!(answer, Progress::Open);
    assert!(matches!(pending.await.unwrap(), Ok(Committed::Applied)));
    assert!(health.supervisor().failure().is_none());
}

/// Waits until a server that has lost a process accepts connections again.
async fn recovered(url: &str, pid: &str) {
    let wait = async {
        loop {
            if let Ok(mut connection) = PgConnection::connect(url).await {
                let gone = "SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = $1::text::int)";
                let gone = sqlx::query_scalar(gone).bind(pid).fetch_one(&mut connection).await;
                if matches!(gone, Ok(true)) {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("the server recovers");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_list_of_synchronous_standbys_is_reported() {
    let replicated = Replicated::start().await;
    let (_store, health) = watched(&replicated.database.url, PATIENCE).await;
    let primary = &replicated.servers.primary;
    let reported = |expected: bool| {
        let health = health.clone();
        let wait = async move {
            while health.findings().iter().any(|finding| finding.reason == Reason::ReplicationDegraded)
                != expected
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait)
    };
    primary.configure("synchronous_standby_names", "").await.unwrap();
    reported(true).await.unwrap();
    primary.configure("synchronous_standby_names", "synchronous").await.unwrap();
    reported(false).await.unwrap();
}

/// Emptying the list wakes every waiting commit as if the standby had confirmed it.
#[tokio::test(flavor = "multi_thread")]
async fn where_synchronous_replication_is_required_writes_are_refused_without_it() {
    let mut replicated = Replicated::start().await;
    let (mut options, health) = (options(&replicated.database.url, "one"), Health::new());
    options.patience = Duration::from_secs(3);
    options.require_synchronous_replication = true;
    options.health = health.clone();
    let store = Arc::new(PostgresStore::open(options).await.unwrap());
    claim(&store, 1, 1).await;
    for way in WAYS {
        let answer = commit(&store, way, "SELECT 1").await.unwrap();
        assert!(matches!(answer, Ok(Committed::Applied)), "{way}: {answer:?}");

        replicated.pause().await;
        let pending = commit(&store, way, "SELECT 1");
        replicated.waiting(&[]).await;
        replicated.servers.primary.configure("synchronous_standby_names", "").await.unwrap();
        let answer = tokio::time::timeout(PATIENCE, pending).await.unwrap().unwrap();
        assert!(matches!(answer, Err(Error::Unknown { .. })), "{way}: {answer:?}");
        let kept = ids(&replicated.database.url).await;
        let answer = commit(&store, way, "SELECT 1").await.unwrap();
        assert_eq!(answer.map_err(|error| error.reason()).unwrap_err(), "DatabaseUnavailable", "{way}");
        assert_eq!(ids(&replicated.database.url).await, kept, "{way}: a refused write was committed");
        assert!(store.claim(&[fence(2, 1)]).await.is_err(), "{way}: a shard was opened");
        assert_eq!(store.progress(id()).await.unwrap(), Progress::Unknown, "{way}: reads are served");
        let reported = async {
            while !health.findings().iter().any(|finding| finding.message.contains("writes are refused")) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, reported).await.unwrap();

        replicated.servers.primary.configure("synchronous_standby_names", "synchronous").await.unwrap();
        replicated.resume();
        let recovered = async { while commit(&store, way, "SELECT 1").await.unwrap().is_err() {} };
        tokio::time::timeout(PATIENCE, recovered).await.unwrap();
        claim(&store, 2, 1).await;
    }
}

/// A commit is woken without a standby even if the list is set again before anybody looks.
#[tokio::test(flavor = "multi_thread")]
async fn where_synchronous_replication_is_required_a_short_lapse_is_not_overlooked() {
    let mut replicated = Replicated::start().await;
    let mut options = options(&replicated.database.url, "one");
    options.patience = PATIENCE;
    options.require_synchronous_replication = true;
    let store = Arc::new(PostgresStore::open(options).await.unwrap());
    claim(&store, 1, 1).await;
    for way in WAYS {
        commit(&store, way, "SELECT 1").await.unwrap().unwrap();
        replicated.pause().await;
        let pending = commit(&store, way, "SELECT 1");
        let waiting = replicated.waiting(&[]).await;
        replicated.servers.primary.configure("synchronous_standby_names", "").await.unwrap();
        replicated.servers.primary.configure("synchronous_standby_names", "synchronous").await.unwrap();
        // The commit was woken; the barrier that follows it waits for the standby.
        replicated.waiting(&waiting).await;
        assert!(!pending.is_finished(), "{way}: acknowledged without the standby");
        replicated.resume();
        let answer = tokio::time::timeout(PATIENCE, pending).await.unwrap().unwrap();
        assert!(matches!(answer, Ok(Committed::Applied)), "{way}: {answer:?}");
    }
}

/// As some systems do that speak PostgreSQL's protocol.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_whose_advisory_locks_exclude_nobody_is_refused() {
    let url = database().await;
    sqlx::raw_sql(
        "CREATE FUNCTION public.pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true';
         DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog', current_database()); END $$",
    )
    .execute(&mut connect(&url).await)
    .await
    .unwrap();
    let refused = PostgresStore::open(options(&url, "one")).await.map(|_| ()).unwrap_err();
    assert_eq!(refused.reason(), "DatabaseUnsupported");
    assert!(refused.to_string().contains("advisory locks"), "{refused}");
}
