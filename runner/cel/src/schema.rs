//! Types from JSON schemas, and values read by them.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map as JsonMap, Value as Json};

use crate::escape::escape;
use crate::fault::Fault;
use crate::library::time;
use crate::types::{Field, ListType, Object, Type};
use crate::value::{Identity, Key, List, MAX_READ, Map, Value};

/// Whether a structural schema is that of a whole object, whose `apiVersion`, `kind` and `metadata` rules may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// The root of a custom resource.
    Yes,
    /// Anything below.
    No,
}

impl Type {
    /// The type that a JSON schema describes, for plain JSON.
    ///
    /// - An object with `properties` has these fields and no others, unless it says `additionalProperties` or
    ///   `x-kubernetes-preserve-unknown-fields`. An object without any of these is a map of anything.
    /// - `integer` is int, `number` double; strings are strings whatever their format.
    /// - What can be of several types, or null, is dyn.
    pub fn from_schema(schema: &Json) -> Self {
        plain(schema)
    }

    /// The type that a structural schema of a CustomResourceDefinition gives to its values in validation rules, or
    /// `None` when rules cannot see them.
    ///
    /// As the API server has it: `date-time` and `date` are timestamps, `duration` a duration, `byte` bytes,
    /// `x-kubernetes-int-or-string` dyn; list types set and map have their own equality; field names are escaped
    /// ([`crate::escape::escape`]); fields without a declared type, and all that is not declared, cannot be seen.
    pub fn from_structural(schema: &Json, root: Root) -> Option<Self> {
        structural(schema, root == Root::Yes)
    }

    /// Reads JSON by this type. A part that is not what the type says is read as it is.
    ///
    /// # Errors
    /// [`Fault::TooDeep`] for more than 160 levels, which no parser of JSON text gives.
    pub fn value(&self, json: &Json) -> Result<Value, Fault> {
        read(self, json, MAX_READ)
    }
}

fn flag(schema: &Json, name: &str) -> bool {
    schema.get(name).and_then(Json::as_bool).unwrap_or(false)
}

fn plain(schema: &Json) -> Type {
    if flag(schema, "nullable") || flag(schema, "x-kubernetes-int-or-string") {
        return Type::Dyn;
    }
    let properties = schema.get("properties").and_then(Json::as_object);
    match schema.get("type").and_then(Json::as_str) {
        Some("boolean") => Type::Bool,
        Some("integer") => Type::Int,
        Some("number") => Type::Double,
        Some("string") => Type::String,
        Some("null") => Type::Null,
        Some("array") => Type::list(schema.get("items").map_or(Type::Dyn, plain)),
        Some("object") => plain_object(schema, properties),
        None if properties.is_some() && schema.get("type").is_none() => plain_object(schema, properties),
        _ => Type::Dyn,
    }
}

fn plain_object(schema: &Json, properties: Option<&JsonMap<String, Json>>) -> Type {
    let rest = match schema.get("additionalProperties") {
        Some(Json::Bool(true)) => Some(Type::Dyn),
        Some(Json::Object(rest)) => Some(plain(&Json::Object(rest.clone()))),
        _ if flag(schema, "x-kubernetes-preserve-unknown-fields") => Some(Type::Dyn),
        _ => None,
    };
    let Some(properties) = properties.filter(|properties| !properties.is_empty()) else {
        return Type::map(Type::String, rest.unwrap_or(Type::Dyn));
    };
    let field = |(name, schema): (&String, &Json)| {
        let name: Arc<str> = name.as_str().into();
        Field { key: name.clone(), name, ty: plain(schema) }
    };
    Type::Object(Arc::new(Object { fields: properties.iter().map(field).collect(), rest, sealed: false }))
}

fn structural(schema: &Json, root: bool) -> Option<Type> {
    if flag(schema, "x-kubernetes-int-or-string") {
        return Some(Type::Dyn);
    }
    let text = |name: &str| schema.get(name).and_then(Json::as_str);
    let embedded = |schema: &Json| structural(schema, flag(schema, "x-kubernetes-embedded-resource"));
    Some(match text("type") {
        Some("boolean") => Type::Bool,
        Some("integer") => Type::Int,
        Some("number") => Type::Double,
        Some("string") => match text("format") {
            Some("byte") => Type::Bytes,
            Some("duration") => Type::Duration,
            Some("date" | "date-time") => Type::Timestamp,
            _ => Type::String,
        },
        Some("array") => {
            let item = embedded(schema.get("items")?)?;
            Type::List(Arc::new(ListType { item, identity: identity(schema) }))
        }
        Some("object") => match schema.get("additionalProperties") {
            Some(values @ Json::Object(_)) => Type::map(Type::String, embedded(values)?),
            _ => {
                let empty = JsonMap::new();
                let properties = schema.get("properties").and_then(Json::as_object).unwrap_or(&empty);
                let mut fields: Vec<Field> = properties
                    .iter()
                    .filter_map(|(name, schema)| {
                        let ty = embedded(schema)?;
                        Some(Field { name: escape(name)?.into(), key: name.as_str().into(), ty })
                    })
                    .collect();
                if root {
                    add_object_meta(&mut fields);
                }
                Type::Object(Arc::new(Object { fields, rest: None, sealed: true }))
            }
        },
        _ => return None,
    })
}

