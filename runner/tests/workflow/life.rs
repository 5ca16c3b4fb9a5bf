//! From start to end, across restarts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use cleat_runner::store::Phase;
use cleat_runner::workflow::activity::{self, Backoff, Failed};
use cleat_runner::workflow::journal::Event;
use cleat_runner::workflow::{Options, Select, join, select};
use futures::FutureExt;
use tokio::sync::Semaphore;

use crate::flow::{Ledger, act, flow, give, text};
use crate::world::{Place, World, on_both_stores, options, until};

on_both_stores!(
    a_workflow_runs_its_activities_in_order_and_gives_its_result,
    identical_activities_are_each_done,
    a_second_sleep_sleeps,
    starting_twice_with_one_key_is_one_execution,
    the_same_key_with_another_input_is_refused,
    concurrent_executes_of_one_key_all_get_the_result,
    an_execution_goes_on_after_a_restart_and_repeats_nothing,
    a_sleep_goes_on_where_it_was_after_a_restart,
    a_waiting_execution_leaves_memory_and_comes_back,
    one_that_only_sleeps_for_long_leaves_memory_at_once_and_can_be_reached,
    attempts_are_recorded_and_repeated_with_pauses,
    an_attempt_that_takes_too_long_is_stopped,
    progress_survives_a_failed_attempt,
    a_panic_is_a_failed_attempt_and_not_a_lost_execution,
    other_code_blocks_and_fixed_code_continues,
    what_the_engine_does_not_offer_blocks_the_execution,
    an_execution_that_takes_too_long_is_timed_out,
    executions_are_listed_by_phase_newest_first,
    a_missing_execution_is_told_so,
);

async fn a_workflow_runs_its_activities_in_order_and_gives_its_result(place: Place) {
    let world = World::new(place).await;
    let ledger = Ledger::default();
    let noted = ledger.clone();
    let client = flow(&world.host, move |context, input| {
        let ledger = noted.clone();
        async move {
            let mut given = Vec::new();
            for name in ["reserve", "charge", "ship"] {
                given.push(act(&context, &ledger, name).await);
            }
            Ok(format!("{input}: {}", given.join(", ")))
        }
    });
    assert_eq!(client.execute(&"o-1".into()).await.unwrap(), "o-1: reserve, charge, ship");
    assert_eq!(ledger.all(), ["reserve", "charge", "ship"]);
    let described = client.describe("o-1").await.unwrap();
    assert_eq!((described.phase, described.steps), (Phase::Completed, 3));
    assert!(described.ended.is_some());
    // One entry for each activity, and one for the end.
    assert_eq!(client.history("o-1").await.unwrap().len(), 4);
    assert_eq!(client.poll("o-1").await.unwrap().unwrap(), "o-1: reserve, charge, ship");
}

async fn identical_activities_are_each_done(place: Place) {
    let world = World::new(place).await;
    let ledger = Ledger::default();
    let noted = ledger.clone();
    let client = flow(&world.host, move |context, _| {
        let ledger = noted.clone();
        async move {
            act(&context, &ledger, "tick").await;
            act(&context, &ledger, "tick").await;
            Ok(String::new())
        }
    });
    client.execute(&"a".into()).await.unwrap();
    assert_eq!(ledger.count("tick"), 2);
}

async fn a_second_sleep_sleeps(place: Place) {
    let world = World::new(place).await;
    let client = flow(&world.host, |context, _| async move {
        context.sleep(Duration::from_millis(300)).await;
        context.sleep(Duration::from_millis(300)).await;
        Ok(String::new())
    });
    let begun = std::time::Instant::now();
    client.execute(&"a".into()).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(590), "{:?}", begun.elapsed());
}

async fn starting_twice_with_one_key_is_one_execution(place: Place) {
    let world = World::new(place).await;
    let ledger = Ledger::default();
    let noted = ledger.clone();
    let client = flow(&world.host, move |context, _| {
        let ledger = noted.clone();
        async move { Ok(act(&context, &ledger, "once").await) }
    });
    let (id, first) = client.begin(&"a".into()).await.unwrap();
    client.join(&id).await.unwrap();
    let (_, second) = client.begin(&"a".into()).await.unwrap();
    assert_eq!((first.existing, second.existing), (false, true));
    assert_eq!(first.run, second.run);
    assert_eq!(client.execute(&"a".into()).await.unwrap(), "once");
    assert_eq!(ledger.count("once"), 1);
    // The same after a restart, when nobody remembers.
    let world = world.restart().await;
    let noted = ledger.clone();
    let client = flow(&world.host, move |context, _| {
        let ledger = noted.clone();
        async move { Ok(act(&context, &ledger, "once").await) }
    });
    assert_eq!(client.execute(&"a".into()).await.unwrap(), "once");
    assert_eq!(ledger.count("once"), 1);
}

