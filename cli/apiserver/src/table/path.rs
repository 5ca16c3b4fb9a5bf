//! The part of JSONPath that printer columns use: fields, indexes, wildcards, and filters on equality.

use serde_json::Value;

/// A parsed path.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Path(Vec<Step>);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Every,
    Index(i64),
    /// Elements whose value at the path compares so with the literal.
    Filter(Vec<Step>, Comparison),
}

#[derive(Debug, Clone, PartialEq)]
enum Comparison {
    Exists,
    Equal(Value),
    NotEqual(Value),
}

/// Why text is not a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Error(String);

impl Path {
    /// Parses `.spec.list[?(@.type=="Ready")].status` and the like; a leading `$` is allowed.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let trimmed = text.strip_prefix('$').unwrap_or(text);
        steps(trimmed).map(Self)
    }

    /// All values that the path leads to.
    pub(crate) fn find<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        walk(&self.0, object)
    }
}

fn walk<'a>(steps: &[Step], object: &'a Value) -> Vec<&'a Value> {
    let mut found = vec![object];
    for step in steps {
        found = found.into_iter().flat_map(|value| advance(step, value)).collect();
    }
    found
}

fn advance<'a>(step: &Step, value: &'a Value) -> Vec<&'a Value> {
    match (step, value) {
        (Step::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
        (Step::Every, Value::Object(map)) => map.values().collect(),
        (Step::Every, Value::Array(list)) => list.iter().collect(),
        (Step::Index(index), Value::Array(list)) => {
            let index = match usize::try_from(*index) {
                Ok(index) => Some(index),
                Err(_) => {
                    usize::try_from(index.unsigned_abs()).ok().and_then(|back| list.len().checked_sub(back))
                }
            };
            index.and_then(|index| list.get(index)).into_iter().collect()
        }
        (Step::Filter(inner, comparison), Value::Array(list)) => list
            .iter()
            .filter(|element| {
                let found = walk(inner, element);
                match comparison {
                    Comparison::Exists => !found.is_empty(),
                    Comparison::Equal(literal) => found.first().is_some_and(|value| *value == literal),
                    Comparison::NotEqual(literal) => found.first().is_some_and(|value| *value != literal),
                }
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn steps(text: &str) -> Result<Vec<Step>, Error> {
    let mut steps = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = match first {
            '.' => {
                let (name, after) = field(&rest[1..]);
                match name.as_str() {
                    "" => {}
                    "*" => steps.push(Step::Every),
                    _ => steps.push(Step::Field(name)),
                }
                after
            }
            '[' => {
                let end = closing(rest).ok_or_else(|| Error("unterminated array".to_owned()))?;
                steps.push(bracket(rest[1..end].trim())?);
                &rest[end + 1..]
            }
            _ if steps.is_empty() => {
                let (name, after) = field(rest);
                steps.push(Step::Field(name));
                after
            }
            other => return Err(Error(format!("unrecognized character in action: {other:?}"))),
        };
    }
    Ok(steps)
}

/// A field name up to the next `.` or `[`; a backslash makes the next character part of it.
fn field(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            '\\' if !escaped => escaped = true,
            '.' | '[' if !escaped => return (name, &text[at..]),
            other => {
                name.push(other);
                escaped = false;
            }
        }
    }
    (name, "")
}

/// Where the bracket at the start of the text closes, outside of quotes.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut depth = 0u32;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

fn bracket(inner: &str) -> Result<Step, Error> {
    if inner == "*" {
        return Ok(Step::Every);
    }
    if let Some(name) = unquote(inner) {
        return Ok(Step::Field(name.to_owned()));
    }
    if let Ok(index) = inner.parse() {
        return Ok(Step::Index(index));
    }
    let filter = inner.strip_prefix("?(").and_then(|text| text.strip_suffix(')'));
    let Some(filter) = filter else { return Err(Error(format!("invalid array index {inner}"))) };
    let (path, comparison) = if let Some((path, literal)) = filter.split_once("==") {
        (path, Comparison::Equal(literal_of(literal)?))
    } else if let Some((path, literal)) = filter.split_once("!=") {
        (path, Comparison::NotEqual(literal_of(literal)?))
    } else {
        (filter, Comparison::Exists)
    };
    let path = path.trim().strip_prefix('@').ok_or_else(|| Error(format!("unrecognized filter {filter}")))?;
    Ok(Step::Filter(steps(path)?, comparison))
}

fn unquote(text: &str) -> Option<&str> {
    ['\'', '"'].iter().find_map(|&quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

fn literal_of(text: &str) -> Result<Value, Error> {
    let text = text.trim();
    match unquote(text) {
        Some(text) => Ok(Value::from(text)),
        None => serde_json::from_str(text).map_err(|_| Error(format!("unrecognized literal {text}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(path: &str) -> Vec<Value> {
        let object = json!({
            "metadata": { "labels": { "app.kubernetes.io/name": "x" } },
            "status": { "conditions": [{ "type": "A", "status": "False" }, { "type": "Ready", "status": "True" }] },
            "spec": { "list": [1, 2, 3], "map": { "b": 1, "a": 2 } },
        });
        Path::parse(path).unwrap().find(&object).into_iter().cloned().collect()
    }

    #[test]
    fn paths_lead_to_fields_elements_and_filtered_elements() {
        assert_eq!(found(".status.conditions[?(@.type==\"Ready\")].status"), [json!("True")]);
        assert_eq!(found(".status.conditions[?(@.type != 'Ready')].status"), [json!("False")]);
        assert_eq!(found(".spec.list[0]"), [json!(1)]);
        assert_eq!(found(".spec.list[-1]"), [json!(3)]);
        assert_eq!(found("$.spec.list[*]"), [json!(1), json!(2), json!(3)]);
        assert_eq!(found(".spec.map.*"), [json!(2), json!(1)]);
        assert_eq!(found(".metadata.labels['app.kubernetes.io/name']"), [json!("x")]);
        assert_eq!(found(".metadata.labels.app\\.kubernetes\\.io/name"), [json!("x")]);
        assert!(found(".spec.none.of.this").is_empty());
    }

    #[test]
    fn text_that_is_no_path_is_refused() {
        for text in [".a[", ".a[x]", ".a[?(b==1)]", ".a[?(@.b==c)]"] {
            assert!(Path::parse(text).is_err(), "{text}");
        }
    }
}
