//! `cleat dev` as a newcomer runs it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

mod world;

use std::process::Command;
use std::time::Duration;

use world::{Dev, cleat, orders};

#[test]
fn the_demo_runs_and_the_next_start_finds_its_data() {
    let home = tempfile::tempdir().unwrap();
    let demo = || {
        let output = cleat(home.path()).args(["dev", "--demo", "--exit", "--port", "0"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let first = demo();
    assert!(first.contains("The order is complete"), "{first}");
    assert!(first.contains("10 apples restocked: {\"stock\":10}"), "{first}");
    let second = demo();
    assert!(second.contains("10 apples restocked: {\"stock\":17}"), "three were sold: {second}");
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_cleat"))
        .args(["dev", "--demo", "--exit", "--data"])
        .arg(file.join("below"))
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains("cannot make the folder"));
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let home = tempfile::tempdir().unwrap();
    // Root may write everywhere, but not over a folder.
    std::fs::create_dir_all(home.path().join(".cleat/lock")).unwrap();
    let output = cleat(home.path()).args(["dev", "--demo", "--exit", "--port", "0"]).output().unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("cannot write") && error.contains(".cleat/lock"), "{error}");
}

#[test]
fn what_cannot_work_is_said_before_anything_is_started() {
    let home = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str]| {
        let output = cleat(home.path()).args(["dev", "--port", "0"]).args(arguments).output().unwrap();
        assert!(!output.status.success() && !home.path().join(".cleat").exists());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&["-f", "nowhere"]).contains("nowhere is not there"));
    let error = refused(&["--database", "mysql://user:secret@host/name"]);
    assert!(error.contains("begins with postgres://") && !error.contains("secret"), "{error}");
}

#[test]
fn two_platforms_do_not_share_a_folder() {
    let dev = Dev::start(&[]);
    let second = cleat(dev.home()).args(["dev", "--port", "0"]).output().unwrap();
    assert!(!second.status.success());
    let error = String::from_utf8(second.stderr).unwrap();
    assert!(error.contains("another `cleat dev` uses"), "{error}");
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let home = tempfile::tempdir().unwrap();
    let output = cleat(home.path()).args(["dev", "--port", &port]).output().unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains(&format!("port {port} is taken")), "{error}");
    let output = cleat(home.path()).args(["dev", "--port", "0", "--api-port", &port]).output().unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains(&format!("port {port}")) && error.contains("--api-port"), "{error}");
}

#[test]
fn definitions_in_a_folder_are_applied_again_when_they_change() {
    let definitions = tempfile::tempdir().unwrap();
    let file = definitions.path().join("counter.yaml");
    let counter = |by: u32| {
        format!(
            "apiVersion: cleat.dev/v1alpha1\nkind: EntityType\nmetadata: {{name: counter}}\nspec:\n  state: {{initial: {{n: 0}}}}\n  \
             methods:\n  - name: add\n    cel: {{set: {{n: \"${{state.n + {by}}}\"}}, output: \"${{state.n}}\"}}\n"
        )
    };
    std::fs::write(&file, counter(1)).unwrap();
    let dev = Dev::start(&["-f", definitions.path().to_str().unwrap()]);
    assert_eq!(dev.eventually(&["call", "counter/a", "add"]), "1\n");
    std::fs::write(&file, counter(10)).unwrap();
    dev.until(Duration::from_secs(60), "the new definition counts in tens", || {
        let (now, later) =
            (dev.eventually(&["call", "counter/a", "add"]), dev.eventually(&["call", "counter/a", "add"]));
        later.trim().parse::<i64>().ok()?.checked_sub(now.trim().parse().ok()?).filter(|by| *by == 10)
    });
}

#[test]
fn runners_are_scaled_and_a_deleted_pod_is_replaced() {
    let dev = Dev::start(&["--replicas", "2"]);
    let ready = |count: usize| {
        move |runners: &[serde_json::Value]| {
            let ready = runners
                .iter()
                .filter(|runner| runner["state"] == "ready" && runner["shards"].as_u64() > Some(0));
            (ready.count() == count).then_some(())
        }
    };
    dev.until(Duration::from_secs(60), "two runners share the shards", || ready(2)(&dev.json(&["runners"])));
    let first = dev.json(&["runners"])[0]["name"].as_str().unwrap().to_owned();
    dev.api().delete_pod(&first);
    dev.until(Duration::from_secs(120), "another runner takes the place of the first", || {
        let runners = dev.json(&["runners"]);
        let gone = runners.iter().all(|runner| runner["name"] != first.as_str());
        gone.then(|| ready(2)(&runners)).flatten()
    });
    dev.api().scale(1);
    dev.until(Duration::from_secs(120), "one runner has everything", || {
        let runners = dev.json(&["runners"]);
        let all = runners.iter().any(|runner| runner["state"] == "ready" && runner["shards"] == 32);
        (all && runners.len() == 1).then_some(())
    });
    let drawn = dev.eventually(&["shards"]);
    assert!(drawn.contains("A  ") && !drawn.contains("nobody"), "{drawn}");
    let doctor = dev.eventually(&["doctor"]);
    assert!(!doctor.contains("FAIL"), "{doctor}");
}

