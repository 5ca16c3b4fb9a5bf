//! Expressions against types from schemas.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use cleat_cel::{Bindings, Budget, Env, Program, Root, Type, Value};
use serde_json::{Value as Json, json};

fn problems(source: &str, env: &Env) -> String {
    Program::compile(source, env).unwrap_err().to_string()
}

fn inventory() -> Env {
    let state = Type::from_schema(&json!({"type": "object", "properties": {
        "stock": {"type": "integer"},
        "price": {"type": "number"},
        "reserved": {"type": "object", "additionalProperties": {"type": "integer"}},
        "tags": {"type": "array", "items": {"type": "string"}},
        "note": {"type": "string", "nullable": true},
        "when": {"type": "string", "format": "date-time"},
        "either": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        "open": {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "more": {"type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-preserve-unknown-fields": true},
    }}));
    Env::new()
        .with("state", state)
        .with("input", Type::from_schema(&json!({"type": "object", "required": ["order"]})))
}

#[test]
fn fields_are_resolved_against_the_schema() {
    let env = inventory();
    for (source, expected) in [
        ("state.stock + 1", Type::Int),
        ("state.price * 2.0", Type::Double),
        ("state.reserved['a']", Type::Int),
        ("state.reserved.a + state.stock", Type::Int),
        ("state.tags[0]", Type::String),
        ("state.note", Type::Dyn),
        ("state.when", Type::String),
        ("state.either", Type::Dyn),
        ("state.open.a", Type::Int),
        ("state.open.b", Type::String),
        ("state.free.anything.at.all", Type::Dyn),
        ("state.more.a", Type::Int),
        ("state.more.b", Type::Dyn),
        ("input.order", Type::Dyn),
        ("state['stock']", Type::Int),
        ("state.?reserved", Type::optional(Type::map(Type::String, Type::Int))),
        ("state.?tags[?0].orValue('')", Type::String),
        ("has(state.stock)", Type::Bool),
        ("'stock' in state", Type::Bool),
        ("state == {'stock': 1}", Type::Bool),
        ("state.tags.map(t, size(t))", Type::list(Type::Int)),
        ("state.tags.filter(t, t != '')", Type::list(Type::String)),
        ("state.reserved.map(k, state.reserved[k]).sum()", Type::Int),
        ("state.reserved.transformMap(k, v, string(v))", Type::map(Type::String, Type::String)),
        ("{'a': state.stock}", Type::map(Type::String, Type::Int)),
        ("state.stock > 0 ? state.tags : ['none']", Type::list(Type::String)),
        ("optional.none().orValue(state.stock)", Type::Int),
        ("[state.stock, 1].max()", Type::Int),
        ("type(state.stock)", Type::Type),
    ] {
        let program =
            Program::compile(source, &env).unwrap_or_else(|problems| panic!("{source}: {problems}"));
        assert_eq!(program.output(), &expected, "{source}");
    }
}

#[test]
fn what_the_schema_does_not_have_is_a_problem_with_a_hint() {
    let env = inventory();
    for (source, expected) in [
        ("state.stok", "1:6: undefined field 'stok' (did you mean 'stock'?)"),
        ("has(state.resreved)", "1:4: undefined field 'resreved' (did you mean 'reserved'?)"),
        ("state['stok']", "1:6: undefined field 'stok' (did you mean 'stock'?)"),
        ("sate.stock", "1:1: undeclared reference to 'sate' (in container '') (did you mean 'state'?)"),
        ("state.price + 1", "1:13: found no matching overload for '_+_' applied to '(double, int)'"),
        (
            "state.stock + input.count + 'a'",
            "1:27: found no matching overload for '_+_' applied to '(int, string)'",
        ),
        (
            "state.reserved[1]",
            "1:15: found no matching overload for '_[_]' applied to '(map(string, int), int)'",
        ),
        ("state.stock.size()", "1:17: found no matching overload for 'size' applied to 'int.()'"),
        (
            "state.tags.startsWith('a')",
            "1:22: found no matching overload for 'startsWith' applied to 'list(string).(string)' (it takes string.startsWith(string))",
        ),
        ("state.tags.all(t, t > 1)", "1:21: found no matching overload for '_>_' applied to '(string, int)'"),
        ("size(state.tag)", "1:11: undefined field 'tag' (did you mean 'tags'?)"),
        ("state.tags.maps(t, t)", "1:16: undeclared reference to 'maps' (in container '')"),
        (
            "math.lesat(1, 2)",
            "1:1: undeclared reference to 'math' (in container ''); 1:11: undeclared reference to 'lesat' (in container '') (did you mean 'math.least'?)",
        ),
    ] {
        let found = problems(source, &env);
        assert!(found.starts_with(expected), "{source}: {found}");
    }
}

#[test]
fn all_problems_are_reported_in_the_order_of_the_source() {
    let found = Program::compile("state.a + state.b ==\n  unknown", &inventory()).unwrap_err();
    let positions: Vec<String> = found.list().iter().map(|problem| problem.position.to_string()).collect();
    assert_eq!(positions, ["1:6", "1:16", "2:3"]);
    assert!(found.report().contains(
        "ERROR: <input>:2:3: undeclared reference to 'unknown' (in container '')\n |   unknown\n | ..^"
    ));
}

#[test]
fn a_condition_gives_a_bool() {
    let env = inventory();
    assert!(Program::condition("state.stock > 0", &env).is_ok());
    assert!(Program::condition("input.enabled", &env).is_ok());
    let found = Program::condition("state.stock", &env).unwrap_err().to_string();
    assert_eq!(found, "1:1: cel expression must evaluate to a bool (this one gives int)");
    let program = Program::condition("input.enabled", &env).unwrap();
    let bindings = Bindings::new().with("input", Value::from_json(&json!({"enabled": 1})).unwrap());
    let error = program.holds(&bindings, &mut Budget::default()).unwrap_err();
    assert_eq!(error.to_string(), "expected a bool, got int");
}

#[test]
fn numbers_are_read_as_the_schema_says() {
    let ty = Type::from_schema(&json!({"type": "object", "properties": {
        "count": {"type": "integer"}, "price": {"type": "number"}, "list": {"type": "array", "items": {"type": "number"}},
    }}));
    let env = Env::new().with("s", ty.clone());
    let value = ty.value(&json!({"count": 2.0, "price": 3, "list": [1, 2.5], "other": 1})).unwrap();
    let bindings = Bindings::new().with("s", value.clone());
    let program = Program::compile("double(s.count) * s.price + s.list[0]", &env).unwrap();
    assert_eq!(program.evaluate(&bindings, &mut Budget::default()).unwrap(), Value::Double(7.0));
    assert_eq!(value.to_json().unwrap(), json!({"count": 2, "price": 3.0, "list": [1.0, 2.5], "other": 1}));
}

/// A rule over a structural schema, and an object.
fn rule(schema: &Json, source: &str, object: &Json) -> Result<bool, String> {
    let ty = Type::from_structural(schema, Root::Yes).unwrap();
    let env = Env::kubernetes().with("self", ty.clone()).with("oldSelf", ty.clone());
    let program = Program::condition(source, &env).map_err(|problems| problems.to_string())?;
    let bindings =
        Bindings::new().with("self", ty.value(object).unwrap()).with("oldSelf", ty.value(object).unwrap());
    program.holds(&bindings, &mut Budget::default()).map_err(|error| error.to_string())
}

fn custom_resource() -> Json {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "replicas": {"type": "integer"},
        "ratio": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "every": {"type": "string", "format": "duration"},
        "data": {"type": "string", "format": "byte"},
        "port": {"x-kubernetes-int-or-string": true},
        "a-b": {"type": "string"},
        "namespace": {"type": "string"},
        "a.b/c": {"type": "string"},
        "a__b": {"type": "string"},
        "1st": {"type": "string"},
        "opaque": {"x-kubernetes-preserve-unknown-fields": true},
        "object": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "other": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "integer"}}}},
        "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
    }}}})
}

