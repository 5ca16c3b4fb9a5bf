//! Whatever happens, in whatever order, from a seed.

use std::time::Duration;

use cleat_testing::postgres::Shutdown;
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use tokio::time::Instant;

use crate::cluster::{Cluster, locks, millis};
use crate::load::Load;

/// How often something happens, if there is time for it.
const ROUNDS: usize = 8;
const BUDGET: Duration = Duration::from_secs(30);

/// What happens next.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Stop,
    Pause(u64),
    Database(Shutdown),
    DatabaseKilled,
    DatabaseAway(u64),
    LeasesAway(u64),
}

fn any_fault(random: &mut impl Rng) -> Fault {
    match random.random_range(0..8) {
        0 => Fault::Kill,
        1 => Fault::Stop,
        2 | 3 => Fault::Pause(random.random_range(100..5000)),
        4 => Fault::Database(if random.random() { Shutdown::Fast } else { Shutdown::Immediate }),
        5 => Fault::DatabaseKilled,
        6 => Fault::DatabaseAway(random.random_range(100..5000)),
        _ => Fault::LeasesAway(random.random_range(100..5000)),
    }
}

/// `CLEAT_FAULT_SEED` tells a story again; without it each run tells another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_in_whatever_order_the_history_is_sound() {
    let seed = std::env::var("CLEAT_FAULT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand::random);
    println!("CLEAT_FAULT_SEED={seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let mut cluster = Cluster::start(locks(millis(3000))).await;
    let load = Load::start(&cluster, seed);
    let begun = Instant::now();
    for round in 0..ROUNDS {
        if begun.elapsed() > BUDGET {
            break;
        }
        let victim = ["a", "b", "c"][random.random_range(0..3)];
        let fault = any_fault(&mut random);
        println!("{round}: {fault:?} ({victim})");
        inflict(&mut cluster, victim, fault).await;
        // Sometimes the next one comes at once.
        if random.random_range(0..3) > 0 {
            load.goes_on(5).await;
        }
    }
    cluster.settled().await;
    load.goes_on(10).await;
    load.stop().await.check(&cluster).await;
    cluster.stop().await;
}

async fn inflict(cluster: &mut Cluster, victim: &str, fault: Fault) {
    match fault {
        Fault::Kill => {
            cluster.kill(victim).await;
            cluster.add(victim).await;
        }
        Fault::Stop => {
            cluster.runners.remove(victim).unwrap().stop().await;
            cluster.add(victim).await;
        }
        Fault::Pause(time) => {
            cluster.runner(victim).process.pause().await.unwrap();
            tokio::time::sleep(millis(time)).await;
            cluster.runner(victim).process.resume().unwrap();
        }
        Fault::Database(how) => cluster.server.restart(how).await.unwrap(),
        Fault::DatabaseKilled => {
            cluster.server.kill().await.unwrap();
            cluster.server.start_again().await.unwrap();
        }
        Fault::DatabaseAway(time) => {
            cluster.server.stop(Shutdown::Fast).await.unwrap();
            tokio::time::sleep(millis(time)).await;
            cluster.server.start_again().await.unwrap();
        }
        Fault::LeasesAway(time) => {
            cluster.leases.leave().await;
            tokio::time::sleep(millis(time)).await;
            cluster.leases.come_back().await;
        }
    }
}
