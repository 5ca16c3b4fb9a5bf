//! `cleat requests`: persisted requests by id.

use anyhow::Result;

use super::shown;
use crate::gateway::{Gateway, Question, segment};
use crate::output::Format;
use crate::target::Target;

/// What to do with a request.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Show its state, and its reply if there is one.
    Show {
        /// Its id.
        id: String,
    },
    /// Abandon it: a message that is scheduled or being retried is not handled, and a handler that runs is interrupted.
    Cancel {
        /// Its id.
        id: String,
    },
}

/// Does it.
pub async fn run(target: &Target, command: &Command, format: Format) -> Result<()> {
    let mut gateway = Gateway::find(target).await?;
    let path = |id: &str| format!("/v1/requests/{}", segment(id));
    let question = match command {
        Command::Show { id } => Question::get(path(id)),
        Command::Cancel { id } => Question::delete(path(id)),
    };
    let request = gateway.ask(question).await?;
    format.print(&request, |_| shown(&request))
}
