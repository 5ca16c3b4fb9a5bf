//! Mistakes are answered at the line where they were made, with what to do.

#[test]
fn each_mistake_is_pointed_at_and_says_what_to_do() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
