//! Each tick of a cron is exactly one message, whatever happens to the runners.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

mod nodes;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use cleat_runner::cron::{self, CatchUp, Cron, Occurrence, Policy, Schedule};
use cleat_runner::message::EntityType;
use cleat_runner::prelude::*;
use nodes::{PATIENCE, Runner, World, owner_of, settled, until};

#[derive(Default, Serialize, Deserialize)]
struct Seen {
    ticks: Vec<String>,
}

/// Notes the ticks that it is told of, in order.
#[entity(name = "log", state = Seen)]
struct Log;

#[entity_impl]
impl Log {
    #[rpc(persisted)]
    pub async fn note(&self, seen: &mut Seen, context: &Context) -> Result<(), Never> {
        seen.ticks.push(context.headers()[cron::SCHEDULED].clone());
        Ok(())
    }

    #[rpc]
    pub async fn ticks(&self, seen: &Seen) -> Result<Vec<String>, Never> {
        Ok(seen.ticks.clone())
    }
}

fn every_second() -> Schedule {
    Schedule::new("* * * * * *").unwrap()
}

fn all() -> CatchUp {
    CatchUp { policy: Policy::All, window: Duration::from_secs(3600) }
}

async fn noted(client: &LogClient, id: &str) -> Vec<DateTime<Utc>> {
    let ticks = client.ticks(id).await.unwrap();
    ticks.iter().map(|tick| DateTime::parse_from_rfc3339(tick).unwrap().to_utc()).collect()
}

