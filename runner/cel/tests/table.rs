//! Expressions and their outcomes, one a line.
//!
//! The outcomes in `kubernetes.tsv` are those of the API server's own environment, with these differences:
//!
//! - Numbers of different types compare exactly; the API server turns ints into doubles first.
//! - A map literal with a key twice, and one with keys that are doubles, is an error; the language says so.
//! - A timestamp is written in UTC, whatever the offset it was read with.
//! - `%e` writes `1.5e+03`, and doubles inside of lists are formatted as outside of them.
//! - What a constant argument makes fail (`int('4x')`, a broken format string) fails when it is evaluated, not
//!   before; only patterns, durations and timestamps are checked at once.
//! - Syntax errors say what was expected in fewer words, and only the first one is reported.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use cleat_cel::Env;

fn check(table: &str, env: &Env) {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in table.lines() {
        let (source, expected) = line.rsplit_once('\t').unwrap_or_else(|| panic!("no outcome in {line:?}"));
        let outcome = support::outcome(source, env.clone());
        count += 1;
        if outcome != expected {
            wrong.push(format!("{source}\n  expected {expected}\n  got      {outcome}"));
        }
    }
    assert!(count > 50, "only {count} cases");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn expressions_in_the_environment_of_kubernetes_have_their_outcomes() {
    check(include_str!("cases/kubernetes.tsv"), &Env::kubernetes());
}

#[test]
fn expressions_in_the_full_environment_have_their_outcomes() {
    check(include_str!("cases/plain.tsv"), &Env::new());
}
