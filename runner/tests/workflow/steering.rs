//! Executions that somebody ends, that grow too long, and that are steered by the hundred.

use std::sync::Arc;
use std::time::Duration;

use cleat_runner::entity::{self, Entity, Handler, HandlerError, InvalidDefinition};
use cleat_runner::message::{EntityAddress, EntityType};
use cleat_runner::prelude::*;
use cleat_runner::store::Phase;
use cleat_runner::workflow::bulk::{Jobs, Operation, State};
use cleat_runner::workflow::{Policy, Select};
use futures::future::BoxFuture;

use crate::flow::{Ledger, act, flow};
use crate::world::{Place, World, on_both_stores, options, until};

on_both_stores!(
    a_terminated_execution_ends_where_it_stands_and_undoes_nothing,
    a_blocked_execution_can_be_terminated_and_retried,
    the_family_of_a_terminated_execution_is_told,
    a_history_that_grows_too_long_blocks_and_goes_on_when_it_may,
    a_job_reaches_all_that_are_selected_across_a_restart,
    a_job_is_known_by_its_id_and_can_be_stopped,
    types_with_names_of_the_runtime_are_refused,
);

/// Reserves, and then waits in an activity.
#[workflow]
struct Stay {
    ledger: Ledger,
}

#[workflow_impl(key = |id: &String| id.clone())]
impl Stay {
    async fn execute(&self, _: String) -> Result<String, String> {
        self.note("reserve".to_owned()).await?;
        self.compensate(|me| me.note("release".to_owned()));
        self.wait().await
    }

    #[activity]
    async fn note(&self, what: String) -> Result<(), String> {
        self.ledger.note(what);
        Ok(())
    }

    #[activity]
    async fn wait(&self) -> Result<String, String> {
        self.ledger.note("waiting");
        self.abandoned().await;
        self.ledger.note("told to stop");
        Ok("too late".to_owned())
    }
}

async fn a_terminated_execution_ends_where_it_stands_and_undoes_nothing(place: Place) {
    let world = World::new(place).await;
    let ledger = Ledger::default();
    let client = Stay { ledger: ledger.clone() }.register(&world.host).unwrap();
    let id = client.start(&"a".into()).await.unwrap();
    until("it waits", || async { ledger.count("waiting") == 1 }).await;
    let joined = tokio::spawn({
        let (client, id) = (client.clone(), id.clone());
        async move { client.join(&id).await.unwrap_err() }
    });
    client.terminate(&id, "nobody wants it").await.unwrap();
    let error = joined.await.unwrap();
    assert_eq!(error.reason(), Some("Terminated"));
    assert!(error.to_string().contains("nobody wants it"), "{error}");
    until("the activity is told", || async { ledger.count("told to stop") == 1 }).await;
    // What it gave came too late, and nothing was undone.
    let again = client.terminate(&id, "again").await.unwrap_err();
    assert_eq!(again.reason(), "Finished");
    assert!(again.to_string().contains("Failed"), "{again}");
    let report = client.report(&id).await.unwrap();
    assert_eq!((report.phase, report.step.as_str()), (Phase::Failed, "1/1"));
    assert_eq!(report.failure.unwrap().message, "nobody wants it");
    assert_eq!(client.history(&id).await.unwrap().len(), 2);
    let world = world.restart().await;
    let client = Stay { ledger: ledger.clone() }.register(&world.host).unwrap();
    assert_eq!(client.join(&id).await.unwrap_err().reason(), Some("Terminated"));
    assert_eq!(ledger.all(), ["reserve", "waiting", "told to stop"]);
}

async fn a_blocked_execution_can_be_terminated_and_retried(place: Place) {
    let world = World::new(place).await;
    let ledger = Ledger::default();
    let noted = ledger.clone();
    let client = flow(&world.host, move |context, _| {
        let noted = noted.clone();
        async move {
            act(&context, &noted, "first").await;
            context.signal("go").await;
            Ok(act(&context, &noted, "second").await)
        }
    });
    let id = client.start(&"a".into()).await.unwrap();
    until("it waits", || async { world.host.resident_executions() == 0 }).await;
    let world = world.restart().await;
    let other = flow(&world.host, |context, _| async move {
        context.sleep(Duration::from_secs(3600)).await;
        Ok(String::new())
    });
    other.signal(&id, "go", &()).await.unwrap();
    until("it is blocked", || async { other.describe(&id).await.unwrap().phase == Phase::Blocked }).await;
    other.terminate(&id, "hopeless").await.unwrap();
    assert_eq!(other.join(&id).await.unwrap_err().reason(), Some("Terminated"));
    // The old code goes on where it was.
    let world = world.restart().await;
    let noted = ledger.clone();
    let client = flow(&world.host, move |context, _| {
        let noted = noted.clone();
        async move {
            act(&context, &noted, "first").await;
            context.signal("go").await;
            Ok(act(&context, &noted, "second").await)
        }
    });
    client.retry(&id).await.unwrap();
    assert_eq!(client.join(&id).await.unwrap(), "second");
    assert_eq!(ledger.all(), ["first", "second"]);
}

