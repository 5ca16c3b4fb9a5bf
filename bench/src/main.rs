//! The benchmark programs of Cleat.
fn main() {}
