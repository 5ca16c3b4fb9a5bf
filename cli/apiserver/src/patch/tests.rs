use super::*;
use crate::schema::Schema;
use proptest::prelude::*;
use serde_json::json;

fn patched(object: Value, patch: Value) -> Result<Value, String> {
    json(&object, &patch).map_err(|error| error.to_string())
}

#[test]
fn a_json_patch_runs_its_operations_in_order() {
    let object = json!({"a": {"b": [1, 2]}, "x/y": 1});
    let patch = json!([
        {"op": "test", "path": "/a/b/1", "value": 2},
        {"op": "add", "path": "/a/b/-", "value": 3},
        {"op": "add", "path": "/a/b/0", "value": 0},
        {"op": "remove", "path": "/a/b/-2"},
        {"op": "replace", "path": "/x~1y", "value": 2},
        {"op": "copy", "from": "/a/b", "path": "/c"},
        {"op": "move", "from": "/a", "path": "/d"},
    ]);
    assert_eq!(patched(object, patch).unwrap(), json!({"c": [0, 1, 3], "d": {"b": [0, 1, 3]}, "x/y": 2}));
}

#[test]
fn what_cannot_be_done_is_named_as_the_api_names_it() {
    let cases = [
        (json!({"op": "test", "path": "/a", "value": 2}), "testing value /a failed: test failed"),
        (
            json!({"op": "remove", "path": "/z"}),
            "error in remove for path: '/z': Unable to remove nonexistent key: z: missing value",
        ),
        (
            json!({"op": "add", "path": "/z/y", "value": 1}),
            "add operation does not apply: doc is missing path: \"/z/y\": missing value",
        ),
        (
            json!({"op": "replace", "path": "/l/5", "value": 1}),
            "replace operation does not apply: doc is missing key: /l/5: missing value",
        ),
        (
            json!({"op": "add", "path": "/l/5", "value": 1}),
            "error in add for path: '/l/5': Unable to access invalid index: 5: invalid index referenced",
        ),
        (json!({"op": "jump", "path": "/a"}), "Unexpected kind: jump"),
    ];
    for (operation, expected) in cases {
        assert_eq!(patched(json!({"a": 1, "l": []}), json!([operation])).unwrap_err(), expected);
    }
    assert!(matches!(json(&json!({}), &json!({})), Err(Error::Malformed(_))));
}

#[test]
fn a_merge_patch_removes_with_null() {
    let mut object = json!({"a": {"b": 1, "c": 2}, "l": [1]});
    merge(&mut object, &json!({"a": {"b": null, "d": {"e": null}}, "l": [2]}));
    assert_eq!(object, json!({"a": {"c": 2, "d": {}}, "l": [2]}));
}

fn pod(containers: Value) -> Value {
    json!({"spec": {"containers": containers}})
}

fn strategically(object: Value, patch: Value) -> Value {
    strategic(&Schema::builtin("", "Pod"), &object, &patch).unwrap()
}

#[test]
fn lists_with_a_merge_key_are_merged() {
    let object = pod(json!([{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]));
    assert_eq!(
        strategically(object.clone(), pod(json!([{"name": "b", "image": "2"}, {"name": "c"}]))),
        pod(json!([{"name": "a", "image": "1"}, {"name": "b", "image": "2"}, {"name": "c"}]))
    );
    assert_eq!(
        strategically(object.clone(), pod(json!([{"name": "a", "$patch": "delete"}]))),
        pod(json!([{"name": "b", "image": "1"}]))
    );
    assert_eq!(
        strategically(object.clone(), pod(json!([{"$patch": "replace"}, {"name": "z"}]))),
        pod(json!([{"name": "z"}]))
    );
    let ordered = json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}});
    assert_eq!(
        strategically(object, ordered),
        pod(json!([{"name": "b", "image": "1"}, {"name": "a", "image": "1"}]))
    );
}

#[test]
fn directives_delete_replace_and_retain() {
    let object = json!({
        "metadata": {"finalizers": ["a/b", "c/d"], "labels": {"x": "1", "y": "2"}},
        "spec": {"volumes": [{"name": "v", "emptyDir": {}}]},
    });
    let patch = json!({
        "metadata": {"$deleteFromPrimitiveList/finalizers": ["a/b"], "labels": {"$patch": "replace", "z": "3"}},
        "spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]},
    });
    assert_eq!(
        strategically(object, patch),
        json!({
            "metadata": {"finalizers": ["c/d"], "labels": {"z": "3"}},
            "spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
        })
    );
}

#[test]
fn an_element_without_its_key_is_refused() {
    let schema = Schema::builtin("", "Pod");
    let object = pod(json!([{"name": "a"}]));
    let error = strategic(&schema, &object, &pod(json!([{"image": "2"}]))).unwrap_err();
    assert!(error.to_string().ends_with("does not contain declared merge key: name"), "{error}");
    let error = strategic(&schema, &object, &json!({"spec": {"$patch": "fold"}})).unwrap_err();
    assert!(error.to_string().starts_with("unknown patch type: fold"), "{error}");
}

fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z]{0,3}".prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c]{1,2}", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_merge_patch_without_nulls_is_idempotent(object in documents(), patch in documents()) {
        let mut once = object;
        merge(&mut once, &patch);
        let mut twice = once.clone();
        merge(&mut twice, &patch);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn adding_and_removing_a_field_changes_nothing(object in documents(), value in documents()) {
        let object = json!({"o": object});
        let patch = json!([{"op": "add", "path": "/new", "value": value}, {"op": "remove", "path": "/new"}]);
        prop_assert_eq!(json(&object, &patch).unwrap(), object);
    }

    #[test]
    fn every_patch_of_a_whole_document_replaces_it(object in documents(), value in documents()) {
        let patch = json!([{"op": "replace", "path": "", "value": value}, {"op": "test", "path": "", "value": value}]);
        prop_assert_eq!(json(&object, &patch).unwrap(), value);
    }
}
