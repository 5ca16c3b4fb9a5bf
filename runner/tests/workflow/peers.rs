//! Behaviours that the suites of other systems check, by the names that they have there.
//!
//! | suite | behaviour | test |
//! | --- | --- | --- |
//! | Restate | call ordering | [`calls_of_one_workflow_reach_an_entity_in_their_order`] |
//! | Restate | cancellation | [`whatever_is_waited_for_can_be_cancelled`], `order::cancellation_undoes_what_was_done`, `order::a_cancelled_parent_cancels_its_child` |
//! | Restate | kill an invocation | `steering::a_terminated_execution_ends_where_it_stands_and_undoes_nothing`, `steering::the_family_of_a_terminated_execution_is_told` |
//! | Restate | kill the runtime | `workflow_crash::a_process_that_is_killed_at_any_durable_point_changes_nothing`, `life::an_execution_goes_on_after_a_restart_and_repeats_nothing` |
//! | Restate | stop the runtime, leader transfer | `workflow_cluster::runners_come_and_go_under_load_and_each_activity_commits_once` |
//! | Restate | non-determinism | `life::other_code_blocks_and_fixed_code_continues`, `life::what_the_engine_does_not_offer_blocks_the_execution`, `workflow::replay_tests` |
//! | Restate | sleep, many sleeps | `life::a_second_sleep_sleeps`, `life::a_sleep_goes_on_where_it_was_after_a_restart`, [`many_sleeps_end_across_a_restart`] |
//! | Restate | state | [`what_is_shown_survives_a_restart`]; that of entities: `entity_macros` |
//! | Restate | signals, awakeables | `order::signals_are_buffered_and_ordered`, `order::a_promise_is_kept_once` |
//! | Restate | workflow API: one run for each id, promises, attach | [`a_workflow_runs_once_for_each_id_and_all_who_attach_get_its_result`], `life::concurrent_executes_of_one_key_all_get_the_result` |
//! | Restate | idempotent start | `life::starting_twice_with_one_key_is_one_execution`, `life::the_same_key_with_another_input_is_refused`, `executions::a_second_start_means_what_its_terms_say` |
//! | Restate | upgrade | [`an_upgrade_leaves_old_executions_on_their_path_and_gives_new_ones_the_new`] |
//! | Restate | pause and resume across deployments | [`a_paused_execution_is_resumed_by_the_next_deployment`] |
//! | Temporal | throughput stress | [`hundreds_of_executions_with_one_of_everything_all_end`] |
//! | Temporal | out-of-order signals | [`signals_that_come_in_any_order_are_each_read_once`] |
//! | Temporal | scheduler stress | [`hundreds_of_timers_of_one_execution_fire_once_each`], `workflow_scale` |
//! | DBOS | chaos: the database is restarted every few seconds | [`a_database_that_is_restarted_again_and_again_loses_nothing`] |
//! | cruster | a second sleep, identical activities | `life::a_second_sleep_sleeps`, `life::identical_activities_are_each_done` |
//! | cruster | failed workflows stay under their key for ever | `executions::a_second_start_means_what_its_terms_say` |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cleat_runner::prelude::*;
use cleat_runner::store::Phase;
use cleat_runner::workflow::join_all;
use cleat_testing::postgres::{Options, Server, Shutdown};
use sqlx::{Connection, PgConnection};

use crate::flow::{Ledger, act, flow};
use crate::world::{Place, World, on_both_stores, until};

on_both_stores!(
    calls_of_one_workflow_reach_an_entity_in_their_order,
    whatever_is_waited_for_can_be_cancelled,
    many_sleeps_end_across_a_restart,
    what_is_shown_survives_a_restart,
    a_workflow_runs_once_for_each_id_and_all_who_attach_get_its_result,
    an_upgrade_leaves_old_executions_on_their_path_and_gives_new_ones_the_new,
    a_paused_execution_is_resumed_by_the_next_deployment,
    hundreds_of_executions_with_one_of_everything_all_end,
    signals_that_come_in_any_order_are_each_read_once,
    hundreds_of_timers_of_one_execution_fire_once_each,
);

