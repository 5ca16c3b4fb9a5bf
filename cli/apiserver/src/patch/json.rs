//! JSON patch (RFC 6902).

use super::{Error, OPERATIONS_LIMIT};
use crate::schema::words;
use serde_json::Value;

/// What a path leads to: the place and the name or position in it.
struct Target<'a> {
    container: &'a mut Value,
    key: String,
}

/// Applies a JSON patch: `patch` is the list of operations.
///
/// As the API server does, `replace` of a field that is missing adds it, and negative positions count from the end of a
/// list.
///
/// # Errors
/// The first operation that cannot be done; the object is then unchanged, since the result is a copy.
pub fn json(object: &Value, patch: &Value) -> Result<Value, Error> {
    let Some(operations) = patch.as_array() else {
        return Err(undecodable(patch, "[]handlers.jsonPatchOp"));
    };
    if operations.len() > OPERATIONS_LIMIT {
        return Err(Error::TooLarge(operations.len()));
    }
    let mut result = object.clone();
    for operation in operations {
        if !operation.is_object() {
            return Err(undecodable(operation, "handlers.jsonPatchOp"));
        }
        run(&mut result, operation).map_err(Error::Unprocessable)?;
    }
    Ok(result)
}

fn undecodable(found: &Value, wanted: &str) -> Error {
    let found = words::json_kind(found);
    Error::Malformed(format!(
        "error decoding patch: json: cannot unmarshal {found} into Go value of type {wanted}"
    ))
}

fn run(object: &mut Value, operation: &Value) -> Result<(), String> {
    let name = operation.get("op").and_then(Value::as_str).unwrap_or("unknown");
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match name {
        "add" => {
            let path = text(operation, "path").ok_or("add operation failed to decode path: missing value")?;
            let target = find(object, path).ok_or_else(|| {
                format!("add operation does not apply: doc is missing path: \"{path}\": missing value")
            })?;
            target.add(value()).map_err(|error| format!("error in add for path: '{path}': {error}"))
        }
        "remove" => {
            let path =
                text(operation, "path").ok_or("remove operation failed to decode path: missing value")?;
            let target = find(object, path).ok_or_else(|| {
                format!("remove operation does not apply: doc is missing path: \"{path}\": missing value")
            })?;
            target
                .remove()
                .map(|_| ())
                .map_err(|error| format!("error in remove for path: '{path}': {error}"))
        }
        "replace" => {
            let path = text(operation, "path").ok_or(
                "replace operation failed to decode path: operation missing path field: missing value",
            )?;
            if path.is_empty() {
                *object = value();
                return Ok(());
            }
            let target = find(object, path).ok_or_else(|| {
                format!("replace operation does not apply: doc is missing path: {path}: missing value")
            })?;
            target.set(value()).map_err(|_| {
                format!("replace operation does not apply: doc is missing key: {path}: missing value")
            })
        }
        "move" => {
            let from = text(operation, "from").ok_or(
                "move operation failed to decode from: operation, missing from field: missing value",
            )?;
            let source = find(object, from).ok_or_else(|| {
                format!("move operation does not apply: doc is missing from path: {from}: missing value")
            })?;
            let key = source.key.clone();
            let moved =
                source.remove().map_err(|error| format!("error in move for path: '{key}': {error}"))?;
            let path = text(operation, "path")
                .ok_or("move operation failed to decode path: operation missing path field: missing value")?;
            let target = find(object, path).ok_or_else(|| {
                format!(
                    "move operation does not apply: doc is missing destination path: {path}: missing value"
                )
            })?;
            target.add(moved).map_err(|error| format!("error in move for path: '{path}': {error}"))
        }
        "copy" => {
            let from = text(operation, "from").ok_or(
                "copy operation failed to decode from: operation, missing from field: missing value",
            )?;
            let source = find(object, from).ok_or_else(|| {
                format!("copy operation does not apply: doc is missing from path: {from}: missing value")
            })?;
            let copied =
                source.get().map_err(|error| format!("error in copy for from: '{from}': {error}"))?;
            let copied = copied.cloned().unwrap_or(Value::Null);
            let path =
                text(operation, "path").ok_or("copy operation failed to decode path: missing value")?;
            let target = find(object, path).ok_or_else(|| {
                format!(
                    "copy operation does not apply: doc is missing destination path: {path}: missing value"
                )
            })?;
            target.add(copied).map_err(|error| format!("error while adding value during copy: {error}"))
        }
        "test" => {
            let path = text(operation, "path")
                .ok_or("test operation failed to decode path: operation missing path field: missing value")?;
            let failed = || format!("testing value {path} failed: test failed");
            if path.is_empty() {
                return if *object == value() { Ok(()) } else { Err(failed()) };
            }
            let target = find(object, path).ok_or_else(|| {
                format!("test operation does not apply: is missing path: {path}: missing value")
            })?;
            let found = target.get().map_err(|error| format!("error in test for path: '{path}': {error}"))?;
            if same(found.unwrap_or(&Value::Null), &value()) { Ok(()) } else { Err(failed()) }
        }
        other => Err(format!("Unexpected kind: {other}")),
    }
}

