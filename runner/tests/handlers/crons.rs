//! CronJobs, and what happens if the run before has not ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cleat_crds::cron_job::CronJobSpec;
use cleat_runner::cron::Status;
use cleat_runner::definitions::{Declared, Set};
use cleat_runner::message::EntityType;
use cleat_runner::prelude::*;
use serde_json::Value as Json;
use tokio::sync::Semaphore;

use crate::world::{PATIENCE, Place, World, on_both_stores, parse};

on_both_stores!(
    allow_lets_all_run,
    forbid_leaves_out_what_comes_while_a_run_goes_on,
    replace_stops_the_run_before,
    buffer_one_lets_one_wait,
    a_workflow_is_followed_to_its_end,
    a_run_that_somebody_interrupts_has_ended_for_its_cron,
    a_cron_that_was_deleted_while_nobody_looked_ticks_no_more,
    a_cron_that_is_wrong_goes_on_as_it_was_and_one_that_is_deleted_ends,
);

/// Lets nobody through without a permit.
#[entity(name = "gate", concurrency = 0)]
#[derive(Clone)]
struct Gate {
    permits: Arc<Semaphore>,
    begun: Arc<AtomicUsize>,
}

#[entity_impl]
impl Gate {
    #[rpc(persisted)]
    pub async fn pass(&self, _request: Json) -> Result<(), Never> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        if let Ok(permit) = self.permits.acquire().await {
            permit.forget();
        }
        Ok(())
    }
}

struct Crons {
    world: World,
    gate: Gate,
}

impl Crons {
    async fn new(place: Place, policy: &str) -> Self {
        let gate = Gate { permits: Arc::new(Semaphore::new(0)), begun: Arc::default() };
        let world = World::with(place, |node| {
            gate.clone().register(node).unwrap();
        })
        .await;
        let crons = Self { world, gate };
        crons.apply(&spec(policy, "* * * * * *")).await;
        crons.begun(1).await;
        crons
    }

    async fn apply(&self, yaml: &str) {
        let spec: CronJobSpec = parse(yaml);
        let crons = [("beat".to_owned(), Declared::first(spec))].into();
        self.world.keeper.apply(&Set { crons, ..Set::default() }).await;
    }

    /// Waits until so many runs have begun.
    async fn begun(&self, count: usize) {
        let begun = || self.gate.begun.load(Ordering::SeqCst) >= count;
        crate::world::until(&format!("{count} runs have begun"), begun).await;
    }