async fn the_same_key_with_another_input_is_refused(place: Place) {
    let world = World::new(place).await;
    let client = flow(&world.host, |_, input| async move { Ok(input) });
    client.with_key("k").execute(&"a".into()).await.unwrap();
    let error = client.with_key("k").start(&"b".into()).await.unwrap_err();
    assert_eq!(error.reason(), "KeyReused");
    assert_eq!(client.with_key_raw("k").execute(&"b".into()).await.unwrap(), "b");
}

async fn concurrent_executes_of_one_key_all_get_the_result(place: Place) {
    let world = World::new(place).await;
    let ledger = Ledger::default();
    let noted = ledger.clone();
    let client = flow(&world.host, move |context, _| {
        let ledger = noted.clone();
        async move {
            context.sleep(Duration::from_millis(50)).await;
            Ok(act(&context, &ledger, "once").await)
        }
    });
    let all: Vec<_> = (0..20)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.execute(&"a".into()).await })
        })
        .collect();
    for one in all {
        assert_eq!(one.await.unwrap().unwrap(), "once");
    }
    assert_eq!(ledger.count("once"), 1);
}

async fn an_execution_goes_on_after_a_restart_and_repeats_nothing(place: Place) {
    let ledger = Ledger::default();
    let gate = Arc::new(Semaphore::new(0));
    let body = |ledger: Ledger, gate: Arc<Semaphore>| {
        move |context: cleat_runner::workflow::Context, _: String| {
            let (ledger, gate) = (ledger.clone(), Arc::clone(&gate));
            async move {
                act(&context, &ledger, "before").await;
                let noted = ledger.clone();
                let waited = context.activity("wait", activity::Options::default(), move |_| {
                    let (gate, noted) = (Arc::clone(&gate), noted.clone());
                    async move {
                        noted.note("waiting");
                        gate.acquire().await.unwrap().forget();
                        give("waited")
                    }
                    .boxed()
                });
                let waited = text(waited.await);
                act(&context, &ledger, "after").await;
                Ok(waited)
            }
        }
    };
    let world = World::new(place).await;
    let client = flow(&world.host, body(ledger.clone(), Arc::clone(&gate)));
    client.start(&"a".into()).await.unwrap();
    until("it waits", async || ledger.count("waiting") == 1).await;
    let world = world.restart().await;
    let client = flow(&world.host, body(ledger.clone(), Arc::clone(&gate)));
    until("it waits again", async || ledger.count("waiting") == 2).await;
    gate.add_permits(1);
    assert_eq!(client.join("a").await.unwrap(), "waited");
    // What was not finished is done again; what was, is not.
    assert_eq!(ledger.all(), ["before", "waiting", "waiting", "after"]);
}

async fn a_sleep_goes_on_where_it_was_after_a_restart(place: Place) {
    let world = World::new(place).await;
    let body = |context: cleat_runner::workflow::Context, _| async move {
        context.sleep(Duration::from_secs(2)).await;
        Ok(String::new())
    };
    let client = flow(&world.host, body);
    let begun = std::time::Instant::now();
    client.start(&"a".into()).await.unwrap();
    until("it left memory", async || world.host.resident_executions() == 0).await;
    let world = world.restart().await;
    let client = flow(&world.host, body);
    client.join("a").await.unwrap();
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(1990), "{took:?}");
    assert!(took < Duration::from_secs(20), "{took:?}");
}

async fn a_waiting_execution_leaves_memory_and_comes_back(place: Place) {
    let world = World::new(place).await;
    let client = flow(&world.host, |context, _| async move {
        let first = context.signal("go").await;
        context.sleep(Duration::from_millis(500)).await;
        Ok(format!("{first:?}"))
    });
    client.start(&"a".into()).await.unwrap();
    until("it left memory", async || world.host.resident_executions() == 0).await;
    assert_eq!(client.history("a").await.unwrap().len(), 0, "leaving journals nothing");
    client.signal("a", "go", "now").await.unwrap();
    client.join("a").await.unwrap();
}

async fn one_that_only_sleeps_for_long_leaves_memory_at_once_and_can_be_reached(place: Place) {
    // Nobody leaves because of it.
    let world = World::with(place, Options { grace: Duration::from_secs(3600), ..options() }).await;
    let ledger = Ledger::default();
    let noted = ledger.clone();
    let client = flow(&world.host, move |context, name: String| {
        noted.note(&name);
        async move {
            let day = context.sleep(Duration::from_secs(24 * 3600));
            if name == "waiter" {
                select(context.signal("go"), day).await;
            } else {
                day.await;
            }
            Ok(String::new())
        }
    });
    client.start(&"waiter".into()).await.unwrap();
    client.start(&"sleeper".into()).await.unwrap();
    until("both began", async || ledger.all().len() == 2).await;
    until("one left memory", async || world.host.resident_executions() == 1).await;
    client.signal("waiter", "go", &()).await.unwrap();
    client.join("waiter").await.unwrap();
    client.cancel("sleeper").await.unwrap();
    client.join("sleeper").await.unwrap_err();
    // Whoever left was begun again when it was wanted.
    assert_eq!((ledger.count("waiter"), ledger.count("sleeper")), (1, 2));
}

