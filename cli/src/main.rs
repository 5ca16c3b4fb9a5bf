//! The command line of Cleat.

mod demo;
mod dev;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Sharded stateful entities and durable workflows on Kubernetes.
#[derive(Parser)]
#[command(name = "cleat", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a platform in this process: one runner, on SQLite, without any set-up.
    Dev(dev::Arguments),
}

#[tokio::main]
async fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let done = match Arguments::parse().command {
        Command::Dev(arguments) => dev::run(arguments).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
