//! The chart's dashboard and alerts ask for what is really measured: by its name, its labels and their values.
//!
//! What runners measure is on the page on metrics, which a test of the runner compares with the registry of a real one, labels and all.
//! What the operator measures is asked of its registry.

use std::collections::{BTreeMap, BTreeSet};

use cleat_operator::metrics::Metrics;
use prometheus::Registry;
use prometheus::core::Collector;
use serde_json::Value;

const RUNNERS: &str = include_str!("../../../docs/metrics.md");
const OPERATOR: &str = include_str!("../../../docs/operator.md");
const ALERTS: &str = include_str!("../../../helm/cleat/files/alerts.yaml");
const DASHBOARD: &str = include_str!("../../../helm/cleat/files/dashboard.json");

/// What Prometheus adds by itself: where something was scraped, and the bounds of histograms.
const ADDED: [&str; 6] = ["namespace", "pod", "job", "instance", "container", "le"];

/// The labels of everything that is measured.
fn measured() -> BTreeMap<String, BTreeSet<String>> {
    let mut known = BTreeMap::new();
    for line in RUNNERS.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = line.split('|').map(|cell| cell.trim().replace('`', "")).collect();
        let labels = cells[3].split(", ").filter(|label| !label.is_empty()).map(str::to_owned).collect();
        known.insert(cells[1].clone(), labels);
    }
    let Metrics { reconciles, seconds, statuses, leader, runners } = Metrics::new(&Registry::new()).unwrap();
    for desc in [reconciles.desc(), seconds.desc(), statuses.desc(), leader.desc(), runners.desc()].concat() {
        known.insert(desc.fq_name.clone(), desc.variable_labels.iter().cloned().collect());
    }
    known
}

/// Every expression of the two files.
fn expressions() -> Vec<String> {
    fn gather(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| gather(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| gather(value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    gather(&serde_yaml::from_str(ALERTS).unwrap(), &mut found);
    assert!(found.len() > 8, "alerts");
    gather(&serde_json::from_str(DASHBOARD).unwrap(), &mut found);
    found
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The metrics of an expression, each with what is asked of its labels: `cleat_shards` and `phase="serving"`.
fn asked(expression: &str) -> Vec<(String, Vec<String>)> {
    let mut asked = Vec::new();
    for prefix in ["cleat_", "process_"] {
        for (at, _) in expression.match_indices(prefix) {
            if expression[..at].ends_with(is_word) {
                continue;
            }
            let rest = &expression[at..];
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let (name, rest) = rest.split_at(end);
            let selector = rest.strip_prefix('{').and_then(|rest| rest.split('}').next()).unwrap_or_default();
            let matchers = selector.split(',').map(str::trim).filter(|one| !one.is_empty());
            asked.push((name.to_owned(), matchers.map(str::to_owned).collect()));
        }
    }
    asked
}

/// The name without what Prometheus appends to those of histograms.
fn family(name: &str, known: &BTreeMap<String, BTreeSet<String>>) -> String {
    let ends = ["_bucket", "_count", "_sum"].iter().filter_map(|end| name.strip_suffix(end));
    let histogram = ends.into_iter().find(|name| known.contains_key(*name));
    histogram.unwrap_or(name).to_owned()
}

/// The labels by which an expression groups.
fn grouped(expression: &str) -> Vec<String> {
    let lists = expression.split(" by (").skip(1).filter_map(|rest| rest.split(')').next());
    lists.flat_map(|list| list.split(',').map(|label| label.trim().to_owned()).collect::<Vec<_>>()).collect()
}

#[test]
fn the_dashboard_and_the_alerts_ask_for_what_is_measured() {
    let known = measured();
    let mut names = BTreeSet::new();
    for expression in expressions() {
        let mut labels: BTreeSet<String> = ADDED.map(str::to_owned).into();
        for (name, matchers) in asked(&expression) {
            let name = family(&name, &known);
            let own = known.get(&name).unwrap_or_else(|| panic!("nobody measures {name}: {expression}"));
            for matcher in matchers {
                let end = matcher.find(|c| !is_word(c)).unwrap();
                let (label, value) = matcher.split_at(end);
                let told = own.contains(label);
                assert!(told || ADDED.contains(&label), "{name} has no label {label}: {expression}");
                let value = value.trim_start_matches(['=', '!', '~']).trim_matches('"');
                // A variable of the dashboard is for whoever looks at it.
                for word in value.split('|').filter(|word| told && !word.starts_with('$')) {
                    let said = [RUNNERS, OPERATOR].iter().any(|page| page.contains(&format!("`{word}`")));
                    assert!(said, "no page says that {label} of {name} can be {word}: {expression}");
                }
            }
            labels.extend(own.iter().cloned());
            names.insert(name);
        }
        for label in grouped(&expression) {
            assert!(labels.contains(&label), "nothing has the label {label}: {expression}");
        }
    }
    assert!(names.len() > 20, "{names:?}");
}
