//! What the reference of steps says is so.

use cleat_crds::WorkflowType;
use cleat_runner::steps::{Definition, MAX_DEPTH, MAX_INPUT, MAX_ITEMS, MAX_SIZE, MAX_STEPS, check};
use serde_json::{Value, json};

const PAGE: &str = include_str!("../../../docs/steps.md");

/// The blocks of YAML on the page, each with its heading.
fn examples() -> Vec<(&'static str, String)> {
    let mut examples = Vec::new();
    let (mut heading, mut open) = ("", None::<String>);
    for line in PAGE.lines() {
        match &mut open {
            Some(block) if line == "```" => {
                examples.push((heading, std::mem::take(block)));
                open = None;
            }
            Some(block) => {
                block.push_str(line);
                block.push('\n');
            }
            None if line == "```yaml" => open = Some(String::new()),
            None if line.starts_with('#') => heading = line.trim_start_matches(['#', ' ']),
            None => {}
        }
    }
    examples
}

#[test]
fn each_example_is_a_definition_without_a_fault() {
    let examples = examples();
    assert!(examples.len() > 10, "{}", examples.len());
    for (heading, yaml) in &examples {
        let value: Value = serde_yaml::from_str(yaml).unwrap_or_else(|error| panic!("{heading}: {error}"));
        let spec = if value.is_array() {
            json!({"steps": value})
        } else {
            let object: WorkflowType = serde_json::from_value(value).unwrap();
            serde_json::to_value(object.spec).unwrap()
        };
        let spec = serde_json::from_value(spec).unwrap_or_else(|error| panic!("{heading}: {error}"));
        assert_eq!(check("example", &Definition::from(&spec), None), [], "{heading}");
    }
}

#[test]
fn each_kind_has_an_example() {
    let written: String = examples().into_iter().map(|(_, yaml)| yaml).collect();
    for kind in cleat_crds::step::ACTIONS {
        assert!(written.contains(&format!("{kind}:")), "{kind}");
    }
}

#[test]
fn the_limits_are_what_they_are() {
    for says in [
        format!("at most {MAX_STEPS} steps, {MAX_DEPTH} levels and {} KiB", MAX_SIZE >> 10),
        format!("an input {} KiB", MAX_INPUT >> 10),
        format!("A list may have {MAX_ITEMS} items"),
    ] {
        assert!(PAGE.contains(&says), "{says}");
    }
}
