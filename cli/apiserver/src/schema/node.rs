//! One node of a compiled schema.

use super::pattern::Pattern;
use super::rules::Rules;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What stands at one place of a schema: its shape, what may be there, and how it is merged.
///
/// The same type serves the structural part and what is nested in `allOf`, `anyOf`, `oneOf` and `not`, where only
/// `checks`, `properties` and `items` may be set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Node {
    /// The JSON types that are allowed; none means any.
    pub types: Vec<Type>,
    pub nullable: bool,
    pub default: Option<Value>,
    pub properties: BTreeMap<String, Node>,
    pub additional: Option<Additional>,
    pub items: Option<Box<Node>>,
    pub preserve: bool,
    pub embedded: bool,
    pub list: ListType,
    /// A map that is owned and replaced as a whole.
    pub atomic: bool,
    pub checks: Checks,
    pub rules: Rules,
    pub patch: Patch,
    /// An object that is there even if it is empty, as built-in types have them.
    pub always: bool,
    /// A list that is there even if it is missing, as built-in types have them.
    pub listed: bool,
}

/// What `additionalProperties` says.
#[derive(Debug, Clone)]
pub(crate) enum Additional {
    Allowed(bool),
    Schema(Box<Node>),
}

/// How the elements of a list are told apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    /// They are not: the list is one value.
    #[default]
    Atomic,
    /// By value.
    Set,
    /// By the values of these fields.
    Map(Vec<String>),
}

/// How a strategic merge patch treats a field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Patch {
    pub merge_key: Option<String>,
    pub merge: bool,
    pub retain_keys: bool,
    /// A map that a patch replaces instead of merging into.
    pub replace: bool,
}

/// A JSON type, as schemas name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// Restrictions on a value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Checks {
    pub format: Option<String>,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub max_length: Option<u64>,
    pub min_length: Option<u64>,
    pub pattern: Option<Pattern>,
    pub max_items: Option<u64>,
    pub min_items: Option<u64>,
    pub unique_items: bool,
    pub multiple_of: Option<f64>,
    pub one_of_values: Vec<Value>,
    pub max_properties: Option<u64>,
    pub min_properties: Option<u64>,
    pub required: Vec<String>,
    pub all_of: Vec<Node>,
    pub any_of: Vec<Node>,
    pub one_of: Vec<Node>,
    pub not: Option<Box<Node>>,
}

impl Type {
    /// The type that a schema names.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    /// The name in a schema.
    pub fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

impl Node {
    /// Reads a schema that has been checked (see `compile`); what does not fit is left out.
    pub fn read(schema: &Value) -> Self {
        let empty = Map::new();
        let map = schema.as_object().unwrap_or(&empty);
        let flag = |name: &str| map.get(name).and_then(Value::as_bool).unwrap_or(false);
        let text = |name: &str| map.get(name).and_then(Value::as_str);
        let types = if flag("x-kubernetes-int-or-string") {
            vec![Type::Integer, Type::String]
        } else {
            text("type").and_then(Type::parse).into_iter().collect()
        };
        let list = match text("x-kubernetes-list-type") {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map(texts(map.get("x-kubernetes-list-map-keys"))),
            _ => ListType::Atomic,
        };
        Self {
            nullable: flag("nullable"),
            default: map.get("default").filter(|value| !value.is_null()).cloned(),
            properties: map
                .get("properties")
                .and_then(Value::as_object)
                .map(|fields| {
                    fields.iter().map(|(name, schema)| (name.clone(), Self::read(schema))).collect()
                })
                .unwrap_or_default(),
            additional: map.get("additionalProperties").and_then(|value| match value {
                Value::Bool(allowed) => Some(Additional::Allowed(*allowed)),
                Value::Object(_) => Some(Additional::Schema(Box::new(Self::read(value)))),
                _ => None,
            }),
            items: map
                .get("items")
                .filter(|items| items.is_object())
                .map(|items| Box::new(Self::read(items))),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            list,
            atomic: text("x-kubernetes-map-type") == Some("atomic"),
            checks: Checks::read(map, &types),
            rules: Rules::default(),
            patch: Patch::default(),
            always: false,
            listed: false,
            types,
        }
    }

    /// The schema of the field `name`, from the properties or else from `additionalProperties`.
    pub fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or_else(|| self.additional())
    }

    /// The schema of entries that are not among the properties.
    pub fn additional(&self) -> Option<&Self> {
        match &self.additional {
            Some(Additional::Schema(node)) => Some(node),
            _ => None,
        }
    }

    /// Whether one of the types is `wanted`.
    pub fn allows(&self, wanted: Type) -> bool {
        self.types.contains(&wanted)
    }

    /// The types as messages list them.
    pub fn type_names(&self) -> String {
        self.types.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(",")
    }
}

impl Checks {
    fn read(map: &Map<String, Value>, types: &[Type]) -> Self {
        let flag = |name: &str| map.get(name).and_then(Value::as_bool).unwrap_or(false);
        let number = |name: &str| map.get(name).and_then(Value::as_f64);
        let count = |name: &str| map.get(name).and_then(Value::as_u64);
        let nodes = |name: &str| -> Vec<Node> {
            map.get(name).and_then(Value::as_array).into_iter().flatten().map(Node::read).collect()
        };
        let format = map.get("format").and_then(Value::as_str);
        Self {
            format: format.filter(|name| super::format::known(name, types)).map(str::to_owned),
            maximum: number("maximum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            minimum: number("minimum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            max_length: count("maxLength"),
            min_length: count("minLength"),
            pattern: map
                .get("pattern")
                .and_then(Value::as_str)
                .filter(|pattern| !pattern.is_empty())
                .and_then(|pattern| Pattern::compile(pattern).ok()),
            max_items: count("maxItems"),
            min_items: count("minItems"),
            unique_items: flag("uniqueItems"),
            multiple_of: number("multipleOf"),
            one_of_values: map.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            max_properties: count("maxProperties"),
            min_properties: count("minProperties"),
            required: texts(map.get("required")),
            all_of: nodes("allOf"),
            any_of: nodes("anyOf"),
            one_of: nodes("oneOf"),
            not: map.get("not").filter(|not| not.is_object()).map(|not| Box::new(Node::read(not))),
        }
    }
}

/// The strings of a JSON list.
pub(crate) fn texts(value: Option<&Value>) -> Vec<String> {
    value
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}
