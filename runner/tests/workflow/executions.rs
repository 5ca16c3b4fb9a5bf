//! Executions by the name of their workflow, without its types, and what users are shown of them.

use std::time::Duration;

use cleat_runner::message::{Outcome, codec};
use cleat_runner::shard::{Fence, Slot};
use cleat_runner::store::{Change, Phase, Write};
use cleat_runner::workflow::journal::{Entry, Event};
use cleat_runner::workflow::{
    Client, Definition, Duplicate, Execute, Executions, Host, Key, Select, Service, StepKind, StepPhase,
    Terms, address,
};
use futures::FutureExt;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::TryRecvError;

use crate::flow::{Ledger, act, flow};
use crate::world::{Place, World, on_both_stores, until};

on_both_stores!(
    an_execution_is_started_and_asked_by_name_with_json,
    a_result_that_does_not_come_in_time_is_none,
    a_second_start_means_what_its_terms_say,
    executions_of_all_workflows_are_listed_page_by_page,
    what_an_execution_waits_for_is_reported,
    changes_are_told_to_those_who_listen,
    an_entry_that_cannot_be_read_blocks_the_execution,
);

/// Another workflow, of numbers.
struct Double;

impl Execute for Double {
    type Input = u32;
    type Output = u32;
    type Error = String;

    fn definition() -> Result<Definition, cleat_runner::entity::InvalidDefinition> {
        Ok(Definition::new("double")?)
    }

    fn key(_: &u32) -> Option<Key> {
        None
    }
}

fn double(host: &Host) -> Client<Double> {
    Service::<Double>::new(|_, input: u32| async move { Ok::<_, String>(input * 2) }.boxed())
        .unwrap()
        .register(host)
        .unwrap()
}

fn named(id: &str) -> Terms {
    Terms { key: Some(Key::Raw(id.to_owned())), ..Terms::default() }
}

