//! A runner that knows orders. Configured by its environment, it runs alone on SQLite, or in a Cluster as the image of its runners.

use std::process::ExitCode;

use cleat_runner::Runner;

/// That of the stock runner, which is quicker than the system's.
#[global_allocator]
static ALLOCATOR: cleat_runner::Allocator = cleat_runner::Allocator;

fn main() -> ExitCode {
    orders::serve(Runner::from_env()).run()
}