/// Remembers who called, in the order in which they did.
#[entity(state = Vec<(String, u32)>)]
struct Listener;

#[entity_impl]
impl Listener {
    #[rpc(persisted)]
    pub async fn hear(&self, heard: &mut Vec<(String, u32)>, call: (String, u32)) -> Result<(), Never> {
        heard.push(call);
        Ok(())
    }

    #[rpc]
    pub async fn all(&self, heard: &Vec<(String, u32)>) -> Result<Vec<(String, u32)>, Never> {
        Ok(heard.clone())
    }
}

#[workflow]
struct Caller {
    listener: ListenerClient,
}

#[workflow_impl(key = |id: &String| id.clone())]
impl Caller {
    async fn execute(&self, id: String) -> Result<(), String> {
        for number in 0..10 {
            self.call(id.clone(), number).await?;
        }
        Ok(())
    }

    #[activity(retries = 20, interval = "10ms")]
    async fn call(&self, id: String, number: u32) -> Result<(), String> {
        let heard = self.listener.hear("one", &(id, number)).key(self.key()).await;
        heard.map_err(|error| error.to_string())
    }
}

async fn calls_of_one_workflow_reach_an_entity_in_their_order(place: Place) {
    let mut world = World::new(place).await;
    let ids = ["a", "b", "c", "d"];
    let register = |world: &World| {
        let listener = Listener.register(&world.host).unwrap();
        (Caller { listener: listener.clone() }.register(&world.host).unwrap(), listener)
    };
    let (callers, listener) = register(&world);
    for id in ids {
        callers.start(&id.to_owned()).await.unwrap();
    }
    until("some were heard", || async { listener.all("one").await.unwrap().len() > 5 }).await;
    world = world.restart().await;
    let (callers, listener) = register(&world);
    for id in ids {
        callers.join(id).await.unwrap();
    }
    let mut heard: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (who, number) in listener.all("one").await.unwrap() {
        heard.entry(who).or_default().push(number);
    }
    assert_eq!(heard.len(), ids.len());
    assert!(heard.values().all(|numbers| numbers.iter().copied().eq(0..10)), "{heard:?}");
}

/// Waits for what its input names.
#[workflow]
struct Waits {
    ledger: Ledger,
}

#[workflow_impl(key = |what: &String| what.clone())]
impl Waits {
    async fn execute(&self, what: String) -> Result<(), String> {
        let undo = format!("undo {what}");
        self.compensate(move |me| me.note(undo));
        match what.as_str() {
            "activity" => self.forever().await?,
            "sleep" => self.sleep(Duration::from_secs(3600)).await,
            "signal" => self.signal("never").await,
            "promise" => self.promise("never").await,
            "child" => self.child::<Waits>(&"the child's signal".to_owned()).await?,
            _ => self.signal("nothing").await,
        }
        Ok(())
    }

    #[activity]
    async fn note(&self, what: String) -> Result<(), String> {
        self.ledger.note(what);
        Ok(())
    }

    #[activity]
    async fn forever(&self) -> Result<(), String> {
        self.abandoned().await;
        Ok(())
    }
}

async fn whatever_is_waited_for_can_be_cancelled(place: Place) {
    let world = World::new(place).await;
    let ledger = Ledger::default();
    let waits = Waits { ledger: ledger.clone() }.register(&world.host).unwrap();
    let all = ["activity", "sleep", "signal", "promise", "child"];
    for what in all {
        waits.start(&what.to_owned()).await.unwrap();
    }
    // Some are still in memory, and some are not.
    until("some rest", || async { world.host.resident_executions() < 4 }).await;
    for what in all {
        waits.cancel(what).await.unwrap();
        assert_eq!(waits.join(what).await.unwrap_err().reason(), Some("Cancelled"), "{what}");
        assert_eq!(waits.describe(what).await.unwrap().phase, Phase::Cancelled);
        assert_eq!(ledger.count(&format!("undo {what}")), 1);
    }
    until("the child undoes what it did", || async { ledger.count("undo the child's signal") == 1 }).await;
}