async fn noted_at_least(client: &LogClient, id: &str, count: usize) -> Vec<DateTime<Utc>> {
    let wait = async {
        loop {
            let ticks = noted(client, id).await;
            if ticks.len() >= count {
                return ticks;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("the ticks do not come")
}

fn cron_shard(runner: &Runner, name: &str) -> cleat_runner::shard::ShardId {
    runner.node.host().shard_of(&EntityType::new("cleat.cron.default").unwrap(), name).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_tick_is_one_message_while_its_owners_are_cut_off_and_stopped() {
    let world = World::new().await;
    let mut runners = vec![world.start("a").await, world.start("b").await, world.start("c").await];
    for runner in &runners {
        Log.register(&runner.node).unwrap();
    }
    settled(&runners.iter().collect::<Vec<_>>()).await;
    let log = LogClient::new(&runners[0].node).unwrap();
    let cron = Cron::new("beat", every_second(), log.note("beat")).catch_up(all());
    runners[0].node.register_cron(cron).await.unwrap();
    noted_at_least(&log, "beat", 2).await;

    // Its owner is taken for dead while it goes on with what it has: two who think that the cron is theirs.
    let shard = cron_shard(&runners[0], "beat");
    let cut = owner_of(&shard, &runners.iter().collect::<Vec<_>>()).await;
    let instance = runners[cut].node.ownership().instance().clone();
    runners[cut].leases.faults().outage(true);
    let others = |runners: &[Runner]| {
        runners.iter().any(|runner| {
            *runner.node.ownership().instance() != instance && runner.node.host().serves(&shard)
        })
    };
    until("another has it", || others(&runners)).await;
    runners[cut].leases.faults().outage(false);
    let now = noted(&log, "beat").await.len();
    noted_at_least(&log, "beat", now + 2).await;

    // Its owner is stopped in the middle.
    let place = owner_of(&shard, &runners.iter().collect::<Vec<_>>()).await;
    let stopped = runners.remove(place);
    stopped.node.shutdown().await;
    let log = LogClient::new(&runners[0].node).unwrap();
    let now = noted(&log, "beat").await.len();
    let ticks = noted_at_least(&log, "beat", now + 3).await;

    assert!(ticks.windows(2).all(|pair| pair[1] - pair[0] == TimeDelta::seconds(1)), "{ticks:?}");
    let status = runners[0].node.crons().status("beat").await.unwrap().unwrap();
    assert_eq!(status.skipped, 0);
    for runner in runners {
        runner.node.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ticks_missed_while_nobody_was_there_follow_the_policy() {
    let world = World::new().await;
    let a = world.start("a").await;
    let log = Log.register(&a.node).unwrap();
    let policy = |policy| CatchUp { policy, window: Duration::from_secs(3600) };
    let crons = [("all", Policy::All), ("latest", Policy::Latest)];
    for (name, kind) in crons {
        let cron = Cron::new(name, every_second(), log.note(name)).catch_up(policy(kind));
        a.node.register_cron(cron).await.unwrap();
        noted_at_least(&log, name, 1).await;
    }
    a.node.shutdown().await;
    // Time passes without anybody there: that is what is tested.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let b = world.start("b").await;
    let log = Log.register(&b.node).unwrap();
    until("it serves", || b.node.ownership().status().borrow().ready).await;
    for (name, kind) in crons {
        let before = noted(&log, name).await.len();
        let ticks = noted_at_least(&log, name, before + 3).await;
        assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]), "{name}: {ticks:?}");
        let gaps = ticks.windows(2).filter(|pair| pair[1] - pair[0] > TimeDelta::seconds(1)).count();
        let status = b.node.crons().status(name).await.unwrap().unwrap();
        match kind {
            Policy::All => assert_eq!((gaps, status.skipped), (0, 0), "{ticks:?}"),
            _ => assert!(gaps >= 1 && status.skipped >= 2, "{ticks:?} {status:?}"),
        }
    }
    b.node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cron_can_be_changed_suspended_and_removed_from_any_runner() {
    let world = World::new().await;
    let (a, b) = (world.start("a").await, world.start("b").await);
    let (from_a, from_b) = (Log.register(&a.node).unwrap(), Log.register(&b.node).unwrap());
    settled(&[&a, &b]).await;
    let yearly = Schedule::new("@yearly").unwrap().in_zone("Europe/Berlin").unwrap();
    a.node.register_cron(Cron::new("job", yearly, from_a.note("job"))).await.unwrap();
    let status = b.node.crons().status("job").await.unwrap().unwrap();
    assert_eq!((status.schedule.as_str(), status.zone.as_str()), ("@yearly", "Europe/Berlin"));
    assert!(status.next.unwrap() > Utc::now());

    // A changed schedule counts at once.
    b.node.register_cron(Cron::new("job", every_second(), from_b.note("job"))).await.unwrap();
    noted_at_least(&from_a, "job", 2).await;

    a.node.crons().suspend("job").await.unwrap();
    let rested = b.node.crons().status("job").await.unwrap().unwrap();
    assert!(rested.suspended);
    assert_eq!(rested.next, None);
    // A runner that starts registers it once more, and it still rests.
    b.node.register_cron(Cron::new("job", every_second(), from_b.note("job"))).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(b.node.crons().status("job").await.unwrap().unwrap().fired, rested.fired);
    a.node.crons().resume("job").await.unwrap();
    let sent = usize::try_from(rested.fired).unwrap();
    let ticks = noted_at_least(&from_a, "job", sent + 1).await;
    assert_eq!(ticks.iter().collect::<BTreeSet<_>>().len(), ticks.len());

    b.node.crons().remove("job").await.unwrap();
    assert_eq!(a.node.crons().status("job").await.unwrap(), None);
    let before = noted(&from_a, "job").await.len();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(noted(&from_a, "job").await.len() <= before + 1, "what was sent before is not called back");
    a.node.shutdown().await;
    b.node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_is_run_for_each_tick_and_again_if_it_fails() {
    let world = World::new().await;
    let a = world.start("a").await;
    let seen = Arc::new(Mutex::new(Vec::<Occurrence>::new()));
    let notes = Arc::clone(&seen);
    let cron = Cron::running("sweep", every_second(), move |occurrence: Occurrence| {
        let notes = Arc::clone(&notes);
        async move {
            let fails = notes.lock().unwrap().is_empty();
            notes.lock().unwrap().push(occurrence);
            if fails { Err(std::io::Error::other("the first one fails")) } else { Ok(()) }
        }
    });
    a.node.register_cron(cron.skip_if_older_than(Duration::from_secs(600))).await.unwrap();
    until("it has run", || seen.lock().unwrap().len() >= 4).await;
    let seen = seen.lock().unwrap().clone();
    assert_eq!((seen[0].scheduled, seen[0].attempt), (seen[1].scheduled, 0));
    assert_eq!(seen[1].attempt, 1);
    assert!(seen[1..].windows(2).all(|pair| pair[0].scheduled < pair[1].scheduled), "{seen:?}");
    a.node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cron_that_cannot_be_is_refused_with_its_name() {
    let world = World::new().await;
    let a = world.start("a").await;
    let log = Log.register(&a.node).unwrap();
    let error = a.node.register_cron(Cron::new("", every_second(), log.note("x"))).await.unwrap_err();
    assert_eq!(error.to_string(), "the cron \"\" cannot have this name");
    let error = a.node.register_cron(Cron::new("c", every_second(), log.note(""))).await.unwrap_err();
    assert_eq!(error.to_string(), "the ticks of cron c cannot be sent");
    a.node.shutdown().await;
}
