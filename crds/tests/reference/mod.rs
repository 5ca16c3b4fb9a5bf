//! The page on the fields of all kinds.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

const HEAD: &str = "# Custom resources

Every field of every kind of the group `cleat.dev`, version `v1alpha1`. This page is generated from the types in `crds/src`.
All kinds are namespaced, `kubectl get cleat` lists them, and `kubectl explain` has the same words.

In the tables `a.b` is a field of a field, `[]` an item of a list and `<key>` a value of a map. Durations are written `500ms`, `5s`, `2m`,
`24h`. Conditions are those of Kubernetes: `type`, `status`, `reason`, `message`, `observedGeneration`, `lastTransitionTime`.
";

const STEPS: &str = "
## Steps

The fields of one step, in `spec.steps[]` of a WorkflowType or a Workflow and wherever steps contain steps. A step does exactly one
thing. The API server checks three levels; what is deeper is checked by the operator.
";

/// The whole page.
pub fn page(crds: &[CustomResourceDefinition]) -> Result<String> {
    let mut page = HEAD.to_owned();
    let mut step = None;
    for crd in crds {
        let names = &crd.spec.names;
        let version = crd.spec.versions.first().context("a version")?;
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        let schema = schema.context("a schema")?;
        let short = names.short_names.iter().flatten().next().context("a short name")?;
        let fields = schema.properties.as_ref().context("fields")?;
        writeln!(page, "\n## {}\n\n`kubectl get {short}`. {}", names.kind, text(&fields["spec"]))?;
        for part in ["spec", "status"] {
            let mut rows = Vec::new();
            walk(&fields[part], part, &mut rows, &mut step);
            table(&mut page, &rows)?;
            rules(&mut page, &fields[part])?;
        }
    }
    page.push_str(STEPS);
    let mut rows = Vec::new();
    walk(&step.context("steps")?, "", &mut rows, &mut None);
    table(&mut page, &rows)?;
    Ok(page)
}

struct Row {
    path: String,
    kind: String,
    text: String,
}

/// Collects the fields below a schema. The schema of a step is kept for later instead of being written out.
fn walk(schema: &JSONSchemaProps, path: &str, rows: &mut Vec<Row>, step: &mut Option<JSONSchemaProps>) {
    let required = schema.required.clone().unwrap_or_default();
    for (name, field) in schema.properties.iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let kind = kind(field, required.contains(name));
        rows.push(Row { path: path.clone(), kind, text: text(field) });
        let item = item(field);
        if name == "steps" && item.is_some_and(|item| item.one_of.is_some() || item.properties.is_none()) {
            *step = step.take().or_else(|| item.cloned());
        } else if name != "conditions" {
            below(field, path, rows, step);
        }
    }
}

fn below(field: &JSONSchemaProps, path: String, rows: &mut Vec<Row>, step: &mut Option<JSONSchemaProps>) {
    if let Some(item) = item(field) {
        below(item, format!("{path}[]"), rows, step);
    } else if let Some(JSONSchemaPropsOrBool::Schema(value)) = &field.additional_properties {
        below(value, format!("{path}.<key>"), rows, step);
    } else {
        walk(field, &path, rows, step);
    }
}

fn item(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match schema.items.as_ref()? {
        JSONSchemaPropsOrArray::Schema(item) => Some(item),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}

/// The type of a field, with its default and its bounds.
fn kind(field: &JSONSchemaProps, required: bool) -> String {
    let mut kind = match field.type_.as_deref() {
        Some("array") => {
            format!("list of {}", item(field).and_then(|item| item.type_.as_deref()).unwrap_or("any"))
        }
        Some("object") if field.additional_properties.is_some() => "map".to_owned(),
        Some("string") if field.format.as_deref() == Some("date-time") => "time".to_owned(),
        Some("string") if field.pattern.as_deref().is_some_and(|pattern| pattern.contains("(ms|s|m|h)")) => {
            "duration".to_owned()
        }
        Some(name) => name.to_owned(),
        None => "any".to_owned(),
    };
    if let Some(values) = &field.enum_ {
        let values: Vec<_> = values.iter().map(|value| value.0.to_string().replace('"', "`")).collect();
        kind = format!("one of {}", values.join(", "));
    }
    if let (Some(least), Some(most)) = (field.minimum, field.maximum) {
        let _ = write!(kind, ", {least} to {most}");
    }
    if let Some(pattern) = field.pattern.as_ref().filter(|_| kind == "string") {
        let _ = write!(kind, ", `{}`", pattern.replace('|', "\\|"));
    }
    if let Some(most) = field.max_items {
        let _ = write!(kind, ", at most {most}");
    }
    match &field.default {
        Some(value) if !value.0.is_object() => {
            let _ = write!(kind, ", default `{}`", value.0.to_string().replace('"', ""));
        }
        _ if required => kind.push_str(", **required**"),
        _ => {}
    }
    kind
}

fn text(field: &JSONSchemaProps) -> String {
    field.description.clone().unwrap_or_default().replace("\n\n", " ").replace('\n', " ").replace('|', "\\|")
}

fn table(page: &mut String, rows: &[Row]) -> Result<()> {
    page.push_str("\n| field | type | meaning |\n| --- | --- | --- |\n");
    for Row { path, kind, text } in rows {
        writeln!(page, "| `{path}` | {kind} | {text} |")?;
    }
    Ok(())
}

/// What the API server refuses besides, in its own words.
fn rules(page: &mut String, schema: &JSONSchemaProps) -> Result<()> {
    let mut found = Vec::new();
    messages(schema, "", &mut found);
    if !found.is_empty() {
        page.push_str("\nRules:\n\n");
    }
    for (path, message) in found {
        writeln!(page, "- {path}{message}")?;
    }
    Ok(())
}

fn messages(schema: &JSONSchemaProps, path: &str, found: &mut Vec<(String, String)>) {
    let place = if path.is_empty() { String::new() } else { format!("`{path}`: ") };
    for rule in schema.x_kubernetes_validations.iter().flatten() {
        found.push((place.clone(), rule.message.clone().unwrap_or_else(|| rule.rule.clone())));
    }
    for (name, field) in schema.properties.iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        messages(field, &path, found);
        if let Some(item) = item(field) {
            messages(item, &format!("{path}[]"), found);
        }
    }
}
