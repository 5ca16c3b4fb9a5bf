//! How things are shown: to people by default, to programs on request.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use serde::Serialize;

/// How things are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For people, with more columns.
    Wide,
    /// As JSON.
    Json,
    /// As YAML.
    Yaml,
}

impl Format {
    /// Shows a value to programs as it is, to people as `show` writes it.
    pub fn print<T: Serialize>(self, value: &T, show: impl FnOnce(bool) -> String) -> Result<()> {
        let text = match self {
            Self::Text => show(false),
            Self::Wide => show(true),
            Self::Json => format!("{}\n", serde_json::to_string_pretty(value)?),
            Self::Yaml => serde_yaml::to_string(value)?,
        };
        write(&text)
    }

    /// Shows one of many values that come one after the other: in JSON one a line, in YAML each as a document of its own.
    pub fn print_item(self, value: &serde_json::Value, show: impl FnOnce(bool) -> String) -> Result<()> {
        match self {
            Self::Text | Self::Wide => self.print(value, show),
            Self::Json => write(&format!("{value}\n")),
            Self::Yaml => write(&format!("---\n{}", serde_yaml::to_string(value)?)),
        }
    }
}

/// Writes to standard output. Whoever reads it may have gone away, as `head` does: that is no error.
pub fn write(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()).and_then(|()| std::io::stdout().flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => Ok(done?),
    }
}

/// Says on standard error what is worth a warning, or whatever `RUST_LOG` wants.
pub fn trace() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let ansi = coloured(&std::io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi).init();
}

/// Columns under their names.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new(names: &[&str]) -> Self {
        Self { rows: vec![names.iter().map(|name| (*name).to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// Whether there is nothing but the names.
    pub fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    /// The text, with columns as wide as they need to be.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| visible(cell)).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let line: Vec<String> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell}{}", " ".repeat(width.saturating_sub(visible(cell)))))
                .collect();
            text.push_str(line.join("   ").trim_end());
            text.push('\n');
        }
        text
    }
}

/// How many characters of a text are seen: what colours it is not.
fn visible(text: &str) -> usize {
    let mut pieces = text.split("\x1b[");
    let first = pieces.next().unwrap_or_default().chars().count();
    let rest = pieces.map(|piece| piece.split_once('m').map_or(piece, |(_, text)| text).chars().count());
    first + rest.sum::<usize>()
}

/// Text that stands out on a terminal, and is plain elsewhere.
#[derive(Debug, Clone, Copy)]
pub enum Colour {
    /// Something went well.
    Green,
    /// Something went wrong.
    Red,
    /// Something is under way or needs a look.
    Yellow,
    /// Something is of less interest.
    Dim,
}

/// Whether what is written there may have colours: it is a terminal, and nobody asked for none.
pub fn coloured(output: &impl IsTerminal) -> bool {
    output.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Colours a text for standard output, if that may have colours.
pub fn colour(text: &str, colour: Colour) -> String {
    if !coloured(&std::io::stdout()) {
        return text.to_owned();
    }
    let code = match colour {
        Colour::Green => "32",
        Colour::Red => "31",
        Colour::Yellow => "33",
        Colour::Dim => "2",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// The colour of a phase.
pub fn phase(phase: &str) -> String {
    let by = match phase {
        "Completed" | "ready" | "Ready" => Colour::Green,
        "Failed" | "TimedOut" | "Blocked" => Colour::Red,
        "Skipped" | "Pending" => Colour::Dim,
        _ => Colour::Yellow,
    };
    colour(phase, by)
}

/// A span of time as kubectl shows it: `12s`, `5m`, `3h`, `4d`.
pub fn age(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// How long ago a time in RFC 3339 was; `-` if there is none.
pub fn since(time: Option<&str>) -> String {
    let time = time.and_then(|time| chrono::DateTime::parse_from_rfc3339(time).ok());
    time.map_or_else(
        || "-".to_owned(),
        |time| age(SystemTime::now().duration_since(time.into()).unwrap_or_default()),
    )
}

/// Whether somebody is being told already what is waited for.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Says on standard error what is waited for, if it takes longer than a second and somebody looks. What is waited for within that is
/// not said again.
pub async fn waiting<T>(what: &str, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    if let Ok(done) = tokio::time::timeout(Duration::from_secs(1), &mut work).await {
        return done;
    }
    if !std::io::stderr().is_terminal() || TOLD.swap(true, Ordering::Relaxed) {
        return work.await;
    }
    eprint!("{what} …");
    loop {
        if let Ok(done) = tokio::time::timeout(Duration::from_secs(1), &mut work).await {
            eprintln!();
            TOLD.store(false, Ordering::Relaxed);
            return done;
        }
        eprint!(".");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["NAME", "SHARDS"]);
        assert!(table.is_empty());
        table.row(["default-7d4b-x".to_owned(), "100".to_owned()]);
        table.row(["é".to_owned(), "2".to_owned()]);
        assert_eq!(table.render(), "NAME             SHARDS\ndefault-7d4b-x   100\né                2\n");
    }

    #[test]
    fn colours_take_no_room() {
        let mut table = Table::new(&["PHASE", "STEP"]);
        table.row(["\x1b[2mSkipped\x1b[0m".to_owned(), "1".to_owned()]);
        table.row(["\x1b[32mCompleted\x1b[0m".to_owned(), "2".to_owned()]);
        let shown = "PHASE       STEP\n\x1b[2mSkipped\x1b[0m     1\n\x1b[32mCompleted\x1b[0m   2\n";
        assert_eq!(table.render(), shown);
    }

    #[test]
    fn ages_read_like_those_of_kubectl() {
        let shown = [5, 119, 300, 7199, 7200, 172_799, 172_800].map(|s| age(Duration::from_secs(s)));
        assert_eq!(shown, ["5s", "119s", "5m", "119m", "2h", "47h", "2d"]);
    }
}
