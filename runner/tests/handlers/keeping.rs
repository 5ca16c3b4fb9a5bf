//! Definitions that come, change and go while a runner serves them.

use std::time::Duration;

use cleat_runner::definitions::Set;
use cleat_runner::prelude::*;
use cleat_runner::shard::GroupName;
use serde_json::{Value as Json, json};

use crate::cel::INVENTORY;
use crate::service::{Service, answer};
use crate::world::{Place, World, on_both_stores, set};

on_both_stores!(
    a_definition_is_replaced_without_a_restart,
    what_is_wrong_now_is_served_as_it_was_when_it_was_right,
    messages_for_a_deleted_type_wait_for_its_return_and_then_fail,
    a_stored_message_waits_for_its_method_and_is_then_a_dead_letter,
    a_message_that_fails_is_tried_again_as_the_new_definition_says,
    a_compiled_type_is_configured_by_its_definition,
);

const FIXED: &str = "methods: [{name: say, delivery: volatile, cel: {output: one}}]";

async fn a_definition_is_replaced_without_a_restart(place: Place) {
    let world = World::new(place).await;
    world.serve(&[("echo", FIXED)]).await;
    assert_eq!(world.ask("echo/a", "say", Json::Null).await.unwrap(), json!("one"));
    // Asked all the while: instances that are in memory and at work change, too.
    let busy = async {
        loop {
            let said = world.ask("echo/a", "say", Json::Null).await.unwrap();
            if said == json!("two") {
                return;
            }
        }
    };
    let changed = FIXED.replace("one", "two");
    let changed = [("echo", changed.as_str())];
    tokio::join!(busy, world.serve(&changed));
    assert_eq!(world.ask("echo/b", "say", Json::Null).await.unwrap(), json!("two"));
    world.serve(&[("echo", &FIXED.replace("say", "shout"))]).await;
    assert_eq!(world.ask("echo/a", "shout", Json::Null).await.unwrap(), json!("one"));
    assert_eq!(world.ask("echo/a", "say", Json::Null).await.unwrap_err().0, "UnknownMethod");
}

async fn what_is_wrong_now_is_served_as_it_was_when_it_was_right(place: Place) {
    let world = World::new(place).await;
    world.serve(&[("inventory", INVENTORY), ("echo", FIXED)]).await;
    let mut wrong = set(&[
        ("inventory", &INVENTORY.replace("state.stock + input", "state.stok + input")),
        ("echo", &FIXED.replace("one", "two")),
    ]);
    wrong.entities.get_mut("inventory").unwrap().generation = 2;
    world.keeper.apply(&wrong).await;
    let serving = world.keeper.serving().borrow().clone();
    assert_eq!(serving.problems.len(), 1, "{:?}", serving.problems);
    let problem = &serving.problems[0];
    assert_eq!((problem.name.as_str(), problem.generation), ("inventory", 2));
    assert_eq!(
        (problem.fault.path.as_str(), problem.fault.reason),
        ("spec.methods[0].cel.set.stock", "UnknownField")
    );
    assert_eq!(
        serving.generations.values().copied().collect::<Vec<_>>(),
        [1, 1],
        "the last good definition is served"
    );
    assert_eq!(world.ask("inventory/a", "restock", json!({"count": 1})).await.unwrap(), json!({"stock": 1}));
    assert_eq!(world.ask("echo/a", "say", Json::Null).await.unwrap(), json!("two"));
    world.serve(&[("inventory", INVENTORY)]).await;
}

async fn messages_for_a_deleted_type_wait_for_its_return_and_then_fail(place: Place) {
    let world = World::new(place).await;
    world.serve(&[("inventory", INVENTORY)]).await;
    world.ask("inventory/a", "restock", json!({"count": 2})).await.unwrap();
    world.serve(&[]).await;
    let (reason, words) = world.ask("inventory/a", "restock", json!({"count": 1})).await.unwrap_err();
    assert_eq!(reason, "UnknownType", "{words}");
    let returning = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        world.serve(&[("inventory", INVENTORY)]).await;
    };
    let (asked, ()) = tokio::join!(world.ask("inventory/a", "restock", json!({"count": 1})), returning);
    assert_eq!(asked.unwrap(), json!({"stock": 3}), "its state was kept");
}

