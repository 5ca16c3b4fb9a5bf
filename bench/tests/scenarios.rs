//! Every scenario of ours runs, answers without an error and says what it measured.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

use std::process::Command;

use serde_json::Value;

/// Runs a scenario with as little work as possible and without peers.
fn quick(scenario: &str) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("results.json");
    let markdown = folder.path().join("results.md");
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args([scenario, "--quick", "--no-peer", "--json"])
        .arg(&file)
        .arg("--markdown")
        .arg(&markdown)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(std::fs::read_to_string(&markdown).unwrap().contains(&format!("## {scenario}")));
    let results: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert!(!results.is_empty(), "{said}");
    for result in &results {
        assert_eq!(result["scenario"], scenario);
        assert!(result["value"].is_number(), "{result}");
        let metric = result["metric"].as_str().unwrap();
        let must_be_zero = ["errors", "lost something", "something twice", "do not answer"];
        // Errors that a killed node causes are seen, and allowed.
        if must_be_zero.iter().any(|words| metric.contains(words)) && metric != "errors seen" {
            assert_eq!(result["value"], 0.0, "{metric}: {said}");
        }
    }
    results
}

/// The value of a metric.
fn value(results: &[Value], metric: &str) -> f64 {
    let result = results.iter().find(|result| result["metric"] == metric);
    assert!(result.is_some(), "no {metric} in {results:#?}");
    result.unwrap()["value"].as_f64().unwrap()
}

#[test]
fn volatile_calls_are_measured_on_one_node_and_between_two() {
    let results = quick("volatile");
    assert!(value(&results, "volatile call, local, 64 clients") > 0.0);
    assert!(value(&results, "volatile call, remote, 64 clients") > 0.0);
}

#[test]
fn persisted_calls_are_measured_with_one_commit_and_with_two() {
    let results = quick("persisted");
    for calls in ["effects outside", "durable state"] {
        for place in ["local", "remote"] {
            for clients in [64, 256] {
                assert!(value(&results, &format!("{calls}, {place}, {clients} clients")) > 0.0);
            }
        }
    }
}

#[test]
fn one_client_alone_is_measured_beside_bare_commits() {
    let results = quick("alone");
    assert!(value(&results, "bare commits, one writer") > 0.0);
    assert!(value(&results, "durable state, one client") > 0.0);
}

#[test]
fn one_hot_entity_is_measured() {
    assert!(value(&quick("hot"), "one hot entity, 64 clients") > 0.0);
}

#[test]
fn workflows_are_measured_with_one_activity_and_with_ten_with_and_without_transactions() {
    let results = quick("workflow");
    for activities in ["1 activity", "10 activities"] {
        for kind in ["plain", "a SQL transaction each"] {
            for clients in [4, 8] {
                assert!(value(&results, &format!("workflow, {activities}, {kind}, {clients} clients")) > 0.0);
            }
        }
    }
}

#[test]
fn workflows_that_wait_are_watched() {
    let results = quick("timers");
    assert!(value(&results, "50 sleeps of a second: overshoot p50") >= 0.0);
    assert!(value(&results, "50 workflows that wait for a signal: transactions") >= 0.0);
    assert!(value(&results, "100 workflows that sleep for a day: memory above the floor").is_finite());
}

#[test]
fn what_stands_beside_restate_is_measured() {
    let results = quick("restate");
    assert!(value(&results, "object call, 8 clients") > 0.0);
    assert!(value(&results, "workflow, 10 activities, plain, 8 clients") > 0.0);
}

#[test]
fn what_stands_beside_dbos_is_measured() {
    assert!(value(&quick("dbos"), "workflow, 1 activity, plain, 8 clients") > 0.0);
}

#[test]
fn idle_nodes_cost_something_and_it_is_told() {
    // The two nodes renew their leases each second.
    assert!(value(&quick("idle"), "lease writes of one idle node") > 0.0);
}

#[test]
fn the_memory_of_idle_entities_is_measured() {
    let results = quick("memory");
    assert!(value(&results, "an idle entity with durable state").is_finite());
}

#[test]
fn the_first_answer_of_a_node_is_timed() {
    let results = quick("start");
    assert!(value(&results, "from the start of a lone node to the first answer of a persisted call") > 0.0);
}

#[test]
fn a_killed_nodes_entities_answer_again() {
    let results = quick("failover");
    assert!(value(&results, "the last one that answers") > 0.0);
}

#[test]
fn a_rolling_restart_is_watched() {
    assert!(value(&quick("rolling"), "calls answered") > 0.0);
}

#[test]
fn growth_is_measured_beside_its_beginning() {
    let results = quick("growth");
    assert!(value(&results, "durable state, 500 entities, 64 clients") > 0.0);
    assert!(value(&results, "durable state, 50 entities, 1000 more finished messages") > 0.0);
}