/// A family of three: each waits for the next one.
#[workflow]
struct Family {
    ledger: Ledger,
}

#[workflow_impl(key = |input: &String| input.clone())]
impl Family {
    async fn execute(&self, input: String) -> Result<String, String> {
        match input.as_str() {
            "grandparent" => {
                let parent = self.child::<Family>(&"parent".to_owned()).id("parent");
                match parent.outcome().await {
                    Err(workflow::Error::Defect(defect)) => Ok(defect.kind),
                    other => Err(format!("{other:?}")),
                }
            }
            "parent" => {
                let stays = self.child::<Family>(&"stays".to_owned()).id("stays").policy(Policy::Abandon);
                let child = self.child::<Family>(&"child".to_owned()).id("child");
                let _ = workflow::join(stays, child).await;
                Ok(String::new())
            }
            _ => {
                self.compensate(|me| me.note(input));
                Ok(self.signal::<String>("go").await)
            }
        }
    }

    #[activity]
    async fn note(&self, what: String) -> Result<(), String> {
        self.ledger.note(what);
        Ok(())
    }
}

async fn the_family_of_a_terminated_execution_is_told(place: Place) {
    let world = World::new(place).await;
    let ledger = Ledger::default();
    let client = Family { ledger: ledger.clone() }.register(&world.host).unwrap();
    client.start(&"grandparent".into()).await.unwrap();
    for child in ["child", "stays"] {
        until("the children are there", || async { client.describe(child).await.is_ok() }).await;
    }
    client.terminate("parent", "enough").await.unwrap();
    assert_eq!(client.join("grandparent").await.unwrap(), "Terminated");
    assert_eq!(client.join("child").await.unwrap_err().reason(), Some("Cancelled"));
    assert_eq!(ledger.all(), ["child"], "a child that is cancelled undoes what it did");
    client.signal("stays", "go", "on").await.unwrap();
    assert_eq!(client.join("stays").await.unwrap(), "on");
}

async fn a_history_that_grows_too_long_blocks_and_goes_on_when_it_may(place: Place) {
    let options = workflow::Options { longest_history: 10, ..options() };
    let world = World::with(place, options).await;
    let ledger = Ledger::default();
    let steps = |ledger: Ledger| {
        move |context: workflow::Context, _: String| {
            let ledger = ledger.clone();
            async move {
                for _ in 0..15 {
                    act(&context, &ledger, "step").await;
                }
                Ok("all".to_owned())
            }
        }
    };
    let client = flow(&world.host, steps(ledger.clone()));
    let id = client.start(&"a".into()).await.unwrap();
    until("it is blocked", || async { client.describe(&id).await.unwrap().phase == Phase::Blocked }).await;
    let problem = client.describe(&id).await.unwrap().problem.unwrap();
    assert_eq!(problem.reason, "HistoryTooLong");
    assert!(problem.message.contains("continue_as_new"), "{}", problem.message);
    assert_eq!(ledger.count("step"), 10);
    let refused = client.signal(&id, "hello", &()).await.unwrap_err();
    assert_eq!(refused.reason(), "HistoryTooLong");
    // Another setting, and it goes on.
    let world = world.restart().await;
    let client = flow(&world.host, steps(ledger.clone()));
    client.retry(&id).await.unwrap();
    assert_eq!(client.join(&id).await.unwrap(), "all");
    assert_eq!(ledger.count("step"), 15);
}

fn waiting(world: &World) -> workflow::Client<crate::flow::Flow> {
    flow(&world.host, |context, input| async move {
        context.signal("go").await;
        Ok(input)
    })
}

