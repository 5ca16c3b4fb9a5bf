//! Who owns which field: server-side apply and the bookkeeping of `metadata.managedFields`.
//!
//! [`apply`] merges a configuration into a live object; [`track`] records what any other write has changed. Both return
//! the object to be stored, with its managed fields brought up to date. Timestamps come in as text, so that the module
//! has no clock.

mod compare;
mod managers;
mod merge;
mod set;

#[cfg(test)]
mod tests;
mod typed;

pub use set::{Element, Set};

use crate::schema::Schema;
use compare::Comparison;
use managers::{Managers, Operation, Owner, strip};
use serde_json::{Value, json};
use std::fmt::Write as _;
use typed::{Place, same};

/// The annotation in which kubectl keeps what it applied from the client's side.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What all annotations of an object may take, in bytes, and so this one.
const LAST_APPLIED_LIMIT: usize = 256 << 10;

/// Who is taken to own what was there before anybody kept books.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Who writes, where and when.
#[derive(Debug, Clone)]
pub struct Writer<'a> {
    /// The field manager, already resolved (see [`manager`]).
    pub manager: &'a str,
    /// The `apiVersion` in which the request is made.
    pub api_version: &'a str,
    /// The subresource, empty for the object itself.
    pub subresource: &'a str,
    /// Now, as RFC 3339 in UTC with seconds.
    pub time: &'a str,
    /// What this endpoint leaves alone, so that nobody comes to own it through it.
    pub ignores: Ignored,
}

/// Which part of an object an endpoint leaves alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ignored {
    /// Nothing: the resource has no status subresource.
    #[default]
    Nothing,
    /// `status`: the endpoint is the object of a resource that has a status subresource.
    Status,
    /// Everything but `status`: the endpoint is the status subresource.
    AllButStatus,
}

/// Why an apply was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// Fields are owned by others and the request does not force; a 409.
    #[error("{}", conflicts_message(.0))]
    Conflict(Vec<Conflict>),
    /// The configuration does not fit the schema: a list key is missing, a field is unknown, a value has another type.
    #[error("{0}")]
    Malformed(String),
}

/// One field that somebody else owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The owner, such as `"kubectl" using apps/v1`.
    pub owner: String,
    /// The path of the field, such as `.spec.replicas`.
    pub field: String,
}

impl Conflict {
    /// The entry of `details.causes` for this conflict.
    #[must_use]
    pub fn cause(&self) -> Value {
        let message = format!("conflict with {}", self.owner);
        json!({ "reason": "FieldManagerConflict", "message": message, "field": self.field })
    }
}

