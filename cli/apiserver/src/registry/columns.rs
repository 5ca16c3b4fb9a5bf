//! The columns in which objects are printed.

use crate::object;
use crate::table::{age, path::Path};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};

/// Where the content of a column comes from.
#[derive(Debug, Clone)]
pub(crate) enum Cell {
    /// A path of a printer column.
    Path(Path),
    /// The name of the object.
    Name,
    /// Something that is computed.
    Computed(fn(&Value, DateTime<Utc>) -> Value),
}

/// A column of a Table.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) description: String,
    /// 0 is always shown, higher ones in wide output.
    pub(crate) priority: i64,
    pub(crate) cell: Cell,
}

impl Column {
    /// The first column of everything.
    pub(crate) fn name() -> Self {
        Self {
            name: "Name".to_owned(),
            kind: "string".to_owned(),
            format: "name".to_owned(),
            description: "The name of the object, unique among its kind in its namespace.".to_owned(),
            priority: 0,
            cell: Cell::Name,
        }
    }

    /// What the column says of an object.
    pub(crate) fn value(&self, object: &Value, now: DateTime<Utc>) -> Value {
        match &self.cell {
            Cell::Name => json!(object::name(object)),
            Cell::Computed(compute) => compute(object, now),
            Cell::Path(path) => self.typed(&path.find(object), now),
        }
    }

    /// The first value that the path finds. One that does not fit the column's type is left out rather than shown wrongly.
    fn typed(&self, found: &[&Value], now: DateTime<Utc>) -> Value {
        let Some(&first) = found.first() else { return Value::Null };
        match (self.kind.as_str(), first) {
            (_, Value::Null) => Value::Null,
            ("integer", Value::Number(number)) if number.is_i64() => first.clone(),
            // Whole numbers print without a fraction, whatever their JSON says.
            ("integer", Value::Number(number)) => number
                .as_f64()
                .and_then(|float| format!("{:.0}", float.trunc()).parse::<i64>().ok())
                .map(Value::from)
                .unwrap_or_default(),
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => first.clone(),
            ("date", Value::String(text)) => {
                json!(age::since(text, now).unwrap_or_else(|| "<invalid>".to_owned()))
            }
            ("integer" | "number" | "boolean" | "date", _) => Value::Null,
            _ => json!(text(first)),
        }
    }
}

/// A value as a cell prints it: text without quotes, all else as JSON.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn column(name: &str, kind: &str, priority: i64, compute: fn(&Value, DateTime<Utc>) -> Value) -> Column {
    Column {
        name: name.to_owned(),
        kind: kind.to_owned(),
        format: String::new(),
        description: String::new(),
        priority,
        cell: Cell::Computed(compute),
    }
}

fn created(object: &Value, now: DateTime<Utc>) -> Value {
    json!(
        age::since(object::meta(object, "creationTimestamp"), now).unwrap_or_else(|| "<unknown>".to_owned())
    )
}

fn age_column() -> Column {
    column("Age", "string", 0, created)
}