async fn many_sleeps_end_across_a_restart(place: Place) {
    let world = World::new(place).await;
    let body = |context: workflow::Context, input: String| async move {
        let sleeps = (0..10).map(|n| context.sleep(Duration::from_millis(100 + 40 * n)));
        join_all(sleeps.collect::<Vec<_>>()).await;
        Ok(input)
    };
    let client = flow(&world.host, body);
    let ids: Vec<_> = (0..50).map(|n| format!("s-{n}")).collect();
    futures::future::join_all(ids.iter().map(|id| client.start(id))).await.into_iter().for_each(|started| {
        started.unwrap();
    });
    let world = world.restart().await;
    let client = flow(&world.host, body);
    for id in &ids {
        assert_eq!(client.join(id).await.unwrap(), *id);
        assert_eq!(client.report(id).await.unwrap().step, "10/10");
    }
}

async fn what_is_shown_survives_a_restart(place: Place) {
    let world = World::new(place).await;
    let body = |context: workflow::Context, _: String| async move {
        let mut count = 0;
        loop {
            context.show("count", &count).unwrap();
            if cleat_runner::message::codec::decode::<bool>(&context.signal("more").await).unwrap() {
                count += 1;
            } else {
                return Ok(count.to_string());
            }
        }
    };
    let client = flow(&world.host, body);
    let id = client.start(&"a".into()).await.unwrap();
    for _ in 0..3 {
        client.signal(&id, "more", &true).await.unwrap();
    }
    let world = world.restart().await;
    let client = flow(&world.host, body);
    until("it counts what came before", || async { client.query::<u32>(&id, "count").await.unwrap() == 3 })
        .await;
    client.signal(&id, "more", &false).await.unwrap();
    assert_eq!(client.join(&id).await.unwrap(), "3");
}

async fn a_workflow_runs_once_for_each_id_and_all_who_attach_get_its_result(place: Place) {
    let world = World::new(place).await;
    let ledger = Ledger::default();
    let noted = ledger.clone();
    let client = flow(&world.host, move |context, input| {
        let noted = noted.clone();
        async move {
            act(&context, &noted, "run").await;
            match context.promise("answer").await {
                cleat_runner::message::Outcome::Success(value) => {
                    let answer: String = cleat_runner::message::codec::decode(&value).unwrap();
                    Ok(format!("{input} {answer}"))
                }
                other => Err(format!("{other:?}")),
            }
        }
    });
    let attached: Vec<_> = (0..10)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.execute(&"only".into()).await.unwrap() })
        })
        .collect();
    let started = || async { client.describe("only").await.is_ok() };
    until("it is there", started).await;
    // The promise may be kept before anybody waits for it, and only once.
    client.resolve("only", "answer", "yes").await.unwrap();
    let _ = client.resolve("only", "answer", "no").await;
    for attached in attached {
        assert_eq!(attached.await.unwrap(), "only yes");
    }
    assert_eq!(client.execute(&"only".into()).await.unwrap(), "only yes", "attached after the end");
    assert_eq!(ledger.count("run"), 1);
}

