//! The command line of Cleat.
fn main() {}
