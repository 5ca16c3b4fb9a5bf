use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;

fn state() -> Type {
    Type::from_schema(&json!({"type": "object", "properties": {
        "stock": {"type": "integer"},
        "reserved": {"type": "object", "additionalProperties": {"type": "integer"}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "a": {"type": "object", "properties": {"b": {"type": "object"}}},
    }}))
}

fn env() -> Env {
    Env::new().with("input", Type::Dyn)
}

fn compile(source: &str) -> Result<Path, String> {
    Path::compile(source, &state(), &env()).map_err(|problems| problems.to_string())
}

fn resolve(source: &str) -> Resolved {
    let input = Value::from_json(&json!({"order": "o 1", "index": 1, "bad": 1.5})).unwrap();
    compile(source).unwrap().resolve(&Bindings::new().with("input", input), &mut Budget::default()).unwrap()
}

#[test]
fn paths_are_checked_against_the_state() {
    assert_eq!(compile("stock").unwrap().target(), &Type::Int);
    assert_eq!(compile("reserved[input.order]").unwrap().target(), &Type::Int);
    assert_eq!(compile("reserved.x").unwrap().target(), &Type::Int);
    assert_eq!(compile("list[0].a").unwrap().target(), &Type::String);
    assert_eq!(compile("a.b[\"c\"]").unwrap().target(), &Type::Dyn);
    assert_eq!(compile("stok").unwrap_err(), "1:1: undefined field 'stok' (did you mean 'stock'?)");
    assert_eq!(compile("list[0].b").unwrap_err(), "1:8: undefined field 'b' (did you mean 'a'?)");
    assert_eq!(compile("stock.a").unwrap_err(), "1:6: type 'int' does not support field selection");
    assert!(
        compile("reserved[inptu.order]").unwrap_err().starts_with("1:10: undeclared reference to 'inptu'")
    );
    assert!(compile("reserved[true]").unwrap_err().contains("a key is a string or an int"));
    assert!(compile("list[-1]").unwrap_err().contains("not negative"));
    for broken in ["", "1", "a + b", "f(a)", "a.?b", "a[?0]", "[a]", "a b"] {
        assert!(compile(broken).is_err(), "{broken}");
    }
    let long = vec!["b"; MAX_PARTS].join(".");
    assert!(compile(&format!("a.{long}")).is_err());
}

#[test]
fn resolved_paths_show_their_keys() {
    assert_eq!(resolve("reserved[input.order]").to_string(), "reserved[\"o 1\"]");
    assert_eq!(resolve("list[input.index].a").to_string(), "list[1].a");
    let input = Value::from_json(&json!({"bad": 1.5})).unwrap();
    let path = compile("reserved[input.bad]").unwrap();
    let error = path.resolve(&Bindings::new().with("input", input), &mut Budget::default()).unwrap_err();
    assert_eq!(error.located(), "1:15: a key is a string or an int, not double");
}

#[test]
fn paths_that_are_certain_to_overlap_are_found_before_they_are_resolved() {
    let overlaps = |a: &str, b: &str| compile(a).unwrap().overlaps(&compile(b).unwrap());
    assert!(overlaps("stock", "stock"));
    assert!(overlaps("reserved", "reserved[input.order]"));
    assert!(overlaps("reserved[input.order]", "reserved[ input . order ]"));
    assert!(overlaps("a.b", "a[\"b\"]"));
    assert!(!overlaps("stock", "reserved"));
    assert!(!overlaps("reserved[input.a]", "reserved[input.b]"));
    assert!(!overlaps("reserved.a", "reserved.b"));
}

#[test]
fn changes_are_made_together() {
    let mut changes = Changes::new();
    changes.set(resolve("stock"), json!(5)).unwrap();
    changes.set(resolve("a.b.c"), json!(true)).unwrap();
    changes.set(resolve("reserved[input.order]"), json!(1)).unwrap();
    changes.unset(resolve("list[0]")).unwrap();
    changes.unset(resolve("list[2]")).unwrap();
    changes.unset(resolve("reserved.gone")).unwrap();
    let state =
        json!({"stock": 1, "reserved": {"x": 2, "gone": 3}, "list": [{"a": "0"}, {"a": "1"}, {"a": "2"}]});
    assert_eq!(
        changes.apply(state).unwrap(),
        json!({"stock": 5, "a": {"b": {"c": true}}, "reserved": {"x": 2, "o 1": 1}, "list": [{"a": "1"}]})
    );
}

#[test]
fn what_is_not_there_can_be_unset() {
    let mut changes = Changes::new();
    changes.unset(resolve("a.b.c")).unwrap();
    changes.unset(resolve("list[3].a")).unwrap();
    assert_eq!(changes.apply(json!({"list": []})).unwrap(), json!({"list": []}));
}

#[test]
fn changes_that_cannot_be_made_say_why() {
    let apply = |source: &str, state: Json| {
        let mut changes = Changes::new();
        changes.set(resolve(source), json!(1)).unwrap();
        changes.apply(state).unwrap_err().to_string()
    };
    assert_eq!(apply("a.b", json!({"a": "x"})), "'a' is a string, not an object");
    assert_eq!(apply("list[0]", json!({"list": {}})), "'list' is an object, not a list");
    assert_eq!(apply("list[2]", json!({"list": [{}]})), "'list' has 1 items, there is none at 2");
    assert_eq!(apply("stock", json!(null)), "'state' is null, not an object");
    let mut changes = Changes::new();
    changes.set(resolve("reserved[input.order]"), json!(1)).unwrap();
    let error = changes.unset(resolve("reserved[\"o 1\"]")).unwrap_err();
    assert_eq!(error.to_string(), "'reserved[\"o 1\"]' and 'reserved[\"o 1\"]' overlap");
}

fn steps() -> impl Strategy<Value = Resolved> {
    let step = prop_oneof!["[ab]".prop_map(Step::Key), (0_usize..3).prop_map(Step::Index),];
    proptest::collection::vec(step, 1..4).prop_map(Resolved)
}

fn states() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![Just(json!(null)), Just(json!(1)), Just(json!("x"))];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Json::Array),
            proptest::collection::btree_map("[ab]", inner, 0..3).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_set_is_there_and_what_is_unset_is_gone(state in states(), path in steps()) {
        let pointer: String = path.steps().iter().map(|step| match step {
            Step::Key(key) => format!("/{key}"),
            Step::Index(index) => format!("/{index}"),
        }).collect();
        let mut changes = Changes::new();
        changes.set(path.clone(), json!("set")).unwrap();
        if let Ok(changed) = changes.apply(state.clone()) {
            prop_assert_eq!(changed.pointer(&pointer), Some(&json!("set")));
            let mut changes = Changes::new();
            changes.unset(path.clone()).unwrap();
            let removed = changes.apply(changed).unwrap();
            prop_assert_ne!(removed.pointer(&pointer), Some(&json!("set")));
        }
    }

    #[test]
    fn changes_that_do_not_overlap_can_be_made_in_any_order(state in states(), a in steps(), b in steps()) {
        prop_assume!(!a.overlaps(&b));
        let apply = |order: [&Resolved; 2]| {
            let mut changes = Changes::new();
            for path in order {
                changes.unset(path.clone()).unwrap();
            }
            changes.apply(state.clone())
        };
        if let (Ok(one), Ok(other)) = (apply([&a, &b]), apply([&b, &a])) {
            prop_assert_eq!(one, other);
        }
    }
}
