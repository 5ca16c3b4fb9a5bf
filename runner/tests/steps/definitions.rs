//! What an execution does is what was written when it began.

use bytes::Bytes;
use cleat_runner::steps::{self, Definition, INLINE};
use cleat_runner::workflow::journal::Event;
use cleat_runner::workflow::{Executions, Terms};
use serde_json::json;

use crate::shop::{Shop, failure, named, output, workflow};
use crate::world::{Place, on_both_stores};

on_both_stores!(
    an_execution_keeps_the_definition_that_it_began_with,
    steps_come_along_with_a_start,
    a_child_that_is_refused_fails_its_parent,
);

const ONE: &str =
    "steps: [{name: wait, signal: {name: go}}, {name: a, set: {which: one}}]\noutput: '${vars.which}'";
const TWO: &str = "steps: [{name: other, sleep: 1ms}]\noutput: two";

async fn an_execution_keeps_the_definition_that_it_began_with(place: Place) {
    let shop = Shop::new(place).await;
    let flows = shop.register("changing", ONE);
    let (first, _) = flows.start(&json!({}), &named("first")).await.unwrap();
    let (second, _) = flows.start(&json!({}), &named("second")).await.unwrap();
    shop.register("changing", TWO);
    flows.signal(&first, "go", &()).await.unwrap();
    assert_eq!(output(flows.join(&first).await.unwrap()), json!("one"), "in memory");

    let shop = shop.restart().await;
    let flows = shop.register("changing", TWO);
    flows.signal(&second, "go", &()).await.unwrap();
    assert_eq!(output(flows.join(&second).await.unwrap()), json!("one"), "in another process");
    assert_eq!(flows.report(&second).await.unwrap().step, "2/2");

    flows.reset(&first, 0).await.unwrap();
    assert_eq!(output(flows.join(&first).await.unwrap()), json!("one"), "from the beginning");
    let kept = |event: &Event| matches!(event, Event::Defined { .. });
    let history = flows.history(&first).await.unwrap();
    assert_eq!(history.iter().filter(|entry| kept(&entry.event)).count(), 1);

    let (third, _) = flows.start(&json!({}), &named("third")).await.unwrap();
    assert_eq!(output(flows.join(&third).await.unwrap()), json!("two"), "those that begin now");
}

fn given(yaml: &str) -> Bytes {
    Definition::from(&workflow(yaml)).encode().unwrap()
}

async fn steps_come_along_with_a_start(place: Place) {
    let shop = Shop::new(place).await;
    let inline = Executions::new(&shop.host, INLINE).unwrap();
    let terms = |id: &str, yaml: &str| Terms { definition: Some(given(yaml)), ..named(id) };
    let (id, _) = inline.start(&json!({}), &terms("a", ONE)).await.unwrap();
    assert!(inline.start(&json!({}), &terms("a", ONE)).await.unwrap().1.existing);
    let other = inline.start(&json!({}), &terms("a", TWO)).await.unwrap_err();
    assert_eq!(other.reason(), "KeyReused", "the steps are part of what was asked");

    let shop = shop.restart().await;
    let inline = Executions::new(&shop.host, INLINE).unwrap();
    inline.signal(&id, "go", &()).await.unwrap();
    assert_eq!(output(inline.join(&id).await.unwrap()), json!("one"));

    let wrong = terms("b", "steps: [{name: a, when: 'nobody', sleep: 1s}]");
    let wrong = inline.start(&json!({}), &wrong).await.unwrap_err();
    assert_eq!(wrong.reason(), "UnknownField");
    assert!(wrong.to_string().contains("spec.steps[0].when"), "{wrong}");
    assert_eq!(inline.start(&json!({}), &named("c")).await.unwrap_err().reason(), "InvalidStart");
    let typed = shop.register("typed", TWO);
    assert_eq!(typed.start(&json!({}), &terms("d", ONE)).await.unwrap_err().reason(), "InvalidStart");
}

async fn a_child_that_is_refused_fails_its_parent(place: Place) {
    let shop = Shop::new(place).await;
    shop.register(
        "choosy",
        "input: {schema: {type: object, required: [size]}}\nsteps: [{name: a, sleep: 1ms}]",
    );
    let flows = shop.register("parent", "steps: [{name: child, workflow: {type: choosy, input: {}}}]");
    let (id, _) = flows.start(&json!({}), &named("one")).await.unwrap();
    assert_eq!(failure(flows.join(&id).await.unwrap()).0, "InvalidInput");

    shop.register("weak", "steps: [{name: no, fail: {reason: Weak}}]");
    let stubborn = "steps: [{name: child, workflow: {type: weak}, retry: {attempts: 3, backoff: 1ms}}]";
    let flows = shop.register("stubborn", stubborn);
    let (id, _) = flows.start(&json!({}), &named("one")).await.unwrap();
    assert_eq!(failure(flows.join(&id).await.unwrap()).0, "Weak");
    let started = |event: &Event| matches!(event, Event::Child { .. });
    let history = flows.history(&id).await.unwrap();
    assert_eq!(history.iter().filter(|entry| started(&entry.event)).count(), 3);
}

#[tokio::test]
async fn a_wrong_definition_leaves_the_right_one_in_place() {
    let shop = Shop::new(Place::sqlite().await).await;
    let flows = shop.register("steady", TWO);
    let wrong = workflow("steps: [{name: a, call: {entity: x, id: '${nobody}', method: y}}]");
    let error = steps::register(&shop.host, &shop.reach, "steady", &wrong).unwrap_err();
    assert!(error.to_string().contains("spec.steps[0].call.id"), "{error}");
    let (id, _) = flows.start(&json!({}), &named("one")).await.unwrap();
    assert_eq!(output(flows.join(&id).await.unwrap()), json!("two"));
}
