//! Whether values are what a JSON schema says.

use cleat_crds::Object;
use jsonschema::{PatternOptions, Validator};
use serde_json::Value as Json;

/// How many faults of a value are told.
const TOLD: usize = 5;

/// A JSON schema, compiled once. It refers to nothing outside of itself, and its patterns take time in proportion to the text.
#[derive(Debug, Clone)]
pub struct Schema(std::sync::Arc<Validator>);

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn compile(schema: &Object) -> Result<Self, String> {
        let schema = Json::Object(schema.0.clone());
        let validator = jsonschema::options().with_pattern_options(PatternOptions::regex()).build(&schema);
        let located = |error: jsonschema::ValidationError<'_>| match error.instance_path().as_str() {
            "" => error.to_string(),
            path => format!("{path}: {error}"),
        };
        Ok(Self(std::sync::Arc::new(validator.map_err(located)?)))
    }

    /// Looks at a value. `what` is the name that it has in what is said.
    ///
    /// # Errors
    /// What is wrong with it, and where: `input.count: 0 is less than the minimum of 1`.
    pub fn check(&self, what: &str, value: &Json) -> Result<(), String> {
        if self.0.is_valid(value) {
            return Ok(());
        }
        let told = self.0.iter_errors(value).take(TOLD).map(|error| {
            let path: String = error.instance_path().as_str().replace('/', ".");
            // What is wrong is shown by its name, not by its content: it may be large, or nobody's business.
            format!("{what}{path}: {}", error.masked_with("the value"))
        });
        Err(told.collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(json: Json) -> Result<Schema, String> {
        let Json::Object(fields) = json else { panic!("a schema is an object") };
        Schema::compile(&Object(fields))
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let schema = schema(json!({"type": "object", "required": ["count"], "properties": {
            "count": {"type": "integer", "minimum": 1},
            "items": {"type": "array", "items": {"type": "string"}},
        }}))
        .unwrap();
        assert_eq!(schema.check("input", &json!({"count": 1})), Ok(()));
        let wrong = schema.check("input", &json!({"count": 0, "items": ["a", 2]})).unwrap_err();
        assert!(wrong.contains("input.count: the value is less than the minimum of 1"), "{wrong}");
        assert!(wrong.contains("input.items.1: "), "{wrong}");
        let missing = schema.check("input", &json!({})).unwrap_err();
        assert!(missing.contains("count"), "{missing}");
    }

    #[test]
    fn a_schema_that_is_none_is_refused_and_reaches_nothing_outside() {
        assert!(schema(json!({"type": "integr"})).is_err());
        assert!(schema(json!({"pattern": "("})).is_err());
        assert!(schema(json!({"$ref": "http://127.0.0.1:1/schema.json"})).is_err());
    }
}
