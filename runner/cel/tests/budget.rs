//! An evaluation ends within its budget, whatever it is.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use cleat_cel::{Bindings, Budget, Env, Exceeded, Fault, Program, Type, Value, parse};
use serde_json::json;

/// More than any of these evaluations takes, on a busy machine and without optimization.
const SOON: Duration = Duration::from_secs(10);

fn env() -> Env {
    Env::new().with("items", Type::list(Type::Int)).with("text", Type::String).with("x", Type::Dyn)
}

fn exceeded(source: &str, budget: Budget) -> Exceeded {
    let items: Vec<Value> = (0..150).map(Value::Int).collect();
    let bindings = Bindings::new()
        .with("items", Value::list(items))
        .with("text", Value::from("a".repeat(100_000)))
        .with("x", Value::Null);
    let program = Program::compile(source, &env()).unwrap();
    let mut budget = budget;
    let start = Instant::now();
    let result = program.evaluate(&bindings, &mut budget);
    assert!(start.elapsed() < SOON, "{source} took {:?}", start.elapsed());
    match result {
        Err(error) => error.exceeded().unwrap_or_else(|| panic!("{source}: {error}")),
        Ok(_) => panic!("{source} spent only {} steps", budget.steps_spent()),
    }
}

#[test]
fn nested_comprehensions_over_large_lists_run_out_of_steps() {
    for source in [
        "items.map(a, items.map(b, items.map(c, a + b + c)))",
        "items.all(a, items.all(b, items.all(c, a + b + c >= 0)))",
        "items.filter(a, items.exists(b, items.exists(c, a + b + c < 0)))",
        "items.map(a, items.map(b, items.map(c, [a, b, c]))).flatten(3).sort()",
        "lists.range(1000000000)",
        "items.exists_one(a, items.exists_one(b, items.exists_one(c, a == b && b == c)))",
    ] {
        assert_eq!(
            exceeded(source, Budget::new(100_000, 4 << 20)),
            Exceeded::Steps { limit: 100_000 },
            "{source}"
        );
    }
}

#[test]
fn doubling_a_string_runs_out_of_bytes() {
    let mut source = "'0123456789'".to_owned();
    for level in 0..60 {
        source = format!("cel.bind(v{level}, {source}, v{level} + v{level})");
    }
    assert_eq!(exceeded(&source, Budget::new(u64::MAX, 1 << 20)), Exceeded::Bytes { limit: 1 << 20 });
}

#[test]
fn growing_a_list_runs_out_of_bytes() {
    let mut source = "items".to_owned();
    for level in 0..60 {
        source = format!("cel.bind(v{level}, {source}, v{level} + v{level})");
    }
    assert_eq!(exceeded(&source, Budget::new(u64::MAX, 1 << 20)), Exceeded::Bytes { limit: 1 << 20 });
}

#[test]
fn work_that_grows_with_text_is_paid_for() {
    for source in [
        "items.all(a, items.all(b, !text.contains('b')))",
        "items.all(a, items.all(b, text == text + ''))",
        "items.all(a, items.all(b, text.matches('b$') == false))",
        "items.all(a, items.all(b, text.indexOf('b') == -1))",
        "items.all(a, items.all(b, size(text) > 0))",
        "items.map(a, text.split('')).map(b, b.join('x'))",
        "items.map(a, text.replace('a', text))",
        "items.map(a, text.replace('', text))",
        "items.map(a, '%s%s'.format([text, text]))",
        "items.map(a, items.map(b, string(bytes(text))))",
        "items.all(a, items.all(b, text <= text + 'a'))",
        "items.map(a, text.upperAscii() + text.trim() + text.reverse())",
        "items.map(a, strings.quote(text))",
        "items.map(a, base64.encode(bytes(text)))",
        "items.map(a, url('https://a/' + text).getEscapedPath())",
        "items.map(a, text.findAll('a'))",
        "items.map(a, text.findAll('a*b|a'))",
        "items.map(a, items.map(b, text.substring(50000, 99999)))",
    ] {
        exceeded(source, Budget::new(200_000, 8 << 20));
    }
}

#[test]
fn comparing_values_with_shared_parts_is_paid_for() {
    let mut source = "items".to_owned();
    for level in 0..30 {
        source = format!("cel.bind(v{level}, {source}, [v{level}, v{level}])");
    }
    let steps = Budget::new(100_000, 4 << 20);
    assert_eq!(exceeded(&format!("{source} == {source}"), steps), Exceeded::Steps { limit: 100_000 });
    exceeded(&format!("'%s'.format([{source}])"), steps);
    exceeded(&format!("{source}.flatten(100)"), steps);
}

#[test]
fn patterns_that_break_backtracking_matchers_are_linear_and_paid_for() {
    let run = |source: &str| {
        let program = Program::compile(source, &env()).unwrap();
        let bindings = Bindings::new().with("text", Value::from("a".repeat(100_000)));
        let start = Instant::now();
        let result = program.evaluate(&bindings, &mut Budget::new(1_000_000, 4 << 20));
        assert!(start.elapsed() < SOON, "{source} took {:?}", start.elapsed());
        result
    };
    assert_eq!(run("text.matches('^(a+)+$')").unwrap(), Value::Bool(true));
    assert_eq!(run("(text + 'b').matches('^(a|a)*$')").unwrap(), Value::Bool(false));
    let error = run("text.matches('(a?){' + '1000}a{1000}')").unwrap_err();
    assert!(error.exceeded().is_some(), "{error}");
}

