//! What runners say, for `kubectl logs`: a file for each pod, each line of which begins with its time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use cleat_apiserver::{LogsError, LogsRequest};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// What the threads of a pod's runner are called, before the pod's name.
const THREAD: &str = "pod/";
/// How often a log that somebody follows is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// The logs of the pods of this process.
#[derive(Debug, Clone)]
pub struct Logs {
    folder: Arc<PathBuf>,
    /// Those of pods that run.
    open: Arc<Mutex<BTreeMap<String, File>>>,
}

impl Logs {
    /// Logs in a folder. What an earlier process has left there is removed, with its pods.
    pub fn new(folder: PathBuf) -> Result<Self> {
        if folder.exists() {
            std::fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
        }
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { folder: Arc::new(folder), open: Arc::default() })
    }

    /// Sends what is traced to where it belongs: what a runner says to the log of its pod, and what is worth a warning also to whoever
    /// looks at the terminal. `RUST_LOG` says otherwise for the terminal, `CLEAT_LOG` for pods.
    pub fn install(&self) {
        let filter = |name: &str, usual: &str| {
            std::env::var(name)
                .ok()
                .and_then(|text| EnvFilter::try_new(text).ok())
                .unwrap_or_else(|| EnvFilter::new(usual))
        };
        let terminal = tracing_subscriber::fmt::layer().with_writer(io::stderr);
        let terminal = terminal.with_ansi(crate::output::coloured(&io::stderr()));
        let pods = tracing_subscriber::fmt::layer().with_writer(self.clone()).with_ansi(false);
        tracing_subscriber::registry()
            .with(terminal.with_filter(filter("RUST_LOG", "warn")))
            .with(pods.with_filter(filter("CLEAT_LOG", "info")))
            .init();
    }

    /// What the threads of a pod's runner have to be called, so that what they say is its log.
    pub fn thread(pod: &str) -> String {
        format!("{THREAD}{pod}")
    }

    /// Opens the log of a pod.
    pub fn begin(&self, pod: &str) -> Result<()> {
        let path = self.path(pod);
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        self.locked().insert(pod.to_owned(), file);
        Ok(())
    }

    /// Writes lines into the log of a pod. One that has ended has nothing to say.
    pub fn write(&self, pod: &str, text: &str) {
        let now = Utc::now().to_rfc3339_opts(SecondsFormat::Nanos, true);
        let lines: String = text.lines().map(|line| format!("{now} {line}\n")).collect();
        if let Some(file) = self.locked().get_mut(pod) {
            // A full disk is somebody else's trouble.
            let _ = file.write_all(lines.as_bytes());
        }
    }

    /// Removes the log of a pod, as it goes with its pod.
    pub fn end(&self, pod: &str) {
        self.locked().remove(pod);
        let _ = std::fs::remove_file(self.path(pod));
    }

    fn path(&self, pod: &str) -> PathBuf {
        self.folder.join(format!("{pod}.log"))
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<String, File>> {
        // Each change is one insertion or removal.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl cleat_apiserver::Logs for Logs {
    async fn logs(&self, request: LogsRequest) -> Result<BoxStream<'static, Bytes>, LogsError> {
        if request.previous {
            let why = format!(
                "previous terminated container {:?} in pod {:?} not found",
                request.container, request.pod
            );
            return Err(LogsError::NotFound(why));
        }
        let path = self.path(&request.pod);
        let text = read(&path, 0).map_err(|error| LogsError::Failed(error.to_string()))?;
        let first = Bytes::from(chosen(&text, &request, Utc::now()));
        if !request.follow {
            return Ok(stream::iter([first]).boxed());
        }
        let rest = Rest { logs: self.clone(), path, position: text.len(), request };
        Ok(stream::iter([first]).chain(stream::unfold(rest, Rest::next)).boxed())
    }
}

/// A log that somebody follows.
struct Rest {
    logs: Logs,
    path: PathBuf,
    position: usize,
    request: LogsRequest,
}