fn object() -> Json {
    json!({"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "n", "labels": {"a": "b"}}, "spec": {
        "replicas": 3, "ratio": 1, "at": "2024-01-02T03:04:05Z", "day": "2024-01-02", "every": "1h30m", "data": "aGk=",
        "port": "http", "a-b": "dash", "namespace": "ns", "a.b/c": "dots", "a__b": "under",
        "labels": {"x-y": "z"}, "set": ["a", "b"], "other": ["b", "a"], "object": {"x": 1},
        "keyed": [{"name": "a", "value": 1}, {"name": "b", "value": 2}],
        "embedded": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}},
    }})
}

#[test]
fn rules_see_objects_as_the_api_server_shows_them() {
    for source in [
        "self.spec.replicas == 3 && self.spec.ratio == 1.0",
        "self.metadata.name == 'n' && self.kind == 'K' && self.apiVersion == 'a/v1'",
        "self.spec.at.getFullYear() == 2024 && self.spec.at > timestamp('2024-01-01T00:00:00Z')",
        "self.spec.day == timestamp('2024-01-02T00:00:00Z')",
        "self.spec.every == duration('90m')",
        "self.spec.data == b'hi'",
        "type(self.spec.port) == string && self.spec.port == 'http'",
        "self.spec.a__dash__b == 'dash' && self.spec.__namespace__ == 'ns'",
        "self.spec.a__dot__b__slash__c == 'dots' && self.spec.a__underscores__b == 'under'",
        "has(self.spec.labels) && self.spec.labels['x-y'] == 'z' && 'x-y' in self.spec.labels",
        "self.spec.set == self.spec.other && self.spec.set != ['a', 'c']",
        "(self.spec.set + ['b', 'c']).size() == 3",
        "(self.spec.keyed + [self.spec.keyed[1]]).size() == 2",
        "self.spec.keyed.exists_one(k, k.name == 'b' && k.value == 2)",
        "self.spec.embedded.metadata.name == 'p'",
        "self.spec.object == oldSelf.spec.object",
        "!has(self.metadata.generateName)",
    ] {
        assert_eq!(rule(&custom_resource(), source, &object()), Ok(true), "{source}");
    }
}