fn or_none(text: &str) -> Value {
    json!(if text.is_empty() { "<none>" } else { text })
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn containers(object: &Value) -> &[Value] {
    let spec = &object["spec"];
    let pod = if spec["template"].is_object() { &spec["template"]["spec"] } else { spec };
    pod["containers"].as_array().map_or(&[], Vec::as_slice)
}

fn joined(list: &[Value], field: &str) -> Value {
    let names: Vec<&str> = list.iter().filter_map(|one| one[field].as_str()).collect();
    json!(names.join(","))
}

fn selector_text(labels: &Value) -> Value {
    let pairs: Vec<String> = labels
        .as_object()
        .map(|map| map.iter().map(|(key, value)| format!("{key}={}", text(value))).collect())
        .unwrap_or_default();
    or_none(&pairs.join(","))
}

fn workload_tail() -> [Column; 3] {
    [
        column("Containers", "string", 1, |object, _| joined(containers(object), "name")),
        column("Images", "string", 1, |object, _| joined(containers(object), "image")),
        column("Selector", "string", 1, |object, _| {
            selector_text(&object["spec"]["selector"]["matchLabels"])
        }),
    ]
}

fn subjects(object: &Value, kind: &str) -> Value {
    let list = object["subjects"].as_array().map_or(&[][..], Vec::as_slice);
    let names: Vec<String> = list
        .iter()
        .filter(|subject| subject["kind"] == kind)
        .map(|subject| match subject["namespace"].as_str() {
            Some(namespace) => format!("{namespace}/{}", text(&subject["name"])),
            None => text(&subject["name"]),
        })
        .collect();
    json!(names.join(", "))
}

fn entries(value: &Value) -> usize {
    value.as_object().map_or(0, serde_json::Map::len)
}

fn pod_phase(object: &Value, _: DateTime<Utc>) -> Value {
    let status = &object["status"];
    let mut reason = status["reason"].as_str().or(status["phase"].as_str()).unwrap_or_default().to_owned();
    for container in status["containerStatuses"].as_array().into_iter().flatten().rev() {
        let state = &container["state"];
        if let Some(waiting) = state["waiting"]["reason"].as_str().filter(|text| !text.is_empty()) {
            reason = waiting.to_owned();
        } else if let Some(ended) = state["terminated"]["reason"].as_str().filter(|text| !text.is_empty()) {
            reason = ended.to_owned();
        }
    }
    json!(if object::is_deleting(object) { "Terminating".to_owned() } else { reason })
}

fn event_seen(object: &Value, first: bool, now: DateTime<Utc>) -> Value {
    let started = object["firstTimestamp"].as_str().or(object["eventTime"].as_str());
    let last = object["series"]["lastObservedTime"].as_str().or(object["lastTimestamp"].as_str()).or(started);
    let time = if first { started } else { last };
    json!(time.and_then(|time| age::since(time, now)).unwrap_or_else(|| "<unknown>".to_owned()))
}

fn service_ports(object: &Value) -> Value {
    let list = object["spec"]["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let ports: Vec<String> = list
        .iter()
        .map(|port| {
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            match port["nodePort"].as_i64() {
                Some(node) if node > 0 => format!("{}:{node}/{protocol}", number(&port["port"])),
                _ => format!("{}/{protocol}", number(&port["port"])),
            }
        })
        .collect();
    or_none(&ports.join(","))
}

fn events() -> Vec<Column> {
    vec![
        column("Last Seen", "string", 0, |object, now| event_seen(object, false, now)),
        column("Type", "string", 0, |object, _| json!(text_at(object, "type"))),
        column("Reason", "string", 0, |object, _| json!(text_at(object, "reason"))),
        column("Object", "string", 0, |object, _| {
            let target = &object["involvedObject"];
            let kind = target["kind"].as_str().unwrap_or_default().to_lowercase();
            json!(match target["name"].as_str() {
                Some(name) => format!("{kind}/{name}"),
                None => kind,
            })
        }),
        column("Subobject", "string", 1, |object, _| json!(text_at(&object["involvedObject"], "fieldPath"))),
        column("Source", "string", 1, |object, _| {
            let source = &object["source"];
            let component =
                source["component"].as_str().or(object["reportingComponent"].as_str()).unwrap_or_default();
            let host = source["host"].as_str().or(object["reportingInstance"].as_str()).unwrap_or_default();
            json!(if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") })
        }),
        column("Message", "string", 0, |object, _| json!(text_at(object, "message").trim())),
        column("First Seen", "string", 1, |object, now| event_seen(object, true, now)),
        column("Count", "string", 1, |object, _| {
            let count = object["series"]["count"].as_i64().or(object["count"].as_i64()).unwrap_or(0);
            json!(count.max(1))
        }),
        Column { priority: 1, ..Column::name() },
    ]
}

fn text_at<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

fn all_or_none(value: &Value) -> Value {
    match value {
        Value::Null => json!("N/A"),
        other => json!(text(other)),
    }
}

fn ready_of(object: &Value) -> Value {
    json!(format!("{}/{}", number(&object["status"]["readyReplicas"]), number(&object["spec"]["replicas"])))
}

/// The columns of a built-in kind.
pub(super) fn builtin(group: &str, plural: &str) -> Vec<Column> {
    let mut columns = vec![Column::name()];
    match (group, plural) {
        (_, "events") => return events(),
        ("", "pods") => columns.extend([
            column("Ready", "string", 0, |object, _| {
                let statuses =
                    object["status"]["containerStatuses"].as_array().map_or(&[][..], Vec::as_slice);
                let ready = statuses.iter().filter(|one| one["ready"] == true).count();
                json!(format!("{ready}/{}", containers(object).len()))
            }),
            column("Status", "string", 0, pod_phase),
            column("Restarts", "string", 0, |object, _| {
                let statuses =
                    object["status"]["containerStatuses"].as_array().map_or(&[][..], Vec::as_slice);
                json!(statuses.iter().map(|one| number(&one["restartCount"])).sum::<i64>().to_string())
            }),
            age_column(),
            column("IP", "string", 1, |object, _| or_none(text_at(&object["status"], "podIP"))),
            column("Node", "string", 1, |object, _| or_none(text_at(&object["spec"], "nodeName"))),
            column("Nominated Node", "string", 1, |object, _| {
                or_none(text_at(&object["status"], "nominatedNodeName"))
            }),
            column("Readiness Gates", "string", 1, |_, _| json!("<none>")),
        ]),
        ("", "namespaces") => columns.extend([
            column("Status", "string", 0, |object, _| json!(text_at(&object["status"], "phase"))),
            age_column(),
        ]),
        ("", "configmaps") => columns.extend([
            column("Data", "string", 0, |object, _| {
                json!(entries(&object["data"]) + entries(&object["binaryData"]))
            }),
            age_column(),
        ]),
        ("", "secrets") => columns.extend([
            column("Type", "string", 0, |object, _| json!(text_at(object, "type"))),
            column("Data", "string", 0, |object, _| json!(entries(&object["data"]))),
            age_column(),
        ]),
        ("", "services") => columns.extend([
            column("Type", "string", 0, |object, _| json!(text_at(&object["spec"], "type"))),
            column("Cluster-IP", "string", 0, |object, _| or_none(text_at(&object["spec"], "clusterIP"))),
            column("External-IP", "string", 0, |object, _| {
                let list = object["spec"]["externalIPs"].as_array().map_or(&[][..], Vec::as_slice);
                let names: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
                or_none(&names.join(","))
            }),
            column("Port(s)", "string", 0, |object, _| service_ports(object)),
            age_column(),
            column("Selector", "string", 1, |object, _| selector_text(&object["spec"]["selector"])),
        ]),
        ("apps", "deployments") => {
            columns.extend([
                column("Ready", "string", 0, |object, _| ready_of(object)),
                column("Up-to-date", "string", 0, |object, _| {
                    json!(number(&object["status"]["updatedReplicas"]).to_string())
                }),
                column("Available", "string", 0, |object, _| {
                    json!(number(&object["status"]["availableReplicas"]).to_string())
                }),
                age_column(),
            ]);
            columns.extend(workload_tail());
        }
        ("apps", "replicasets") => {
            columns.extend([
                column("Desired", "integer", 0, |object, _| json!(number(&object["spec"]["replicas"]))),
                column("Current", "integer", 0, |object, _| json!(number(&object["status"]["replicas"]))),
                column("Ready", "integer", 0, |object, _| json!(number(&object["status"]["readyReplicas"]))),
                age_column(),
            ]);
            columns.extend(workload_tail());
        }
        ("apps", "statefulsets") => {
            columns.extend([column("Ready", "string", 0, |object, _| ready_of(object)), age_column()]);
            columns.extend(workload_tail().into_iter().take(2));
        }
        ("coordination.k8s.io", "leases") => columns.extend([
            column("Holder", "string", 0, |object, _| json!(text_at(&object["spec"], "holderIdentity"))),
            age_column(),
        ]),
        ("policy", "poddisruptionbudgets") => columns.extend([
            column("Min Available", "string", 0, |object, _| all_or_none(&object["spec"]["minAvailable"])),
            column("Max Unavailable", "string", 0, |object, _| {
                all_or_none(&object["spec"]["maxUnavailable"])
            }),
            column("Allowed Disruptions", "integer", 0, |object, _| {
                json!(number(&object["status"]["disruptionsAllowed"]))
            }),
            age_column(),
        ]),
        ("networking.k8s.io", "networkpolicies") => columns.extend([
            column("Pod-Selector", "string", 0, |object, _| {
                selector_text(&object["spec"]["podSelector"]["matchLabels"])
            }),
            age_column(),
        ]),
        (_, "rolebindings" | "clusterrolebindings") => columns.extend([
            column("Role", "string", 0, |object, _| {
                let role = &object["roleRef"];
                json!(format!("{}/{}", text_at(role, "kind"), text_at(role, "name")))
            }),
            age_column(),
            column("Users", "string", 1, |object, _| subjects(object, "User")),
            column("Groups", "string", 1, |object, _| subjects(object, "Group")),
            column("ServiceAccounts", "string", 1, |object, _| subjects(object, "ServiceAccount")),
        ]),
        (_, "roles" | "clusterroles" | "customresourcedefinitions") => {
            columns.push(column("Created At", "date", 0, |object, _| {
                json!(object::meta(object, "creationTimestamp"))
            }));
        }
        _ => columns.push(age_column()),
    }
    columns
}