async fn attempts_are_recorded_and_repeated_with_pauses(place: Place) {
    let world = World::new(place).await;
    let tries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let client = flow(&world.host, move |context, _| {
        let tries = Arc::clone(&counted);
        async move {
            let options = activity::Options {
                attempts: Some(5),
                backoff: Backoff::Constant(Duration::from_millis(20)),
                ..activity::Options::default()
            };
            let done = context.activity("flaky", options, move |activity| {
                let tries = Arc::clone(&tries);
                async move {
                    assert_eq!(activity.attempt, tries.fetch_add(1, Ordering::SeqCst));
                    if activity.attempt < 3 { Err(Failed::retry("not yet")) } else { give("at last") }
                }
                .boxed()
            });
            Ok(text(done.await))
        }
    });
    assert_eq!(client.execute(&"a".into()).await.unwrap(), "at last");
    assert_eq!(tries.load(Ordering::SeqCst), 4);
    let history = client.history("a").await.unwrap();
    let failed = history.iter().filter(|entry| matches!(entry.event, Event::Attempt { .. })).count();
    assert_eq!(failed, 3);
}

async fn an_attempt_that_takes_too_long_is_stopped(place: Place) {
    let world = World::new(place).await;
    let client = flow(&world.host, |context, _| async move {
        let options = activity::Options {
            attempts: Some(2),
            timeout: Some(Duration::from_millis(50)),
            backoff: Backoff::Constant(Duration::from_millis(10)),
            ..activity::Options::default()
        };
        let done = context.activity("slow", options, |_| futures::future::pending().boxed()).await;
        let silent = activity::Options {
            attempts: Some(1),
            heartbeat: Some(Duration::from_millis(50)),
            ..activity::Options::default()
        };
        let silent = context.activity("silent", silent, |_| futures::future::pending().boxed()).await;
        Ok(format!("{} / {}", text(done), text(silent)))
    });
    let given = client.execute(&"a".into()).await.unwrap();
    assert_eq!(
        given,
        "TimedOut: an attempt took longer than 50ms / TimedOut: the activity said nothing for 50ms"
    );
}

async fn progress_survives_a_failed_attempt(place: Place) {
    let world = World::new(place).await;
    let client = flow(&world.host, |context, _| async move {
        let options = activity::Options {
            attempts: Some(4),
            backoff: Backoff::Constant(Duration::from_millis(10)),
            ..activity::Options::default()
        };
        let done = context.activity("long", options, |activity| {
            async move {
                let so_far: u32 = activity.progress().unwrap().unwrap_or(0);
                activity.heartbeat(&(so_far + 10)).unwrap();
                if so_far < 20 { Err(Failed::retry("interrupted")) } else { give(&so_far.to_string()) }
            }
            .boxed()
        });
        Ok(text(done.await))
    });
    assert_eq!(client.execute(&"a".into()).await.unwrap(), "20");
}

async fn a_panic_is_a_failed_attempt_and_not_a_lost_execution(place: Place) {
    let world = World::new(place).await;
    let ledger = Ledger::default();
    let healthy = Arc::new(AtomicBool::new(false));
    let (noted, well) = (ledger.clone(), Arc::clone(&healthy));
    let client = flow(&world.host, move |context, input| {
        let (ledger, well) = (noted.clone(), Arc::clone(&well));
        async move {
            act(&context, &ledger, "before").await;
            if input == "poison" && !well.load(Ordering::SeqCst) {
                ledger.note("panic");
                panic!("out of ideas");
            }
            Ok(input)
        }
    });
    client.start(&"poison".into()).await.unwrap();
    until("it panicked again and again", async || ledger.count("panic") > 2).await;
    // Nobody else is affected.
    assert_eq!(client.execute(&"fine".into()).await.unwrap(), "fine");
    let problem = client.describe("poison").await.unwrap().problem.unwrap();
    assert_eq!((problem.reason.as_str(), problem.message.as_str()), ("Panicked", "out of ideas"));
    healthy.store(true, Ordering::SeqCst);
    assert_eq!(client.join("poison").await.unwrap(), "poison");
    assert_eq!(ledger.count("before"), 2, "once for each execution");
}