    /// Waits for a status.
    async fn status(&self, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
        let wait = async {
            loop {
                let status = self.world.node.crons().status("beat").await.unwrap().unwrap();
                if wanted(&status) {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("it never happened: {what}"))
    }
}

fn spec(policy: &str, schedule: &str) -> String {
    format!(
        "{{schedule: '{schedule}', concurrencyPolicy: {policy}, target: {{call: {{entity: gate, id: a, method: pass}}}}}}"
    )
}

async fn allow_lets_all_run(place: Place) {
    let crons = Crons::new(place, "Allow").await;
    crons.begun(3).await;
    assert!(crons.status("three run", |status| status.active >= 3).await.last_successful.is_none());
    crons.gate.permits.add_permits(1);
    crons.status("one has succeeded", |status| status.last_successful.is_some()).await;
}

async fn forbid_leaves_out_what_comes_while_a_run_goes_on(place: Place) {
    let crons = Crons::new(place, "Forbid").await;
    let status = crons.status("two were left out", |status| status.skipped >= 2).await;
    assert_eq!((status.active, status.fired, status.last_successful), (1, 1, None));
    assert_eq!(crons.gate.begun.load(Ordering::SeqCst), 1);
    crons.gate.permits.add_permits(1);
    crons.status("it has succeeded", |status| status.last_successful.is_some()).await;
    crons.begun(2).await;
    // Whoever asks for it gets a run, whatever else runs.
    crons.world.node.crons().trigger("beat", Some("now")).await.unwrap();
    crons.world.node.crons().trigger("beat", Some("now")).await.unwrap();
    crons.begun(3).await;
    assert_eq!(crons.status("both run", |status| status.active == 2).await.fired, 3);
}

async fn replace_stops_the_run_before(place: Place) {
    let crons = Crons::new(place, "Replace").await;
    crons.begun(3).await;
    let status = crons.status("the third has begun", |status| status.fired >= 3).await;
    assert_eq!((status.active, status.last_successful), (1, None));
    // Those that were stopped wait no more: one permit is for one that runs.
    crons.gate.permits.add_permits(1);
    crons.status("one has succeeded", |status| status.last_successful.is_some()).await;
}

async fn buffer_one_lets_one_wait(place: Place) {
    let crons = Crons::new(place, "BufferOne").await;
    let status = crons.status("one waits, and took the place of another", |status| status.skipped >= 1).await;
    assert_eq!((status.active, status.fired), (1, 1));
    let last = status.last;
    crons.gate.permits.add_permits(1);
    crons.begun(2).await;
    let status = crons.status("the next has begun", |status| status.fired == 2).await;
    assert!(status.last > last && status.last_successful == last);
}

#[workflow]
struct Nightly {
    permits: Arc<Semaphore>,
    begun: Arc<AtomicUsize>,
}

#[workflow_impl(key = |request: &u32| request.to_string())]
impl Nightly {
    async fn execute(&self, request: u32) -> Result<u32, String> {
        self.work(request).await
    }

    #[activity]
    async fn work(&self, request: u32) -> Result<u32, String> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        if let Ok(permit) = self.permits.acquire().await {
            permit.forget();
        }
        Ok(request)
    }
}

async fn a_workflow_is_followed_to_its_end(place: Place) {
    let gate = Gate { permits: Arc::new(Semaphore::new(0)), begun: Arc::default() };
    let world = World::new(place).await;
    let nightly = Nightly { permits: Arc::clone(&gate.permits), begun: Arc::clone(&gate.begun) };
    nightly.register(&world.node).unwrap();
    let crons = Crons { world, gate };
    crons
        .apply("{schedule: '* * * * * *', concurrencyPolicy: Forbid, target: {workflow: {type: nightly, input: 7}}}")
        .await;
    crons.begun(1).await;
    let status = crons.status("one was left out", |status| status.skipped >= 1).await;
    assert_eq!((status.active, status.fired), (1, 1));
    crons.gate.permits.add_permits(1);
    crons
        .status("it has succeeded", |status| status.last_successful == status.last || status.fired > 1)
        .await;
    crons.begun(2).await;
}

async fn a_run_that_somebody_interrupts_has_ended_for_its_cron(place: Place) {
    let crons = Crons::new(place, "Forbid").await;
    let is_run = |kind: &EntityType| kind.as_str().starts_with("cleat.cron-run");
    let (present, _) = crons.world.node.host().instances(is_run, 1);
    let (kind, id) = (present[0].address.entity_type.as_str(), present[0].address.id.as_str());
    let begun = crons.world.client(kind).keyed::<(), ()>(id, "begin", id.as_bytes()).await.unwrap().unwrap();
    assert!(begun.interrupt().await.unwrap());
    // Nobody told it so, and it does not wait for ever.
    crons.begun(2).await;
    let status = crons.status("the next has begun", |status| status.fired == 2).await;
    assert_eq!((status.active, status.last_successful), (1, None));
}

async fn a_cron_that_is_wrong_goes_on_as_it_was_and_one_that_is_deleted_ends(place: Place) {
    let crons = Crons::new(place, "Allow").await;
    crons.apply(&spec("Allow", "* * * * * 9")).await;
    let problems = crons.world.keeper.serving().borrow().problems.clone();
    assert_eq!(problems.iter().map(|problem| problem.fault.reason).collect::<Vec<_>>(), ["InvalidSchedule"]);
    let fired = crons.status("it goes on", |status| status.fired >= 2).await.fired;
    crons.status("and on", |status| status.fired > fired).await;
    crons.world.keeper.apply(&Set::default()).await;
    assert_eq!(crons.world.node.crons().status("beat").await.unwrap(), None);
}

async fn a_cron_that_was_deleted_while_nobody_looked_ticks_no_more(place: Place) {
    let Crons { world, gate } = Crons::new(place, "Forbid").await;
    gate.permits.add_permits(1000);
    // The next runner is not told of a deletion: it finds something that nobody declares.
    let world = world.restart().await;
    world.keeper.apply(&Set::default()).await;
    let crons = Crons { world, gate };
    let missed = |status: &Status| {
        status.next.is_some_and(|next| chrono::Utc::now() - next > chrono::TimeDelta::seconds(3))
    };
    let status = crons.status("a tick is not seen to", missed).await;
    // Declared again, it makes up for what it owes.
    crons.apply(&spec("Forbid", "* * * * * *")).await;
    crons.status("it goes on", |now| now.fired > status.fired).await;
}