/// What every object has, declared or not.
fn add_object_meta(fields: &mut Vec<Field>) {
    let field = |name: &str, ty: Type| Field { name: name.into(), key: name.into(), ty };
    for name in ["apiVersion", "kind"] {
        if !fields.iter().any(|field| &*field.name == name) {
            fields.push(field(name, Type::String));
        }
    }
    let metadata = Object {
        fields: vec![field("name", Type::String), field("generateName", Type::String)],
        rest: None,
        sealed: true,
    };
    fields.retain(|field| &*field.name != "metadata");
    fields.push(field("metadata", Type::Object(Arc::new(metadata))));
}

fn identity(schema: &Json) -> Identity {
    match schema.get("x-kubernetes-list-type").and_then(Json::as_str) {
        Some("set") => Identity::Set,
        Some("map") => {
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Json::as_array);
            let keys = keys.into_iter().flatten().filter_map(Json::as_str);
            Identity::Keys(keys.map(|key| Arc::from(escape(key).as_deref().unwrap_or(key))).collect())
        }
        _ => Identity::Sequence,
    }
}

fn read(ty: &Type, json: &Json, levels: usize) -> Result<Value, Fault> {
    match (ty, json) {
        (Type::Optional(inner), json) if !json.is_null() => read(inner, json, levels).map(Value::some),
        (_, Json::Array(items)) => {
            read_list(ty, items, levels.checked_sub(1).ok_or(Fault::TooDeep(MAX_READ))?)
        }
        (_, Json::Object(entries)) => {
            read_map(ty, entries, levels.checked_sub(1).ok_or(Fault::TooDeep(MAX_READ))?)
        }
        _ => read_scalar(ty, json),
    }
}

fn read_list(ty: &Type, items: &[Json], levels: usize) -> Result<Value, Fault> {
    let (item_type, identity) = match ty {
        Type::List(list) => (&list.item, list.identity.clone()),
        _ => (&Type::Dyn, Identity::Sequence),
    };
    let mut values = Vec::with_capacity(items.len());
    for item in items {
        values.push(read(item_type, item, levels)?);
    }
    Ok(Value::List(List::with_identity(values, identity)))
}

fn read_map(ty: &Type, entries: &JsonMap<String, Json>, levels: usize) -> Result<Value, Fault> {
    let mut values = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        let (name, ty) = match ty {
            Type::Object(object) => match object.fields.iter().find(|field| *field.key == **key) {
                Some(field) => (field.name.clone(), &field.ty),
                None => (Arc::from(key.as_str()), object.rest.as_ref().unwrap_or(&Type::Dyn)),
            },
            Type::Map(entry) => (Arc::from(key.as_str()), &entry.1),
            _ => (Arc::from(key.as_str()), &Type::Dyn),
        };
        values.push((Key::String(name), read(ty, value, levels)?));
    }
    Ok(Value::Map(Map::new(values)))
}

fn read_scalar(ty: &Type, json: &Json) -> Result<Value, Fault> {
    Ok(match (ty, json) {
        (Type::Optional(_), Json::Null) => Value::none(),
        (Type::Double, Json::Number(number)) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        (Type::Int, Json::Number(number)) => match number.as_f64() {
            // `5.0` is a whole number in JSON schemas.
            Some(float) if number.is_f64() && float.fract() == 0.0 => {
                crate::value::double_to_int(float).map_or(Value::Double(float), Value::Int)
            }
            _ => Value::from_json(json)?,
        },
        (Type::Timestamp, Json::String(text)) => {
            let time = time::parse_timestamp(text).or_else(|| time::parse_date(text));
            time.map_or_else(|| text.as_str().into(), Value::Timestamp)
        }
        (Type::Duration, Json::String(text)) => {
            time::parse_loose_duration(text).map_or_else(|| text.as_str().into(), Value::Duration)
        }
        (Type::Bytes, Json::String(text)) => {
            STANDARD.decode(text).map_or_else(|_| text.as_str().into(), |bytes| Value::Bytes(bytes.into()))
        }
        _ => Value::from_json(json)?,
    })
}
