//! `cleat workflow`: executions of workflows.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{input, shown};
use crate::gateway::{Gateway, Question, segment};
use crate::output::{self, Format, Table, waiting};
use crate::target::Target;

/// What to do with executions.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Start an execution, unless there is one under its key.
    Start {
        /// The type of workflow.
        #[arg(name = "TYPE")]
        kind: String,
        /// The input as JSON; @FILE reads it from a file, @- from standard input.
        input: Option<String>,
        /// What makes two starts one execution.
        #[arg(long)]
        key: Option<String>,
        /// How long the execution may take, such as 24h.
        #[arg(long, value_name = "DURATION")]
        timeout: Option<String>,
        /// Wait for its end and show what came of it.
        #[arg(long)]
        wait: bool,
    },
    /// Show an execution with its steps.
    Get {
        /// The execution.
        id: String,
    },
    /// List executions, newest first.
    List {
        /// Only of this type.
        #[arg(long = "type", value_name = "TYPE")]
        kind: Option<String>,
        /// Only in this phase.
        #[arg(long)]
        phase: Option<String>,
        /// Only those that began at this time (RFC 3339) or later.
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// How many at the most.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show an execution again and again until it ends.
    Watch {
        /// The execution.
        id: String,
    },
    /// Send a signal.
    Signal {
        /// The execution.
        id: String,
        /// The signal's name.
        name: String,
        /// What it says, as JSON.
        payload: Option<String>,
    },
    /// Ask for what an execution shows under a name.
    Query {
        /// The execution.
        id: String,
        /// The name.
        name: String,
    },
    /// Cancel an execution: what it did is undone.
    Cancel {
        /// The execution.
        id: String,
    },
    /// Let an execution rest.
    Pause {
        /// The execution.
        id: String,
    },
    /// Let a paused execution go on.
    Resume {
        /// The execution.
        id: String,
    },
    /// Continue an execution that is blocked or has failed. Steps that were compensated run again.
    Retry {
        /// The execution.
        id: String,
        /// Only show which steps would run again, under which keys, and which were compensated.
        #[arg(long)]
        dry_run: bool,
    },
    /// Continue in a new run from where the history had so many entries.
    Reset {
        /// The execution.
        id: String,
        /// How many entries to keep.
        #[arg(long)]
        entries: u64,
        /// Only show which steps would run again, under which keys, and which were compensated.
        #[arg(long)]
        dry_run: bool,
        /// Reset also an execution that has completed: its steps take effect again.
        #[arg(long)]
        yes: bool,
    },
    /// End an execution at once, undoing nothing.
    Terminate {
        /// The execution.
        id: String,
    },
    /// Show all that has happened to an execution.
    History {
        /// The execution.
        id: String,
        /// Only in this earlier run.
        #[arg(long)]
        run: Option<String>,
    },
}

/// Does it.
pub async fn run(target: &Target, command: &Command, format: Format) -> Result<()> {
    let mut gateway = Gateway::find(target).await?;
    match command {
        Command::Start { kind, input: text, key, timeout, wait } => {
            let start = Start {
                kind,
                input: input(text.as_deref())?,
                key: key.as_deref(),
                timeout: timeout.as_deref(),
            };
            start.run(&mut gateway, *wait, format).await
        }
        Command::Get { id } => get(&mut gateway, id, format).await,
        Command::List { kind, phase, since, limit } => {
            let filter = Filter {
                kind: kind.as_deref(),
                phase: phase.as_deref(),
                since: since.as_deref(),
                limit: *limit,
            };
            list(&mut gateway, &filter, format).await
        }
        Command::Watch { id } => watch(&mut gateway, id, format).await,
        Command::Signal { id, name, payload } => {
            let payload = input(payload.as_deref())?;
            gateway.ask(Question::post(path(id, &format!("/signals/{}", segment(name))), payload)).await?;
            format.print(&json!({"id": id, "done": "signalled"}), |_| format!("signal {name} sent\n"))
        }
        Command::Query { id, name } => {
            let answer =
                gateway.ask(Question::post(path(id, &format!("/queries/{}", segment(name))), None)).await?;
            format.print(&answer, |_| shown(&answer))
        }
        Command::Cancel { id } => tell(&mut gateway, id, "cancel", "cancelling", format).await,
        Command::Pause { id } => tell(&mut gateway, id, "suspend", "paused", format).await,
        Command::Resume { id } => tell(&mut gateway, id, "resume", "resumed", format).await,
        Command::Retry { id, dry_run: true } => {
            let plan = gateway.ask(Question::post(path(id, "/retry?dryRun=true"), None)).await?;
            format.print(&plan, |_| planned(&plan))
        }
        Command::Retry { id, dry_run: false } => tell(&mut gateway, id, "retry", "going on", format).await,
        Command::Terminate { id } => tell(&mut gateway, id, "terminate", "terminated", format).await,
        Command::Reset { id, entries, dry_run: true, .. } => {
            let body = json!({"entries": entries});
            let plan = gateway.ask(Question::post(path(id, "/reset?dryRun=true"), Some(body))).await?;
            format.print(&plan, |_| planned(&plan))
        }
        Command::Reset { id, entries, dry_run: false, yes } => {
            let report = gateway.ask(Question::get(path(id, ""))).await?;
            if text(&report, "phase") == Some("Completed") && !yes {
                bail!(
                    "{id} has completed: a reset runs its steps again, and they take effect again. Look at the plan with --dry-run, \
                     and confirm with --yes"
                );
            }
            gateway.ask(Question::post(path(id, "/reset"), Some(json!({"entries": entries})))).await?;
            format.print(&json!({"id": id, "done": "reset"}), |_| {
                format!("{id} goes on from entry {entries}\n")
            })
        }
        Command::History { id, run } => {
            let run = run.as_ref().map(|run| format!("?run={}", segment(run))).unwrap_or_default();
            let history = gateway.ask(Question::get(path(id, &format!("/history{run}")))).await?;
            format.print(&history, |_| entries(&history))
        }
    }
}