fn json_of(outcome: Outcome) -> Value {
    match outcome {
        Outcome::Success(value) => codec::to_json(&value).unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn an_execution_is_started_and_asked_by_name_with_json(place: Place) {
    let world = World::new(place).await;
    flow(&world.host, |context, input| async move {
        context.show("input", &input).unwrap();
        let approved: String = codec::decode(&context.signal("approved").await).unwrap();
        let checked = match context.promise("checked").await {
            Outcome::Success(value) => codec::decode::<String>(&value).unwrap(),
            other => return Err(format!("{other:?}")),
        };
        Ok(format!("{input}, {approved}, {checked}"))
    });
    let flows = Executions::new(&world.host, "flow").unwrap();
    let (id, started) = flows.start(&json!("a"), &named("a")).await.unwrap();
    assert!(!started.existing);
    assert!(flows.start(&json!("a"), &named("a")).await.unwrap().1.existing);
    assert_eq!(flows.query::<Value>(&id, "input").await.unwrap(), json!("a"));
    assert_eq!(flows.poll(&id).await.unwrap(), None);
    flows.signal(&id, "approved", &json!("by Ann")).await.unwrap();
    flows.resolve(&id, "checked", &json!("twice")).await.unwrap();
    assert_eq!(json_of(flows.join(&id).await.unwrap()), json!("a, by Ann, twice"));
    let report = flows.report(&id).await.unwrap();
    assert_eq!(
        (report.workflow.as_str(), report.phase, report.step.as_str()),
        ("flow", Phase::Completed, "2/2")
    );
    assert_eq!(report.output, Some(json!("a, by Ann, twice")));
    assert_eq!(flows.start(&json!("a"), &named("")).await.unwrap_err().reason(), "InvalidAddress");
    let missing = Executions::new(&world.host, "nothing").unwrap();
    assert_eq!(missing.start(&json!(1), &named("a")).await.unwrap_err().reason(), "UnknownType");
    assert_eq!(missing.report("a").await.unwrap_err().reason(), "NoSuchExecution");
}

async fn a_result_that_does_not_come_in_time_is_none(place: Place) {
    let world = World::new(place).await;
    flow(&world.host, |context, _| async move {
        context.signal("go").await;
        Ok("gone".into())
    });
    let flows = Executions::new(&world.host, "flow").unwrap();
    let (id, _) = flows.start("a", &named("a")).await.unwrap();
    assert_eq!(flows.result(&id, Duration::ZERO).await.unwrap(), None);
    assert_eq!(flows.result(&id, Duration::from_millis(50)).await.unwrap(), None);
    flows.signal(&id, "go", &()).await.unwrap();
    let outcome = flows.result(&id, Duration::from_secs(60)).await.unwrap();
    assert_eq!(json_of(outcome.unwrap()), json!("gone"));
}

async fn a_second_start_means_what_its_terms_say(place: Place) {
    let world = World::new(place).await;
    let ledger = Ledger::default();
    let noted = ledger.clone();
    let client = flow(&world.host, move |context, input| {
        let noted = noted.clone();
        async move {
            act(&context, &noted, &input).await;
            if input.starts_with("bad") { Err(input) } else { Ok(input) }
        }
    })
    .with_key_raw("k");
    let (refuse, after_failure, after_end) = (
        client.with_duplicate(Duplicate::Refuse),
        client.with_duplicate(Duplicate::AfterFailure),
        client.with_duplicate(Duplicate::AfterEnd),
    );
    refuse.execute(&"bad".into()).await.unwrap_err();
    let error = refuse.start(&"bad".into()).await.unwrap_err();
    assert_eq!(error.reason(), "AlreadyStarted");
    // What failed stays what it is, unless the start says otherwise.
    assert_eq!(client.execute(&"bad".into()).await.unwrap_err().to_string(), "bad");
    assert_eq!(client.start(&"good".into()).await.unwrap_err().reason(), "KeyReused");
    assert_eq!(ledger.all(), ["bad"]);

    let (id, started) = after_failure.begin(&"good".into()).await.unwrap();
    assert!(!started.existing);
    assert_eq!(client.join(&id).await.unwrap(), "good");
    let described = client.describe(&id).await.unwrap();
    assert_eq!((described.run, described.phase), (started.run, Phase::Completed));
    assert_eq!(client.report(&id).await.unwrap().input, json!("good"));
    // It is the one with this input now, and has not failed.
    assert!(client.begin(&"good".into()).await.unwrap().1.existing);
    assert!(after_failure.begin(&"good".into()).await.unwrap().1.existing);
    assert_eq!(after_failure.start(&"bad".into()).await.unwrap_err().reason(), "KeyReused");

    assert_eq!(after_end.execute(&"better".into()).await.unwrap(), "better");
    assert_eq!(ledger.all(), ["bad", "good", "better"]);
    let world = world.restart().await;
    let client = flow(&world.host, |_, input| async move { Ok(input) }).with_key_raw("k");
    assert_eq!(client.execute(&"better".into()).await.unwrap(), "better");
}

async fn executions_of_all_workflows_are_listed_page_by_page(place: Place) {
    let world = World::new(place).await;
    let flows = flow(&world.host, |_, input| async move { Ok(input) });
    let doubles = double(&world.host);
    for number in 0..5u32 {
        flows.execute(&format!("f-{number}")).await.unwrap();
        doubles.with_key_raw(format!("d-{number}")).execute(&number).await.unwrap();
    }
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let (page, next) = world.host.list(&Select::default(), after, 3).await.unwrap();
        seen.extend(page.iter().map(|described| format!("{}/{}", described.workflow, described.id)));
        if page.len() < 3 {
            break;
        }
        after = next;
    }
    let mut sorted = seen.clone();
    sorted.sort();
    let both = (0..5).map(|n| format!("double/d-{n}")).chain((0..5).map(|n| format!("flow/f-{n}")));
    assert_eq!(sorted, both.collect::<Vec<_>>());
    // Newest first.
    let place_of = |what: &str| seen.iter().position(|name| name == what).unwrap();
    assert!(place_of("double/d-4") < place_of("double/d-0"));
    let running = Select { phases: vec![Phase::Running], ..Select::default() };
    assert!(world.host.list(&running, None, 10).await.unwrap().0.is_empty());
}

async fn what_an_execution_waits_for_is_reported(place: Place) {
    let world = World::new(place).await;
    let ledger = Ledger::default();
    let client = flow(&world.host, move |context, _| {
        let ledger = ledger.clone();
        async move {
            act(&context, &ledger, "reserve").await;
            context.sleep_named("pack", Duration::from_millis(1)).await;
            let late = context.sleep_named("patience", Duration::from_secs(3600));
            cleat_runner::workflow::select(context.signal("approved"), late).await;
            Ok(String::new())
        }
    });
    let id = client.start(&"a".into()).await.unwrap();
    until("it waits, and its row says for what", || async {
        client.report(&id).await.unwrap().steps.len() == 4
    })
    .await;
    let report = client.report(&id).await.unwrap();
    let steps: Vec<_> = report.steps.iter().map(|step| (step.name.as_str(), step.kind, step.phase)).collect();
    assert!(steps.contains(&("reserve", StepKind::Activity, StepPhase::Completed)), "{steps:?}");
    assert!(steps.contains(&("pack", StepKind::Sleep, StepPhase::Completed)), "{steps:?}");
    assert!(steps.contains(&("approved", StepKind::Signal, StepPhase::Running)), "{steps:?}");
    assert!(steps.contains(&("patience", StepKind::Sleep, StepPhase::Running)), "{steps:?}");
    assert_eq!((report.phase, report.step.as_str()), (Phase::Running, "2/4"));
    client.signal(&id, "approved", &()).await.unwrap();
    client.join(&id).await.unwrap();
    assert_eq!(client.report(&id).await.unwrap().step, "3/3");
}

async fn changes_are_told_to_those_who_listen(place: Place) {
    let world = World::new(place).await;
    let client = flow(&world.host, |context, _| async move {
        context.signal("go").await;
        Ok(String::new())
    });
    // Nobody listens: nothing is kept.
    client.start(&"before".into()).await.unwrap();
    let mut changes = world.host.changes();
    assert!(matches!(changes.try_recv(), Err(TryRecvError::Empty)));
    let id = client.start(&"a".into()).await.unwrap();
    let here = address("flow", "a").unwrap();
    assert_eq!(changes.recv().await.unwrap(), here);
    client.signal(&id, "go", &()).await.unwrap();
    client.join(&id).await.unwrap();
    until("the end is told", || {
        let last = changes.try_recv();
        async move { last.is_ok_and(|last| last == address("flow", "a").unwrap()) }
    })
    .await;
}

async fn an_entry_that_cannot_be_read_blocks_the_execution(place: Place) {
    let world = World::new(place).await;
    let ledger = Ledger::default();
    let body = |ledger: Ledger| {
        move |context: cleat_runner::workflow::Context, _: String| {
            let ledger = ledger.clone();
            async move {
                act(&context, &ledger, "first").await;
                context.signal("go").await;
                Ok(act(&context, &ledger, "second").await)
            }
        }
    };
    let client = flow(&world.host, body(ledger.clone()));
    let id = client.start(&"a".into()).await.unwrap();
    until("it waits outside of memory", || async { world.host.resident_executions() == 0 }).await;
    assert_eq!(ledger.all(), ["first"]);
    // A later release wrote something that this one does not know.
    let run = client.describe(&id).await.unwrap().run;
    let here = address("flow", "a").unwrap();
    let map = &world.store.maps()[0];
    let shard = map.shard_at(here.slot());
    let holdings = world.store.holdings(map.group()).await.unwrap();
    let epoch = holdings.into_iter().find(|holding| holding.shard == shard).unwrap().epoch;
    let entries = vec![bytes::Bytes::from_static(&[0x92, 0x05, 0x81, 0xa1, b'?', 0x91, 0x03])];
    let write =
        Write::one(Fence { shard, epoch }, Change::Journal { run, slot: Slot::of("x"), from: 1, entries });
    world.store.commit(write).await.unwrap();

    client.signal(&id, "go", &()).await.unwrap();
    until("it is blocked", || async { client.describe(&id).await.unwrap().phase == Phase::Blocked }).await;
    let problem = client.describe(&id).await.unwrap().problem.unwrap();
    assert_eq!(problem.reason, "UnreadableJournal");
    assert!(problem.message.starts_with("entry 1 of the journal cannot be read"), "{}", problem.message);
    assert_eq!(client.history(&id).await.unwrap_err().reason(), "UnreadableJournal");
    // What it waited for is still known.
    assert_eq!(client.report(&id).await.unwrap().step, "1/2");
    until("it costs nothing", || async { world.host.resident_executions() == 0 }).await;
    // The same code cannot read it either.
    client.retry(&id).await.unwrap();
    until("it is blocked again", || async { client.describe(&id).await.unwrap().phase == Phase::Blocked })
        .await;
    // Before that entry all is well, and the signal that came after it is kept.
    assert_eq!(client.reset(&id, 2).await.unwrap_err().reason(), "NoSuchStep");
    client.reset(&id, 1).await.unwrap();
    assert_eq!(client.join(&id).await.unwrap(), "second");
    let history = client.history(&id).await.unwrap();
    assert!(
        matches!(&history[1], Entry { event: Event::Forked { from, entries: 1, .. }, .. } if *from == run)
    );
    assert!(matches!(&history[2], Entry { event: Event::Signal { name, .. }, .. } if name == "go"));
    assert_eq!(ledger.all(), ["first", "second"]);
}
