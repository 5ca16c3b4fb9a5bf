//! The steps of a workflow.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::http::{Auth, Headers, Tls};
use crate::{Duration, Json, Retry};

/// Steps, one after the other.
///
/// Steps contain steps, and a CRD's schema cannot: three levels are written out, and what is deeper is kept as it is and checked
/// by the operator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Steps(pub Vec<Step>);

/// One step: a name, exactly one thing to do, and how.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("oneOf" = one_of()))]
pub struct Step {
    /// Its name, by which expressions know it: `steps.charge.output`.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z][A-Za-z0-9_]*$"))]
    pub name: String,
    /// If this is false, the step is skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub when: Option<String>,
    /// Asks an entity and waits for its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Call>,
    /// Sends a request to a service and waits for its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<Request>,
    /// Waits so long: a duration, or CEL in `${ … }` that gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub sleep: Option<String>,
    /// Waits until a time: RFC 3339, or CEL in `${ … }` that gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub until: Option<String>,
    /// Waits for a signal; its payload is the step's output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<Signal>,
    /// Does several things at once and waits for all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub parallel: Option<Vec<Branch>>,
    /// Does `steps` for each item of a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_each: Option<ForEach>,
    /// What is done for each item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Steps>,
    /// Takes the first case whose condition is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub switch: Option<Vec<Case>>,
    /// Sets variables, which expressions know as `vars.name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<BTreeMap<String, Json>>,
    /// Starts another workflow and waits for its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Child>,
    /// Fails the workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail: Option<Fail>,
    /// How failed attempts are repeated. A `parallel`, `forEach` or `switch` is taken again as a whole, after what it did was undone.
    /// Not for `sleep`, `until`, `set` and `fail`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// How long the step may take, with all its attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// What to do if the workflow fails or is cancelled after this step. All such things are done in reverse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensate: Option<Compensation>,
    /// Fields that no step has. The schema refuses them as deep as it goes; the checks of the definition refuse the rest.
    #[serde(flatten, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, Value>,
}

/// What a step can do, by the field that says it.
pub const ACTIONS: [&str; 11] =
    ["call", "http", "sleep", "until", "signal", "parallel", "forEach", "switch", "set", "workflow", "fail"];

fn one_of() -> Value {
    ACTIONS.iter().map(|action| serde_json::json!({"required": [action]})).collect()
}

/// A question to an entity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Call {
    /// The type of entity.
    #[schemars(length(min = 1, max = 253))]
    pub entity: String,
    /// Which one. `${ … }` in it is CEL.
    #[schemars(length(min = 1, max = 4096))]
    pub id: String,
    /// What is asked.
    #[schemars(length(min = 1, max = 63))]
    pub method: String,
    /// The input. `${ … }` in its strings is CEL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Json>,
}

/// A request to a service. Each attempt carries the same `idempotency-key`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Request {
    /// GET, POST and so on; POST if there is a body, otherwise GET.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^(GET|HEAD|POST|PUT|PATCH|DELETE)$"))]
    pub method: Option<String>,
    /// Where to. `${ … }` in it is CEL.
    #[schemars(length(min = 1, max = 4096))]
    pub url: String,
    /// Headers to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<Headers>,
    /// What to send, as JSON. `${ … }` in its strings is CEL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Json>,
    /// How the request proves who sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// How the service's certificate is checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

/// A signal to wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Signal {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// How long to wait before the step fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
}

/// One of several things that are done at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Branch {
    /// Its name.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z][A-Za-z0-9_]*$"))]
    pub name: String,
    /// What it does.
    pub steps: Steps,
}

/// What to go through.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ForEach {
    /// The list: CEL in `${ … }`, or the list itself.
    #[serde(rename = "in")]
    pub in_: Json,
    /// What expressions call an item; `item` if it is not said.
    #[serde(rename = "as", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z][A-Za-z0-9_]*$"))]
    pub as_: Option<String>,
    /// How many are done at once; 1 if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub concurrency: Option<i32>,
}

/// One way to go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Case {
    /// The condition, in CEL. The last case may have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub when: Option<String>,
    /// What is done then.
    pub steps: Steps,
}

/// Another workflow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Child {
    /// A WorkflowType, or a type that is compiled into the runner.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 253))]
    pub type_: String,
    /// What makes two starts one execution; the parent's run and the step if it is not said. `${ … }` in it is CEL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub key: Option<String>,
    /// The input. `${ … }` in its strings is CEL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Json>,
}

/// A failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fail {
    /// Why, in one CamelCase word.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[A-Z][A-Za-z0-9]*$"))]
    pub reason: String,
    /// The same for people. `${ … }` in it is CEL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
}

/// What undoes a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Compensation {
    /// Asks an entity.
    Call(Call),
    /// Sends a request to a service.
    Http(Request),
}

/// How deep steps are written out in the schema.
const DEPTH: usize = 3;
/// What stands for the steps within a step until they are written out.
const NESTED: &str = "x-cleat-steps";

impl Steps {
    /// The schema of the outermost steps, for `schema_with`. Only these are described: said at each level, the words would be more
    /// than `kubectl apply` can keep.
    pub fn schema(generator: &mut SchemaGenerator) -> Schema {
        let step = Step::json_schema(generator).to_value();
        let mut schema = opaque();
        for level in (0..DEPTH).rev() {
            let mut item = step.clone();
            if level > 0 {
                strip(&mut item);
            }
            replace(&mut item, &schema);
            schema = serde_json::json!({"type": "array", "maxItems": 100, "items": item});
        }
        // A JSON object is a schema.
        Schema::try_from(schema).unwrap_or_default()
    }
}

/// What is deeper than the schema goes.
fn opaque() -> Value {
    serde_json::json!({
        "type": "array",
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    })
}

/// Leaves out all descriptions.
fn strip(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            // A property may have that name, too; then it is a schema.
            if fields.get("description").is_some_and(Value::is_string) {
                fields.remove("description");
            }
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// Puts the schema of the steps within a step where they belong, but keeps their descriptions.
fn replace(schema: &mut Value, nested: &Value) {
    match schema {
        Value::Object(fields) if fields.contains_key(NESTED) => {
            let description = fields.remove("description");
            *schema = nested.clone();
            if let (Value::Object(fields), Some(description)) = (schema, description) {
                fields.insert("description".to_owned(), description);
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(|field| replace(field, nested)),
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, nested)),
        _ => {}
    }
}

impl JsonSchema for Steps {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Steps".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"x-cleat-steps": true})
    }
}