#[test]
fn patterns_that_are_too_large_are_refused() {
    for pattern in ["(a{1000}){1000}", "((a{100}){100}){100}", "(((((a{50}){50}){50}){50}){50}){50}"] {
        let start = Instant::now();
        let problems = Program::compile(&format!("text.matches('{pattern}')"), &env()).unwrap_err();
        assert!(problems.to_string().contains("invalid matches argument"), "{problems}");
        let program = Program::compile(&format!("text.matches('{pattern}' + '')"), &env()).unwrap();
        let bindings = Bindings::new().with("text", Value::from("a"));
        let error = program.evaluate(&bindings, &mut Budget::default()).unwrap_err();
        assert!(matches!(error.fault, Fault::Invalid(_)), "{error}");
        assert!(start.elapsed() < SOON);
    }
    let deep = format!("{}a{}", "(".repeat(5_000), ")".repeat(5_000));
    assert!(Program::compile(&format!("text.matches('{deep}')"), &env()).is_err());
}

#[test]
fn no_operator_absorbs_an_exceeded_budget() {
    for source in [
        "items.map(a, items.map(b, items.map(c, c))).size() > 0 || true",
        "true && (items.map(a, items.map(b, items.map(c, c))).size() > 0 || true)",
        "[1].exists(i, items.all(a, items.all(b, items.all(c, c >= 0)))) || true",
    ] {
        exceeded(source, Budget::new(10_000, 4 << 20));
    }
}

#[test]
fn evaluations_share_a_budget() {
    let program = Program::compile("items.map(i, i + 1).size()", &env()).unwrap();
    let items: Vec<Value> = (0..100).map(Value::Int).collect();
    let bindings = Bindings::new().with("items", Value::list(items));
    let mut budget = Budget::new(2_000, 1 << 20);
    let mut times = 0;
    while program.evaluate(&bindings, &mut budget).is_ok() {
        times += 1;
        assert!(times < 100);
    }
    assert!((3..=6).contains(&times), "{times}");
    assert_eq!(budget.steps_spent(), 2_000);
}

/// Runs with a stack as small as that of any thread that may evaluate expressions.
fn on_a_small_stack(run: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
}

#[test]
fn sources_that_nest_too_deep_are_refused_without_overflow() {
    on_a_small_stack(|| {
        for (open, inner, close) in [
            ("(", "1", ")"),
            ("[", "1", "]"),
            ("{'a': ", "1", "}"),
            ("!", "true", ""),
            ("-", "x", ""),
            ("size(", "1", ")"),
            ("true ? 1 : ", "2", ""),
            ("x[", "1", "]"),
            ("[1].map(i, ", "1", ")"),
            ("cel.bind(a, 1, ", "1", ")"),
            ("1 + (", "1", ")"),
            ("true && (", "true", ")"),
            ("x.a(", "1", ")"),
            ("Foo{a: ", "1", "}"),
        ] {
            for count in [1_000, 10_000] {
                let source = format!("{}{inner}{}", open.repeat(count), close.repeat(count));
                let error = parse(&source).unwrap_err();
                assert!(error.message.contains("limit"), "{open} nested {count} times: {}", error.message);
            }
        }
        for chain in ["x.a", "x[0]", "x.a()", "1 + 1", "1 - 1"] {
            let (first, rest) = chain.split_at(1);
            let source = format!("{first}{}", rest.repeat(10_000));
            assert!(parse(&source).unwrap_err().message.contains("limit"), "{chain}");
        }
        // These are lists of terms, however many there are.
        for flat in [" && true", " || true"] {
            assert!(parse(&format!("true{}", flat.repeat(10_000))).is_ok());
        }
        assert!(parse(&format!("[{}]", "1, ".repeat(30_000))).is_ok());
        assert!(parse(&"1".repeat(200_000)).unwrap_err().message.contains("limit"));
    });
}

#[test]
fn the_deepest_sources_are_evaluated_without_overflow() {
    on_a_small_stack(|| {
        for (open, inner, close) in [
            ("(", "1", ")"),
            ("[", "1", "]"),
            ("{'a': ", "1", "}"),
            ("[1].map(i, ", "1", ")"),
            ("[1].all(i, ", "true", ")"),
            ("cel.bind(a, 1, ", "1", ")"),
            ("1 + (", "1", ")"),
            ("true && (false || (", "true", "))"),
            ("dyn(", "1", ")"),
            ("optional.of(", "1", ")"),
            ("[1, 2][?", "0", "].orValue(1)"),
            ("true ? (", "1", ") : 2"),
            ("{'a': ", "1", "}.a"),
        ] {
            // As deep as is accepted.
            let deepest = (1..200).rev().find_map(|count| {
                let source = format!("{}{inner}{}", open.repeat(count), close.repeat(count));
                Program::compile(&source, &Env::new()).ok()
            });
            let program = deepest.unwrap();
            let value = program.evaluate(&Bindings::new(), &mut Budget::default()).unwrap();
            let _ = value.to_json();
            assert_eq!(value, value.clone());
            assert!(parse(&parse(program.source()).unwrap().to_string()).is_ok());
        }
    });
}

#[test]
fn deep_json_is_read_or_refused() {
    on_a_small_stack(|| {
        let mut deep = json!(1);
        for _ in 0..155 {
            deep = json!([deep]);
        }
        let value = Value::from_json(&deep).unwrap();
        assert!(value.to_json().is_err());
        assert_eq!(value, value.clone());
        for _ in 0..10 {
            deep = json!({"a": deep});
        }
        assert!(Value::from_json(&deep).is_err());
        assert!(Type::Dyn.value(&deep).is_err());
    });
}
