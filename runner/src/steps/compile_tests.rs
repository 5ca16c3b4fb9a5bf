//! Each thing that can be wrong with a definition, with where it is found and what it is called.

use cleat_crds::entity_type::EntityTypeSpec;
use cleat_crds::workflow_type::WorkflowTypeSpec;

use super::*;

/// As users write it, who say it in YAML and send it as JSON.
fn read<T: serde::de::DeserializeOwned>(yaml: &str) -> T {
    let value: serde_json::Value = serde_yaml::from_str(yaml).unwrap();
    serde_json::from_value(value).unwrap_or_else(|error| panic!("{error}\n{yaml}"))
}

fn workflow(yaml: &str) -> WorkflowTypeSpec {
    read(yaml)
}

fn entity(yaml: &str) -> EntityTypeSpec {
    read(yaml)
}

fn world() -> World {
    let inventory = entity(
        "methods:
        - {name: reserve, cel: {}, input: {schema: {type: object, required: [count], properties: {count: {type: integer}, note: {type: string}}}}}
        - {name: get, cel: {}, output: {schema: {type: object, properties: {stock: {type: integer}, price: {type: number}}}}}
        - {name: watch, stream: true}
        - {name: forget, visibility: private, cel: {}}",
    );
    let native = entity("handler: {native: {type: printer}}");
    World::default()
        .with_entity("inventory", &inventory)
        .with_entity("printer", &native)
        .with_native_workflow("compiled")
        .with_workflow("there", &workflow("steps: [{name: back, workflow: {type: and}}]"))
        .with_workflow("and", &workflow("steps: [{name: both, parallel: [{name: one, steps: [{name: back, workflow: {type: own}}]}]}]"))
}

fn faults(yaml: &str) -> Vec<(String, &'static str, String)> {
    let definition = Definition::from(&workflow(yaml));
    let found = check("own", &definition, Some(&world()));
    found.into_iter().map(|fault| (fault.path, fault.reason, fault.message)).collect()
}

