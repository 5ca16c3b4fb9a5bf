//! What is wrong with a definition is told at once, with its place.

use cleat_runner::definitions::check;

use crate::world::spec;

fn faults(yaml: &str) -> Vec<(String, &'static str, String)> {
    let faults = check::entity_type("thing", &spec(yaml));
    faults.into_iter().map(|fault| (fault.path, fault.reason, fault.message)).collect()
}

fn places(yaml: &str) -> Vec<(String, &'static str)> {
    faults(yaml).into_iter().map(|(path, reason, _)| (path, reason)).collect()
}

#[test]
fn the_examples_are_without_fault() {
    assert_eq!(faults(super::cel::INVENTORY), []);
}

#[test]
fn all_faults_of_all_expressions_are_told_with_method_field_and_position() {
    let wrong = r#"
state: {schema: {type: object, properties: {stock: {type: integer}, name: {type: string}}}, initial: {stock: 0, name: x}}
methods:
- name: take
  input: {schema: {type: object, properties: {count: {type: integer}}}}
  cel:
    when: "state.stok > 0"
    require: [{that: "input.count", reason: Wrong, message: "${nobody}"}]
    set: {stock: "${state.name}", colour: "${1}", name: "${frobnicate(state.name)}"}
    unset: ["stock.deep", "1 + 1"]
    output: "${state.stock +}"
    send: [{entity: e, id: "${self.name}", method: m, after: soon}]
"#;
    let told = faults(wrong);
    let places: Vec<_> = told.iter().map(|(path, reason, _)| (path.as_str(), *reason)).collect();
    for expected in [
        ("spec.methods[0].cel.when", "UnknownField"),
        ("spec.methods[0].cel.require[0].that", "InvalidExpression"),
        ("spec.methods[0].cel.require[0].message", "UnknownField"),
        ("spec.methods[0].cel.set.stock", "InvalidExpression"),
        ("spec.methods[0].cel.set.colour", "UnknownField"),
        ("spec.methods[0].cel.set.name", "UnknownFunction"),
        ("spec.methods[0].cel.unset[1]", "InvalidExpression"),
        ("spec.methods[0].cel.output", "InvalidExpression"),
        ("spec.methods[0].cel.send[0].id", "UnknownField"),
        ("spec.methods[0].cel.send[0].after", "InvalidExpression"),
    ] {
        assert!(places.contains(&expected), "{expected:?} is not in {told:#?}");
    }
    let (_, _, message) = &told[0];
    assert_eq!(message, "method take: 1:6: undefined field 'stok' (did you mean 'stock'?)");
}

#[test]
fn changes_that_overlap_are_refused() {
    let two = r#"
state: {initial: {}}
methods:
- name: both
  cel: {set: {a: "${1}", "a.b": "${2}", "m[input.k]": "${3}"}, unset: ["m[input.k]"]}
"#;
    assert_eq!(
        places(two),
        [
            ("spec.methods[0].cel.set[\"a.b\"]".to_owned(), "OverlappingSet"),
            ("spec.methods[0].cel.unset[0]".to_owned(), "OverlappingSet"),
        ]
    );
}

#[test]
fn what_does_not_go_together_is_refused() {
    for (yaml, path, reason) in [
        ("methods: []", "spec.methods", "NoHandler"),
        ("methods: [{name: a}]", "spec.methods[0]", "NoHandler"),
        ("methods: [{name: a, cel: {}, http: {url: 'http://a'}}]", "spec.methods[0]", "NoHandler"),
        ("methods: [{name: a, cel: {}}, {name: a, cel: {}}]", "spec.methods[1].name", "DuplicateMethod"),
        ("methods: [{name: a, cel: {}, stream: true}]", "spec.methods[0].stream", "NotStreaming"),
        ("methods: [{name: a, http: {url: 'http://'}}]", "spec.methods[0].http.url", "InvalidUrl"),
        (
            "methods: [{name: a, http: {url: 'http://a', headers: {cleat-fence: {value: x}}}}]",
            "spec.methods[0].http.headers[\"cleat-fence\"]",
            "InvalidHeader",
        ),
        ("methods: [{name: a, cel: {set: {x: 1}}}]", "spec.methods[0].cel.set.x", "UnknownField"),
        ("methods: [{name: a, cel: {output: '${state}'}}]", "spec.methods[0].cel.output", "UnknownField"),
        (
            "{state: {initial: {}}, methods: [{name: a, delivery: volatile, cel: {set: {x: 1}}}]}",
            "spec.methods[0].delivery",
            "VolatileWrite",
        ),
        (
            "{state: {schema: {type: object}, initial: 1}, methods: [{name: a, cel: {}}]}",
            "spec.state.initial",
            "InvalidState",
        ),
        (
            "methods: [{name: a, cel: {}, input: {schema: {type: objct}}}]",
            "spec.methods[0].input.schema",
            "InvalidSchema",
        ),
        (
            "{state: {initial: {}}, handler: {native: {type: a}}, methods: []}",
            "spec.state",
            "StateNotAllowed",
        ),
    ] {
        assert_eq!(places(yaml), [(path.to_owned(), reason)], "{yaml}");
    }
}
