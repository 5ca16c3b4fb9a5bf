use super::*;
use proptest::prelude::*;
use serde_json::json;

fn schema() -> &'static Schema {
    static SCHEMA: std::sync::OnceLock<Schema> = std::sync::OnceLock::new();
    SCHEMA.get_or_init(compiled)
}

fn compiled() -> Schema {
    let item = json!({
        "type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"}, "a": {"type": "integer"}, "b": {"type": "integer"}},
    });
    let spec = json!({"type": "object", "properties": {
        "x": {"type": "integer"}, "y": {"type": "integer"}, "z": {"type": "string"},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "list": {"type": "array", "items": item.clone(), "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "atomic": {"type": "array", "items": {"type": "string"}},
        "one": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"p": {"type": "string"}, "q": {"type": "string"}}},
    }});
    let status = json!({"type": "object", "properties": {"phase": {"type": "string"}}});
    let root = json!({"type": "object", "properties": {"spec": spec, "status": status}});
    Schema::compile(&root, "schema").unwrap()
}

fn object(spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "n"}, "spec": spec})
}

fn writer(manager: &str) -> Writer<'_> {
    Writer {
        manager,
        api_version: "example.com/v1",
        subresource: "",
        time: "2024-01-01T00:00:00Z",
        ignores: Ignored::Status,
    }
}

fn apply_as(manager: &str, live: Option<&Value>, spec: Value) -> Result<Value, Error> {
    apply(schema(), live, &object(spec), &writer(manager), false)
}

fn fields(object: &Value, manager: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    entries
        .iter()
        .find(|entry| entry["manager"] == manager)
        .map_or(Value::Null, |entry| entry["fieldsV1"].clone())
}

#[test]
fn an_applier_owns_what_it_claims() {
    let config = json!({"x": 1, "map": {"k": "v"}, "list": [{"name": "l", "a": 1}], "set": ["s"], "atomic": ["t"], "one": {"p": "1"}});
    let live = apply_as("one", None, config).unwrap();
    assert_eq!(
        fields(&live, "one"),
        json!({"f:spec": {
            "f:x": {}, "f:map": {"f:k": {}}, "f:set": {"v:\"s\"": {}}, "f:atomic": {}, "f:one": {},
            "f:list": {"k:{\"name\":\"l\"}": {".": {}, "f:name": {}, "f:a": {}}},
        }})
    );
    let entry = &live["metadata"]["managedFields"][0];
    assert_eq!((&entry["operation"], &entry["fieldsType"]), (&json!("Apply"), &json!("FieldsV1")));
}

