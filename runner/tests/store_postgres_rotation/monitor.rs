//! What the monitor of the database finds.

use std::time::Duration;

use cleat_runner::health::{Health, Reason};
use cleat_runner::store::postgres::{MonitorOptions, Options, PostgresStore};
use cleat_runner::store::{Metrics, Store};
use prometheus::Registry;
use sqlx::{AssertSqlSafe, Connection};

use crate::store_postgres_rig::*;

const OFTEN: MonitorOptions =
    MonitorOptions { every: Duration::from_millis(50), horizon: Duration::ZERO, ids: 0.5 };

/// The message of a finding, once a condition holds for it.
async fn finding(health: &Health, reason: Reason, holds: impl Fn(Option<&str>) -> bool) -> Option<String> {
    let waiting = async {
        loop {
            let found = health.findings().into_iter().find(|finding| finding.reason == reason);
            let message = found.map(|finding| finding.message);
            if holds(message.as_deref()) {
                return message;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("the finding never was as expected")
}

fn gauge(registry: &Registry, name: &str, label: &str) -> f64 {
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == name).unwrap();
    let metrics = family.get_metric().iter();
    metrics.filter(|metric| metric.get_label()[0].value() == label).map(|m| m.get_gauge().get_value()).sum()
}

#[tokio::test]
async fn whoever_holds_the_xmin_horizon_is_named_until_it_ends() {
    let url = database().await;
    let (health, registry) = (Health::new(), Registry::new());
    let metrics = Some(Metrics::new(&registry).unwrap());
    let options = Options { health: health.clone(), metrics, monitor: OFTEN, ..options(&url, "a") };
    let store = PostgresStore::open(options).await.unwrap();
    claim(&store, 0, 1).await;

    let mut report = connect(&url).await;
    sqlx::raw_sql("SET application_name = 'nightly report'; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        .execute(&mut report)
        .await
        .unwrap();
    store.commit(accept(&fence(0, 1), id())).await.unwrap();
    let named = |message: Option<&str>| message.is_some_and(|message| message.contains("\"nightly report\""));
    let message = finding(&health, Reason::XminHorizonHeld, named).await.unwrap();
    assert!(message.contains("pg_terminate_backend"), "{message}");
    assert!(gauge(&registry, "cleat_database_horizon_seconds", "transaction") > 0.0);

    report.close().await.unwrap();
    finding(&health, Reason::XminHorizonHeld, |message| !named(message)).await;
    store.close().await;
}

#[tokio::test]
async fn transaction_ids_are_measured_and_reported_long_before_they_run_out() {
    let url = database().await;
    let (health, registry) = (Health::new(), Registry::new());
    let metrics = Some(Metrics::new(&registry).unwrap());
    // Of a new server next to none are used.
    let monitor = MonitorOptions { ids: 0.0, ..OFTEN };
    let options = Options { health: health.clone(), metrics, monitor, ..options(&url, "a") };
    let store = PostgresStore::open(options).await.unwrap();
    let message =
        finding(&health, Reason::TransactionIdsRunningOut, |message| message.is_some()).await.unwrap();
    assert!(message.contains("in database ") && message.contains("VACUUM"), "{message}");
    assert!(gauge(&registry, "cleat_database_xid_age", "xid") > 0.0);
    let ratio = gauge(&registry, "cleat_database_xid_age_ratio", "xid");
    assert!(ratio > 0.0 && ratio < 0.5, "{ratio}");
    assert_eq!(health.database()["full_page_writes"], "on");
    store.close().await;
}

#[tokio::test]
async fn too_few_connections_for_all_runners_are_reported_and_the_defaults_are_not() {
    let server = cleat_testing::postgres::Server::start(
        cleat_testing::postgres::Options::default().set("max_connections", "100"),
    )
    .await
    .unwrap();
    let url = server.database().await.unwrap().url;
    let health = Health::new();
    let usual = Options { health: health.clone(), monitor: OFTEN, ..Options::new(&url, instance("a")) };
    assert_eq!(usual.most_connections(), 23);
    let store = PostgresStore::open(usual).await.unwrap();
    let others = [open_with_defaults(&url, "b").await, open_with_defaults(&url, "c").await];
    let counted = async {
        while health.database().get("needed_connections").map(String::as_str) != Some("92") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, counted).await.expect("three runners and one more need 92 connections");
    assert!(health.findings().iter().all(|finding| finding.reason != Reason::ConnectionsExhausted));
    // A fourth needs more than there are.
    let fourth = open_with_defaults(&url, "d").await;
    let message = finding(&health, Reason::ConnectionsExhausted, |message| message.is_some()).await.unwrap();
    assert!(message.contains("may open 115") && message.contains("max_connections"), "{message}");
    fourth.close().await;
    for other in others {
        other.close().await;
    }
    store.close().await;
}

fn instance(name: &str) -> cleat_runner::shard::Instance {
    cleat_runner::shard::Instance::new(name)
}

async fn open_with_defaults(url: &str, name: &str) -> PostgresStore {
    PostgresStore::open(Options::new(url, instance(name))).await.unwrap()
}

#[tokio::test]
async fn a_prepared_transaction_that_holds_the_horizon_is_named() {
    let server = cleat_testing::postgres::Server::start(
        cleat_testing::postgres::Options::default().set("max_prepared_transactions", "4"),
    )
    .await
    .unwrap();
    let url = server.database().await.unwrap().url;
    let health = Health::new();
    let options = Options { health: health.clone(), monitor: OFTEN, ..options(&url, "a") };
    let store = PostgresStore::open(options).await.unwrap();
    claim(&store, 0, 1).await;
    let mut other = connect(&url).await;
    let prepare = "CREATE TABLE t (); BEGIN; INSERT INTO t DEFAULT VALUES; PREPARE TRANSACTION 'forgotten'";
    sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut other).await.unwrap();
    store.commit(accept(&fence(0, 1), id())).await.unwrap();
    let named =
        |message: Option<&str>| message.is_some_and(|text| text.contains("ROLLBACK PREPARED 'forgotten'"));
    finding(&health, Reason::XminHorizonHeld, named).await;
    sqlx::raw_sql("ROLLBACK PREPARED 'forgotten'").execute(&mut other).await.unwrap();
    finding(&health, Reason::XminHorizonHeld, |message| !named(message)).await;
    store.close().await;
}

#[tokio::test]
async fn after_a_rotation_to_another_user_a_finding_says_what_to_grant() {
    // A server of its own: roles belong to all its databases.
    let server =
        cleat_testing::postgres::Server::start(cleat_testing::postgres::Options::default()).await.unwrap();
    let database = server.database().await.unwrap();
    let mut admin = connect(&database.url).await;
    let (_, rest) = database.url.split_once('@').unwrap();
    let name = rest.split_once('/').unwrap().1.split('?').next().unwrap();
    let roles = format!(
        "CREATE ROLE first LOGIN; CREATE ROLE second LOGIN; GRANT CREATE ON DATABASE \"{name}\" TO first; \
         GRANT CREATE ON SCHEMA public TO first"
    );
    sqlx::raw_sql(AssertSqlSafe(roles)).execute(&mut admin).await.unwrap();
    let health = Health::new();
    let options = options(&format!("postgres://first@{rest}"), "a");
    let store =
        PostgresStore::open(Options { health: health.clone(), monitor: OFTEN, ..options }).await.unwrap();
    finding(&health, Reason::DatabasePrivileges, |message| message.is_none()).await;

    store.move_to(&format!("postgres://second@{rest}")).unwrap();
    let message = finding(&health, Reason::DatabasePrivileges, |message| message.is_some()).await.unwrap();
    assert!(message.contains("GRANT first TO \"second\""), "{message}");
    sqlx::raw_sql("GRANT first TO second").execute(&mut admin).await.unwrap();
    finding(&health, Reason::DatabasePrivileges, |message| message.is_none()).await;

    // With that grant it works: a lane and a claim that have to end connections of the earlier user.
    claim(&store, 0, 1).await;
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'first'";
    sqlx::raw_sql(AssertSqlSafe(end)).execute(&mut admin).await.unwrap();
    store.commit(accept(&fence(0, 1), id())).await.unwrap();
    store.close().await;
}