/// What is written under `steps`, where the fault is, its reason, and what its message has to say.
const WRONG: &[(&str, &str, &str, &str)] = &[
    ("[]", "spec.steps", "InvalidStep", "no steps"),
    ("[{name: a}]", "spec.steps[0]", "InvalidStep", "call, http"),
    (
        "[{name: a, sleep: 1s, until: '2030-01-01T00:00:00Z'}]",
        "spec.steps[0]",
        "InvalidStep",
        "sleep and until",
    ),
    ("[{name: a, loop: {}}]", "spec.steps[0].loop", "UnknownField", "no such field"),
    ("[{name: a, sleep: 1s, timout: 1s}]", "spec.steps[0].timout", "UnknownField", "no such field"),
    ("[{name: A, sleep: 1s}]", "spec.steps[0].name", "InvalidStep", "small letter"),
    ("[{name: in, sleep: 1s}]", "spec.steps[0].name", "InvalidStep", "cannot be named"),
    ("[{name: a, sleep: 1s}, {name: a, sleep: 1s}]", "spec.steps[1].name", "DuplicateStep", "another step a"),
    (
        "[{name: a, sleep: 1s}, {name: b, forEach: {in: []}, steps: [{name: a, sleep: 1s}]}]",
        "spec.steps[1].steps[0].name",
        "DuplicateStep",
        "another step a",
    ),
    ("[{name: a, when: 'x > 1', sleep: 1s}]", "spec.steps[0].when", "UnknownField", "'x'"),
    ("[{name: a, when: '1 +', sleep: 1s}]", "spec.steps[0].when", "InvalidExpression", "1:"),
    ("[{name: a, when: '1 + 1', sleep: 1s}]", "spec.steps[0].when", "InvalidExpression", "bool"),
    ("[{name: a, when: 'siz(input) > 1', sleep: 1s}]", "spec.steps[0].when", "UnknownFunction", "size"),
    ("[{name: a, when: 'workflow.name == \"x\"', sleep: 1s}]", "spec.steps[0].when", "UnknownField", "name"),
    ("[{name: a, when: 'vars.n > 1', sleep: 1s}]", "spec.steps[0].when", "UnknownField", "'n'"),
    ("[{name: a, when: 'steps.z.skipped', sleep: 1s}]", "spec.steps[0].when", "UnknownStep", "no step z"),
    ("[{name: a, when: 'steps.a.skipped', sleep: 1s}]", "spec.steps[0].when", "UnknownStep", "has not run"),
    (
        "[{name: charge, sleep: 1s}, {name: b, when: 'steps.chrage.skipped', sleep: 1s}]",
        "spec.steps[1].when",
        "UnknownStep",
        "did you mean 'charge'?",
    ),
    (
        "[{name: a, set: {x: [1, '${steps.b.output}']}}, {name: b, sleep: 1s}]",
        "spec.steps[0].set.x[1]",
        "UnknownStep",
        "spec.steps[1]",
    ),
    (
        "[{name: p, parallel: [{name: l, steps: [{name: a, sleep: 1s}]}, {name: r, steps: [{name: b, when: 'steps.a.skipped', sleep: 1s}]}]}]",
        "spec.steps[0].parallel[1].steps[0].when",
        "UnknownStep",
        "has not run",
    ),
    (
        "[{name: e, forEach: {in: [1]}, steps: [{name: a, sleep: 1s}]}, {name: b, when: 'steps.a.skipped', sleep: 1s}]",
        "spec.steps[1].when",
        "UnknownStep",
        "forEach",
    ),
    (
        "[{name: s, set: {x: 1}}, {name: b, when: 'steps.s.output.y > 1', sleep: 1s}]",
        "spec.steps[1].when",
        "UnknownField",
        "'y'",
    ),
    ("[{name: a, set: {x: '${input'}}]", "spec.steps[0].set.x", "InvalidExpression", "without its"),
    ("[{name: a, sleep: soon}]", "spec.steps[0].sleep", "InvalidExpression", "duration"),
    ("[{name: a, sleep: '${1}'}]", "spec.steps[0].sleep", "InvalidExpression", "int"),
    ("[{name: a, until: tomorrow}]", "spec.steps[0].until", "InvalidExpression", "2030"),
    ("[{name: a, until: '${duration(\"1s\")}'}]", "spec.steps[0].until", "InvalidExpression", "time"),
    ("[{name: a, steps: [], sleep: 1s}]", "spec.steps[0].steps", "InvalidStep", "forEach"),
    ("[{name: a, forEach: {in: []}}]", "spec.steps[0]", "InvalidStep", "needs steps"),
    (
        "[{name: a, forEach: {in: 5}, steps: [{name: b, sleep: 1s}]}]",
        "spec.steps[0].forEach.in",
        "InvalidExpression",
        "list",
    ),
    (
        "[{name: a, forEach: {in: [], as: input}, steps: [{name: b, sleep: 1s}]}]",
        "spec.steps[0].forEach.as",
        "DuplicateStep",
        "something else",
    ),
    (
        "[{name: a, switch: [{steps: []}, {when: 'true', steps: []}]}]",
        "spec.steps[0].switch[0]",
        "InvalidStep",
        "last case",
    ),
    (
        "[{name: a, parallel: [{name: x, steps: []}, {name: x, steps: []}]}]",
        "spec.steps[0].parallel[1].name",
        "DuplicateStep",
        "branch x",
    ),
    (
        "[{name: a, sleep: 1s, retry: {attempts: 2}}]",
        "spec.steps[0].retry",
        "InvalidStep",
        "a wait only ends",
    ),
    (
        "[{name: a, until: '2030-01-01T00:00:00Z', retry: {attempts: 2}}]",
        "spec.steps[0].retry",
        "InvalidStep",
        "a wait only ends",
    ),
    ("[{name: a, set: {x: 1}, retry: {attempts: 2}}]", "spec.steps[0].retry", "InvalidStep", "same values"),
    (
        "[{name: a, fail: {reason: No}, retry: {attempts: 2}}]",
        "spec.steps[0].retry",
        "InvalidStep",
        "parallel, forEach or switch",
    ),
    (
        "[{name: a, signal: {name: go}, timeout: 1h, retry: {attempts: 2}}]",
        "spec.steps[0].retry",
        "InvalidStep",
        "give signal.timeout",
    ),
    ("[{name: a, set: {}, timeout: 1s}]", "spec.steps[0].timeout", "InvalidStep", "set"),
    (
        "[{name: a, workflow: {type: compiled, key: k}, retry: {attempts: 2}}]",
        "spec.steps[0].retry",
        "InvalidStep",
        "another execution",
    ),
    (
        "[{name: a, fail: {reason: No}, compensate: {call: {entity: printer, id: p, method: stop}}}]",
        "spec.steps[0].compensate",
        "InvalidStep",
        "undone",
    ),
    (
        "[{name: a, call: {entity: nobody, id: x, method: y}}]",
        "spec.steps[0].call.entity",
        "UnknownEntity",
        "nobody",
    ),
    (
        "[{name: a, call: {entity: inventory, id: x, method: y}}]",
        "spec.steps[0].call.method",
        "UnknownMethod",
        "reserve",
    ),
    (
        "[{name: a, call: {entity: inventory, id: x, method: watch}}]",
        "spec.steps[0].call.method",
        "UnknownMethod",
        "stream",
    ),
    (
        "[{name: a, call: {entity: inventory, id: x, method: forget}}]",
        "spec.steps[0].call.method",
        "UnknownMethod",
        "private",
    ),
    (
        "[{name: a, call: {entity: inventory, id: x, method: reserve, input: {count: 1, cuont: 2}}}]",
        "spec.steps[0].call.input.cuont",
        "UnknownField",
        "count, note",
    ),
    (
        "[{name: a, call: {entity: inventory, id: x, method: reserve, input: {note: hi}}}]",
        "spec.steps[0].call.input",
        "InvalidInput",
        "count is required",
    ),
    (
        "[{name: a, call: {entity: inventory, id: x, method: reserve, input: {count: 'n: ${1}'}}}]",
        "spec.steps[0].call.input.count",
        "InvalidInput",
        "string",
    ),
    (
        "[{name: a, call: {entity: inventory, id: '${input.', method: get}}]",
        "spec.steps[0].call.id",
        "InvalidExpression",
        "without its",
    ),
    (
        "[{name: a, call: {entity: inventory, id: x, method: get}}, {name: b, when: 'steps.a.output.stok > 1', sleep: 1s}]",
        "spec.steps[1].when",
        "UnknownField",
        "did you mean 'stock'?",
    ),
    (
        "[{name: a, sleep: 1s, compensate: {call: {entity: inventory, id: x, method: undo}}}]",
        "spec.steps[0].compensate.call.method",
        "UnknownMethod",
        "undo",
    ),
    ("[{name: a, http: {url: 'ftp://x'}}]", "spec.steps[0].http.url", "InvalidStep", "http://"),
    (
        "[{name: a, http: {url: 'http://x', headers: {'a b': {value: c}}}}]",
        "spec.steps[0].http.headers.a b",
        "InvalidStep",
        "name of a header",
    ),
    ("[{name: a, workflow: {type: nobody}}]", "spec.steps[0].workflow.type", "UnknownWorkflow", "nobody"),
    ("[{name: a, workflow: {type: own}}]", "spec.steps[0].workflow.type", "Cycle", "own -> own"),
    (
        "[{name: a, workflow: {type: there}}]",
        "spec.steps[0].workflow.type",
        "Cycle",
        "own -> there -> and -> own",
    ),
];

