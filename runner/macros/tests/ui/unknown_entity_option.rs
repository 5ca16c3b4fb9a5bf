use cleat_runner::prelude::*;

#[entity(nmae = "thing")]
struct Thing;

fn main() {}