impl Rest {
    /// What has come since. It ends with the pod.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        loop {
            let text = read(&self.path, self.position).ok()?;
            if !text.is_empty() {
                self.position += text.len();
                let more = LogsRequest { timestamps: self.request.timestamps, ..LogsRequest::default() };
                return Some((Bytes::from(chosen(&text, &more, Utc::now())), self));
            }
            if !self.logs.locked().contains_key(&self.request.pod) {
                return None;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// The whole lines of a file behind a position.
fn read(path: &Path, position: usize) -> io::Result<String> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let new = bytes.get(position..).unwrap_or_default();
    let whole = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    Ok(String::from_utf8_lossy(new.get(..whole).unwrap_or_default()).into_owned())
}

/// What of a log was asked for.
fn chosen(text: &str, request: &LogsRequest, now: DateTime<Utc>) -> String {
    let since = request.since_seconds.map(|seconds| now - TimeDelta::seconds(seconds));
    let recent = |line: &&str| {
        let time = line.split(' ').next().and_then(|time| DateTime::parse_from_rfc3339(time).ok());
        since.is_none_or(|since| time.is_some_and(|time| time >= since))
    };
    let lines: Vec<&str> = text.lines().filter(recent).collect();
    let last = request.tail_lines.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    let shown = lines.get(lines.len().saturating_sub(last)..).unwrap_or_default();
    let mut shown: String = shown
        .iter()
        .map(
            |line| if request.timestamps { *line } else { line.split_once(' ').map_or("", |(_, text)| text) },
        )
        .flat_map(|line| [line, "\n"])
        .collect();
    if let Some(limit) = request.limit_bytes.and_then(|limit| usize::try_from(limit).ok()) {
        shown.truncate(shown.floor_char_boundary(limit));
    }
    shown
}

/// Writes into the log of the pod whose thread this is, and elsewhere nothing.
pub struct Line {
    logs: Logs,
    pod: Option<String>,
}

impl<'w> MakeWriter<'w> for Logs {
    type Writer = Line;

    fn make_writer(&'w self) -> Line {
        let thread = std::thread::current();
        let pod = thread.name().and_then(|name| name.strip_prefix(THREAD)).map(ToOwned::to_owned);
        Line { logs: self.clone(), pod }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(pod) = &self.pod {
            self.logs.write(pod, &String::from_utf8_lossy(bytes));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_is_chosen() {
        let text = "2026-01-01T00:00:00.000000000Z one\n2026-01-01T00:00:10.000000000Z two\n2026-01-01T00:00:20.000000000Z three\n";
        let now: DateTime<Utc> = "2026-01-01T00:00:21Z".parse().unwrap();
        let asked = |request: LogsRequest| chosen(text, &request, now);
        assert_eq!(asked(LogsRequest::default()), "one\ntwo\nthree\n");
        assert_eq!(asked(LogsRequest { tail_lines: Some(1), ..LogsRequest::default() }), "three\n");
        assert_eq!(asked(LogsRequest { since_seconds: Some(12), ..LogsRequest::default() }), "two\nthree\n");
        assert_eq!(asked(LogsRequest { limit_bytes: Some(5), ..LogsRequest::default() }), "one\nt");
        let timed = asked(LogsRequest { timestamps: true, tail_lines: Some(1), ..LogsRequest::default() });
        assert_eq!(timed, "2026-01-01T00:00:20.000000000Z three\n");
    }

    #[test]
    fn what_a_thread_says_is_the_log_of_its_pod() {
        let folder = tempfile::tempdir().unwrap();
        let logs = Logs::new(folder.path().join("logs")).unwrap();
        logs.begin("a").unwrap();
        let say = |logs: Logs| move || logs.make_writer().write_all(b"hello\n").unwrap();
        std::thread::Builder::new().name(Logs::thread("a")).spawn(say(logs.clone())).unwrap().join().unwrap();
        std::thread::Builder::new().name(Logs::thread("b")).spawn(say(logs.clone())).unwrap().join().unwrap();
        say(logs.clone())();
        assert!(read(&logs.path("a"), 0).unwrap().ends_with(" hello\n"));
        assert_eq!(read(&logs.path("a"), 0).unwrap().lines().count(), 1);
        logs.end("a");
        assert_eq!(read(&logs.path("a"), 0).unwrap(), "");
    }
}
