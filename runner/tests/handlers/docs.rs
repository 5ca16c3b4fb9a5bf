//! What the guide shows is true.

use std::path::Path;

use cleat_crds::{CronJob, EntityType};
use cleat_runner::definitions::check;
use serde::Deserialize;
use serde_json::Value as Json;

/// The YAML of a page, one text for each block.
fn blocks(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut block: Option<String> = None;
    for line in page.lines() {
        match (&mut block, line) {
            (None, "```yaml") => block = Some(String::new()),
            (Some(_), "```") => blocks.extend(block.take()),
            (Some(text), line) => {
                text.push_str(line);
                text.push('\n');
            }
            _ => {}
        }
    }
    blocks
}

#[test]
fn every_manifest_of_the_guide_and_the_examples_is_without_fault() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let mut manifests = blocks(&read("docs/handlers.md"));
    assert!(manifests.len() >= 5, "the guide has lost its examples");
    manifests.push(read("examples/http-python/entitytype.yaml"));
    manifests.push(read("examples/http-typescript/entitytype.yaml"));
    for manifest in manifests {
        for document in serde_yaml::Deserializer::from_str(&manifest) {
            let object = Json::deserialize(document).unwrap_or_else(|error| panic!("{error}: {manifest}"));
            let faults = match object["kind"].as_str() {
                Some("EntityType") => {
                    let object: EntityType = serde_json::from_value(object).unwrap();
                    check::entity_type(&object.metadata.name.unwrap(), &object.spec)
                }
                Some("CronJob") => {
                    let object: CronJob = serde_json::from_value(object).unwrap();
                    check::cron_job(&object.metadata.name.unwrap(), &object.spec)
                }
                other => panic!("what is a {other:?}?"),
            };
            assert_eq!(faults, [], "{manifest}");
        }
    }
}
