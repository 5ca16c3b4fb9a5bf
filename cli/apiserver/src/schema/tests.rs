use super::*;
use serde_json::json;

const AT: &str = "spec.validation.openAPIV3Schema";

fn schema(spec: Value) -> Schema {
    Schema::compile(&json!({"type": "object", "properties": {"spec": spec}}), AT).unwrap()
}

fn refused(spec: Value) -> Vec<String> {
    let root = json!({"type": "object", "properties": {"spec": spec}});
    Schema::compile(&root, AT).unwrap_err().iter().map(ToString::to_string).collect()
}

fn faults(schema: &Schema, spec: Value) -> Vec<String> {
    schema.validate(&json!({"spec": spec}), None).errors.iter().map(ToString::to_string).collect()
}

fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

#[test]
fn a_wrong_type_is_named_with_what_was_found() {
    let schema = schema(object(json!({"replicas": {"type": "integer"}, "name": {"type": "string"}})));
    assert_eq!(
        faults(&schema, json!({"replicas": "3"})),
        [
            r#"spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string""#
        ]
    );
    assert_eq!(
        faults(&schema, json!({"name": null})),
        [r#"spec.name: Invalid value: "null": spec.name in body must be of type string: "null""#]
    );
    assert!(faults(&schema, json!({"replicas": 3.0})).is_empty());
}

#[test]
fn bounds_and_lengths_are_enforced() {
    let schema = schema(object(json!({
        "n": {"type": "integer", "minimum": 1, "maximum": 5, "exclusiveMaximum": true, "multipleOf": 2},
        "s": {"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^a"},
        "l": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1, "maxProperties": 1},
        "e": {"type": "string", "enum": ["a", "b"]},
        "i": {"type": "integer", "format": "int32"},
    })));
    let cases = [
        (json!({"n": 0}), "spec.n: Invalid value: 0: spec.n in body should be greater than or equal to 1"),
        (json!({"n": 6}), "spec.n: Invalid value: 6: spec.n in body should be less than 5"),
        (json!({"n": 3}), "spec.n: Invalid value: 3: spec.n in body should be a multiple of 2"),
        (json!({"s": "a"}), r#"spec.s: Invalid value: "a": spec.s in body should be at least 2 chars long"#),
        (json!({"s": "abcd"}), "spec.s: Too long: may not be more than 3 bytes"),
        (json!({"s": "bb"}), r#"spec.s: Invalid value: "bb": spec.s in body should match '^a'"#),
        (json!({"l": []}), "spec.l: Invalid value: 0: spec.l in body should have at least 1 items"),
        (json!({"l": [1, 2, 3]}), "spec.l: Too many: 3: must have at most 2 items"),
        (json!({"m": {}}), "spec.m: Invalid value: 0: spec.m in body should have at least 1 properties"),
        (json!({"m": {"a": 1, "b": 2}}), "spec.m: Too many: 2: must have at most 1 item"),
        (json!({"e": "c"}), r#"spec.e: Unsupported value: "c": supported values: "a", "b""#),
        (
            json!({"i": 3_000_000_000_i64}),
            r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.i"#,
        ),
    ];
    for (spec, expected) in cases {
        assert_eq!(faults(&schema, spec), [expected]);
    }
}

#[test]
fn combinations_say_which_place_fails_them() {
    let schema = schema(json!({
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        "not": {"required": ["a"], "properties": {"a": {"enum": ["no"]}}},
    }));
    assert_eq!(
        faults(&schema, json!({"a": "x", "b": "y"})),
        [
            r#"<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found 2 valid alternatives"#
        ]
    );
    assert_eq!(
        faults(&schema, json!({"a": "no"})),
        [r#"<nil>: Invalid value: "": "spec" must not validate the schema (not)"#]
    );
    let none = faults(&schema, json!({}));
    assert!(none[0].ends_with("Found none valid") && none[1].ends_with(": Required value"), "{none:?}");
}

#[test]
fn unknown_fields_go_unless_they_are_preserved() {
    let schema = schema(object(json!({
        "known": {"type": "string"},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"closed": object(json!({}))}},
        "map": {"type": "object", "additionalProperties": object(json!({"a": {"type": "integer"}}))},
        "list": {"type": "array", "items": object(json!({"a": {"type": "integer"}}))},
    })));
    let mut value = json!({
        "apiVersion": "v1", "kind": "K", "metadata": {"name": "n", "nope": 1}, "extra": 1,
        "spec": {
            "known": "x", "gone": 1, "open": {"kept": {"b": 1}, "closed": {"gone": 1}},
            "map": {"k": {"a": 1, "gone": 2}}, "list": [{"a": 1, "gone": 2}],
        },
    });
    let before = schema.unknown(&value);
    assert_eq!(schema.prune(&mut value), before);
    assert_eq!(
        before,
        [
            "extra",
            "metadata.nope",
            "spec.gone",
            "spec.list[0].gone",
            "spec.map.k.gone",
            "spec.open.closed.gone"
        ]
    );
    assert_eq!(
        value["spec"],
        json!({"known": "x", "open": {"kept": {"b": 1}, "closed": {}}, "map": {"k": {"a": 1}}, "list": [{"a": 1}]})
    );
}

#[test]
fn defaults_are_filled_from_the_outside_in() {
    let schema = schema(object(json!({
        "a": {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 7}}},
        "n": {"type": "string", "nullable": true, "default": "x"},
        "m": {"type": "string", "default": "y"},
        "z": {"type": "string"},
        "l": {"type": "array", "items": object(json!({"c": {"type": "boolean", "default": true}}))},
    })));
    let mut value = json!({"spec": {"n": null, "m": null, "z": null, "l": [{}]}});
    schema.prune(&mut value);
    schema.fill(&mut value);
    assert_eq!(value["spec"], json!({"a": {"b": 7}, "n": null, "m": "y", "l": [{"c": true}]}));
}