async fn a_job_reaches_all_that_are_selected_across_a_restart(place: Place) {
    let world = World::new(place).await;
    let flows = waiting(&world);
    let starts = (0..230).map(|n| {
        let flows = flows.clone();
        async move { flows.start(&format!("f-{n}")).await.unwrap() }
    });
    futures::future::join_all(starts).await;
    flows.signal("f-7", "go", &()).await.unwrap();
    flows.join("f-7").await.unwrap();
    let ledger = Ledger::default();
    let stay = Stay { ledger: ledger.clone() }.register(&world.host).unwrap();
    stay.start(&"other".into()).await.unwrap();

    let select = Select { workflow: Some("flow".into()), ..Select::default() };
    let jobs = Jobs::new(&world.host).unwrap();
    jobs.begin("all", Operation::Cancel, select).await.unwrap();
    // Wherever it was, it goes on after this.
    let world = world.restart().await;
    let flows = waiting(&world);
    let stay = Stay { ledger: ledger.clone() }.register(&world.host).unwrap();
    // Those that begin later are none of its business.
    flows.start(&"late".into()).await.unwrap();
    let jobs = Jobs::new(&world.host).unwrap();
    until("the job is done", || async {
        jobs.progress("all").await.unwrap().is_some_and(|job| job.state == State::Done)
    })
    .await;
    let job = jobs.progress("all").await.unwrap().unwrap();
    assert_eq!(job.told, 229);
    assert!(job.ended.unwrap() >= job.started);
    until("all are cancelled", || async {
        let cancelled = Select { phases: vec![Phase::Cancelled], ..Select::default() };
        flows.list(&cancelled, None, 1000).await.unwrap().0.len() == 229
    })
    .await;
    assert_eq!(flows.describe("late").await.unwrap().phase, Phase::Running);
    assert_eq!(flows.describe("f-7").await.unwrap().phase, Phase::Completed);
    assert_eq!(stay.describe("other").await.unwrap().phase, Phase::Running);
}

async fn a_job_is_known_by_its_id_and_can_be_stopped(place: Place) {
    let world = World::new(place).await;
    let flows = waiting(&world);
    for n in 0..3 {
        flows.start(&format!("f-{n}")).await.unwrap();
    }
    let jobs = Jobs::new(&world.host).unwrap();
    assert_eq!(jobs.progress("j").await.unwrap(), None);
    assert_eq!(jobs.stop("j").await.unwrap(), None);
    let begun = jobs.begin("j", Operation::Suspend, Select::default()).await.unwrap();
    let again = jobs.begin("j", Operation::Suspend, Select::default()).await.unwrap();
    assert_eq!(again.started, begun.started, "it is the same job");
    let other = jobs.begin("j", Operation::Cancel, Select::default()).await.unwrap_err();
    assert_eq!(other.reason(), "KeyReused");
    until("all rest", || async {
        let resting = Select { phases: vec![Phase::Suspended], ..Select::default() };
        flows.list(&resting, None, 10).await.unwrap().0.len() == 3
    })
    .await;
    until("the job is done", || async {
        jobs.progress("j").await.unwrap().is_some_and(|job| job.state == State::Done)
    })
    .await;
    // What is over cannot be stopped any more.
    assert_eq!(jobs.stop("j").await.unwrap().unwrap().state, State::Done);
    // Nobody can be resumed who does not rest.
    let running = Select { phases: vec![Phase::Running], ..Select::default() };
    jobs.begin("nobody", Operation::Resume, running).await.unwrap();
    jobs.begin("resume", Operation::Resume, Select::default()).await.unwrap();
    until("both are done", || async {
        let mut done = true;
        for id in ["nobody", "resume"] {
            done &= jobs.progress(id).await.unwrap().is_some_and(|job| job.state == State::Done);
        }
        done
    })
    .await;
    assert_eq!(jobs.progress("nobody").await.unwrap().unwrap().told, 0);
    assert_eq!(jobs.progress("resume").await.unwrap().unwrap().told, 3);
    let reason = "the shop is closed".to_owned();
    jobs.begin("end", Operation::Terminate { reason }, Select::default()).await.unwrap();
    for n in 0..3 {
        let error = flows.join(format!("f-{n}")).await.unwrap_err();
        assert_eq!(error.reason(), Some("Terminated"));
    }
}

struct Impostor(entity::Definition);

impl Entity for Impostor {
    fn definition(&self) -> &entity::Definition {
        &self.0
    }

    fn activate<'a>(&'a self, _: &'a EntityAddress) -> BoxFuture<'a, Result<Arc<dyn Handler>, HandlerError>> {
        unreachable!("nobody asks it")
    }
}

async fn types_with_names_of_the_runtime_are_refused(place: Place) {
    let world = World::new(place).await;
    for name in ["workflow:order", "cleat.cron.default"] {
        let impostor = Impostor(entity::Definition::new(EntityType::new(name).unwrap()));
        let refused = world.host.entities().register(Arc::new(impostor)).unwrap_err();
        assert!(matches!(refused, InvalidDefinition::Reserved { .. }), "{refused}");
    }
}
