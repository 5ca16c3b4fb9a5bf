//! Throwaway servers, against the PostgreSQL of this machine.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cleat_testing::postgres::{self, Error, Options, Replication, Server, Shutdown, Target};
use cleat_testing::process::{self, Process};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection};

/// What a loaded machine may take; passing tests never wait that long.
const PATIENCE: Duration = Duration::from_secs(60);

async fn start() -> Server {
    Server::start(Options::default()).await.unwrap()
}

async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

async fn write(url: &str) {
    let create = "CREATE TABLE note (text TEXT); INSERT INTO note VALUES ('kept')";
    sqlx::raw_sql(create).execute(&mut connect(url).await).await.unwrap();
}

async fn read(url: &str) -> Vec<String> {
    sqlx::query_scalar("SELECT text FROM note").fetch_all(&mut connect(url).await).await.unwrap()
}

async fn until(goal: impl Fn() -> bool) {
    let wait = async {
        while !goal() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}

/// The processes that work in a folder or below it.
fn inhabitants(folder: &Path) -> BTreeSet<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    processes
        .filter(|path| fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder)))
        .collect()
}

fn is_removed(folder: &Path) -> bool {
    !folder.exists() && inhabitants(folder).is_empty()
}

#[tokio::test]
async fn each_test_has_a_database_of_its_own_on_one_server() {
    let server = postgres::shared().await.unwrap();
    assert!(std::ptr::eq(server, postgres::shared().await.unwrap()));
    let (one, two) = tokio::try_join!(server.database(), server.database()).unwrap();
    assert_ne!(one, two);
    write(&one.url).await;
    write(&two.url).await;
    assert_eq!(read(&one.url).await, ["kept"]);
    assert_eq!(read(&two.url).await, ["kept"]);
}

/// The runtime that started the shared server is gone by the time that the second uses it.
#[test]
fn the_shared_server_serves_one_runtime_after_another() {
    for _ in 0..2 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let database =
            runtime.block_on(async { postgres::shared().await.unwrap().database().await.unwrap() });
        runtime.block_on(write(&database.url));
    }
}

#[tokio::test]
async fn two_servers_run_side_by_side() {
    let (mut one, two) = tokio::join!(start(), start());
    assert_ne!(one.path(), two.path());
    assert_ne!(one.url("postgres"), two.url("postgres"));
    let (here, there) = (one.database().await.unwrap(), two.database().await.unwrap());
    write(&here.url).await;
    write(&there.url).await;
    one.kill().await.unwrap();
    assert_eq!(read(&there.url).await, ["kept"]);
}

#[tokio::test]
async fn commits_are_durable_and_settings_can_be_added() {
    let server = Server::start(Options::default().set("log_min_messages", "debug1")).await.unwrap();
    let mut connection = connect(&server.url("postgres")).await;
    let names = ["fsync", "synchronous_commit", "full_page_writes", "max_connections", "log_min_messages"];
    let mut values = Vec::new();
    for name in names {
        let value: String = sqlx::query_scalar("SELECT current_setting($1)")
            .bind(name)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        values.push(value);
    }
    assert_eq!(values, ["on", "on", "on", "300", "debug1"]);
}

#[tokio::test]
async fn a_setting_that_postgres_refuses_is_reported_with_its_log() {
    let refused = Server::start(Options::default().set("max_connections", "many")).await.unwrap_err();
    assert!(matches!(&refused, Error::Start { log } if log.contains("max_connections")), "{refused}");
}

#[tokio::test]
async fn a_restart_keeps_the_data() {
    let mut server = start().await;
    let database = server.database().await.unwrap();
    write(&database.url).await;
    for how in [Shutdown::Smart, Shutdown::Fast, Shutdown::Immediate] {
        server.restart(how).await.unwrap();
        assert_eq!(read(&database.url).await, ["kept"], "{how:?}");
    }
}

#[tokio::test]
async fn a_stopped_server_refuses_until_it_is_started_again() {
    let mut server = start().await;
    assert!(matches!(server.start_again().await, Err(Error::Running)));
    server.stop(Shutdown::Fast).await.unwrap();
    assert!(PgConnection::connect(&server.url("postgres")).await.is_err());
    assert!(matches!(server.stop(Shutdown::Fast).await, Err(Error::NotRunning)));
    server.start_again().await.unwrap();
    connect(&server.url("postgres")).await;
}

