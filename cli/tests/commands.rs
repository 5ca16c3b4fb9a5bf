//! Every command against a platform that runs the orders example.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

mod world;

use std::time::Duration;

use serde_json::{Value, json};
use world::{Dev, cleat};

#[test]
fn a_user_asks_starts_steers_and_looks() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/orders");
    let dev = Dev::start(&["-f", examples]);

    let stock: Value =
        serde_json::from_str(&dev.eventually(&["call", "inventory/apples", "restock", r#"{"count": 10}"#]))
            .unwrap();
    assert_eq!(stock, json!({"stock": 10}));
    let again = ["call", "inventory/apples", "restock", r#"{"count": 5}"#, "--key", "k1"];
    assert_eq!(dev.run(&again), dev.run(&again), "the same key is the same call");
    let wrong = dev.run(&["call", "inventory/apples", "restock", r#"{"count": 0}"#]).unwrap_err();
    assert!(wrong.contains("count"), "it names the field: {wrong}");
    let unknown = dev.run(&["call", "inventory/apples", "explode"]).unwrap_err();
    assert!(unknown.contains("UnknownMethod"), "{unknown}");
    assert!(dev.run(&["call", "inventory", "get"]).unwrap_err().contains("type/id"));
    assert!(dev.run(&["call", "inventory/apples", "restock", "{"]).unwrap_err().contains("is not JSON"));

    let told = dev.run(&["notify", "inventory/pears", "restock", r#"{"count": 1}"#]).unwrap();
    assert!(told.starts_with("request "), "{told}");
    dev.until(Duration::from_secs(30), "the pears arrive", || {
        dev.run(&["call", "inventory/pears", "get"]).ok().filter(|shown| shown.contains("\"stock\": 1"))
    });

    let order = r#"{"order": "o-7", "item": "apples", "count": 2, "amount": 20000, "parcels": []}"#;
    let started = dev.run(&["workflow", "start", "order", order, "--key", "o-7"]).unwrap();
    let id = started.split(' ').next().unwrap().to_owned();
    assert!(started.contains("started"), "{started}");
    assert!(
        dev.run(&["workflow", "start", "order", order, "--key", "o-7"]).unwrap().contains("was there before")
    );
    dev.until(Duration::from_secs(30), "it waits for approval", || {
        dev.run(&["workflow", "get", &id]).ok().filter(|shown| shown.contains("approval"))
    });
    assert!(dev.run(&["workflow", "list", "--type", "order"]).unwrap().contains(&id));
    dev.run(&["workflow", "signal", &id, "approved", "{}"]).unwrap();
    let watched = dev.run(&["workflow", "watch", &id]).unwrap();
    assert!(watched.contains("Completed"), "{watched}");
    let history = dev.run(&["workflow", "history", &id]).unwrap();
    assert!(history.contains("reserve"), "{history}");

    let refused = r#"{"order": "o-8", "item": "apples", "count": 2000, "amount": 1, "parcels": []}"#;
    let error = dev.run(&["workflow", "start", "order", refused, "--wait"]).unwrap_err();
    assert!(error.contains("OutOfStock"), "{error}");

    assert!(dev.run(&["dead-letters", "list"]).unwrap().contains("no dead letters"));
    assert!(dev.run(&["entities"]).unwrap().contains("inventory"));
    dev.eventually(&["cron", "trigger", "restock"]);
    assert!(dev.run(&["cron", "trigger", "nobody"]).unwrap_err().contains("nobody"));
    assert!(dev.run(&["completion", "bash"]).unwrap().contains("cleat"));
}

#[test]
fn without_a_platform_a_command_says_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let output = cleat(home.path()).env("HOME", home.path()).args(["runners"]).output().unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("cleat dev"), "{error}");
}