#[test]
fn a_workflow_in_a_folder_is_never_started_again() {
    let definitions = tempfile::tempdir().unwrap();
    let file = definitions.path().join("greet.yaml");
    let greet = |second: &str| {
        format!(
            "apiVersion: cleat.dev/v1alpha1\nkind: WorkflowType\nmetadata: {{name: greet}}\nspec: {{steps: [{{name: rest, sleep: 1ms}}], output: {second}}}\n---\n\
             apiVersion: cleat.dev/v1alpha1\nkind: Workflow\nmetadata: {{name: first}}\nspec: {{type: greet, input: {{}}}}\n---\n\
             apiVersion: cleat.dev/v1alpha1\nkind: Workflow\nmetadata: {{generateName: more-}}\nspec: {{type: greet, input: {{}}}}\n"
        )
    };
    std::fs::write(&file, greet("hello")).unwrap();
    let dev = Dev::start(&["-f", definitions.path().to_str().unwrap()]);
    dev.until(Duration::from_secs(60), "the one with a name has run", || {
        let all = dev.json(&["workflow", "list", "--type", "greet"]);
        all.iter().any(|report| report["phase"] == "Completed").then_some(())
    });
    dev.api().delete_workflow("first");
    std::fs::write(&file, greet("goodbye")).unwrap();
    dev.until(Duration::from_secs(60), "a start of one's own says goodbye", || {
        // Another key each time: the same one would be the same execution.
        let key = format!("{:?}", std::time::Instant::now());
        let said = dev.run(&["workflow", "start", "greet", "{}", "--key", &key, "--wait"]);
        said.ok().filter(|said| said.contains("goodbye"))
    });
    assert_eq!(
        dev.api().workflows(),
        Vec::<String>::new(),
        "neither the one that was deleted nor one without a name"
    );
}

#[test]
fn a_workflow_that_was_deleted_is_not_started_by_the_next_start_either() {
    let definitions = tempfile::tempdir().unwrap();
    let file = definitions.path().join("greet.yaml");
    // The entity comes last: once it answers, everything before it was seen to.
    let greet = |turn: u32| {
        format!(
            "apiVersion: cleat.dev/v1alpha1\nkind: WorkflowType\nmetadata: {{name: greet}}\nspec: {{steps: [{{name: rest, sleep: 1ms}}]}}\n---\n\
             apiVersion: cleat.dev/v1alpha1\nkind: Workflow\nmetadata: {{name: first}}\nspec: {{type: greet, input: {{}}}}\n---\n\
             apiVersion: cleat.dev/v1alpha1\nkind: EntityType\nmetadata: {{name: turn}}\nspec: {{methods: [{{name: get, cel: {{output: {turn}}}}}]}}\n"
        )
    };
    std::fs::write(&file, greet(1)).unwrap();
    let folder = ["-f", definitions.path().to_str().unwrap()];
    let applied = |dev: &Dev, turn: u32| {
        let what = format!("all of turn {turn} is applied");
        dev.until(Duration::from_secs(60), &what, || {
            dev.run(&["call", "turn/a", "get"]).ok().filter(|said| *said == format!("{turn}\n"))
        });
    };
    let dev = Dev::start(&folder);
    applied(&dev, 1);
    assert_eq!(dev.api().workflows(), ["first"]);
    std::fs::write(&file, greet(2)).unwrap();
    let dev = dev.restart(&folder);
    applied(&dev, 2);
    assert_eq!(dev.api().workflows(), ["first"], "what is there stays");
    dev.api().delete_workflow("first");
    dev.until(Duration::from_secs(60), "it is gone", || dev.api().workflows().is_empty().then_some(()));
    std::fs::write(&file, greet(3)).unwrap();
    let dev = dev.restart(&folder);
    applied(&dev, 3);
    assert!(dev.api().workflows().is_empty(), "what was deleted is not started again");
}

#[test]
fn a_doctor_says_when_the_schema_is_too_new_for_a_runner() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(cleat_testing::postgres::shared()).unwrap();
    let database = runtime.block_on(server.database()).unwrap();
    let dev = Dev::start(&["--database", &database.url]);
    let doctor = dev.eventually(&["doctor"]);
    let known = format!("schema: {}, which all runners know", cleat_runner::store::SCHEMA);
    assert!(doctor.contains(&known), "{doctor}");
    // A release of the future has been here.
    runtime.block_on(async {
        let pool = sqlx::PgPool::connect(&database.url).await.unwrap();
        let change = "INSERT INTO cleat.migrations (version, oldest) VALUES (1000, 1000)";
        sqlx::query(change).execute(&pool).await.unwrap();
    });
    let first = dev.json(&["runners"])[0]["name"].as_str().unwrap().to_owned();
    dev.api().delete_pod(&first);
    let findings = dev.until(Duration::from_secs(120), "the doctor finds it", || {
        let done = cleat(dev.home()).args(["doctor", "-o", "json"]).output().unwrap();
        let findings: Vec<serde_json::Value> = serde_json::from_slice(&done.stdout).ok()?;
        let found = findings.iter().find(|finding| finding["what"] == "schema")?.clone();
        (!done.status.success() && found["found"].as_str()?.contains("BinaryTooOld")).then_some(found)
    });
    assert_eq!(findings["fine"], false);
    assert!(findings["advice"].as_str().unwrap().contains("newer release"), "{findings}");
}