fn conflicts_message(conflicts: &[Conflict]) -> String {
    if let [Conflict { owner, field }] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {owner}: {field}");
    }
    let mut owners: Vec<&str> = conflicts.iter().map(|conflict| conflict.owner.as_str()).collect();
    owners.sort_unstable();
    owners.dedup();
    let mut lines = Vec::new();
    for owner in owners {
        lines.push(format!("conflicts with {owner}:"));
        let theirs = conflicts.iter().filter(|conflict| conflict.owner == owner);
        lines.extend(theirs.map(|conflict| format!("- {}", conflict.field)));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// Applies `config` to `live` on behalf of a writer; without `live` the object is created.
///
/// # Guarantees
/// Applying the same configuration twice changes nothing, not even the time of the entry. Fields that the manager
/// applied before and no longer claims are removed unless somebody else owns them.
///
/// # Caveats
/// The result is neither pruned nor defaulted; that is for the caller to do, as for any write.
///
/// # Errors
/// Conflicts unless `force`, and configurations that cannot be merged.
pub fn apply(
    schema: &Schema,
    live: Option<&Value>,
    config: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, Error> {
    let merged = match merge(schema, live, config, writer, force) {
        Err(Error::Conflict(conflicts)) if !force && covered(schema, live, writer, &conflicts) => {
            merge(schema, live, config, writer, true)
        }
        result => result,
    };
    merged.map(|mut object| {
        if is_kubectl(writer) {
            keep_last_applied(&mut object, config);
        }
        object
    })
}

fn is_kubectl(writer: &Writer<'_>) -> bool {
    writer.manager == "kubectl" && writer.subresource.is_empty()
}

/// Brings the annotation of kubectl, if there is one, up to what has now been applied from the server's side, so that the
/// next apply from the client's side starts from there.
fn keep_last_applied(object: &mut Value, config: &Value) {
    let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") else { return };
    if !annotations.contains_key(LAST_APPLIED) {
        return;
    }
    let mut config = config.clone();
    if let Some(Value::Object(applied)) = config.pointer_mut("/metadata/annotations") {
        applied.remove(LAST_APPLIED);
    }
    let text =
        config.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026") + "\n";
    if text.len() > LAST_APPLIED_LIMIT {
        annotations.remove(LAST_APPLIED);
    } else {
        annotations.insert(LAST_APPLIED.to_owned(), Value::String(text));
    }
}

/// Whether all conflicts are with what kubectl itself applied from the client's side: then this is the same person, who has
/// only moved to the server's side.
fn covered(schema: &Schema, live: Option<&Value>, writer: &Writer<'_>, conflicts: &[Conflict]) -> bool {
    if !is_kubectl(writer) {
        return false;
    }
    let annotation = live
        .and_then(|live| live.get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str())
        .and_then(|text| serde_json::from_str::<Value>(text).ok());
    annotation.is_some_and(|config| {
        let paths = Place::root(schema.root()).paths(&config).paths();
        conflicts.iter().all(|conflict| paths.contains(&conflict.field))
    })
}

fn merge(
    schema: &Schema,
    live: Option<&Value>,
    config: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, Error> {
    let place = Place::root(schema.root());
    let mut faults = Vec::new();
    place.check(config, "", &mut faults);
    if !faults.is_empty() {
        return Err(Error::Malformed(malformed(config, &faults)));
    }
    let ignored = writer.ignored();
    let current = live.map_or_else(|| json!({}), strip);
    let mut managers = live.and_then(Managers::read).unwrap_or_default();
    if live.is_some() && managers.entries.is_empty() {
        let before = Writer { manager: BEFORE_FIRST_APPLY, subresource: "", ..writer.clone() };
        let comparison = place.compare(&schema.empty(), &current).without(&ignored);
        record(&mut managers, &before, &comparison);
    }
    let owner = Owner {
        manager: writer.manager.to_owned(),
        operation: Operation::Apply,
        api_version: writer.api_version.to_owned(),
        subresource: writer.subresource.to_owned(),
    };
    let last = managers.get(&owner).map(|entry| entry.set.clone());
    let merged = place.merge(Some(&current), Some(config)).unwrap_or_else(|| current.clone());
    managers.set(&owner, place.paths(config).recursive_difference(&ignored));
    let merged = match last.filter(|last| !last.is_empty()) {
        Some(last) => release(place, &merged, &managers, &last),
        None => merged,
    };
    let merged = writer.restrict(&current, merged);
    let comparison = place.compare(&current, &merged).without(&ignored);
    yield_to(&mut managers, Some(&owner), &comparison, force)?;
    strip_own(&mut managers);
    // An applier that claims what is already so has changed nothing, and gets no time.
    if live.is_none() || !same(&current, &merged) {
        managers.touch(&owner, writer.time);
    }
    let mut result = merged;
    drop_empty_metadata(&mut result);
    schema.drop_empty(&mut result);
    managers.write(&mut result);
    Ok(result)
}

/// Empty metadata can be claimed, but is not kept.
fn drop_empty_metadata(object: &mut Value) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.retain(|_, value| match value {
            Value::Object(fields) => !fields.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Null => false,
            _ => true,
        });
    }
}

fn malformed(config: &Value, faults: &[String]) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let metadata = config.get("metadata");
    let meta = |name: &str| text(metadata.and_then(|metadata| metadata.get(name)));
    let version = text(config.get("apiVersion"));
    let version = if version.contains('/') { version } else { format!("/{version}") };
    let faults = match faults {
        [fault] => fault.clone(),
        several => {
            let mut list = "errors:".to_owned();
            for fault in several {
                let _ = write!(list, "\n  {fault}");
            }
            list
        }
    };
    format!(
        "failed to create typed patch object ({}/{}; {version}, Kind={}): {faults}",
        meta("namespace"),
        meta("name"),
        text(config.get("kind"))
    )
}

/// Takes out what an applier claimed before, no longer claims, and nobody else owns.
fn release(place: Place<'_>, merged: &Value, managers: &Managers, last: &Set) -> Value {
    let named = |path: &[Element]| place.names_path(path);
    let all = |set: Set| set.with_named(&named);
    let last = all(last.clone());
    let owned = managers.entries.iter().fold(Set::default(), |all, entry| all.union(&entry.set));
    let whole = all(place.paths(merged));
    let bare = place.remove(merged, &last);
    let kept = all(place.paths(&bare)).union(&all(owned));
    let without_unowned = place.remove(merged, &whole.difference(&kept));
    let rest = all(place.paths(&without_unowned));
    let gone = whole.difference(&rest).intersection(&last);
    match place.remove(merged, &gone) {
        Value::Null => json!({}),
        left => left,
    }
}