#[test]
fn lists_that_are_sets_or_maps_hold_nothing_twice() {
    let item = json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}});
    let schema = schema(object(json!({
        "s": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "m": {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
    })));
    assert_eq!(faults(&schema, json!({"s": ["a", "b", "a", "a"]})), [r#"spec.s[2]: Duplicate value: "a""#]);
    assert_eq!(
        faults(&schema, json!({"m": [{"k": "a", "v": 1}, {"k": "a", "v": 2}]})),
        [r#"spec.m[1]: Duplicate value: {"k":"a"}"#]
    );
}

#[test]
fn what_was_wrong_before_is_tolerated_until_it_changes() {
    let schema = schema(object(json!({"a": {"type": "string", "enum": ["x"]}, "b": {"type": "string"}})));
    let old = json!({"spec": {"a": "old", "b": "1"}});
    assert!(schema.validate(&json!({"spec": {"a": "old", "b": "2"}}), Some(&old)).errors.is_empty());
    assert_eq!(schema.validate(&json!({"spec": {"a": "new", "b": "1"}}), Some(&old)).errors.len(), 1);
}

#[test]
fn embedded_resources_need_a_type_and_good_metadata() {
    let schema = schema(object(json!({"e": {
        "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
    }})));
    let found =
        faults(&schema, json!({"e": {"kind": "A b", "metadata": {"labels": {"-": "x"}, "name": "a/b"}}}));
    assert!(found[0].starts_with("spec.e.apiVersion: Required value"));
    assert!(found[1].starts_with(r#"spec.e.kind: Invalid value: "A b": may have mixed case"#));
    assert_eq!(found[2], r#"spec.e.metadata.name: Invalid value: "a/b": may not contain '/'"#);
    assert!(found[3].starts_with(r#"spec.e.metadata.labels: Invalid value: "-": name part must consist"#));
}

#[test]
fn schemas_that_are_not_structural_are_refused() {
    let at = "spec.validation.openAPIV3Schema.properties[spec]";
    assert_eq!(
        refused(json!({"properties": {}})),
        [format!("{at}.type: Required value: must not be empty for specified object fields")]
    );
    assert_eq!(refused(json!({"type": "array"})), [format!("{at}.items: Required value: must be specified")]);
    assert_eq!(
        refused(json!({"type": "text"})),
        [format!(
            r#"{at}.type: Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", "string""#
        )]
    );
    assert_eq!(
        refused(json!({"type": "object", "anyOf": [{"properties": {"a": {"type": "string"}}}]})),
        [format!("{at}.anyOf[0].properties[a].type: Forbidden: must be empty to be structural")]
    );
    assert_eq!(
        refused(json!({"type": "integer", "default": "x"})),
        [format!(r#"{at}.default: Invalid value: "string":  in body must be of type integer: "string""#)]
    );
}

#[test]
fn extensions_must_fit_together() {
    let at = "spec.validation.openAPIV3Schema.properties[spec]";
    let list = json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"});
    assert_eq!(
        refused(list),
        [format!(
            "{at}.x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map"
        )]
    );
    let keyed = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {"k": {"type": "string"}}},
    });
    assert_eq!(
        refused(keyed),
        [format!(
            "{at}.items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must \
             have a default or be a required property"
        )]
    );
    assert_eq!(
        refused(
            json!({"type": "object", "additionalProperties": {"type": "string"}, "properties": {"a": {"type": "string"}}})
        ),
        [format!(
            "{at}.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"
        )]
    );
}

fn ruled(properties: Value, rules: Value) -> Schema {
    schema(json!({"type": "object", "properties": properties, "x-kubernetes-validations": rules}))
}

#[test]
fn a_rule_that_is_broken_is_told_with_its_message() {
    let fields = json!({"min": {"type": "integer"}, "max": {"type": "integer"}});
    let schema = ruled(
        fields,
        json!([
            {"rule": "self.min <= self.max", "message": "min must not be above max", "fieldPath": ".min"},
            {"rule": "self.max < 10", "messageExpression": "'max is ' + string(self.max)", "reason": "FieldValueForbidden"},
            {"rule": "self.min >= 0"},
        ]),
    );
    assert!(faults(&schema, json!({"min": 1, "max": 2})).is_empty());
    assert_eq!(
        faults(&schema, json!({"min": 13, "max": 12})),
        ["spec.min: Invalid value: min must not be above max", "spec: Forbidden: max is 12"]
    );
    assert_eq!(
        faults(&schema, json!({"min": -1, "max": 2})),
        ["spec: Invalid value: failed rule: self.min >= 0"]
    );
    assert_eq!(
        faults(&schema, json!({"max": 2})),
        [
            "spec: Invalid value: \"object\": no such key: min evaluating rule: min must not be above max",
            "spec: Invalid value: \"object\": no such key: min evaluating rule: self.min >= 0",
        ]
    );
}

#[test]
fn transition_rules_see_what_was_before() {
    let item = json!({
        "type": "object", "required": ["k"],
        "properties": {"k": {"type": "string"}, "v": {
            "type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "must grow"}],
        }},
    });
    let schema = schema(object(json!({
        "l": {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
        "once": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is immutable"}]},
        "born": {"type": "string", "x-kubernetes-validations": [
            {"rule": "oldSelf.hasValue() || self == 'new'", "optionalOldSelf": true, "message": "starts new"},
        ]},
    })));
    let old = json!({"spec": {"l": [{"k": "a", "v": 1}, {"k": "b", "v": 5}], "once": "x", "born": "new"}});
    assert!(schema.validate(&old, None).errors.is_empty());
    let new = json!({"spec": {"l": [{"k": "b", "v": 4}, {"k": "c", "v": 0}], "once": "y", "born": "old"}});
    let found: Vec<String> =
        schema.validate(&new, Some(&old)).errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        ["spec.l[0].v: Invalid value: 4: must grow", "spec.once: Invalid value: \"y\": is immutable"]
    );
    let error = schema.validate(&json!({"spec": {"born": "old"}}), None);
    assert_eq!(error.errors[0].to_string(), "spec.born: Invalid value: \"old\": starts new");
}

#[test]
fn a_broken_rule_is_tolerated_while_its_value_is_unchanged() {
    let before = object(json!({"a": {"type": "integer"}, "b": {"type": "integer"}}));
    let _ = schema(before);
    let schema = schema(object(json!({
        "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 5"}]}, "b": {"type": "integer"},
    })));
    let old = json!({"spec": {"a": 7, "b": 1}});
    let verdict = schema.validate(&json!({"spec": {"a": 7, "b": 2}}), Some(&old));
    assert!(verdict.errors.is_empty());
    assert_eq!(verdict.warnings, ["spec.a: Invalid value: 7: failed rule: self < 5"]);
    assert_eq!(schema.validate(&json!({"spec": {"a": 8, "b": 1}}), Some(&old)).errors.len(), 1);
}

#[test]
fn rules_are_not_run_on_what_is_malformed() {
    let schema = ruled(json!({"n": {"type": "integer"}}), json!([{"rule": "self.n > 0"}]));
    let found = faults(&schema, json!({"n": "x"}));
    assert_eq!(found.len(), 2);
    assert!(
        found[1].starts_with("<nil>: Invalid value: null: some validation rules were not checked"),
        "{found:?}"
    );
}

#[test]
fn rules_that_cost_too_much_are_stopped() {
    let list = json!({"type": "array", "items": {"type": "integer"}, "maxItems": 2000});
    let schema = ruled(
        json!({"l": list}),
        json!([{"rule": "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c >= 0)))"}, {"rule": "false"}]),
    );
    let items: Vec<i32> = (0..2000).collect();
    let found = faults(&schema, json!({"l": items}));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("no further validation rules will be run due to call cost exceeds limit"),
        "{found:?}"
    );
}

#[test]
fn rules_that_do_not_compile_are_refused() {
    let rule = |rule: Value| json!({"type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": [rule]});
    let at = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]";
    let found = refused(rule(json!({"rule": "self.b > 0"})));
    assert!(found[0].starts_with(&format!("{at}.rule: Invalid value: ")), "{found:?}");
    assert!(found[0].contains("compilation failed: ERROR: <input>:1:5: undefined field 'b'"), "{found:?}");
    let found = refused(rule(json!({"rule": "self.a"})));
    assert!(found[0].ends_with("cel expression must evaluate to a bool"), "{found:?}");
    let found = refused(rule(json!({"rule": "self.a > 0", "messageExpression": "self.a"})));
    assert!(found[0].ends_with("messageExpression must evaluate to a string"), "{found:?}");
    assert_eq!(
        refused(rule(json!({"rule": " "}))),
        [format!("{at}.rule: Required value: rule is not specified")]
    );
    assert_eq!(
        refused(rule(json!({"rule": "self.a > 0", "reason": "Bad"}))),
        [format!(
            "{at}.reason: Unsupported value: \"Bad\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \
             \"FieldValueInvalid\", \"FieldValueRequired\""
        )]
    );
    assert_eq!(
        refused(rule(json!({"rule": "self.a > 0", "optionalOldSelf": true}))),
        [format!("{at}.optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule")]
    );
}
