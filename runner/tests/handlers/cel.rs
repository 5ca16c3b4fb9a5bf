//! Methods in expressions.

use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::world::{PATIENCE, Place, World, on_both_stores};

/// As users see it first.
pub const INVENTORY: &str = r#"
state:
  schema: {type: object, properties: {stock: {type: integer}, reserved: {type: object, additionalProperties: {type: integer}}}}
  initial: {stock: 0, reserved: {}}
methods:
- name: restock
  delivery: persisted
  input: {schema: {type: object, required: [count], properties: {count: {type: integer, minimum: 1}}}}
  cel:
    set: {stock: "${state.stock + input.count}"}
    output: {stock: "${state.stock}"}          # sees the new state
- name: reserve
  delivery: persisted
  cel:
    require:
    - {that: "state.stock >= input.count", reason: OutOfStock, message: "only ${state.stock} of ${self.id} left"}
    set:
      stock: "${state.stock - input.count}"
      "reserved[input.order]": "${input.count}"
- name: release
  delivery: persisted
  cel:
    when: "input.order in state.reserved"      # otherwise nothing changes and the call succeeds
    set: {stock: "${state.stock + state.reserved[input.order]}"}
    unset: ["reserved[input.order]"]
- name: get
  delivery: volatile
  cel: {output: "${state}"}
"#;

on_both_stores!(
    the_inventory_works_as_written,
    a_method_that_fails_changes_nothing,
    messages_go_out_with_the_reply,
    a_state_outlives_its_runner_and_a_change_of_its_schema,
    expressions_without_end_stall_nobody,
);

async fn the_inventory_works_as_written(place: Place) {
    let world = World::new(place).await;
    world.serve(&[("inventory", INVENTORY)]).await;
    let ask = |method: &'static str, input| world.ask("inventory/apples", method, input);
    assert_eq!(ask("get", Json::Null).await.unwrap(), json!({"stock": 0, "reserved": {}}));
    assert_eq!(ask("restock", json!({"count": 10})).await.unwrap(), json!({"stock": 10}));
    assert_eq!(ask("reserve", json!({"order": "o-1", "count": 4})).await.unwrap(), Json::Null);
    assert_eq!(ask("get", Json::Null).await.unwrap(), json!({"stock": 6, "reserved": {"o-1": 4}}));
    let (reason, words) = ask("reserve", json!({"order": "o-2", "count": 7})).await.unwrap_err();
    assert_eq!((reason.as_str(), words.as_str()), ("OutOfStock", "OutOfStock: only 6 of apples left"));
    for _ in 0..2 {
        assert_eq!(ask("release", json!({"order": "o-1"})).await.unwrap(), Json::Null);
        assert_eq!(ask("get", Json::Null).await.unwrap(), json!({"stock": 10, "reserved": {}}));
    }
    let (reason, words) = ask("restock", json!({"count": 0})).await.unwrap_err();
    assert_eq!(reason, "InvalidInput");
    assert!(words.contains("input.count"), "{words}");
    // Another one of the type is another one.
    assert_eq!(world.ask("inventory/pears", "get", Json::Null).await.unwrap()["stock"], 0);
}