#[test]
fn each_wrong_thing_is_found_where_it_is() {
    for (steps, path, reason, says) in WRONG {
        let found = faults(&format!("steps: {steps}"));
        let [(at, why, message)] = &found[..] else { panic!("{steps}: {found:?}") };
        assert_eq!((at.as_str(), *why), (*path, *reason), "{steps}: {message}");
        assert!(message.contains(says), "{steps}: {message:?} does not say {says:?}");
    }
}

#[test]
fn all_wrong_things_are_found_at_once() {
    let found = faults(
        "input: {schema: {type: nonsense}}
steps:
- {name: a, when: 'x', sleep: never}
- {name: a, call: {entity: nobody, id: '${y}', method: m}}
output: {z: '${z}'}",
    );
    let paths: Vec<_> = found.iter().map(|(path, ..)| path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "spec.input.schema",
            "spec.steps[0].when",
            "spec.steps[0].sleep",
            "spec.steps[1].name",
            "spec.steps[1].call.entity",
            "spec.steps[1].call.id",
            "spec.output.z",
        ]
    );
}

#[test]
fn what_is_right_is_let_through() {
    for steps in [
        "[{name: a, call: {entity: printer, id: x, method: anything}}]",
        "[{name: a, call: {entity: inventory, id: x, method: get}}, {name: b, when: 'steps.a.output.stock > 1 && steps.a.output.price > 1', sleep: '${duration(\"1s\")}'}]",
        "[{name: a, workflow: {type: own}, when: 'input.more'}]",
        "[{name: a, switch: [{when: 'input.more', steps: [{name: b, workflow: {type: own}}]}]}]",
        "[{name: a, forEach: {in: '${input.rest}'}, steps: [{name: b, workflow: {type: there, input: '${item}'}}]}]",
        "[{name: n, set: {total: 0}}, {name: e, forEach: {in: [1, 2], as: x}, steps: [{name: add, set: {total: '${vars.total + x}', last: '${x}'}}]}, {name: w, when: 'vars.last == 2', sleep: 1s}]",
        "[{name: e, forEach: {in: [1]}, steps: [{name: r, set: {seen: '${has(vars.seen) ? vars.seen + 1 : 0}'}}]}]",
        "[{name: p, parallel: [{name: l, steps: [{name: a, sleep: 1s}]}, {name: r, steps: [{name: a, set: {y: 1}}]}]}, {name: b, when: 'steps.p.output.r.y == 1', sleep: 1s}]",
        "[{name: a, until: '${now + duration(\"1h\")}'}, {name: b, fail: {reason: No, message: '${workflow.id}'}}]",
    ] {
        assert_eq!(faults(&format!("steps: {steps}")), [], "{steps}");
    }
}

