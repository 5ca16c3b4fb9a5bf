//! `cleat dead-letters`: messages that were given up.

use anyhow::{Result, bail};
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
        /// Only those for entities of this type.
        #[arg(long = "type")]
        entity_type: Option<String>,
        /// Only those whose last error contains this text.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Show one with its input and what went wrong.
    Show {
        /// Its id.
        id: String,
    },
    /// Let one be handled again, or all that are selected.
    Replay {
        /// Its id.
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        id: Option<String>,
        /// Replay all, or all that --type and --reason select. Fails if one of them could not be replayed.
        #[arg(long)]
        all: bool,
        /// Only those for entities of this type.
        #[arg(long = "type", requires = "all")]
        entity_type: Option<String>,
        /// Only those whose last error contains this text.
        #[arg(long, requires = "all")]
        reason: Option<String>,
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
        Command::List { limit, entity_type, reason } => {
            let filter = filter(entity_type.as_deref(), reason.as_deref());
            let page = gateway.ask(Question::get(format!("/v1/dead-letters?limit={limit}{filter}"))).await?;
            let items = page.get("deadLetters").cloned().unwrap_or_default();
            format.print(&items, |_| table(&items))
        }
        Command::Show { id } => {
            let letter = gateway.ask(Question::get(path(id))).await?;
            format.print(&letter, |_| shown(&letter))
        }
        Command::Replay { id: Some(id), .. } => {
            gateway.ask(Question::post(format!("{}/replay", path(id)), None)).await?;
            format.print(&json!({"id": id, "done": "replayed"}), |_| format!("{id} is handled again\n"))
        }
        Command::Replay { id: None, entity_type, reason, .. } => {
            let filter = filter(entity_type.as_deref(), reason.as_deref());
            let Replayed { replayed, failed } = replay_all(&mut gateway, &filter).await?;
            format.print(&json!({"replayed": replayed, "failed": failed.len()}), |_| {
                format!("{replayed} dead letters are handled again\n")
            })?;
            match failed.first() {
                None => Ok(()),
                Some(first) => {
                    bail!("{} dead letters could not be replayed, the first: {first}", failed.len())
                }
            }
        }
        Command::Drop { id } => {
            gateway.ask(Question::delete(path(id))).await?;
            format.print(&json!({"id": id, "done": "dropped"}), |_| format!("{id} is gone\n"))
        }
    }
}

/// What became of a replay of many.
struct Replayed {
    replayed: usize,
    /// Why some could not be replayed.
    failed: Vec<String>,
}

/// Replays all dead letters that a filter selects, page by page. Those that fail are counted, and the others are still replayed.
async fn replay_all(gateway: &mut Gateway, filter: &str) -> Result<Replayed> {
    let mut result = Replayed { replayed: 0, failed: Vec::new() };
    let mut from = String::new();
    loop {
        let path = format!("/v1/dead-letters?limit=100{filter}{from}");
        let page = gateway.ask(Question::get(path)).await?;
        let letters = page.get("deadLetters").and_then(Value::as_array).cloned().unwrap_or_default();
        for id in letters.iter().filter_map(|letter| letter.get("id")?.as_str()) {
            let replay = Question::post(format!("/v1/dead-letters/{}/replay", segment(id)), None);
            match gateway.ask(replay).await {
                Ok(_) => result.replayed += 1,
                Err(error) => result.failed.push(format!("{id}: {error:#}")),
            }
        }
        match page.get("continue").and_then(Value::as_str) {
            Some(next) => from = format!("&continue={}", segment(next)),
            None => return Ok(result),
        }
    }
}

/// The part of a query that selects dead letters.
fn filter(entity_type: Option<&str>, reason: Option<&str>) -> String {
    let part = |name: &str, value: Option<&str>| {
        value.map(|value| format!("&{name}={}", segment(value))).unwrap_or_default()
    };
    part("type", entity_type) + &part("reason", reason)
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