#[tokio::test]
async fn a_taken_port_is_told_from_other_troubles() {
    let mut server = start().await;
    server.stop(Shutdown::Fast).await.unwrap();
    let url = server.url("postgres");
    let port: u16 = url.rsplit_once(':').unwrap().1.split_once('/').unwrap().0.parse().unwrap();
    let other = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    let taken = server.start_again().await;
    assert!(matches!(taken, Err(Error::Io { action: "find a free port", .. })), "{taken:?}");
    drop(other);
    server.start_again().await.unwrap();
    connect(&url).await;
}

#[tokio::test]
async fn a_killed_server_keeps_what_was_committed_and_nothing_else() {
    let mut server = start().await;
    let database = server.database().await.unwrap();
    write(&database.url).await;
    let mut open = connect(&database.url).await;
    sqlx::raw_sql("BEGIN; INSERT INTO note VALUES ('lost')").execute(&mut open).await.unwrap();

    server.kill().await.unwrap();
    assert!(inhabitants(server.path()).is_empty(), "a backend outlived the kill");
    assert!(sqlx::raw_sql("COMMIT").execute(&mut open).await.is_err());
    server.start_again().await.unwrap();
    assert_eq!(read(&database.url).await, ["kept"]);
}

#[tokio::test]
async fn a_paused_backend_alone_stands_still() {
    let mut server = start().await;
    let mut paused = connect(&server.url("postgres")).await;
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut paused).await.unwrap();
    server.pause(Target::Backend(pid)).await.unwrap();

    let mut answer = Box::pin(sqlx::raw_sql("SELECT 1").execute(&mut paused));
    // Were it not paused, it would answer long before the other has been started and has answered.
    let other = async { connect(&server.url("postgres")).await };
    tokio::select! {
        biased;
        _ = &mut answer => panic!("a paused backend answered"),
        mut other = other => drop(sqlx::raw_sql("SELECT 1").execute(&mut other).await.unwrap()),
    }
    server.resume(Target::Backend(pid)).unwrap();
    answer.await.unwrap();
}

#[tokio::test]
async fn a_paused_server_can_be_resumed_restarted_and_killed() {
    let mut server = start().await;
    let database = server.database().await.unwrap();
    write(&database.url).await;
    server.pause(Target::All).await.unwrap();
    for process in inhabitants(server.path()) {
        let stat = fs::read_to_string(process.join("stat")).unwrap();
        assert!(stat.rsplit_once(") ").unwrap().1.starts_with('T'), "{stat}");
    }
    server.resume(Target::All).unwrap();
    assert_eq!(read(&database.url).await, ["kept"]);

    server.pause(Target::All).await.unwrap();
    server.restart(Shutdown::Fast).await.unwrap();
    assert_eq!(read(&database.url).await, ["kept"]);

    server.pause(Target::All).await.unwrap();
    server.kill().await.unwrap();
    server.start_again().await.unwrap();
    assert_eq!(read(&database.url).await, ["kept"]);
}

#[tokio::test]
async fn processes_of_others_are_never_paused() {
    let mut server = start().await;
    let own = i32::try_from(std::process::id()).unwrap();
    for pid in [own, 1, 0, -1] {
        assert!(matches!(server.pause(Target::Backend(pid)).await, Err(Error::Foreign { .. })), "{pid}");
    }
}

#[tokio::test]
async fn a_dropped_server_is_removed_in_whatever_state_it_is() {
    let running = start().await;
    let mut killed = start().await;
    killed.kill().await.unwrap();
    let mut stopped = start().await;
    stopped.stop(Shutdown::Fast).await.unwrap();
    let mut paused = start().await;
    paused.pause(Target::All).await.unwrap();
    for server in [running, killed, stopped, paused] {
        let path = server.path().to_owned();
        drop(server);
        assert!(is_removed(&path));
    }
}

/// How the process that holds a server ends.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum End {
    Return,
    Panic,
    Abort,
    Kill,
}

