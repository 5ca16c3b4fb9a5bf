//! Reading and writing the metadata of an object that is otherwise only JSON.

use chrono::{DateTime, SecondsFormat, Utc};
use rand::RngExt;
use serde_json::{Map, Value, json};

/// The text at `metadata.{field}`, empty if there is none.
pub fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The name.
pub fn name(object: &Value) -> &str {
    meta(object, "name")
}

/// The namespace, empty for what has none.
pub fn namespace(object: &Value) -> &str {
    meta(object, "namespace")
}

/// The identity that no other object ever has.
pub fn uid(object: &Value) -> &str {
    meta(object, "uid")
}

/// Whether somebody has asked for the deletion of this object.
pub fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// `metadata`, made an object if it is none.
pub fn metadata(object: &mut Value) -> &mut Map<String, Value> {
    field(object, "metadata")
}

/// The field `name`, made an object if it is none; the same for the value itself.
pub fn field<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    let inner = fields(object).entry(name).or_insert_with(|| json!({}));
    fields(inner)
}

/// The fields of a value, made an object if it is none.
pub fn fields(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(map) => map,
        // The value has just been made one.
        _ => unreachable!("an object"),
    }
}

/// Sets `metadata.{field}`.
pub fn set_meta(object: &mut Value, field: &str, value: impl Into<Value>) {
    metadata(object).insert(field.to_owned(), value.into());
}

/// Removes `metadata.{field}`.
pub fn remove_meta(object: &mut Value, field: &str) {
    metadata(object).remove(field);
}

/// The finalizers, in order.
pub fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"]
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

/// Whether a finalizer is there.
pub fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    finalizers(object).contains(&finalizer)
}

/// Adds a finalizer unless it is there.
pub fn add_finalizer(object: &mut Value, finalizer: &str) {
    if !has_finalizer(object, finalizer) {
        match metadata(object).entry("finalizers").or_insert_with(|| json!([])) {
            Value::Array(list) => list.push(json!(finalizer)),
            other => *other = json!([finalizer]),
        }
    }
}

/// Removes a finalizer, and the list with the last one.
pub fn remove_finalizer(object: &mut Value, finalizer: &str) {
    let rest: Vec<Value> =
        finalizers(object).into_iter().filter(|name| *name != finalizer).map(|name| json!(name)).collect();
    if rest.is_empty() {
        remove_meta(object, "finalizers");
    } else {
        set_meta(object, "finalizers", rest);
    }
}

/// One owner of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner<'a> {
    /// Group and version.
    pub api_version: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// Name, in the namespace of the dependent or in none.
    pub name: &'a str,
    /// Which object of that name.
    pub uid: &'a str,
    /// Whether a foreground deletion of the owner waits for this dependent.
    pub blocks: bool,
}

/// The owners of an object.
pub fn owners(object: &Value) -> Vec<Owner<'_>> {
    let Some(list) = object["metadata"]["ownerReferences"].as_array() else { return Vec::new() };
    list.iter()
        .map(|owner| Owner {
            api_version: owner["apiVersion"].as_str().unwrap_or_default(),
            kind: owner["kind"].as_str().unwrap_or_default(),
            name: owner["name"].as_str().unwrap_or_default(),
            uid: owner["uid"].as_str().unwrap_or_default(),
            blocks: owner["blockOwnerDeletion"].as_bool().unwrap_or(false),
        })
        .collect()
}

/// Removes the owners with one of these identities.
pub fn disown(object: &mut Value, uids: &[&str]) {
    let map = metadata(object);
    if let Some(Value::Array(list)) = map.get_mut("ownerReferences") {
        list.retain(|owner| !owner["uid"].as_str().is_some_and(|uid| uids.contains(&uid)));
        if list.is_empty() {
            map.remove("ownerReferences");
        }
    }
}

/// The value at a path of field names such as `.spec.replicas`.
pub fn at_path<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut value = object;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        value = value.get(step)?;
    }
    Some(value)
}

/// Sets the value at a path of field names, making objects on the way.
pub fn set_path(object: &mut Value, path: &str, new: Value) {
    let mut value = object;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        value = fields(value).entry(step).or_insert(Value::Null);
    }
    *value = new;
}

/// A time as objects carry it: UTC, whole seconds.
pub fn stamp(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Now, as objects carry it.
pub fn now() -> String {
    stamp(Utc::now())
}

/// A new random identity (UUID version 4).
pub fn new_uid() -> String {
    let mut bits: u128 = rand::rng().random();
    bits = (bits & !(0xf << 76)) | (0x4 << 76);
    bits = (bits & !(0x3 << 62)) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Letters and digits that cannot form words, as generated names end in.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A name from a `generateName` prefix: at most 63 characters with five random ones at the end.
pub fn generate_name(prefix: &str) -> String {
    let mut random = rand::rng();
    let mut name: String = prefix.chars().take(58).collect();
    for _ in 0..5 {
        name.push(char::from(SUFFIX_LETTERS[random.random_range(0..SUFFIX_LETTERS.len())]));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_random_and_of_version_four() {
        let (one, two) = (new_uid(), new_uid());
        assert_ne!(one, two);
        assert_eq!(one.len(), 36);
        assert_eq!(&one[14..15], "4");
        assert!("89ab".contains(&one[19..20]), "{one}");
    }

    #[test]
    fn finalizers_come_and_go_and_leave_no_empty_list() {
        let mut object = json!({});
        add_finalizer(&mut object, "a/b");
        add_finalizer(&mut object, "a/b");
        assert_eq!(finalizers(&object), ["a/b"]);
        remove_finalizer(&mut object, "a/b");
        assert_eq!(object, json!({ "metadata": {} }));
    }

    #[test]
    fn a_generated_name_keeps_its_prefix_within_the_limit() {
        let name = generate_name(&"a".repeat(100));
        assert_eq!(name.len(), 63);
        assert!(generate_name("job-").starts_with("job-"));
    }
}
