//! `cleat call`, `notify` and `stream`: asking an entity.

use anyhow::{Context, Result, bail};
use http_body_util::BodyExt;
use serde_json::Value;

use super::{address, input, shown};
use crate::gateway::{Gateway, Question, segment};
use crate::output::Format;
use crate::target::Target;

/// Whom to ask, and what.
#[derive(Debug, clap::Args)]
pub struct Asked {
    /// The entity: type/id, such as inventory/apples.
    #[arg(value_parser = address, value_name = "TYPE/ID")]
    entity: (String, String),
    /// The method.
    method: String,
    /// The input as JSON; @FILE reads it from a file, @- from standard input.
    input: Option<String>,
    /// Makes two calls with the same key one.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

/// Whom to tell, what, and when.
#[derive(Debug, clap::Args)]
pub struct Told {
    #[command(flatten)]
    asked: Asked,
    /// Delivers it so much later, such as 5m.
    #[arg(long, conflicts_with = "at", value_name = "DURATION")]
    after: Option<String>,
    /// Delivers it at this time (RFC 3339).
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
}

impl Asked {
    fn path(&self) -> String {
        let (kind, id) = &self.entity;
        format!("/v1/entities/{}/{}/{}", segment(kind), segment(id), segment(&self.method))
    }

    fn question(&self, path: String) -> Result<Question> {
        let question = Question::post(path, input(self.input.as_deref())?);
        Ok(question.header("idempotency-key", self.key.clone()))
    }
}

/// Asks and shows the answer.
pub async fn call(target: &Target, asked: &Asked, format: Format) -> Result<()> {
    let question = asked.question(asked.path())?;
    let mut gateway = Gateway::find(target).await?;
    let answer = gateway.ask(question).await?;
    format.print(&answer, |_| shown(&answer))
}

/// Leaves a message and shows its id.
pub async fn notify(target: &Target, told: &Told, format: Format) -> Result<()> {
    let mut path = told.asked.path();
    if let Some(after) = &told.after {
        path = format!("{path}?after={}", segment(after));
    } else if let Some(at) = &told.at {
        path = format!("{path}?at={}", segment(at));
    }
    let question = told.asked.question(path)?.header("prefer", Some("respond-async".to_owned()));
    let answer = Gateway::find(target).await?.ask(question).await?;
    format.print(&answer, |_| {
        let request = answer.get("request").and_then(Value::as_str).unwrap_or_default();
        format!("request {request}\n")
    })
}

/// Asks and shows the items of the answer as they come.
pub async fn stream(target: &Target, asked: &Asked, format: Format) -> Result<()> {
    let question = asked.question(asked.path())?;
    let mut body = Gateway::find(target).await?.stream(question).await?;
    let mut events = Events::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.context("the stream broke off")?;
        let Some(data) = frame.data_ref() else { continue };
        for event in events.take(data) {
            match event.name.as_str() {
                "error" => bail!("{}", failure(&event.data)),
                "end" | "done" => return Ok(()),
                _ => {
                    let item = item(&event.data)?;
                    format.print_item(&item, |_| format!("{item}\n"))?;
                }
            }
        }
    }
    Ok(())
}

fn item(data: &str) -> Result<Value> {
    serde_json::from_str(data).with_context(|| format!("an item is not JSON: {data}"))
}

fn failure(data: &str) -> String {
    let problem: Value = serde_json::from_str(data).unwrap_or_default();
    let text = |field: &str| problem.get(field).and_then(Value::as_str).unwrap_or_default();
    match (text("reason"), text("detail")) {
        ("", "") => data.to_owned(),
        (reason, detail) => format!("{reason}: {detail}"),
    }
}

/// One event that a server has sent.
#[derive(Debug, PartialEq, Eq)]
struct Sent {
    name: String,
    data: String,
}

/// Server-sent events, put together from pieces of bytes.
#[derive(Debug, Default)]
struct Events {
    rest: Vec<u8>,
}

impl Events {
    /// The events that are complete with these bytes.
    fn take(&mut self, bytes: &[u8]) -> Vec<Sent> {
        self.rest.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.rest.windows(2).position(|pair| pair == b"\n\n") {
            let block: Vec<u8> = self.rest.drain(..end + 2).collect();
            let text = String::from_utf8_lossy(&block);
            let field = |name: &str| {
                let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                lines.map(|value| value.strip_prefix(' ').unwrap_or(value)).collect::<Vec<_>>().join("\n")
            };
            let (name, data) = (field("event"), field("data"));
            // A comment keeps the connection alive and says nothing.
            if !(name.is_empty() && data.is_empty()) {
                events.push(Sent { name, data });
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_put_together_from_pieces() {
        let mut events = Events::default();
        assert_eq!(events.take(b": hello\n\nid: 1\ndata: {\"a\""), []);
        let first = Sent { name: String::new(), data: "{\"a\":1}".to_owned() };
        assert_eq!(events.take(b":1}\n\nevent: end\n"), [first]);
        let end = Sent { name: "end".to_owned(), data: String::new() };
        assert_eq!(events.take(b"\n"), [end]);
    }
}