#[test]
fn a_database_that_was_restored_is_served_again() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(cleat_testing::postgres::shared()).unwrap();
    let database = runtime.block_on(server.database()).unwrap();
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/orders");
    let dev = Dev::start(&["--database", &database.url, "-f", examples]);
    let copy = |from: &str, to: &str| {
        dev.api().scale(0);
        dev.until(Duration::from_secs(120), "no runner is left", || {
            dev.json(&["runners"]).iter().all(|runner| runner["state"] == "gone").then_some(())
        });
        let remove = format!("DROP DATABASE IF EXISTS {to} WITH (FORCE)");
        let make = format!("CREATE DATABASE {to} TEMPLATE {from}");
        // The last connection of a runner may end a moment after it.
        dev.until(Duration::from_secs(60), "it is copied", || {
            runtime.block_on(async {
                let pool = sqlx::PgPool::connect(&server.url("postgres")).await.ok()?;
                for change in [&remove, &make] {
                    sqlx::query(sqlx::AssertSqlSafe(change.as_str())).execute(&pool).await.ok()?;
                }
                Some(())
            })
        });
        dev.api().scale(1);
    };
    let restock = |count: u32| {
        let (input, key) = (format!("{{\"count\": {count}}}"), format!("delivery-{count}"));
        let stock = dev.eventually(&["call", "inventory/apples", "restock", &input, "--key", &key]);
        serde_json::from_str::<serde_json::Value>(&stock).unwrap()["stock"].clone()
    };
    let backup = format!("{}_backup", database.name);
    assert_eq!(restock(10), 10);
    copy(&database.name, &backup);
    assert_eq!(restock(5), 15, "shards were claimed once more since the backup");
    copy(&backup, &database.name);
    assert_eq!(restock(1), 11, "as good as the moment of its backup, and it takes more");
}

#[test]
fn several_runners_share_a_postgres() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(cleat_testing::postgres::shared()).unwrap();
    let database = runtime.block_on(server.database()).unwrap();
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/orders");
    let dev = Dev::start(&["--replicas", "2", "--database", &database.url, "-f", examples]);
    dev.until(Duration::from_secs(60), "two runners share the shards", || {
        let runners = dev.json(&["runners"]);
        (runners.len() == 2 && runners.iter().all(|runner| runner["shards"].as_u64() > Some(0))).then_some(())
    });
    for item in ["apples", "pears", "plums", "figs"] {
        let stock = dev.eventually(&["call", &format!("inventory/{item}"), "restock", r#"{"count": 3}"#]);
        assert!(stock.contains('3'), "{stock}");
    }
}

#[test]
fn it_ends_cleanly_when_it_is_asked_to() {
    let dev = Dev::start(&[]);
    assert!(dev.stop().success());
}

#[test]
fn a_runner_of_ones_own_takes_the_place_of_the_stock_one() {
    let program = orders();
    let dev = Dev::start(&["--runner", program.to_str().unwrap()]);
    assert_eq!(dev.eventually(&["call", "inventory/apples", "restock", r#"{"count": 10}"#]), "10\n");
    let order = r#"{"order": "o-1", "item": "apples", "count": 3, "amount": 1200}"#;
    let receipt = dev.run(&["workflow", "start", "order", order, "--wait"]).unwrap();
    assert!(receipt.contains("r-1200"), "{receipt}");
    let first = dev.json(&["runners"])[0]["name"].as_str().unwrap().to_owned();
    let said = dev.api().logs(&first);
    assert!(!said.is_empty());
    dev.api().delete_pod(&first);
    dev.until(Duration::from_secs(120), "another process takes its place, and finds the data", || {
        let runners = dev.json(&["runners"]);
        let other =
            runners.iter().any(|runner| runner["name"] != first.as_str() && runner["state"] == "ready");
        other
            .then(|| dev.run(&["call", "inventory/apples", "get"]).ok())
            .flatten()
            .filter(|left| left == "7\n")
    });
}

#[test]
fn a_runner_that_is_not_there_is_named() {
    let home = tempfile::tempdir().unwrap();
    let output = cleat(home.path()).args(["dev", "--port", "0", "--runner", "nobody"]).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains("there is no program nobody"));
}
