//! The database, the Leases and the network, away for a while.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;

use cleat_testing::postgres::Shutdown;

use crate::audit;
use crate::cluster::{Cluster, Settings, locks, millis};
use crate::load::Load;
use crate::proxy::Proxy;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_restarted_loses_nothing_that_was_acknowledged() {
    let mut cluster = Cluster::start(locks(millis(6000))).await;
    let load = Load::start(&cluster, 4);
    load.goes_on(10).await;
    for how in [Shutdown::Fast, Shutdown::Immediate] {
        cluster.server.restart(how).await.unwrap();
        load.goes_on(10).await;
    }
    cluster.server.kill().await.unwrap();
    cluster.server.start_again().await.unwrap();
    load.goes_on(10).await;
    load.stop().await.check(&cluster).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_that_are_away_for_longer_than_the_locks_last_move_no_shard() {
    let mut cluster = Cluster::start(locks(millis(3000))).await;
    let load = Load::start(&cluster, 5);
    load.goes_on(10).await;
    let before = audit::owners(&cluster.url).await.unwrap();
    cluster.leases.leave().await;
    // There is no event for this: what must not happen is what the time is for.
    tokio::time::sleep(millis(7000)).await;
    load.goes_on(10).await;
    cluster.leases.come_back().await;
    tokio::time::sleep(millis(4000)).await;
    load.goes_on(10).await;
    assert_eq!(audit::owners(&cluster.url).await.unwrap(), before);
    load.stop().await.check_flawless(&cluster).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_is_cut_for_a_while_moves_no_shard_and_loses_no_message() {
    let proxies: Mutex<BTreeMap<String, Proxy>> = Mutex::default();
    let reach = async |name: &str, at: SocketAddr| {
        let proxy = Proxy::start(at).await;
        let address = proxy.address().as_str().parse().unwrap();
        proxies.lock().unwrap().insert(name.to_owned(), proxy);
        address
    };
    let settings = Settings { timing: locks(millis(6000)), ..Settings::default() };
    let cluster = Cluster::start_with(settings, reach).await;
    let proxies = proxies.into_inner().unwrap();
    let before = audit::owners(&cluster.url).await.unwrap();
    let load = Load::start(&cluster, 6);
    load.goes_on(10).await;
    // Broken connections are made anew.
    for proxy in proxies.values() {
        proxy.cut();
        load.goes_on(5).await;
    }
    // Nothing gets through, and then it does.
    proxies["a"].stall(true);
    tokio::time::sleep(millis(1500)).await;
    proxies["a"].stall(false);
    load.goes_on(10).await;
    // Answers get lost on a connection that then breaks: what was asked has been done, and is not done again.
    proxies["b"].stall_answers(true);
    tokio::time::sleep(millis(500)).await;
    proxies["b"].cut();
    proxies["b"].stall_answers(false);
    load.goes_on(10).await;
    // Nobody is let in at all.
    proxies["c"].refuse().await;
    tokio::time::sleep(millis(3000)).await;
    proxies["c"].accept().await;
    load.goes_on(10).await;
    assert_eq!(audit::owners(&cluster.url).await.unwrap(), before);
    load.stop().await.check(&cluster).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_for_longer_than_anybody_waits_mixes_nothing_up() {
    let database_patience = millis(2000);
    let settings = Settings { timing: locks(millis(6000)), database_patience, ..Settings::default() };
    let mut cluster = Cluster::start_with(settings, async |_, at| at).await;
    let load = Load::start(&cluster, 10);
    for _ in 0..3 {
        load.goes_on(10).await;
        cluster.server.stop(Shutdown::Immediate).await.unwrap();
        tokio::time::sleep(millis(4000)).await;
        cluster.server.start_again().await.unwrap();
    }
    load.goes_on(10).await;
    let notes = load.stop().await;
    assert!(!notes.failures.is_empty(), "it was away for longer than runners wait for it");
    notes.check(&cluster).await;
    cluster.stop().await;
}
