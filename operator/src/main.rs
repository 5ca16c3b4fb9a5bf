//! The operator as a program.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// The operator of Cleat.
#[derive(Parser)]
#[command(name = "cleat-operator", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Brings about what is declared, until it is told to stop.
    Run(Box<cleat_operator::Options>),
    /// Stops the operator and lets go of everything that waits for it, before it is uninstalled.
    Cleanup(cleat_operator::cleanup::Options),
    /// Runs one workflow and says how it ended.
    Test(cleat_operator::probe::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_env("CLEAT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match std::env::var("CLEAT_LOG_FORMAT").as_deref() {
        Ok("json") => log.json().init(),
        _ => log.init(),
    }
    match done(Arguments::parse().command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn done(command: Command) -> anyhow::Result<()> {
    let client = kube::Client::try_default().await.context("there is no way to an API server")?;
    match command {
        Command::Run(options) => run(client, *options).await,
        Command::Cleanup(options) => Ok(cleat_operator::cleanup::cleanup(client, options).await?),
        Command::Test(options) => Ok(cleat_operator::probe::test(client, options).await?),
    }
}

async fn run(client: kube::Client, options: cleat_operator::Options) -> anyhow::Result<()> {
    let stop = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let told = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        told.cancel();
    });
    Ok(cleat_operator::run(client, options, stop).await?)
}
