//! Executions whose type was deleted.

use std::time::Duration;

use cleat_runner::definitions::{Declared, Set};
use cleat_runner::message::{Outcome, codec};
use cleat_runner::workflow::{Executions, Key, Terms};
use serde_json::{Value as Json, json};

use crate::world::{Place, World, on_both_stores, parse};

on_both_stores!(
    executions_of_a_deleted_type_go_on_after_a_restart,
    executions_go_on_whose_type_has_become_wrong_while_nobody_looked,
);

const ORDER: &str = "input: {schema: {type: object}}
steps:
- {name: wait, signal: {name: go}}
- {name: rest, sleep: 1ms}
output: {order: '${input.order}', by: '${steps.wait.output}'}";
const NAP: &str = "steps: [{name: nap, sleep: 2s}]\noutput: rested";

fn workflows(types: &[(&str, &str)]) -> Set {
    let declared = types.iter().map(|(name, yaml)| ((*name).to_owned(), Declared::first(parse(yaml))));
    Set { workflows: declared.collect(), ..Set::default() }
}

async fn start(world: &World, workflow: &str) -> Executions {
    let flows = Executions::new(&world.node, workflow).unwrap();
    let terms = Terms { key: Some(Key::Raw("one".to_owned())), ..Terms::default() };
    flows.start(&json!({"order": "o-1"}), &terms).await.unwrap();
    flows
}

async fn end(world: &World, workflow: &str) -> Json {
    let flows = Executions::new(&world.node, workflow).unwrap();
    match flows.join("one").await.unwrap() {
        Outcome::Success(output) => codec::to_json(&output).unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn executions_of_a_deleted_type_go_on_after_a_restart(place: Place) {
    let world = World::new(place).await;
    world.keeper.apply(&workflows(&[("order", ORDER), ("nap", NAP)])).await;
    start(&world, "order").await;
    start(&world, "nap").await;
    world.keeper.apply(&Set::default()).await;

    let world = world.restart().await;
    world.keeper.apply(&Set::default()).await;
    // One that waits for a timer, and one that waits for somebody.
    assert_eq!(end(&world, "nap").await, json!("rested"));
    let flows = Executions::new(&world.node, "order").unwrap();
    let report = flows.report("one").await.unwrap();
    let steps: Vec<_> = report.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(steps, ["wait", "rest"], "what it does is known, too");
    flows.signal("one", "go", "Ann").await.unwrap();
    assert_eq!(end(&world, "order").await, json!({"order": "o-1", "by": "Ann"}));
    let refused = flows.start(&json!({}), &Terms::default()).await.unwrap_err();
    assert_eq!(refused.reason(), "UnknownWorkflow");
    // Declared again, it begins anew.
    world.keeper.apply(&workflows(&[("order", NAP)])).await;
    let again = Terms { key: Some(Key::Raw("two".to_owned())), ..Terms::default() };
    flows.start(&json!({}), &again).await.unwrap();
}

async fn executions_go_on_whose_type_has_become_wrong_while_nobody_looked(place: Place) {
    let world = World::new(place).await;
    world.keeper.apply(&workflows(&[("order", ORDER)])).await;
    start(&world, "order").await;
    let world = world.restart().await;
    world.keeper.apply(&workflows(&[("order", "steps: [{name: a, sleep: '${nobody}'}]")])).await;
    assert_eq!(world.keeper.serving().borrow().problems.len(), 1);
    let flows = Executions::new(&world.node, "order").unwrap();
    let told = tokio::time::timeout(Duration::from_secs(60), flows.signal("one", "go", "Ann")).await;
    told.unwrap().unwrap();
    assert_eq!(end(&world, "order").await, json!({"order": "o-1", "by": "Ann"}));
}