/// Where the server of another process is.
#[derive(Debug, Serialize, Deserialize)]
struct Held {
    path: PathBuf,
    url: String,
}

/// Holds a shared server with a busy backend, and ends as it is told to.
#[test]
fn holder() {
    process::role("holder", async |parent| {
        let server = postgres::shared().await.unwrap();
        let url = server.database().await.unwrap().url;
        write(&url).await;
        let mut busy = connect(&url).await;
        let busy =
            tokio::spawn(async move { sqlx::raw_sql("SELECT pg_sleep(3600)").execute(&mut busy).await });
        parent.send(&Held { path: server.path().to_owned(), url }).unwrap();
        match parent.receive().await.unwrap() {
            Some(End::Return) | None => busy.abort(),
            Some(End::Panic) => {
                std::panic::set_hook(Box::new(|_| println!("as planned")));
                panic!();
            }
            Some(End::Abort) => std::process::abort(),
            Some(End::Kill) => std::future::pending().await,
        }
    });
}

async fn held() -> (Process, Held) {
    let mut holder = Process::spawn("holder").unwrap();
    let held: Held = holder.receive().await.unwrap().unwrap();
    assert!(!inhabitants(&held.path).is_empty());
    (holder, held)
}

#[tokio::test]
async fn a_server_vanishes_with_its_process_however_that_ends() {
    for end in [End::Return, End::Panic, End::Abort, End::Kill] {
        let (mut holder, held) = held().await;
        holder.send(&end).await.unwrap();
        if let End::Kill = end {
            holder.kill().await.unwrap();
        }
        holder.wait().await.unwrap();
        until(|| is_removed(&held.path)).await;
    }
}

#[tokio::test]
async fn what_is_left_of_a_killed_watchdog_is_removed_by_the_next_start_and_live_servers_are_not() {
    let (mut holder, left) = held().await;
    let (_other, live) = held().await;
    let path = left.path.to_str().unwrap();
    let watchdogs: Vec<String> = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .filter(|process| {
            let line = fs::read(process.join("cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == path.as_bytes())
        })
        .map(|process| process.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert_eq!(watchdogs.len(), 1);
    let killed = std::process::Command::new("sh").args(["-c", "kill -9 $0", &watchdogs[0]]).status().unwrap();
    assert!(killed.success());
    holder.kill().await.unwrap();

    start().await;
    assert!(is_removed(&left.path));
    assert_eq!(read(&live.url).await, ["kept"]);
}

#[tokio::test]
async fn a_commit_waits_for_the_synchronous_standby_and_survives_its_promotion() {
    let mut servers = Replication::start(Options::default()).await.unwrap();
    let database = servers.primary.database().await.unwrap();
    write(&database.url).await;

    servers.synchronous.pause(Target::All).await.unwrap();
    let mut connection = connect(&database.url).await;
    let commit = tokio::spawn(async move {
        sqlx::query("INSERT INTO note VALUES ('waits')").execute(&mut connection).await.map(|_| ())
    });
    let mut observer = connect(&database.url).await;
    let waits = "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep')";
    let seen =
        async { while !sqlx::query_scalar::<_, bool>(waits).fetch_one(&mut observer).await.unwrap() {} };
    tokio::time::timeout(PATIENCE, seen).await.unwrap();
    assert!(!commit.is_finished());
    servers.synchronous.resume(Target::All).unwrap();
    commit.await.unwrap().unwrap();

    servers.primary.stop(Shutdown::Immediate).await.unwrap();
    servers.synchronous.promote().await.unwrap();
    let promoted = servers.synchronous.url(&database.name);
    assert_eq!(read(&promoted).await, ["kept", "waits"]);
    sqlx::query("INSERT INTO note VALUES ('new')").execute(&mut connect(&promoted).await).await.unwrap();
}

#[tokio::test]
async fn a_restored_base_backup_has_lost_what_was_committed_after_it() {
    let mut server = start().await;
    let url = server.database().await.unwrap().url;
    write(&url).await;
    let backup = server.backup().await.unwrap();
    sqlx::query("INSERT INTO note VALUES ('lost')").execute(&mut connect(&url).await).await.unwrap();
    server.restore(backup).await.unwrap();
    assert_eq!(read(&url).await, ["kept"]);
}