/// Takes from all owners but one what a write has changed or removed.
fn yield_to(
    managers: &mut Managers,
    writer: Option<&Owner>,
    comparison: &Comparison,
    force: bool,
) -> Result<(), Error> {
    let changed = comparison.modified.union(&comparison.added);
    let mut conflicts = Vec::new();
    for entry in &mut managers.entries {
        if writer.is_some_and(|writer| entry.owner.is(writer)) {
            continue;
        }
        let lost = entry.set.intersection(&changed);
        let owner = entry.owner.describe();
        conflicts.extend(lost.paths().into_iter().map(|field| Conflict { owner: owner.clone(), field }));
        entry.set = entry.set.difference(&lost).difference(&comparison.removed);
    }
    if !force && !conflicts.is_empty() {
        return Err(Error::Conflict(conflicts));
    }
    managers.entries.retain(|entry| !entry.set.is_empty());
    Ok(())
}

/// Records in `new.metadata.managedFields` what a create, update or patch (other than apply) has changed against `old`.
///
/// `new` is the object about to be stored, defaulted and pruned, and carries the managed fields that the client sent; a
/// list of a single empty entry resets all ownership. An object that has no managed fields gets none before it is
/// applied to.
pub fn track(schema: &Schema, old: Option<&Value>, new: &mut Value, writer: &Writer<'_>) {
    let place = Place::root(schema.root());
    let before = || old.and_then(Managers::read).unwrap_or_default();
    let mut managers = if !writer.subresource.is_empty() {
        before()
    } else if Managers::is_reset(new) {
        Managers::default()
    } else {
        Managers::read(new).filter(|managers| !managers.entries.is_empty()).unwrap_or_else(before)
    };
    if old.is_some() && managers.entries.is_empty() {
        managers.write(new);
        return;
    }
    let current = old.map_or_else(|| schema.empty(), strip);
    let comparison = place.compare(&current, &strip(new)).without(&writer.ignored());
    record(&mut managers, writer, &comparison);
    managers.cap();
    managers.write(new);
}

/// Gives the writer what it has changed, and takes it from all others.
fn record(managers: &mut Managers, writer: &Writer<'_>, comparison: &Comparison) {
    let owner = Owner {
        manager: writer.manager.to_owned(),
        operation: Operation::Update,
        api_version: writer.api_version.to_owned(),
        subresource: writer.subresource.to_owned(),
    };
    // The writer's own earlier entry gives up what has changed, too, and gets it back below. Forced, this cannot fail.
    let _ = yield_to(managers, None, comparison, true);
    let mut set = comparison.modified.union(&comparison.added);
    set = set.difference(&own_metadata());
    if !set.is_empty() {
        if let Some(entry) = managers.get(&owner) {
            set = set.union(&entry.set);
        }
        managers.set(&owner, set);
        managers.touch(&owner, writer.time);
    }
    strip_own(managers);
}

/// Identity and what the server keeps are nobody's.
fn strip_own(managers: &mut Managers) {
    let own = own_metadata();
    for entry in &mut managers.entries {
        entry.set = entry.set.difference(&own);
    }
    managers.entries.retain(|entry| !entry.set.is_empty());
}

fn own_metadata() -> Set {
    let field = |name: &str| Element::Field(name.to_owned());
    let mut set = Set::default();
    for name in ["apiVersion", "kind", "metadata"] {
        set.insert(&[field(name)]);
    }
    for name in [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ] {
        set.insert(&[field("metadata"), field(name)]);
    }
    set
}

impl Writer<'_> {
    /// The paths that this endpoint leaves alone.
    fn ignored(&self) -> Set {
        let mut set = Set::default();
        match self.ignores {
            Ignored::Nothing => {}
            Ignored::Status => set.insert(&[Element::Field("status".to_owned())]),
            Ignored::AllButStatus => {
                for name in ["metadata", "spec"] {
                    set.insert(&[Element::Field(name.to_owned())]);
                }
            }
        }
        set
    }

    /// The result of a merge, with what the endpoint leaves alone as it was.
    fn restrict(&self, current: &Value, mut merged: Value) -> Value {
        let copy = |from: &Value, to: &mut Value, name: &str| {
            if let Value::Object(fields) = to {
                match from.get(name) {
                    Some(value) => fields.insert(name.to_owned(), value.clone()),
                    None => fields.remove(name),
                };
            }
        };
        match self.ignores {
            Ignored::Nothing => merged,
            Ignored::Status => {
                copy(current, &mut merged, "status");
                merged
            }
            Ignored::AllButStatus => {
                let mut result = current.clone();
                copy(&merged, &mut result, "status");
                result
            }
        }
    }
}

/// The field manager of a request: the `fieldManager` parameter or else what comes before the first slash of the user
/// agent, at most 128 characters.
#[must_use]
pub fn manager(field_manager: Option<&str>, user_agent: &str) -> String {
    match field_manager {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => user_agent.split('/').next().unwrap_or_default().chars().take(128).collect(),
    }
}
