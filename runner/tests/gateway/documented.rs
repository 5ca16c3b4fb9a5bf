//! The examples of `docs/gateway.md`, each run as it is written.

use http::Method;
use serde_json::Value;

use crate::client::{Http, Reply};
use crate::flow::Order;
use crate::world::World;

/// A command and what it prints.
struct Example {
    command: String,
    output: String,
}

fn examples(page: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let blocks = page.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    for line in blocks.flat_map(str::lines) {
        match line.strip_prefix("$ ") {
            Some(command) => examples.push(Example { command: command.to_owned(), output: String::new() }),
            None => {
                let output = &mut examples.last_mut().unwrap().output;
                output.push_str(line);
                output.push('\n');
            }
        }
    }
    examples
}

/// The words of a command, as a shell takes them apart.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in command.chars() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// Does what curl would do. Whether it shows the head, too.
async fn run(http: &Http, words: &[String]) -> (Reply, bool) {
    let mut words = words.iter().map(String::as_str);
    assert_eq!(words.next(), Some("curl"));
    let (mut method, mut path, mut headers, mut body, mut head) =
        (None, None, Vec::new(), String::new(), false);
    while let Some(word) = words.next() {
        match word {
            "-s" | "-N" => {}
            "-i" => head = true,
            "-X" => method = words.next().map(|method| method.parse::<Method>().unwrap()),
            "-H" => headers.push(words.next().unwrap().split_once(": ").unwrap()),
            "--json" => {
                body = words.next().unwrap().to_owned();
                headers.push(("content-type", "application/json"));
                method.get_or_insert(Method::POST);
            }
            url => path = Some(url.strip_prefix("$GATEWAY").unwrap_or_else(|| panic!("{url}"))),
        }
    }
    (http.send(method.unwrap_or(Method::GET), path.unwrap(), &headers, body).await, head)
}

/// Whether a text is as expected; `…` stands for anything.
fn fits(expected: &str, actual: &str) -> bool {
    match expected.split_once('…') {
        Some((before, after)) => {
            actual.len() >= before.len() + after.len()
                && actual.starts_with(before)
                && actual.ends_with(after)
        }
        None => expected == actual,
    }
}

fn same(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (Value::String(expected), Value::String(actual)) => fits(expected, actual),
        (Value::Array(expected), Value::Array(actual)) => {
            expected.len() == actual.len() && expected.iter().zip(actual).all(|(a, b)| same(a, b))
        }
        (Value::Object(expected), Value::Object(actual)) => {
            expected.len() == actual.len()
                && expected.iter().all(|(name, value)| actual.get(name).is_some_and(|it| same(value, it)))
        }
        _ => expected == actual,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_of_the_reference_does_what_it_says() {
    let page = include_str!("../../../docs/gateway.md");
    let world = World::new().await;
    let runner = world.one().await;
    Order::default().register(&runner.node).unwrap();
    let examples = examples(page);
    assert!(examples.len() > 10);
    let mut request = String::new();
    for Example { command, output } in examples {
        let command = command.replace("$REQUEST", &request);
        let (reply, head) = run(&runner.http, &words(&command)).await;
        let body = std::str::from_utf8(&reply.body).unwrap();
        let expected = if head {
            let (expected, body) = output.split_once("\n\n").unwrap();
            let mut lines = expected.lines();
            assert_eq!(lines.next().unwrap(), format!("HTTP/1.1 {}", reply.status), "{command}");
            for (name, value) in lines.map(|line| line.split_once(": ").unwrap()) {
                assert!(fits(value, reply.header(name)), "{command}: {name}");
            }
            body
        } else {
            output.as_str()
        };
        match serde_json::from_str::<Value>(expected) {
            Ok(expected) => {
                let actual = reply.json();
                assert!(same(&expected, &actual), "{command} gave {actual}");
                if let Some(id) = actual["request"].as_str() {
                    request = id.to_owned();
                }
            }
            Err(_) => assert_eq!(expected.trim_end(), body.trim_end(), "{command}"),
        }
    }
    runner.shutdown().await;
}