async fn a_stored_message_waits_for_its_method_and_is_then_a_dead_letter(place: Place) {
    let world = World::new(place).await;
    let changed = INVENTORY.replace("name: restock", "name: refill");
    world.serve(&[("inventory", INVENTORY)]).await;
    let restock = |count: i64| {
        let call = world.client("inventory").call::<Json, Json>("a", "restock", &json!({ "count": count }));
        call.after(Duration::from_secs(2)).start()
    };
    // Nobody has the method when its time comes, and after a while nobody waits for it.
    let pending = restock(2).await.unwrap();
    world.serve(&[("inventory", &changed)]).await;
    let ended = pending.clone().await.unwrap_err();
    assert!(ended.to_string().contains("has no method restock"), "{ended}");
    let letters = world.node.dead_letters(&GroupName::default(), None, 10).await.unwrap();
    assert_eq!(letters.len(), 1, "nothing that was acknowledged is lost");
    world.serve(&[("inventory", INVENTORY)]).await;
    assert!(world.node.replay(pending.id()).await.unwrap());
    let stock = async {
        while world.ask("inventory/a", "get", Json::Null).await.unwrap()["stock"] != 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    stock.await;
}

async fn a_message_that_fails_is_tried_again_as_the_new_definition_says(place: Place) {
    let broken = Service::start(|_| answer(500, ""), None).await;
    let mended = Service::start(|_| answer(200, r#"{"output": "mended"}"#), None).await;
    let at = |service: &Service| {
        // Without a new definition nothing would happen for an hour.
        format!(
            "methods: [{{name: go, http: {{url: \"{}\"}}, retry: {{backoff: 1h, max: 1h}}}}]",
            service.url()
        )
    };
    let world = World::new(place).await;
    world.serve(&[("job", &at(&broken))]).await;
    let replacing = async {
        while broken.asked().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        world.serve(&[("job", &at(&mended))]).await;
    };
    let call = world.ask("job/a", "go", Json::Null);
    let second = async {
        while broken.asked().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        world.ask("job/a", "go", Json::Null).await
    };
    let (first, second, ()) = tokio::join!(call, second, replacing);
    assert_eq!((first.unwrap(), second.unwrap()), (json!("mended"), json!("mended")));
    assert_eq!((broken.asked().len(), mended.asked().len()), (1, 2));
}

#[entity(name = "counter", state = i64)]
struct Counter;

#[entity_impl]
impl Counter {
    #[rpc(persisted)]
    pub async fn add(&self, total: &mut i64, count: i64) -> Result<i64, Never> {
        *total += count;
        Ok(*total)
    }

    #[rpc]
    pub async fn get(&self, total: &i64) -> Result<i64, Never> {
        Ok(*total)
    }
}

async fn a_compiled_type_is_configured_by_its_definition(place: Place) {
    let world = World::with(place, |node| {
        Counter.register(node).unwrap();
    })
    .await;
    let tally = r#"
handler: {native: {type: counter}}
methods:
- name: add
  input: {schema: {type: integer, minimum: 1}}
  output: {schema: {type: integer, maximum: 5}}
- name: get
  visibility: protected
- name: hello
  delivery: volatile
  cel: {output: "hello ${self.id}"}
"#;
    world.serve(&[("tally", tally)]).await;
    assert_eq!(world.ask("tally/a", "add", json!(2)).await.unwrap(), json!(2));
    assert_eq!(world.ask("tally/a", "hello", Json::Null).await.unwrap(), json!("hello a"));
    assert_eq!(world.ask("tally/a", "get", Json::Null).await.unwrap_err().0, "NotPermitted");
    assert_eq!(world.ask("tally/a", "add", json!(0)).await.unwrap_err().0, "InvalidInput");
    assert_eq!(world.ask("tally/a", "add", json!(4)).await.unwrap_err().0, "InvalidOutput");
    assert_eq!(world.ask("tally/a", "add", json!(3)).await.unwrap(), json!(5), "what failed changed nothing");
    // Its own name is its own, and can be configured, too.
    assert_eq!(world.ask("counter/a", "get", Json::Null).await.unwrap(), json!(0));
    world.serve(&[("counter", tally)]).await;
    assert_eq!(world.ask("counter/a", "get", Json::Null).await.unwrap_err().0, "NotPermitted");
    world.keeper.apply(&Set::default()).await;
    assert_eq!(world.ask("counter/a", "get", Json::Null).await.unwrap(), json!(0));

    let unknown = tally.replace("type: counter", "type: cuonter").replace("name: add", "name: addd");
    world.keeper.apply(&set(&[("a", &unknown), ("b", &tally.replace("name: add", "name: addd"))])).await;
    let problems = world.keeper.serving().borrow().problems.clone();
    let told: Vec<_> = problems
        .iter()
        .map(|problem| (problem.name.as_str(), problem.fault.reason, problem.fault.path.as_str()))
        .collect();
    assert_eq!(
        told,
        [("a", "UnknownNative", "spec.handler.native.type"), ("b", "UnknownMethod", "spec.methods[0].name")]
    );
}
