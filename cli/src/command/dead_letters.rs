//! `cleat dead-letters`: messages that were given up.

use anyhow::Result;
use serde_json::{Value, json};

use super::shown;
use crate::gateway::{Gateway, Question, segment};
use crate::output::{self, Format, Table};
use crate::target::Target;

/// What to do with dead letters.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// List them, newest first.
    List {
        /// How many at the most.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show one with its input and what went wrong.
    Show {
        /// Its id.
        id: String,
    },
    /// Let one be handled again.
    Replay {
        /// Its id.
        id: String,
    },
    /// Forget one.
    Drop {
        /// Its id.
        id: String,
    },
}

/// Does it.
pub async fn run(target: &Target, command: &Command, format: Format) -> Result<()> {
    let mut gateway = Gateway::find(target).await?;
    let path = |id: &str| format!("/v1/dead-letters/{}", segment(id));
    match command {
        Command::List { limit } => {
            let page = gateway.ask(Question::get(format!("/v1/dead-letters?limit={limit}"))).await?;
            let items = page.get("deadLetters").cloned().unwrap_or_default();
            format.print(&items, |_| table(&items))
        }
        Command::Show { id } => {
            let letter = gateway.ask(Question::get(path(id))).await?;
            format.print(&letter, |_| shown(&letter))
        }
        Command::Replay { id } => {
            gateway.ask(Question::post(format!("{}/replay", path(id)), None)).await?;
            format.print(&json!({"id": id, "done": "replayed"}), |_| format!("{id} is handled again\n"))
        }
        Command::Drop { id } => {
            gateway.ask(Question::delete(path(id))).await?;
            format.print(&json!({"id": id, "done": "dropped"}), |_| format!("{id} is gone\n"))
        }
    }
}

fn table(items: &Value) -> String {
    let mut table = Table::new(&["ID", "ENTITY", "METHOD", "ATTEMPTS", "SINCE", "ERROR"]);
    for item in items.as_array().map(Vec::as_slice).unwrap_or_default() {
        let cell = |field: &str| match item.get(field) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Null) | None => "-".to_owned(),
            Some(value) => value.to_string(),
        };
        let since = output::since(item.get("died").and_then(Value::as_str));
        let error: String = cell("error").chars().take(60).collect();
        let entity = format!("{}/{}", cell("type"), cell("entity"));
        table.row([cell("id"), entity, cell("method"), cell("attempts"), since, error]);
    }
    if table.is_empty() { "no dead letters\n".to_owned() } else { table.render() }
}