async fn a_method_that_fails_changes_nothing(place: Place) {
    let world = World::new(place).await;
    let account = r#"
state:
  schema: {type: object, properties: {balance: {type: integer, minimum: 0}, log: {type: array, items: {type: string}}}}
  initial: {balance: 5, log: []}
methods:
- name: pay
  cel:
    set: {balance: "${state.balance - input.amount}", "log[0]": "${input.to}"}
    send: [{entity: account, id: "${input.to}", method: take, input: {amount: "${input.amount}"}}]
    output: "${state.balance}"
- name: take
  cel: {set: {balance: "${state.balance + input.amount}"}}
- name: odd
  output: {schema: {type: string}}
  cel: {set: {balance: "1"}, output: "${input}"}
- name: get
  delivery: volatile
  cel: {output: "${state}"}
"#;
    let account = account.replace(r#"{balance: "1"}"#, r#"{balance: "${1}"}"#);
    world.serve(&[("account", &account)]).await;
    let ask = |method: &'static str, input| world.ask("account/a", method, input);
    let before = ask("get", Json::Null).await.unwrap();
    for (method, input, reason) in [
        ("pay", json!({"amount": 6, "to": "b"}), "InvalidState"),
        ("pay", json!({"amount": 1}), "NoSuchKey"),
        ("pay", json!({"amount": "x", "to": "b"}), "NoSuchOverload"),
        ("pay", json!({"amount": 1, "to": ""}), "InvalidAddress"),
        ("odd", json!(7), "InvalidOutput"),
    ] {
        let (said, words) = ask(method, input).await.unwrap_err();
        assert_eq!(said, reason, "{words}");
        assert_eq!(ask("get", Json::Null).await.unwrap(), before);
    }
    assert_eq!(world.ask("account/b", "get", Json::Null).await.unwrap(), before);
}

async fn messages_go_out_with_the_reply(place: Place) {
    let world = World::new(place).await;
    let box_ = r#"
state: {initial: {got: []}}
methods:
- name: pass
  cel:
    set: {passed: true}
    output: "${state.passed}"
    send:
    - {entity: box, id: "${input.to}", method: put, input: {from: "${self.id}", passed: "${state.passed}"}}
    - {when: "input.later", entity: box, id: "${input.to}", method: put, input: late, after: "${duration('1s')}"}
    - {when: "!input.later", entity: box, id: "${input.to}", method: put, input: never}
- name: put
  visibility: protected
  cel: {set: {"got[size(state.got)]": "${input}"}}
- name: get
  delivery: volatile
  cel: {output: "${state.got}"}
"#;
    world.serve(&[("box", box_)]).await;
    assert_eq!(world.ask("box/a", "pass", json!({"to": "b", "later": true})).await.unwrap(), json!(true));
    let expected = json!([{"from": "a", "passed": true}, "late"]);
    let arrived = async {
        while world.ask("box/b", "get", Json::Null).await.unwrap() != expected {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, arrived).await.expect("the messages never came");
    let (reason, _) = world.ask("box/b", "put", json!(1)).await.unwrap_err();
    assert_eq!(reason, "NotPermitted");
}

async fn a_state_outlives_its_runner_and_a_change_of_its_schema(place: Place) {
    let world = World::new(place).await;
    world.serve(&[("inventory", INVENTORY)]).await;
    world.ask("inventory/apples", "restock", json!({"count": 3})).await.unwrap();
    let world = world.restart().await;
    // What was stored does not fit any more: it is given as it is, and checked when it is written.
    let stricter = INVENTORY.replace("stock: {type: integer}", "stock: {type: integer, minimum: 5}");
    world.serve(&[("inventory", &stricter.replace("initial: {stock: 0", "initial: {stock: 5"))]).await;
    assert_eq!(world.ask("inventory/apples", "get", Json::Null).await.unwrap()["stock"], 3);
    let (reason, _) = world.ask("inventory/apples", "restock", json!({"count": 1})).await.unwrap_err();
    assert_eq!(reason, "InvalidState");
    assert_eq!(
        world.ask("inventory/apples", "restock", json!({"count": 2})).await.unwrap(),
        json!({"stock": 5})
    );
}

async fn expressions_without_end_stall_nobody(place: Place) {
    let world = World::new(place).await;
    let heavy = r#"
state: {initial: {hits: 0}}
methods:
- name: nest
  cel:
    set: {hits: "${state.hits + 1}"}
    output: "${input.map(a, input.map(b, input.map(c, input.map(d, [a, b, c, d]))))}"
- name: grow
  cel: {output: "${input.map(a, input.map(b, input))}"}
- name: count
  delivery: volatile
  cel: {output: "${state.hits}"}
"#;
    world.serve(&[("heavy", heavy), ("inventory", INVENTORY)]).await;
    let large: Json = (0..1000).collect::<Vec<i64>>().into();
    let work = futures::future::join_all((0..8).map(|number| {
        let (world, large) = (&world, large.clone());
        let entity = format!("heavy/{number}");
        async move {
            let nest = world.ask(&entity, "nest", large.clone()).await.unwrap_err();
            let grow = world.ask(&entity, "grow", large).await.unwrap_err();
            (nest.0, grow.0)
        }
    }));
    let others = async {
        for _ in 0..20 {
            world.ask("inventory/apples", "restock", json!({"count": 1})).await.unwrap();
        }
    };
    let (said, ()) = tokio::join!(work, others);
    for (nest, grow) in said {
        assert!(nest.ends_with("BudgetExceeded") && grow.ends_with("BudgetExceeded"), "{nest} {grow}");
    }
    assert_eq!(world.ask("heavy/0", "count", Json::Null).await.unwrap(), json!(0));
}
