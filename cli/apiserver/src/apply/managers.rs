//! `metadata.managedFields`: who owns what.

use super::set::Set;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// How many entries of updaters an object keeps.
const UPDATERS: usize = 10;

/// The manager of the entry that older ones are put into.
const ANCIENT: &str = "ancient-changes";

/// How a manager came to own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// Who owns: one entry per manager, operation and subresource, and, for updates, per version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub manager: String,
    pub operation: Operation,
    /// Kept out of the identity of an applier, which has one entry whatever version it applies in.
    pub api_version: String,
    pub subresource: String,
}

/// One entry.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub owner: Owner,
    pub time: Option<String>,
    pub set: Set,
}

/// All entries of an object.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Managers {
    pub entries: Vec<Entry>,
}

impl Owner {
    /// Whether both are the same entry.
    pub fn is(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// The owner as conflicts name it.
    pub fn describe(&self) -> String {
        let mut text = crate::schema::quote(&self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {}", crate::schema::quote(&self.subresource)));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }
}

impl Managers {
    /// Reads the entries of an object. Nothing if one of them cannot be read.
    pub fn read(object: &Value) -> Option<Self> {
        let Some(list) = object.get("metadata").and_then(|metadata| metadata.get("managedFields")) else {
            return Some(Self::default());
        };
        let mut managers = Self::default();
        for entry in list.as_array().map(Vec::as_slice).unwrap_or_default() {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let operation = match text("operation").as_str() {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return None,
            };
            let set = match entry.get("fieldsV1") {
                Some(Value::Null) | None => Set::default(),
                Some(fields) => Set::from_fields(fields)?,
            };
            let owner = Owner {
                manager: text("manager"),
                operation,
                api_version: text("apiVersion"),
                subresource: text("subresource"),
            };
            let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
            match managers.entries.iter_mut().find(|entry| entry.owner.is(&owner)) {
                Some(existing) => existing.set = existing.set.union(&set),
                None => managers.entries.push(Entry { owner, time, set }),
            }
        }
        Some(managers)
    }

    /// Whether a list asks to forget all ownership: a single empty entry.
    pub fn is_reset(object: &Value) -> bool {
        let list = object.get("metadata").and_then(|metadata| metadata.get("managedFields"));
        list.is_some_and(|list| *list == json!([{}]))
    }

    /// Writes the entries to an object, in the order of the API: appliers first, then by time.
    pub fn write(mut self, object: &mut Value) {
        self.entries.retain(|entry| !entry.set.is_empty());
        self.entries.sort_by(|left, right| {
            let key = |entry: &Entry| {
                let owner = &entry.owner;
                (owner.operation, entry.time.clone(), owner.manager.clone(), owner.api_version.clone())
            };
            key(left).cmp(&key(right)).then_with(|| left.owner.subresource.cmp(&right.owner.subresource))
        });
        let Value::Object(fields) = object else { return };
        let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(metadata) = metadata else { return };
        if self.entries.is_empty() {
            metadata.remove("managedFields");
        } else {
            let list = self.entries.iter().map(Entry::to_value).collect();
            metadata.insert("managedFields".to_owned(), Value::Array(list));
        }
    }

    /// Keeps the number of updaters in bounds: the oldest are put together, per version, in one entry.
    pub fn cap(&mut self) {
        let mut updaters: Vec<(Option<String>, String, Owner)> = self
            .entries
            .iter()
            .filter(|entry| entry.owner.operation == Operation::Update)
            .map(|entry| (entry.time.clone(), entry.owner.manager.clone(), entry.owner.clone()))
            .collect();
        if updaters.len() <= UPDATERS {
            return;
        }
        updaters.sort_by(|left, right| (&left.0, &left.1).cmp(&(&right.0, &right.1)));
        let mut left = updaters.len();
        let mut first: BTreeMap<String, Owner> = BTreeMap::new();
        for (time, _, owner) in updaters {
            if left <= UPDATERS {
                break;
            }
            let bucket = Owner {
                manager: ANCIENT.to_owned(),
                operation: Operation::Update,
                api_version: owner.api_version.clone(),
                subresource: String::new(),
            };
            let Some(oldest) = first.get(&owner.api_version) else {
                first.insert(owner.api_version.clone(), owner);
                continue;
            };
            if self.get(&bucket).is_none() {
                let set = self.take(oldest);
                self.set(&bucket, set);
            }
            let set = self.take(&owner);
            let all = self.get(&bucket).map_or_else(|| set.clone(), |entry| entry.set.union(&set));
            self.set(&bucket, all);
            if let Some(time) = time {
                self.touch(&bucket, &time);
            }
            left -= 1;
        }
    }

    fn take(&mut self, owner: &Owner) -> Set {
        match self.entries.iter().position(|entry| entry.owner.is(owner)) {
            Some(position) => self.entries.remove(position).set,
            None => Set::default(),
        }
    }

    /// The entry of an owner.
    pub fn get(&self, owner: &Owner) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.owner.is(owner))
    }

    /// Sets the fields of an owner, whose version may have changed. The time is left as it was.
    pub fn set(&mut self, owner: &Owner, set: Set) {
        match self.entries.iter_mut().find(|entry| entry.owner.is(owner)) {
            Some(entry) => {
                entry.owner.api_version.clone_from(&owner.api_version);
                entry.set = set;
            }
            None => self.entries.push(Entry { owner: owner.clone(), time: None, set }),
        }
    }

    /// Notes that an owner has just changed something.
    pub fn touch(&mut self, owner: &Owner, time: &str) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.owner.is(owner)) {
            entry.time = Some(time.to_owned());
        }
    }
}

impl Entry {
    fn to_value(&self) -> Value {
        let mut entry = Map::new();
        let mut put = |name: &str, value: Value| {
            entry.insert(name.to_owned(), value);
        };
        put("manager", json!(self.owner.manager));
        put(
            "operation",
            json!(match self.owner.operation {
                Operation::Apply => "Apply",
                Operation::Update => "Update",
            }),
        );
        put("apiVersion", json!(self.owner.api_version));
        if let Some(time) = &self.time {
            put("time", json!(time));
        }
        put("fieldsType", json!("FieldsV1"));
        put("fieldsV1", self.set.to_fields());
        if !self.owner.subresource.is_empty() {
            put("subresource", json!(self.owner.subresource));
        }
        Value::Object(entry)
    }
}

/// Takes `managedFields` out of an object; ownership is never owned.
pub(super) fn strip(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    object
}