#[test]
fn what_is_too_deep_or_too_large_is_refused() {
    let mut deep = "[{name: inner, sleep: 1s}]".to_owned();
    for level in 0..MAX_DEPTH {
        deep = format!("[{{name: l{level}, switch: [{{steps: {deep}}}]}}]");
    }
    let found = faults(&format!("steps: {deep}"));
    assert_eq!(found.iter().map(|(_, reason, _)| *reason).collect::<Vec<_>>(), ["TooDeep"], "{found:?}");

    let many: Vec<_> = (0..=MAX_STEPS).map(|n| format!("{{name: s{n}, sleep: 1s}}")).collect();
    let found = faults(&format!("steps: [{}]", many.join(", ")));
    assert_eq!(found.iter().map(|(_, reason, _)| *reason).collect::<Vec<_>>(), ["TooLarge"], "{found:?}");

    let found = faults(&format!("steps: [{{name: a, set: {{x: {}}}}}]", "x".repeat(MAX_SIZE)));
    assert_eq!(found.iter().map(|(_, reason, _)| *reason).collect::<Vec<_>>(), ["TooLarge"], "{found:?}");
}

#[test]
fn a_definition_keeps_its_form() {
    let spec = workflow("steps: [{name: a, sleep: 1s}]\noutput: {x: '${input}'}");
    let definition = Definition::from(&spec);
    let bytes = definition.encode().unwrap();
    assert_eq!(bytes.as_ref(), br#"{"steps":[{"name":"a","sleep":"1s"}],"output":{"x":"${input}"}}"#);
    assert_eq!(Definition::decode(&bytes).unwrap(), definition);
}

#[test]
fn without_a_world_only_the_definition_itself_is_checked() {
    let definition = Definition::from(&workflow(
        "steps: [{name: a, call: {entity: nobody, id: x, method: y}}, {name: b, workflow: {type: own}}]",
    ));
    assert_eq!(check("own", &definition, None), []);
}
