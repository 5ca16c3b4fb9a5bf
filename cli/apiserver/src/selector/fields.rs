//! Field selectors: `metadata.name=a,status.phase!=b`.

use super::Error;
use crate::schema::quote;
use serde_json::Value;
use std::borrow::Cow;

/// A parsed field selector: all requirements must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    field: String,
    equal: bool,
    value: String,
}

impl Fields {
    /// Parses the form that stands in a query. A backslash escapes a comma, an equals sign or itself in a value.
    ///
    /// # Errors
    /// Text that is not a selector.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut terms = terms(text);
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let Some(position) = term.find('=') else {
                return Err(Error(format!("invalid selector: '{text}'; can't understand '{term}'")));
            };
            let (field, value) = (&term[..position], &term[position + 1..]);
            let (field, value, equal) = match field.strip_suffix('!') {
                Some(field) => (field, value, false),
                None => (field, value.strip_prefix('=').unwrap_or(value), true),
            };
            requirements.push(Requirement { field: field.to_owned(), equal, value: unescape(value)? });
        }
        Ok(Self { requirements })
    }

    /// Checks that every field may be selected on in a custom resource: name and namespace always may, others if
    /// `selectable` has their path, with or without a leading dot.
    ///
    /// # Errors
    /// The first field that may not.
    pub fn check_custom(&self, namespaced: bool, selectable: &[String]) -> Result<(), Error> {
        let known = |field: &str| {
            field == "metadata.name"
                || (namespaced && field == "metadata.namespace")
                || selectable.iter().any(|path| path.strip_prefix('.').unwrap_or(path) == field)
        };
        match self.requirements.iter().find(|requirement| !known(&requirement.field)) {
            Some(odd) => Err(Error(format!("field label not supported: {}", odd.field))),
            None => Ok(()),
        }
    }

    /// Checks that every field may be selected on in a built-in type.
    ///
    /// # Errors
    /// The first field that may not.
    pub fn check_builtin(&self, group: &str, kind: &str) -> Result<(), Error> {
        let selectable = selectable(group, kind);
        let known = |field: &str| {
            let cluster = matches!(kind, "Namespace" | "Node");
            field == "metadata.name"
                || (!cluster && field == "metadata.namespace")
                || selectable.contains(&field)
        };
        match self.requirements.iter().find(|requirement| !known(&requirement.field)) {
            None => Ok(()),
            Some(odd) if selectable.is_empty() => Err(Error(format!(
                "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
                quote(&odd.field)
            ))),
            Some(odd) => Err(Error(format!("field label not supported: {}", odd.field))),
        }
    }

    /// Whether this selects everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The name that is asked for if `metadata.name=x` is among the requirements, so that a list can be a get.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.requirements
            .iter()
            .find(|requirement| requirement.equal && requirement.field == "metadata.name")
            .map(|requirement| requirement.value.as_str())
    }

    /// Whether `object` is selected. A missing field counts as empty text.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        self.requirements
            .iter()
            .all(|requirement| (read(object, &requirement.field) == requirement.value) == requirement.equal)
    }
}

/// The fields beyond name and namespace on which the objects of a built-in type may be selected.
#[must_use]
pub fn selectable(group: &str, kind: &str) -> &'static [&'static str] {
    match (group, kind) {
        ("", "Pod") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "Node") => &["spec.unschedulable"],
        ("", "Namespace") => &["status.phase"],
        ("", "Secret") => &["type"],
        ("", "Service") => &["spec.clusterIP", "spec.type"],
        ("", "Event") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "Event") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("batch", "Job") => &["status.successful"],
        _ => &[],
    }
}

/// The text of a field; what is missing is empty, or `false` where the field is a flag.
fn read<'a>(object: &'a Value, field: &str) -> Cow<'a, str> {
    if field == "source" {
        return read(object, "source.component");
    }
    let found = field.split('.').try_fold(object, |value, name| value.get(name));
    match found {
        Some(Value::String(text)) => Cow::Borrowed(text),
        Some(Value::Bool(flag)) => Cow::Borrowed(if *flag { "true" } else { "false" }),
        Some(Value::Number(number)) => Cow::Owned(number.to_string()),
        _ if matches!(field, "spec.hostNetwork" | "spec.unschedulable") => Cow::Borrowed("false"),
        _ => Cow::Borrowed(""),
    }
}

/// Splits at commas that are not escaped.
fn terms(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (position, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                found.push(&text[start..position]);
                start = position + 1;
            }
            _ => {}
        }
    }
    found.push(&text[start..]);
    found
}

fn unescape(text: &str) -> Result<String, Error> {
    let mut value = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(plain @ ('\\' | ',' | '=')) => value.push(plain),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(Error(format!(
                        "invalid field selector: invalid escape sequence: {sequence}"
                    )));
                }
            },
            ',' | '=' => {
                let code = u32::from(character);
                return Err(Error(format!("invalid field selector: unescaped character in value: {code}")));
            }
            plain => value.push(plain),
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn selects(selector: &str, object: &Value) -> bool {
        Fields::parse(selector).unwrap().matches(object)
    }

    #[test]
    fn fields_are_compared_as_text() {
        let pod =
            json!({"metadata": {"name": "a"}, "spec": {"n": 3, "b": true}, "status": {"phase": "Running"}});
        assert!(selects("metadata.name=a,status.phase!=Failed", &pod));
        assert!(selects("spec.n==3,spec.b=true,spec.missing=", &pod));
        assert!(!selects("metadata.name!=a", &pod));
        assert!(selects("spec.hostNetwork=false", &pod));
        assert!(selects(r"metadata.name!=x\,y", &pod));
        assert_eq!(Fields::parse("status.phase=x,metadata.name=a").unwrap().name(), Some("a"));
        assert_eq!(Fields::parse("metadata.name!=a").unwrap().name(), None);
    }

    #[test]
    fn faults_are_named_as_the_api_names_them() {
        let refused = |text: &str| Fields::parse(text).unwrap_err().0;
        assert_eq!(refused("a"), "invalid selector: 'a'; can't understand 'a'");
        assert_eq!(refused("a=b=c"), "invalid field selector: unescaped character in value: 61");
        assert_eq!(refused(r"a=\x"), r"invalid field selector: invalid escape sequence: \x");
    }

    #[test]
    fn only_some_fields_can_be_selected_on() {
        let fields = Fields::parse("spec.color=red").unwrap();
        assert!(fields.check_custom(true, &[".spec.color".to_owned()]).is_ok());
        assert_eq!(fields.check_custom(true, &[]).unwrap_err().0, "field label not supported: spec.color");
        assert_eq!(
            fields.check_builtin("", "ConfigMap").unwrap_err().0,
            "\"spec.color\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        );
        assert_eq!(fields.check_builtin("", "Pod").unwrap_err().0, "field label not supported: spec.color");
        let namespace = Fields::parse("metadata.namespace=a").unwrap();
        assert!(namespace.check_custom(false, &[]).is_err() && namespace.check_custom(true, &[]).is_ok());
    }
}
