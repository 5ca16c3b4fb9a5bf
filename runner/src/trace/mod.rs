//! Spans of what this runner does, for whoever looks at traces.
//!
//! A [`Recorder`] is given to everything that has spans to tell. The default one records nothing and costs nothing. A trace is begun at
//! the edge of the cluster, or by a caller outside who sends a `traceparent`; inside, only what belongs to a trace that is
//! sampled is recorded. Spans go to a bounded queue, and from there, in batches, to a collector that speaks OTLP over HTTP.
//!
//! # Caveats
//! Nothing waits for the collector: if it is slow or gone, spans are dropped and counted.

mod current;
mod endpoint;
mod export;
mod otlp;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use prometheus::{IntCounterVec, Opts, Registry};
use tokio::sync::mpsc;

use crate::message::TraceContext;

pub use current::{current, within};
pub use endpoint::{Endpoint, InvalidEndpoint};
pub use export::Exporter;

/// What is recorded, and where it goes.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the collector listens.
    pub endpoint: Endpoint,
    /// What tells this process from others, such as `service.name`.
    pub resource: Vec<(&'static str, String)>,
    /// Which part of the traces that begin here is sampled: from 0 to 1.
    pub ratio: f64,
    /// How many spans may wait for the collector.
    pub queue: usize,
    /// How many spans go in one request at most.
    pub batch: usize,
    /// How long a span waits for others to go with.
    pub linger: Duration,
    /// How long the collector may take.
    pub timeout: Duration,
}

impl Options {
    /// The defaults for a collector.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            resource: vec![("service.name", "cleat-runner".to_owned())],
            ratio: 1.0,
            queue: 8192,
            batch: 512,
            linger: Duration::from_secs(1),
            timeout: Duration::from_secs(10),
        }
    }
}

/// Records spans. Cheap to clone; the default one records nothing.
#[derive(Clone, Default)]
pub struct Recorder(Option<Arc<Inner>>);

struct Inner {
    ratio: f64,
    spans: mpsc::Sender<Ended>,
    results: IntCounterVec,
}

/// Which side of a request a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Work within a process.
    Internal,
    /// A request is answered.
    Server,
    /// A request is made.
    Client,
}

/// Something that takes a while. It ends when it is dropped.
pub struct Span {
    recorder: Arc<Inner>,
    begun: Instant,
    /// Only taken once, by the end.
    ended: Option<Box<Ended>>,
    context: TraceContext,
}

/// A span that is over.
#[derive(Debug)]
struct Ended {
    context: TraceContext,
    parent: Option<u64>,
    name: Cow<'static, str>,
    kind: Kind,
    began: SystemTime,
    took: Duration,
    attributes: Vec<(&'static str, String)>,
    /// What went wrong.
    error: Option<String>,
}

impl Recorder {
    /// A recorder, and what takes its spans to the collector for as long as it is run.
    ///
    /// # Errors
    /// Those of the registry.
    pub fn new(options: Options, registry: &Registry) -> Result<(Self, Exporter), prometheus::Error> {
        let results = IntCounterVec::new(
            Opts::new("cleat_trace_spans_total", "Spans by what became of them: exported, dropped, failed."),
            &["result"],
        )?;
        registry.register(Box::new(results.clone()))?;
        let (sender, spans) = mpsc::channel(options.queue.max(1));
        let inner = Inner { ratio: options.ratio, spans: sender, results: results.clone() };
        Ok((Self(Some(Arc::new(inner))), Exporter::new(options, spans, results)))
    }

    /// Whether anything is recorded at all.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// A span of a trace that somebody samples; none for all else.
    pub fn span(
        &self,
        name: impl Into<Cow<'static, str>>,
        kind: Kind,
        within: Option<&TraceContext>,
    ) -> Option<Span> {
        let (recorder, parent) = (self.0.as_ref()?, within.filter(|context| context.sampled)?);
        Some(Span::new(recorder, name.into(), kind, parent.trace_id, Some(parent.parent_id)))
    }

    /// A span at the edge: within the caller's trace if there is one, otherwise the first of a new trace. What is to be told to
    /// whoever is asked next comes with it, also if nothing is recorded.
    pub fn edge(
        &self,
        name: impl Into<Cow<'static, str>>,
        caller: Option<TraceContext>,
    ) -> (Option<Span>, Option<TraceContext>) {
        let span = match (&self.0, &caller) {
            (_, Some(_)) => self.span(name, Kind::Server, caller.as_ref()),
            (Some(recorder), None) if rand::random::<f64>() < recorder.ratio => {
                let trace = rand::random::<u128>().max(1);
                Some(Span::new(recorder, name.into(), Kind::Server, trace, None))
            }
            _ => None,
        };
        let context = span.as_ref().map(|span| span.context().clone()).or(caller);
        (span, context)
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Recorder").field(&self.is_on()).finish()
    }
}

impl Span {
    fn new(
        recorder: &Arc<Inner>,
        name: Cow<'static, str>,
        kind: Kind,
        trace_id: u128,
        parent: Option<u64>,
    ) -> Self {
        let context = TraceContext { trace_id, parent_id: rand::random::<u64>().max(1), sampled: true };
        let ended = Ended {
            context: context.clone(),
            parent,
            name,
            kind,
            began: SystemTime::now(),
            took: Duration::ZERO,
            attributes: Vec::new(),
            error: None,
        };
        Self { recorder: Arc::clone(recorder), begun: Instant::now(), ended: Some(Box::new(ended)), context }
    }

    /// What is told to whoever is asked within this span.
    pub fn context(&self) -> &TraceContext {
        &self.context
    }

    /// Says something about it.
    pub fn set(&mut self, name: &'static str, value: impl fmt::Display) {
        if let Some(ended) = &mut self.ended {
            ended.attributes.push((name, value.to_string()));
        }
    }

    /// Says that it failed.
    pub fn fail(&mut self, error: impl fmt::Display) {
        if let Some(ended) = &mut self.ended {
            ended.error = Some(error.to_string());
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let Some(mut ended) = self.ended.take() else { return };
        ended.took = self.begun.elapsed();
        if self.recorder.spans.try_send(*ended).is_err() {
            self.recorder.results.with_label_values(&["dropped"]).inc();
        }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Span").field(&self.context.to_string()).finish()
    }
}