fn path(id: &str, rest: &str) -> String {
    format!("/v1/workflows/{}{rest}", segment(id))
}

async fn tell(gateway: &mut Gateway, id: &str, what: &str, done: &str, format: Format) -> Result<()> {
    gateway.ask(Question::post(path(id, &format!("/{what}")), None)).await?;
    format.print(&json!({"id": id, "done": done}), |_| format!("{id} {done}\n"))
}

struct Start<'a> {
    kind: &'a str,
    input: Option<Value>,
    key: Option<&'a str>,
    timeout: Option<&'a str>,
}

impl Start<'_> {
    async fn run(self, gateway: &mut Gateway, wait: bool, format: Format) -> Result<()> {
        let mut body = json!({"input": self.input});
        for (field, value) in [("key", self.key), ("timeout", self.timeout)] {
            if let (Some(value), Some(body)) = (value, body.as_object_mut()) {
                body.insert(field.to_owned(), value.into());
            }
        }
        let question = Question::post(format!("/v1/workflows/{}", segment(self.kind)), Some(body));
        let (status, answer) = waiting("starting it", gateway.answer(question)).await?;
        let id = text(&answer, "id").context("the gateway gives no id")?.to_owned();
        if !wait {
            let there = if status == http::StatusCode::CREATED { "started" } else { "was there before" };
            return format.print(&answer, |_| format!("{id} {there}\n"));
        }
        let output = waiting(&format!("waiting for {id}"), result(gateway, &id)).await?;
        format.print(&output, |_| shown(&output))
    }
}

/// What came of an execution. Each look waits for a while, and there are as many as it takes.
async fn result(gateway: &mut Gateway, id: &str) -> Result<Value> {
    loop {
        let (status, answer) = gateway.answer(Question::get(path(id, "/result?wait=30s"))).await?;
        if status != http::StatusCode::ACCEPTED {
            return Ok(answer);
        }
    }
}

async fn get(gateway: &mut Gateway, id: &str, format: Format) -> Result<()> {
    let report = gateway.ask(Question::get(path(id, ""))).await?;
    format.print(&report, |wide| describe(&report, wide))
}

struct Filter<'a> {
    kind: Option<&'a str>,
    phase: Option<&'a str>,
    since: Option<&'a str>,
    limit: usize,
}

impl Filter<'_> {
    fn path(&self, page: usize, after: Option<&str>) -> String {
        let mut path = format!("/v1/workflows?limit={page}");
        for (name, value) in
            [("type", self.kind), ("phase", self.phase), ("since", self.since), ("continue", after)]
        {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={}", segment(value)));
            }
        }
        path
    }
}

async fn list(gateway: &mut Gateway, filter: &Filter<'_>, format: Format) -> Result<()> {
    let mut items = Vec::new();
    let mut after: Option<String> = None;
    while items.len() < filter.limit {
        let wanted = (filter.limit - items.len()).min(100);
        let mut page = gateway.ask(Question::get(filter.path(wanted, after.as_deref()))).await?;
        after = text(&page, "continue").filter(|token| !token.is_empty()).map(ToOwned::to_owned);
        match page.get_mut("workflows").map(Value::take) {
            Some(Value::Array(more)) if !more.is_empty() => items.extend(more),
            _ => break,
        }
        if after.is_none() {
            break;
        }
    }
    format.print(&items, |wide| {
        let mut table = Table::new(if wide {
            &["ID", "TYPE", "PHASE", "STEP", "STARTED", "ENDED", "REASON"]
        } else {
            &["ID", "TYPE", "PHASE", "STEP", "STARTED"]
        });
        for item in &items {
            let cell = |field: &str| text(item, field).unwrap_or("-").to_owned();
            let (id, kind, phase, step) =
                (cell("id"), cell("type"), output::phase(&cell("phase")), cell("step"));
            let started = output::since(text(item, "started"));
            if wide {
                let reason = item.pointer("/failure/reason").and_then(Value::as_str).unwrap_or("-");
                table.row([
                    id,
                    kind,
                    phase,
                    step,
                    started,
                    output::since(text(item, "ended")),
                    reason.to_owned(),
                ]);
            } else {
                table.row([id, kind, phase, step, started]);
            }
        }
        if table.is_empty() { "no executions\n".to_owned() } else { table.render() }
    })
}