#[test]
fn rules_cannot_see_what_the_schema_hides() {
    for (source, expected) in [
        ("self.metadata.labels.a == 'b'", "1:14: undefined field 'labels'"),
        ("self.spec.opaque == 1", "1:10: undefined field 'opaque'"),
        ("self.spec.object.x == 1", "1:17: undefined field 'x'"),
        ("self.status.x == 1", "1:5: undefined field 'status'"),
        ("self['spec'] == 1", "1:5: found no matching overload for '_[_]' applied to '(object, string)'"),
        ("self.spec.all(k, true)", "1:5: expression of type 'object' cannot be range of a comprehension"),
        (
            "self.spec.replicas == 1.0",
            "1:20: found no matching overload for '_==_' applied to '(int, double)'",
        ),
        ("self.spec.ratio > 1 && self.spec.set.size()", "1:42: expected type 'bool' but found 'int'"),
        ("math.least(self.spec.replicas, 2) == 2", "1:1: undeclared reference to 'math' (in container '')"),
    ] {
        let found = rule(&custom_resource(), source, &object()).unwrap_err();
        assert!(found.starts_with(expected), "{source}: {found}");
    }
    assert_eq!(
        rule(&custom_resource(), "self.spec.replicas > 0", &json!({"spec": {}})),
        Err("no such key: replicas".to_owned())
    );
    assert_eq!(Type::from_structural(&json!({"x-kubernetes-preserve-unknown-fields": true}), Root::No), None);
}

#[test]
fn a_program_tells_what_it_reads() {
    let env = Env::kubernetes().with("self", Type::Int).with("oldSelf", Type::optional(Type::Int));
    let program = Program::condition("oldSelf.hasValue() && [1].all(self, self > 0)", &env).unwrap();
    assert!(program.uses("oldSelf") && !program.uses("self"));
    let bindings = Bindings::new().with("oldSelf", Value::some(Value::Int(1)));
    assert_eq!(program.holds(&bindings, &mut Budget::default()), Ok(true));
    let error = program.holds(&Bindings::new(), &mut Budget::default()).unwrap_err();
    assert_eq!(error.to_string(), "no such attribute(s): oldSelf");
}