#[test]
fn a_field_of_another_manager_is_a_conflict_unless_forced() {
    let live = apply_as("one", None, json!({"x": 1, "y": 1})).unwrap();
    let error = apply_as("two", Some(&live), json!({"x": 2})).unwrap_err();
    assert_eq!(error.to_string(), r#"Apply failed with 1 conflict: conflict with "one": .spec.x"#);
    let Error::Conflict(conflicts) = error else { panic!("a conflict") };
    assert_eq!(
        conflicts[0].cause(),
        json!({"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".spec.x"})
    );
    let forced = apply(schema(), Some(&live), &object(json!({"x": 2})), &writer("two"), true).unwrap();
    assert_eq!(forced["spec"], json!({"x": 2, "y": 1}));
    assert_eq!(fields(&forced, "one"), json!({"f:spec": {"f:y": {}}}));
    // The same value is no conflict: both own it.
    assert!(apply_as("two", Some(&live), json!({"x": 1})).is_ok());
}

#[test]
fn several_conflicts_are_listed_by_manager() {
    let live = apply_as("one", None, json!({"x": 1, "y": 1})).unwrap();
    let mut updated = live.clone();
    updated["spec"]["z"] = json!("u");
    track(schema(), Some(&live), &mut updated, &writer("edit"));
    let error = apply_as("two", Some(&updated), json!({"x": 2, "y": 2, "z": "w"})).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 3 conflicts: conflicts with \"edit\" using example.com/v1:\n- .spec.z\nconflicts with \"one\":\n- .spec.x\n- .spec.y"
    );
}

#[test]
fn what_is_no_longer_claimed_goes_unless_somebody_else_owns_it() {
    let live = apply_as(
        "one",
        None,
        json!({"x": 1, "y": 1, "list": [{"name": "a"}, {"name": "b"}], "map": {"k": "v"}}),
    )
    .unwrap();
    let live = apply_as("two", Some(&live), json!({"y": 1, "list": [{"name": "b", "a": 2}]})).unwrap();
    let live = apply_as("one", Some(&live), json!({"z": "new"})).unwrap();
    assert_eq!(live["spec"], json!({"y": 1, "z": "new", "list": [{"name": "b", "a": 2}]}));
}

#[test]
fn other_writes_are_tracked_as_updates() {
    let mut created = object(json!({"x": 1, "map": {"k": "v"}}));
    created["status"] = json!({"phase": "ignored"});
    track(schema(), None, &mut created, &writer("create"));
    assert_eq!(
        fields(&created, "create"),
        json!({"f:spec": {".": {}, "f:x": {}, "f:map": {".": {}, "f:k": {}}}})
    );
    let mut updated = created.clone();
    updated["spec"] = json!({"x": 2, "map": {"k": "v"}});
    track(schema(), Some(&created), &mut updated, &writer("edit"));
    assert_eq!(fields(&updated, "edit"), json!({"f:spec": {"f:x": {}}}));
    assert_eq!(fields(&updated, "create"), json!({"f:spec": {".": {}, "f:map": {".": {}, "f:k": {}}}}));
    let mut same = updated.clone();
    track(schema(), Some(&updated), &mut same, &Writer { time: "2030-01-01T00:00:00Z", ..writer("edit") });
    assert_eq!(same, updated);
}

#[test]
fn a_single_empty_entry_forgets_all_owners() {
    let live = apply_as("one", None, json!({"x": 1})).unwrap();
    let mut reset = live.clone();
    reset["metadata"]["managedFields"] = json!([{}]);
    track(schema(), Some(&live), &mut reset, &writer("edit"));
    assert!(reset["metadata"].get("managedFields").is_none());
    let live = apply_as("two", Some(&reset), json!({"y": 1})).unwrap();
    assert_eq!(fields(&live, "before-first-apply"), json!({"f:spec": {".": {}, "f:x": {}}}));
}

#[test]
fn the_status_endpoint_owns_only_status() {
    let live = apply_as("one", None, json!({"x": 1})).unwrap();
    let mut config = object(json!({"x": 5}));
    config["status"] = json!({"phase": "Ready"});
    let status = Writer { subresource: "status", ignores: Ignored::AllButStatus, ..writer("two") };
    let live = apply(schema(), Some(&live), &config, &status, false).unwrap();
    assert_eq!((&live["spec"], &live["status"]), (&json!({"x": 1}), &json!({"phase": "Ready"})));
    assert_eq!(fields(&live, "two"), json!({"f:status": {"f:phase": {}}}));
    let entry =
        live["metadata"]["managedFields"].as_array().unwrap().iter().find(|entry| entry["manager"] == "two");
    assert_eq!(entry.unwrap()["subresource"], "status");
}

#[test]
fn kubectl_may_take_over_what_it_applied_from_the_client() {
    let config = object(json!({"x": 1}));
    let mut live = config.clone();
    live["metadata"]["annotations"] = json!({ LAST_APPLIED: config.to_string() });
    track(schema(), None, &mut live, &writer("kubectl-client-side-apply"));
    let moved = apply_as("kubectl", Some(&live), json!({"x": 2})).unwrap();
    let kept = moved["metadata"]["annotations"][LAST_APPLIED].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(kept).unwrap(), object(json!({"x": 2})));
    assert!(apply_as("other", Some(&live), json!({"x": 2})).is_err());
}

#[test]
fn a_configuration_that_cannot_be_merged_is_refused() {
    let error = apply_as("one", None, json!({"list": [{"a": 1}], "nope": 1})).unwrap_err().to_string();
    assert!(
        error.starts_with("failed to create typed patch object (n/t; example.com/v1, Kind=Thing): "),
        "{error}"
    );
    assert!(error.contains(
        ".spec.list: element 0: associative list with keys has an element that omits all key fields"
    ));
    assert!(error.contains(".spec.nope: field not declared in schema"));
    let error =
        apply_as("one", None, json!({"list": [{"name": "a"}, {"name": "a"}]})).unwrap_err().to_string();
    assert!(error.ends_with(r#".spec.list: duplicate entries for key [name="a"]"#), "{error}");
}

#[test]
fn merged_lists_keep_the_order_of_the_configuration() {
    let live = apply_as("one", None, json!({"list": [{"name": "a"}, {"name": "b"}, {"name": "c"}]})).unwrap();
    let live =
        apply_as("two", Some(&live), json!({"list": [{"name": "x"}, {"name": "c"}, {"name": "b"}]})).unwrap();
    let names: Vec<&str> =
        live["spec"]["list"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "x", "c", "b"]);
}

#[test]
fn the_oldest_of_many_updaters_are_put_together() {
    let mut live = object(json!({"x": 0}));
    track(schema(), None, &mut live, &writer("m00"));
    for number in 1..=12 {
        let mut new = live.clone();
        new["spec"]["map"][format!("k{number:02}")] = json!("v");
        track(schema(), Some(&live), &mut new, &writer(&format!("m{number:02}")));
        live = new;
    }
    let entries = live["metadata"]["managedFields"].as_array().unwrap();
    let names: Vec<&str> = entries.iter().map(|entry| entry["manager"].as_str().unwrap()).collect();
    assert_eq!(names, ["ancient-changes", "m04", "m05", "m06", "m07", "m08", "m09", "m10", "m11", "m12"]);
    let ancient = Set::from_fields(&fields(&live, "ancient-changes")).unwrap().paths();
    assert!(
        [".spec.x", ".spec.map.k01", ".spec.map.k03"]
            .iter()
            .all(|path| ancient.contains(&(*path).to_owned()))
    );
}

#[test]
fn the_manager_is_the_parameter_or_the_user_agent() {
    assert_eq!(manager(Some("me"), "kubectl/v1"), "me");
    assert_eq!(manager(None, "kubectl/v1.36 (linux)"), "kubectl");
    assert_eq!(manager(Some(""), "agent"), "agent");
}

/// A configuration over the fields of [`schema`].
fn configs() -> impl Strategy<Value = Value> {
    let item = (prop::option::of(0..3_i32), prop::option::of(0..3_i32));
    (
        prop::option::of(0..3_i32),
        prop::option::of("[a-b]"),
        prop::option::of(prop::collection::btree_map("[a-c]", "[x-z]", 0..3)),
        prop::option::of(prop::collection::btree_map("[a-c]", item, 0..3)),
        prop::option::of(prop::collection::btree_set("[a-d]", 0..3)),
        prop::option::of(prop::collection::vec("[a-b]", 0..3)),
    )
        .prop_map(|(x, z, map, list, set, atomic)| {
            let mut spec = serde_json::Map::new();
            let mut put = |name: &str, value: Option<Value>| {
                if let Some(value) = value {
                    spec.insert(name.to_owned(), value);
                }
            };
            put("x", x.map(Value::from));
            put("z", z.map(Value::from));
            put("map", map.map(|map| json!(map)));
            put("set", set.map(|set| json!(set)));
            put("atomic", atomic.map(|atomic| json!(atomic)));
            put(
                "list",
                list.map(|list| {
                    let items: Vec<Value> = list
                        .into_iter()
                        .map(|(name, (a, b))| {
                            let mut item = json!({"name": name});
                            for (field, value) in [("a", a), ("b", b)] {
                                if let Some(value) = value {
                                    item[field] = json!(value);
                                }
                            }
                            item
                        })
                        .collect();
                    json!(items)
                }),
            );
            Value::Object(spec)
        })
}

/// A configuration without empty collections, whose mere presence is not owned and cannot commute.
fn solid(mut spec: Value) -> Value {
    if let Value::Object(fields) = &mut spec {
        fields.retain(|_, value| {
            !matches!(value, Value::Array(items) if items.is_empty()) && *value != json!({})
        });
    }
    spec
}

/// The same object whatever the order of its keyed lists and of the writes that made it.
fn unordered(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(entries) = object["metadata"].get_mut("managedFields").and_then(Value::as_array_mut) {
        for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
            entry.remove("time");
        }
        entries.sort_by_key(ToString::to_string);
    }
    for name in ["list", "set"] {
        if let Some(items) = object["spec"].get_mut(name).and_then(Value::as_array_mut) {
            items.sort_by_key(ToString::to_string);
        }
    }
    object
}

proptest! {
    #[test]
    fn applying_again_changes_nothing(first in configs(), second in configs()) {
        let live = apply_as("one", None, first).unwrap();
        let live = apply(schema(), Some(&live), &object(second.clone()), &writer("two"), true).unwrap();
        let later = Writer { time: "2030-01-01T00:00:00Z", ..writer("two") };
        let again = apply(schema(), Some(&live), &object(second), &later, false).unwrap();
        prop_assert_eq!(again, live);
    }

    #[test]
    fn what_is_applied_is_there_and_owned(first in configs(), second in configs()) {
        let live = apply_as("one", None, first).unwrap();
        let live = apply(schema(), Some(&live), &object(second.clone()), &writer("two"), true).unwrap();
        let schema = schema();
        let place = Place::root(schema.root());
        let merged = place.merge(Some(&strip(&live)), Some(&object(second.clone()))).unwrap();
        prop_assert_eq!(unordered(&merged), unordered(&strip(&live)));
        let owned = Set::from_fields(&fields(&live, "two")).unwrap_or_default();
        prop_assert_eq!(owned, place.paths(&object(second)).difference(&own_metadata()));
    }

    #[test]
    fn disjoint_configurations_commute(first in configs(), second in configs()) {
        let first = solid(first);
        let mut second = solid(second);
        if let (Value::Object(first), Value::Object(second)) = (&first, &mut second) {
            second.retain(|name, _| !first.contains_key(name));
        }
        let run = |order: [(&str, &Value); 2]| {
            order.into_iter().fold(None, |live: Option<Value>, (manager, spec)| {
                Some(apply_as(manager, live.as_ref(), spec.clone()).unwrap())
            })
        };
        let left = run([("one", &first), ("two", &second)]).unwrap();
        let right = run([("two", &second), ("one", &first)]).unwrap();
        prop_assert_eq!(unordered(&left), unordered(&right));
    }

    #[test]
    fn claiming_nothing_any_more_takes_everything_back(first in configs(), second in configs()) {
        let (first, second) = (solid(first), solid(second));
        let alone = apply_as("two", None, second.clone()).unwrap();
        let live = apply_as("two", None, second).unwrap();
        let live = apply(schema(), Some(&live), &object(first), &writer("one"), true).unwrap();
        let left = apply_as("one", Some(&live), json!({})).unwrap();
        // Leaves that both claimed with different values were taken by force and are gone with their new owner.
        let mine = Set::from_fields(&fields(&left, "two")).unwrap_or_default();
        let before = Set::from_fields(&fields(&alone, "two")).unwrap_or_default();
        prop_assert!(mine.difference(&before).is_empty());
        let schema = schema();
        let here = Place::root(schema.root()).paths(&strip(&left)).difference(&own_metadata());
        let spec = Element::Field("spec".to_owned());
        let mut bare = Set::default();
        bare.insert(std::slice::from_ref(&spec));
        prop_assert_eq!(here.difference(&bare).difference(&mine), Set::default());
    }

    #[test]
    fn sets_survive_the_wire(first in configs(), second in configs()) {
        let schema = schema();
        let place = Place::root(schema.root());
        let comparison = place.compare(&object(first.clone()), &object(second));
        for set in [place.paths(&object(first)), comparison.added, comparison.modified, comparison.removed] {
            prop_assert_eq!(Set::from_fields(&set.to_fields()).unwrap(), set);
        }
    }
}