/// How often an execution that is watched is looked at.
const LOOK: Duration = Duration::from_millis(300);

async fn watch(gateway: &mut Gateway, id: &str, format: Format) -> Result<()> {
    let mut last = None;
    loop {
        let report = gateway.ask(Question::get(path(id, ""))).await?;
        if last.as_ref() != Some(&report) {
            format.print_item(&report, |wide| describe(&report, wide))?;
        }
        let phase = text(&report, "phase").unwrap_or_default();
        match phase {
            "Completed" => return Ok(()),
            "Failed" | "Cancelled" | "TimedOut" => bail!("{id} ended as {phase}"),
            _ => {}
        }
        last = Some(report);
        tokio::time::sleep(LOOK).await;
    }
}

/// An execution for people: a line about it, and a line for each step.
pub fn describe(report: &Value, wide: bool) -> String {
    let cell = |value: &Value, field: &str| text(value, field).unwrap_or("-").to_owned();
    let mut shown = format!(
        "{}   {}   {}   step {}   started {} ago\n",
        cell(report, "id"),
        cell(report, "type"),
        output::phase(&cell(report, "phase")),
        cell(report, "step"),
        output::since(text(report, "started")),
    );
    let mut table = Table::new(&["  STEP", "KIND", "PHASE", "ATTEMPTS", "TOOK", "MESSAGE"]);
    let steps = report.get("steps").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for step in steps {
        let attempts = step.get("attempts").and_then(Value::as_u64).unwrap_or(0);
        let message = text(step, "message").unwrap_or_default();
        let message = if wide { message.to_owned() } else { message.chars().take(60).collect() };
        table.row([
            format!("  {}", cell(step, "name")),
            cell(step, "kind"),
            output::phase(&cell(step, "phase")),
            attempts.to_string(),
            took(step),
            message,
        ]);
    }
    if !table.is_empty() {
        shown.push_str(&table.render());
    }
    for field in ["failure", "problem"] {
        if let Some(why) = report.get(field).filter(|why| !why.is_null()) {
            shown.push_str(&format!("{field}: {}: {}\n", cell(why, "reason"), cell(why, "message")));
        }
    }
    if let Some(run) = text(report, "previousRun") {
        shown.push_str(&format!("continues run {run}\n"));
    }
    if let Some(output) = report.get("output").filter(|output| !output.is_null()) {
        shown.push_str(&format!("output: {output}\n"));
    }
    shown
}

fn took(step: &Value) -> String {
    let time = |field: &str| chrono::DateTime::parse_from_rfc3339(text(step, field)?).ok();
    match (time("started"), time("ended")) {
        (Some(started), Some(ended)) => {
            let millis = (ended - started).num_milliseconds();
            if millis < 1000 {
                format!("{millis}ms")
            } else {
                format!("{:.1}s", std::time::Duration::from_millis(millis.unsigned_abs()).as_secs_f64())
            }
        }
        _ => "-".to_owned(),
    }
}

/// What a retry or a reset would do, a line for each step.
fn planned(plan: &Value) -> String {
    let mut table = Table::new(&["STEP", "PLAN", "KEY", "COMPENSATED"]);
    for step in plan.get("steps").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default() {
        let fate = text(step, "fate").unwrap_or("-");
        let (shown, key) = match fate {
            "Kept" => ("kept", "-"),
            "Repeated" => ("runs again, takes effect twice", "new"),
            _ => ("runs again", "new"),
        };
        let compensated = step.get("compensated").and_then(Value::as_bool).unwrap_or_default();
        table.row([
            text(step, "name").unwrap_or("-").to_owned(),
            shown.to_owned(),
            text(step, "key").unwrap_or(key).to_owned(),
            if compensated { "yes" } else { "no" }.to_owned(),
        ]);
    }
    let entries = plan.get("entries").and_then(Value::as_u64).unwrap_or_default();
    let run = text(plan, "run").unwrap_or("-");
    format!("keeps {entries} entries of run {run}\n{}", table.render())
}

/// The entries of a history, one a line.
fn entries(history: &Value) -> String {
    let entries = history.get("entries").unwrap_or(history);
    let mut shown = String::new();
    for (number, entry) in entries.as_array().map(Vec::as_slice).unwrap_or_default().iter().enumerate() {
        shown.push_str(&format!("{:>5}  {entry}\n", number + 1));
    }
    shown
}

fn text<'v>(value: &'v Value, field: &str) -> Option<&'v str> {
    value.get(field).and_then(Value::as_str)
}