fn text<'a>(operation: &'a Value, name: &str) -> Option<&'a str> {
    operation.get(name).and_then(Value::as_str)
}

/// The container that a path leads to; none if it, or anything on the way, is missing or a scalar.
fn find<'a>(object: &'a mut Value, path: &str) -> Option<Target<'a>> {
    let mut parts: Vec<String> =
        path.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).collect();
    let key = parts.pop()?;
    let mut container = object;
    for part in parts {
        container = match container {
            Value::Object(fields) => fields.get_mut(&part)?,
            Value::Array(items) => {
                let position = position(&part, items.len()).ok()?;
                items.get_mut(position)?
            }
            _ => return None,
        };
    }
    (container.is_object() || container.is_array()).then_some(Target { container, key })
}

impl<'a> Target<'a> {
    fn get(&self) -> Result<Option<&Value>, String> {
        match &*self.container {
            Value::Array(items) => Ok(items.get(position(&self.key, items.len())?)),
            other => Ok(other.get(&self.key)),
        }
    }

    fn set(self, value: Value) -> Result<(), String> {
        match self.container {
            Value::Array(items) => {
                let position = position(&self.key, items.len())?;
                items[position] = value;
            }
            Value::Object(fields) => {
                fields.insert(self.key, value);
            }
            _ => {}
        }
        Ok(())
    }

    fn add(self, value: Value) -> Result<(), String> {
        match self.container {
            Value::Array(items) if self.key == "-" => items.push(value),
            Value::Array(items) => {
                let position = position(&self.key, items.len() + 1).map_err(|error| {
                    if error.starts_with("strconv") {
                        format!("value was not a proper array index: '{}': {error}", self.key)
                    } else {
                        error
                    }
                })?;
                items.insert(position, value);
            }
            Value::Object(fields) => {
                fields.insert(self.key, value);
            }
            _ => {}
        }
        Ok(())
    }

    fn remove(self) -> Result<Value, String> {
        match self.container {
            Value::Array(items) => {
                let position = position(&self.key, items.len())?;
                Ok(items.remove(position))
            }
            Value::Object(fields) => fields
                .remove(&self.key)
                .ok_or_else(|| format!("Unable to remove nonexistent key: {}: missing value", self.key)),
            _ => Ok(Value::Null),
        }
    }
}

/// A position in a list of which `length` are valid.
fn position(key: &str, length: usize) -> Result<usize, String> {
    let number: i64 = key.parse().map_err(|_| format!("strconv.Atoi: parsing \"{key}\": invalid syntax"))?;
    let wrong = || format!("Unable to access invalid index: {number}: invalid index referenced");
    let found = if number < 0 {
        length.checked_sub(usize::try_from(number.unsigned_abs()).map_err(|_| wrong())?)
    } else {
        usize::try_from(number).ok().filter(|position| *position < length)
    };
    found.ok_or_else(wrong)
}

fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(name, left)| right.get(name).is_some_and(|right| same(left, right)))
        }
        _ => left == right,
    }
}
