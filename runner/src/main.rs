//! The stock runner: it serves what is declared in Kubernetes, without any code of its own.

use std::process::ExitCode;

use cleat_runner::Runner;

#[global_allocator]
static ALLOCATOR: cleat_runner::Allocator = cleat_runner::Allocator;

/// The page with the variables, so that the help has them all.
const CONFIGURATION: &str = include_str!("../../docs/configuration.md");

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        None => Runner::from_env().run(),
        Some("-V" | "--version") => {
            println!("cleat-runner {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Some("-h" | "--help") => {
            println!("{}", help());
            ExitCode::SUCCESS
        }
        Some(other) => {
            eprintln!("cleat-runner takes no argument such as {other:?}: try --help");
            ExitCode::from(2)
        }
    }
}

fn help() -> String {
    let mut text = format!(
        "cleat-runner {}: a runner of Cleat, which serves entities and workflows\n\nUsage: cleat-runner [--help | --version]\n\n\
         It is told how to run by its environment. SIGTERM makes it hand over what it has, and end.\n\nVariables:\n",
        env!("CARGO_PKG_VERSION")
    );
    for line in CONFIGURATION.lines().filter(|line| line.starts_with("| `CLEAT_")) {
        let mut cells = line.trim_matches('|').split(" | ").map(|cell| cell.replace('`', ""));
        if let (Some(variable), Some(default), Some(says)) = (cells.next(), cells.next(), cells.next()) {
            text.push_str(&format!("  {}\n      {} [{}]\n", variable.trim(), says.trim(), default.trim()));
        }
    }
    text
}
