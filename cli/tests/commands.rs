//! Every command against a platform that runs the orders example.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

mod world;

use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use world::terminal::Terminal;
use world::{Dev, cleat, orders};

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
    let watched = dev.run(&["workflow", "watch", &id, "-o", "json"]).unwrap();
    let last: Value = serde_json::from_str(watched.lines().last().unwrap()).unwrap();
    assert_eq!(last["phase"], "Completed", "one object a line: {watched}");
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

/// A service that is not there; each message for it is given up after one attempt.
const NOBODY: &str = "apiVersion: cleat.dev/v1alpha1
kind: EntityType
metadata: {name: nobody}
spec:
  handler: {http: {url: 'http://127.0.0.1:1/', timeout: 1s}}
  methods: [{name: ask, retry: {attempts: 1}}]
";

#[test]
fn what_was_given_up_is_shown_replayed_and_dropped() {
    let definitions = tempfile::tempdir().unwrap();
    std::fs::write(definitions.path().join("nobody.yaml"), NOBODY).unwrap();
    let dev = Dev::start(&["-f", definitions.path().to_str().unwrap()]);
    dev.eventually(&["notify", "nobody/a", "ask", r#"{"n": 1}"#]);
    let letters = || dev.json(&["dead-letters", "list"]);
    let id = dev.until(Duration::from_secs(60), "it is given up", || {
        Some(letters().first()?["id"].as_str()?.to_owned())
    });
    assert!(dev.run(&["dead-letters", "list"]).unwrap().contains("nobody/a"));
    let shown = dev.run(&["dead-letters", "show", &id]).unwrap();
    assert!(shown.contains("ask"), "{shown}");
    dev.run(&["dead-letters", "replay", &id]).unwrap();
    dev.until(Duration::from_secs(60), "it is given up again", || (!letters().is_empty()).then_some(()));
    // All that are selected at once, with a count.
    let none = dev.run(&["dead-letters", "replay", "--all", "--type", "nobody", "--reason", "unrelated"]);
    assert!(none.unwrap().contains("0 dead letters"));
    let all = dev.run(&["dead-letters", "replay", "--all", "--type", "nobody", "--reason", "NoConnection"]);
    assert!(all.unwrap().contains("1 dead letters"));
    dev.until(Duration::from_secs(60), "it is given up once more", || (!letters().is_empty()).then_some(()));
    assert!(dev.run(&["requests", "show", &id]).unwrap().contains("RetriesExhausted"));
    dev.run(&["dead-letters", "drop", &id]).unwrap();
    assert!(letters().is_empty());
    assert!(dev.run(&["dead-letters", "drop", &id]).unwrap_err().contains("NoSuchDeadLetter"));
}

#[test]
fn executions_are_steered_and_everything_is_for_programs_too() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/orders");
    let dev = Dev::start(&["-f", examples]);
    dev.eventually(&["call", "inventory/apples", "restock", r#"{"count": 10}"#]);
    let order = r#"{"order": "o-1", "item": "apples", "count": 1, "amount": 20000, "parcels": []}"#;
    let start = |key: &str| {
        let started = ["workflow", "start", "order", order, "--key", key];
        assert!(dev.eventually(&started).contains(&format!("order:{key}")));
    };
    let phase = |id: &str, phase: &str| {
        dev.until(Duration::from_secs(60), phase, || {
            let report = dev.run(&["workflow", "get", id, "-o", "json"]).ok()?;
            (serde_json::from_str::<Value>(&report).ok()?["phase"] == phase).then_some(())
        });
    };
    start("a");
    phase("order:a", "Running");
    dev.run(&["workflow", "pause", "order:a"]).unwrap();
    phase("order:a", "Suspended");
    dev.run(&["workflow", "resume", "order:a"]).unwrap();
    phase("order:a", "Running");
    assert!(dev.run(&["workflow", "query", "order:a", "status"]).unwrap_err().contains("NoSuchQuery"));
    dev.run(&["workflow", "cancel", "order:a"]).unwrap();
    assert!(dev.run(&["workflow", "watch", "order:a"]).unwrap_err().contains("Cancelled"));
    start("b");
    dev.run(&["workflow", "terminate", "order:b"]).unwrap();
    assert!(dev.run(&["workflow", "watch", "order:b"]).is_err());
    dev.run(&["workflow", "reset", "order:b", "--entries", "1"]).unwrap();
    phase("order:b", "Running");
    assert!(dev.run(&["workflow", "retry", "order:b"]).unwrap_err().contains("NotFailed"));

    let commands: [&[&str]; 10] = [
        &["call", "inventory/apples", "get"],
        &["notify", "inventory/apples", "restock", r#"{"count": 1}"#],
        &["workflow", "list"],
        &["workflow", "get", "order:b"],
        &["workflow", "history", "order:b"],
        &["runners"],
        &["shards"],
        &["entities"],
        &["dead-letters", "list"],
        &["doctor"],
    ];
    for command in commands {
        let with = |format| dev.eventually(&[command, &["-o", format]].concat());
        let json: Value = serde_json::from_str(&with("json")).unwrap();
        let yaml: Value = serde_yaml::from_str(&with("yaml")).unwrap();
        assert_eq!((json.is_array(), json.is_object()), (yaml.is_array(), yaml.is_object()), "{command:?}");
        assert!(!with("wide").is_empty(), "{command:?}");
    }
}

#[test]
fn an_execution_that_failed_goes_on_when_it_is_retried() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/orders");
    let dev = Dev::start(&["-f", examples]);
    dev.eventually(&["call", "inventory/apples", "restock", r#"{"count": 1}"#]);
    let order = r#"{"order": "o-1", "item": "apples", "count": 3, "amount": 1, "parcels": []}"#;
    let start = ["workflow", "start", "order", order, "--key", "o-1", "--wait"];
    dev.until(Duration::from_secs(60), "there is not enough", || {
        dev.run(&start).unwrap_err().contains("OutOfStock").then_some(())
    });
    dev.run(&["call", "inventory/apples", "restock", r#"{"count": 5}"#]).unwrap();
    assert_eq!(dev.run(&["workflow", "retry", "order:o-1"]).unwrap(), "order:o-1 going on\n");
    let watched = dev.run(&["workflow", "watch", "order:o-1"]).unwrap();
    assert!(watched.contains("Completed"), "{watched}");
}

#[test]
fn a_stream_is_shown_item_by_item_and_a_query_is_answered() {
    let dev = Dev::start(&["--runner", orders().to_str().unwrap()]);
    dev.eventually(&["call", "inventory/apples", "restock", r#"{"count": 10}"#]);
    for (order, count) in [("o-1", 1), ("o-2", 2)] {
        let input = json!({"order": order, "count": count}).to_string();
        dev.run(&["call", "inventory/apples", "reserve", &input]).unwrap();
    }
    let expected = [json!({"order": "o-1", "count": 1}), json!({"order": "o-2", "count": 2})];
    let stream =
        |format: &str| dev.run(&["stream", "inventory/apples", "reservations", "-o", format]).unwrap();
    for format in ["text", "wide", "json"] {
        let items = stream(format);
        let items: Vec<Value> = items.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(items, expected, "one a line as {format}");
    }
    let items = stream("yaml");
    let items: Vec<Value> =
        serde_yaml::Deserializer::from_str(&items).map(|item| Value::deserialize(item).unwrap()).collect();
    assert_eq!(items, expected, "a document for each");
    let refused = dev.run(&["stream", "inventory/apples", "get"]).unwrap_err();
    assert!(refused.contains("NotStreaming"), "{refused}");

    let order = r#"{"order": "o-3", "item": "apples", "count": 1, "amount": 20000}"#;
    dev.run(&["workflow", "start", "order", order]).unwrap();
    dev.until(Duration::from_secs(60), "it says that it waits", || {
        let said = dev.run(&["workflow", "query", "order:o-3", "status"]).ok()?;
        (said == "waiting for approval\n").then_some(())
    });
    let said = dev.run(&["workflow", "query", "order:o-3", "status", "-o", "json"]).unwrap();
    assert_eq!(said, "\"waiting for approval\"\n");
}

/// An execution that ends when it is told to.
const PATIENT: &str = "apiVersion: cleat.dev/v1alpha1
kind: WorkflowType
metadata: {name: patient}
spec: {steps: [{name: wait, signal: {name: go}}], output: done}
";

#[test]
fn a_terminal_has_colours_and_is_told_what_takes_long() {
    let definitions = tempfile::tempdir().unwrap();
    std::fs::write(definitions.path().join("patient.yaml"), PATIENT).unwrap();
    let dev = Dev::start(&["-f", definitions.path().to_str().unwrap()]);
    let on_terminal = |arguments: &[&str], no_color: Option<&str>| {
        let mut command = cleat(dev.home());
        command.args(arguments).env_remove("NO_COLOR").envs(no_color.map(|value| ("NO_COLOR", value)));
        Terminal::run(command)
    };
    dev.eventually(&["workflow", "start", "patient", "{}", "--key", "a"]);
    let start = ["workflow", "start", "patient", "{}", "--key", "a", "--wait"];
    let mut terminal = on_terminal(&start, None);
    terminal.until("waiting for patient:a …");
    let piped = cleat(dev.home()).args(start).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Each look is a dot: whoever waits without a terminal has waited for as long.
    terminal.until("waiting for patient:a …...");
    dev.run(&["workflow", "signal", "patient:a", "go"]).unwrap();
    let (status, shown) = terminal.end();
    assert!(status.success() && shown.ends_with("\r\ndone\r\n"), "{shown:?}");
    let piped = piped.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(piped.stdout).unwrap(), "done\n");
    assert_eq!(String::from_utf8(piped.stderr).unwrap(), "", "nobody looks");

    let list = ["workflow", "list"];
    let shown = |no_color| on_terminal(&list, no_color).end().1;
    assert!(shown(None).contains("\x1b[32mCompleted\x1b[0m"), "{:?}", shown(None));
    assert!(shown(Some("")).contains('\x1b'), "an empty NO_COLOR asks for nothing");
    assert!(!shown(Some("1")).contains('\x1b') && shown(Some("1")).contains("Completed"));
    assert!(dev.run(&list).unwrap().contains("Completed"), "and none without a terminal");
}
