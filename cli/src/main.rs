//! The command line of Cleat, also as `kubectl cleat`.

mod command;
mod dev;
mod gateway;
mod output;
#[cfg(test)]
mod reference;
mod target;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};

use self::output::Format;
use self::target::Target;

/// Sharded stateful entities and durable workflows on Kubernetes.
#[derive(Parser)]
#[command(name = "cleat", version)]
struct Arguments {
    #[command(flatten)]
    target: Target,
    /// How things are shown.
    #[arg(long, short = 'o', global = true, value_enum, default_value_t)]
    output: Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a platform in this process: Kubernetes API, operator and runners, on SQLite, without any set-up.
    Dev(dev::Arguments),
    /// Ask an entity and show its answer.
    Call(command::call::Asked),
    /// Leave a message for an entity, now or for later.
    Notify(command::call::Told),
    /// Ask an entity and show the items of its answer as they come.
    Stream(command::call::Asked),
    /// Start executions of workflows and look after them.
    #[command(subcommand, visible_alias = "wf")]
    Workflow(command::workflow::Command),
    /// Look after what happens again and again.
    #[command(subcommand)]
    Cron(command::cron::Command),
    /// Draw which runner owns which shard.
    Shards,
    /// Show the runners.
    Runners,
    /// Show the types of entity.
    Entities,
    /// Look after messages that were given up.
    #[command(subcommand)]
    DeadLetters(command::dead_letters::Command),
    /// Show or cancel persisted requests.
    #[command(subcommand)]
    Requests(command::requests::Command),
    /// Check what is needed, and say what to do about what is not there.
    Doctor,
    /// Print what a shell needs to complete commands: `source <(cleat completion bash)`.
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(Arguments { target, output, command }: Arguments) -> Result<()> {
    if !matches!(command, Command::Dev(_)) {
        output::trace();
    }
    match command {
        Command::Dev(arguments) => dev::run(arguments).await,
        Command::Call(asked) => command::call::call(&target, &asked, output).await,
        Command::Notify(told) => command::call::notify(&target, &told, output).await,
        Command::Stream(asked) => command::call::stream(&target, &asked, output).await,
        Command::Workflow(command) => command::workflow::run(&target, &command, output).await,
        Command::Cron(command) => command::cron::run(&target, &command, output).await,
        Command::Shards => command::shards::run(&target, output).await,
        Command::Runners => command::runners::run(&target, output).await,
        Command::Entities => command::entities::run(&target, output).await,
        Command::DeadLetters(command) => command::dead_letters::run(&target, &command, output).await,
        Command::Requests(command) => command::requests::run(&target, &command, output).await,
        Command::Doctor => command::doctor::run(&target, output).await,
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Arguments::command(), "cleat", &mut std::io::stdout());
            Ok(())
        }
    }
}