async fn an_upgrade_leaves_old_executions_on_their_path_and_gives_new_ones_the_new(place: Place) {
    let world = World::new(place).await;
    let ledger = Ledger::default();
    let noted = ledger.clone();
    let client = flow(&world.host, move |context, _| {
        let noted = noted.clone();
        async move {
            act(&context, &noted, "reserve").await;
            context.signal("go").await;
            Ok(act(&context, &noted, "charge").await)
        }
    });
    client.start(&"old".into()).await.unwrap();
    until("it waits", || async { world.host.resident_executions() == 0 }).await;
    let world = world.restart().await;
    let client = flow(&world.host, move |context, _| {
        let noted = ledger.clone();
        async move {
            if context.patched("check first") {
                act(&context, &noted, "check").await;
            }
            act(&context, &noted, "reserve").await;
            context.signal("go").await;
            Ok(act(&context, &noted, "charge").await)
        }
    });
    client.start(&"new".into()).await.unwrap();
    for (id, steps) in
        [("old", vec!["reserve", "go", "charge"]), ("new", vec!["check", "reserve", "go", "charge"])]
    {
        client.signal(id, "go", &()).await.unwrap();
        client.join(id).await.unwrap();
        let report = client.report(id).await.unwrap();
        let mut names: Vec<_> = report.steps.iter().map(|step| step.name.as_str()).collect();
        names.sort_unstable();
        let mut expected = steps.clone();
        expected.sort_unstable();
        assert_eq!(names, expected, "{id}");
    }
}

async fn a_paused_execution_is_resumed_by_the_next_deployment(place: Place) {
    let world = World::new(place).await;
    let ledger = Ledger::default();
    let noted = ledger.clone();
    let client = flow(&world.host, move |context, _| {
        let noted = noted.clone();
        async move {
            act(&context, &noted, "first").await;
            context.signal("go").await;
            Ok(act(&context, &noted, "wrong").await)
        }
    });
    let id = client.start(&"a".into()).await.unwrap();
    until("it waits", || async { ledger.count("first") == 1 }).await;
    client.suspend(&id).await.unwrap();
    client.signal(&id, "go", &()).await.unwrap();
    let world = world.restart().await;
    let noted = ledger.clone();
    let client = flow(&world.host, move |context, _| {
        let noted = noted.clone();
        async move {
            act(&context, &noted, "first").await;
            context.signal("go").await;
            Ok(act(&context, &noted, "right").await)
        }
    });
    assert_eq!(client.describe(&id).await.unwrap().phase, Phase::Suspended);
    assert_eq!(ledger.all(), ["first"]);
    client.resume(&id).await.unwrap();
    assert_eq!(client.join(&id).await.unwrap(), "right");
    assert_eq!(ledger.all(), ["first", "right"]);
}

/// One of everything.
#[workflow]
struct Kitchen;

#[workflow_impl(key = |id: &String| id.clone())]
impl Kitchen {
    async fn execute(&self, id: String) -> Result<u32, String> {
        if id.contains(':') {
            return self.add(1, 1).await;
        }
        let both = workflow::join(self.add(1, 2), self.add(3, 4)).await;
        self.sleep(Duration::from_millis(20)).await;
        let said: u32 = self.signal("number").await;
        let child = self.child::<Kitchen>(&format!("{id}:child")).await?;
        self.add(both.0? + both.1?, said + child).await
    }

    #[activity]
    async fn add(&self, a: u32, b: u32) -> Result<u32, String> {
        Ok(a + b)
    }
}

async fn hundreds_of_executions_with_one_of_everything_all_end(place: Place) {
    let world = World::new(place).await;
    let kitchen = Kitchen.register(&world.host).unwrap();
    let all = (0..200u32).map(|n| {
        let kitchen = kitchen.clone();
        async move {
            let id = kitchen.start(&format!("k-{n}")).await.unwrap();
            kitchen.signal(&id, "number", &n).await.unwrap();
            assert_eq!(kitchen.join(&id).await.unwrap(), 10 + n + 2);
        }
    });
    futures::future::join_all(all).await;
}

