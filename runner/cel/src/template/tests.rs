use serde_json::json;

use super::*;

fn env() -> Env {
    Env::new().with("input", Type::Dyn).with("n", Type::Int)
}

fn evaluate(json: &Json) -> Result<Json, Error> {
    let input = json!({"order": "o-1", "count": 3, "price": 2.5, "big": 1234567.5, "list": [1, {"a": null}]});
    let bindings = Bindings::new().with("input", Value::from_json(&input).unwrap()).with("n", Value::Int(7));
    Template::compile(json, &env()).unwrap().evaluate(&bindings, &mut Budget::default())
}

#[test]
fn a_lone_expression_keeps_its_type_and_others_become_text() {
    let template = json!({
        "int": "${n + 1}", "text": "n is ${n}!", "two": "${n}${n}", "object": "${input.list[1]}", "blank": " ${n}",
        "double": "${input.price}", "list": ["${input.order}", 1, null, "plain", "$${n}"],
        "mixed": "${input.list} ${input.big} ${input.price} ${true} ${null} ${duration('90s')} ${b'a'}",
    });
    assert_eq!(
        evaluate(&template).unwrap(),
        json!({
            "int": 8, "text": "n is 7!", "two": "77", "object": {"a": null}, "blank": " 7",
            "double": 2.5, "list": ["o-1", 1, null, "plain", "${n}"],
            "mixed": "[1,{\"a\":null}] 1234567.5 2.5 true null 90s YQ==",
        })
    );
}

#[test]
fn an_empty_optional_leaves_its_field_out() {
    let template = json!({"a": "${input.?missing}", "b": "${input.?count}", "c": ["${input.?missing}"]});
    assert_eq!(evaluate(&template).unwrap(), json!({"b": 3, "c": [null]}));
    assert_eq!(evaluate(&json!("${input.?missing}")).unwrap(), json!(null));
    assert_eq!(evaluate(&json!("<${input.?missing}>")).unwrap(), json!("<>"));
}

#[test]
fn problems_name_the_path_and_the_position_in_the_string() {
    let template =
        json!({"steps": [{"input": {"order-id": "order ${ninput.order}\n and ${ m}"}}], "ok": "${n}"});
    let problems = Template::compile(&template, &env()).unwrap_err();
    let shown: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "steps[0].input[\"order-id\"]: 1:9: undeclared reference to 'ninput' (in container '') (did you mean 'input'?)",
            "steps[0].input[\"order-id\"]: 2:9: undeclared reference to 'm' (in container '') (did you mean 'n'?)",
        ]
    );
    let problems = Template::compile(&json!({"a": "x ${n"}), &env()).unwrap_err();
    assert_eq!(problems[0].to_string(), "a: 1:3: '${' without its '}'");
    let problems = Template::compile(&json!({"${n}": 1}), &env()).unwrap_err();
    assert!(problems[0].to_string().contains("names of fields"));
    assert!(Template::string("${}", &env()).is_err());
}

#[test]
fn failures_name_the_path_and_the_position_in_the_string() {
    let error = evaluate(&json!({"a": [1, "x ${input.missing}"]})).unwrap_err();
    assert_eq!(error.to_string(), "a[1]: 1:10: no such key: missing");
    let error = evaluate(&json!({"a": "${1.0 / 0.0}"})).unwrap_err();
    assert_eq!(error.to_string(), "a: 1:3: +Inf has no JSON form");
}

#[test]
fn the_type_of_the_result_is_known_where_it_can_be() {
    let output = |json: Json| Template::compile(&json, &env()).unwrap().output();
    assert_eq!(output(json!("${n}")), Type::Int);
    assert_eq!(output(json!("a ${n}")), Type::String);
    assert_eq!(output(json!(["${n}", "${n + 1}"])), Type::list(Type::Int));
    assert_eq!(output(json!({"a": "${n}"})), Type::object([("a", Type::Int)]));
    assert!(Template::string("a ${n}", &env()).unwrap().uses("n"));
    assert!(!Template::string("a ${n}", &env()).unwrap().uses("input"));
    assert!(Template::string("a $${n}", &env()).unwrap().is_constant());
}

#[test]
fn a_small_value_that_is_large_as_json_exceeds_the_budget() {
    let mut source = "[0, 0]".to_owned();
    for level in 0..40 {
        source = format!("cel.bind(v{level}, {source}, [v{level}, v{level}])");
    }
    let error = evaluate(&json!(format!("${{{source}}}"))).unwrap_err();
    assert!(error.error.exceeded().is_some(), "{error}");
}

#[test]
fn a_template_nested_too_deep_is_refused() {
    let mut deep = json!("${n}");
    for _ in 0..MAX_DEPTH {
        deep = json!([deep]);
    }
    assert!(Template::compile(&deep, &env()).is_err());
}