async fn other_code_blocks_and_fixed_code_continues(place: Place) {
    let world = World::new(place).await;
    let ledger = Ledger::default();
    let broken = Arc::new(AtomicBool::new(false));
    let (noted, other) = (ledger.clone(), Arc::clone(&broken));
    let client = flow(&world.host, move |context, _| {
        let (ledger, other) = (noted.clone(), Arc::clone(&other));
        async move {
            let first = if other.load(Ordering::SeqCst) { "renamed" } else { "first" };
            act(&context, &ledger, first).await;
            context.signal("go").await;
            Ok(act(&context, &ledger, "last").await)
        }
    });
    client.start(&"a".into()).await.unwrap();
    until("it left memory", async || world.host.resident_executions() == 0).await;
    broken.store(true, Ordering::SeqCst);
    client.signal("a", "go", &()).await.unwrap();
    until("it is blocked", async || client.describe("a").await.unwrap().phase == Phase::Blocked).await;
    let problem = client.describe("a").await.unwrap().problem.unwrap();
    assert_eq!(problem.reason, "NonDeterministic");
    assert!(problem.message.contains("step 0 was activity `first`"), "{}", problem.message);
    assert!(problem.message.contains("asks for activity `renamed`"), "{}", problem.message);
    until("it costs nothing", async || world.host.resident_executions() == 0).await;
    broken.store(false, Ordering::SeqCst);
    client.retry("a").await.unwrap();
    assert_eq!(client.join("a").await.unwrap(), "last");
    assert_eq!(ledger.all(), ["first", "last"]);
}

async fn what_the_engine_does_not_offer_blocks_the_execution(place: Place) {
    let world = World::new(place).await;
    let client = flow(&world.host, |_, _| async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(String::new())
    });
    client.start(&"a".into()).await.unwrap();
    until("it is blocked", async || client.describe("a").await.unwrap().phase == Phase::Blocked).await;
    assert_eq!(client.describe("a").await.unwrap().problem.unwrap().reason, "ForeignWake");
}

async fn an_execution_that_takes_too_long_is_timed_out(place: Place) {
    let world = World::new(place).await;
    let client = flow(&world.host, |context, _| async move {
        let never = context.signal("never");
        let (never, ()) = join(never, context.sleep(Duration::from_secs(1000))).await;
        Ok(format!("{never:?}"))
    });
    let error = client.with_timeout(Duration::from_millis(400)).execute(&"a".into()).await.unwrap_err();
    assert_eq!(error.reason(), Some("TimedOut"));
    assert_eq!(client.describe("a").await.unwrap().phase, Phase::TimedOut);
}

async fn executions_are_listed_by_phase_newest_first(place: Place) {
    let world = World::new(place).await;
    let client = flow(&world.host, |context, input| async move {
        if input.starts_with("wait") {
            context.signal("go").await;
        }
        if input.starts_with("fail") { Err("no".to_owned()) } else { Ok(input) }
    });
    for id in ["done-1", "wait-1", "fail-1", "done-2"] {
        client.start(&id.to_owned()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    client.join("done-1").await.unwrap();
    client.join("done-2").await.unwrap();
    assert_eq!(client.join("fail-1").await.unwrap_err().refused().unwrap(), "no");
    let ids = async |phases: Vec<Phase>| -> Vec<String> {
        let select = Select { phases, ..Select::default() };
        let (page, _) = client.list(&select, None, 10).await.unwrap();
        page.iter().map(|one| one.id.as_str().to_owned()).collect()
    };
    assert_eq!(ids(vec![]).await, ["done-2", "fail-1", "wait-1", "done-1"]);
    assert_eq!(ids(vec![Phase::Completed]).await, ["done-2", "done-1"]);
    assert_eq!(ids(vec![Phase::Failed]).await, ["fail-1"]);
    let (page, next) = client.list(&Select::default(), None, 3).await.unwrap();
    assert_eq!(page.len(), 3);
    let (rest, _) = client.list(&Select::default(), next, 3).await.unwrap();
    assert_eq!(rest[0].id.as_str(), "done-1");
}

async fn a_missing_execution_is_told_so(place: Place) {
    let world = World::new(place).await;
    let client = flow(&world.host, |_, input| async move { Ok(input) });
    assert_eq!(client.join("nobody").await.unwrap_err().reason(), Some("NoSuchExecution"));
    assert_eq!(client.signal("nobody", "go", &()).await.unwrap_err().reason(), "NoSuchExecution");
    assert_eq!(client.cancel("nobody").await.unwrap_err().reason(), "NoSuchExecution");
    assert_eq!(client.describe("nobody").await.unwrap_err().reason(), "NoSuchExecution");
    // And can be started all the same.
    assert_eq!(client.execute(&"nobody".into()).await.unwrap(), "nobody");
    assert_eq!(client.cancel("nobody").await.unwrap_err().reason(), "Finished");
    assert_eq!(client.signal("nobody", "go", &()).await.unwrap_err().reason(), "Finished");
}