async fn signals_that_come_in_any_order_are_each_read_once(place: Place) {
    let world = World::new(place).await;
    let client = flow(&world.host, |context, _| async move {
        let mut heard = Vec::new();
        for name in ["a", "b", "c"] {
            let said = context.signal(name).await;
            heard.push(cleat_runner::message::codec::decode::<String>(&said).unwrap());
        }
        let mut numbers = Vec::new();
        for _ in 0..100 {
            let said = context.signal("number").await;
            numbers.push(cleat_runner::message::codec::decode::<u32>(&said).unwrap());
        }
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..100));
        Ok(heard.join(" "))
    });
    let id = client.start(&"x".into()).await.unwrap();
    // Before anybody waits for them, and the last one first.
    let numbers = (0..100u32).map(|n| {
        let (client, id) = (client.clone(), id.clone());
        async move { client.signal(&id, "number", &n).await }
    });
    futures::future::join_all(numbers).await.into_iter().for_each(|sent| sent.unwrap());
    for name in ["c", "b", "a"] {
        client.signal(&id, name, name).await.unwrap();
    }
    assert_eq!(client.join(&id).await.unwrap(), "a b c");
}

async fn hundreds_of_timers_of_one_execution_fire_once_each(place: Place) {
    let world = World::new(place).await;
    let client = flow(&world.host, |context, _| async move {
        let sleeps = (0..500u64).map(|n| context.sleep(Duration::from_millis((n * 37) % 400)));
        Ok(join_all(sleeps.collect::<Vec<_>>()).await.len().to_string())
    });
    let id = client.start(&"t".into()).await.unwrap();
    assert_eq!(client.join(&id).await.unwrap(), "500");
    // One entry for each, and one for the end.
    assert_eq!(client.history(&id).await.unwrap().len(), 501);
}

/// Books, sleeps and books again.
#[workflow]
struct Chaos;

#[workflow_impl(key = |id: &String| id.clone())]
impl Chaos {
    async fn execute(&self, id: String) -> Result<String, String> {
        for step in 0..3 {
            self.book(id.clone(), step).await?;
            self.sleep(Duration::from_millis(200)).await;
        }
        Ok(id)
    }

    #[activity(retries = 1000, interval = "50ms", backoff = "constant")]
    async fn book(&self, id: String, step: i32) -> Result<(), String> {
        let insert = sqlx::query("INSERT INTO bookings VALUES ($1, $2)").bind(id).bind(step);
        insert.execute(&self.tx).await.map(drop).map_err(|error| error.to_string())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_restarted_again_and_again_loses_nothing() {
    let mut server = Server::start(Options::default()).await.unwrap();
    let database = server.database().await.unwrap();
    let url = database.url.clone();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let table = "CREATE TABLE bookings (id text NOT NULL, step integer NOT NULL)";
    sqlx::query(table).execute(&mut connection).await.unwrap();
    drop(connection);
    let world = World::new(Place::Postgres(database)).await;
    let client = Chaos.register(&world.host).unwrap();
    let calm = Arc::new(AtomicBool::new(false));
    let load: Vec<_> = (0..4)
        .map(|worker| {
            let (client, calm) = (client.clone(), Arc::clone(&calm));
            tokio::spawn(async move {
                let mut done: i64 = 0;
                while !calm.load(Ordering::Relaxed) {
                    let id = format!("c{worker}-{done}");
                    // A start that has no answer is repeated under its key.
                    while client.start(&id).await.is_err() {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    assert_eq!(client.join(&id).await.unwrap(), id);
                    done += 1;
                }
                done
            })
        })
        .collect();
    for how in [Shutdown::Fast, Shutdown::Immediate, Shutdown::Fast, Shutdown::Immediate] {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        server.restart(how).await.unwrap();
    }
    calm.store(true, Ordering::Relaxed);
    let mut done = 0;
    for load in load {
        done += tokio::time::timeout(crate::world::PATIENCE, load).await.expect("it hangs").unwrap();
    }
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let count = "SELECT count(*), count(DISTINCT (id, step)) FROM bookings";
    let (all, different): (i64, i64) = sqlx::query_as(count).fetch_one(&mut connection).await.unwrap();
    assert!(done > 0);
    assert_eq!((all, different), (done * 3, done * 3), "each booking once, none lost");
}
