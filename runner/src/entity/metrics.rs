//! What entities tell Prometheus, and whoever looks at traces.

mod calls;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, Opts, Registry};

use self::calls::{Calls, OfMethod, Tallies};
use super::{Definition, Error};
use crate::message::{Envelope, Outcome, TraceContext};
use crate::shard::Fence;
use crate::trace::{Kind, Recorder, Span};

/// Metrics of entities.
#[derive(Debug, Clone)]
pub struct Metrics {
    calls: Calls,
    failed_attempts: IntCounterVec,
    dead_letters: IntCounterVec,
    lag: Histogram,
}

impl Metrics {
    /// Metrics that are shown through a registry.
    ///
    /// # Errors
    /// Those of the registry: most likely that the names are taken, by another runner in this process.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            calls: Calls::new()?,
            failed_attempts: IntCounterVec::new(
                Opts::new(
                    "cleat_failed_attempts_total",
                    "Attempts of persisted messages that failed, by type.",
                ),
                &["type"],
            )?,
            dead_letters: IntCounterVec::new(
                Opts::new("cleat_dead_letters_total", "Messages that failed too often, by type."),
                &["type"],
            )?,
            lag: Histogram::with_opts(
                HistogramOpts::new(
                    "cleat_scheduled_message_lag_seconds",
                    "How much later than its time a scheduled message was given to its entity.",
                )
                .buckets(lag_buckets()?),
            )?,
        };
        registry.register(Box::new(metrics.calls.clone()))?;
        registry.register(Box::new(metrics.failed_attempts.clone()))?;
        registry.register(Box::new(metrics.dead_letters.clone()))?;
        registry.register(Box::new(metrics.lag.clone()))?;
        Ok(metrics)
    }

    /// A scheduled message goes to its entity now.
    pub(super) fn fired(&self, due: SystemTime) {
        self.lag.observe(SystemTime::now().duration_since(due).unwrap_or_default().as_secs_f64());
    }

    /// What is measured of one type. All names of methods are known, so there are only so many.
    pub(super) fn of(&self, definition: &Definition) -> OfType {
        let entity_type = definition.entity_type.as_str();
        let method = |method: &String| (method.clone(), self.calls.of(entity_type, method));
        OfType {
            methods: definition.methods.keys().map(method).collect(),
            failed_attempts: self.failed_attempts.with_label_values(&[entity_type]),
            dead_letters: self.dead_letters.with_label_values(&[entity_type]),
        }
    }
}

/// From a millisecond to a good hour.
pub(crate) fn lag_buckets() -> Result<Vec<f64>, prometheus::Error> {
    prometheus::exponential_buckets(0.001, 4.0, 12)
}

/// What is measured of one type.
#[derive(Debug)]
pub(super) struct OfType {
    methods: BTreeMap<String, OfMethod>,
    pub(super) failed_attempts: IntCounter,
    pub(super) dead_letters: IntCounter,
}

impl OfType {
    /// What this thread counts for a method.
    fn method(&self, method: &str) -> Option<&Arc<Tallies>> {
        self.methods.get(method)?.here()
    }
}

/// How a message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Ok,
    Failed,
    Defect,
    Moved,
    Lost,
    Refused,
}

impl End {
    const ALL: [Self; 6] = [Self::Ok, Self::Failed, Self::Defect, Self::Moved, Self::Lost, Self::Refused];

    fn of(answer: Result<&Outcome, &Error>) -> Self {
        match answer {
            Ok(Outcome::Success(_)) => Self::Ok,
            Ok(Outcome::Failure(_)) => Self::Failed,
            Ok(Outcome::Defect(_)) => Self::Defect,
            Err(Error::NotHere(_)) => Self::Moved,
            Err(Error::Lost(_)) => Self::Lost,
            Err(_) => Self::Refused,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Defect => "defect",
            Self::Moved => "moved",
            Self::Lost => "lost",
            Self::Refused => "refused",
        }
    }
}

/// A message that is watched from the mailbox to its answer.
#[derive(Debug)]
pub(super) struct Watch {
    method: Option<(Arc<Tallies>, Instant)>,
    span: Option<Box<Span>>,
}

impl Watch {
    /// Watches a message, if anybody wants to know of it.
    pub(super) fn begin(
        of: Option<&OfType>,
        traces: &Recorder,
        envelope: &Envelope,
        fence: &Fence,
        now: Instant,
    ) -> Option<Self> {
        let method = of.and_then(|of| of.method(&envelope.method)).map(|of| (Arc::clone(of), now));
        let span = match &envelope.trace {
            Some(trace) => span(traces, trace, envelope, fence),
            None => None,
        };
        (method.is_some() || span.is_some()).then_some(Self { method, span })
    }

    /// What those are told who are asked because of the message.
    pub(super) fn trace(&self) -> Option<&TraceContext> {
        self.span.as_ref().map(|span| span.context())
    }

    /// It is answered.
    pub(super) fn end(self, answer: Result<&Outcome, &Error>) {
        if let Some((method, begun)) = self.method {
            method.count(End::of(answer), begun.elapsed());
        }
        if let Some(mut span) = self.span {
            match answer {
                Ok(Outcome::Success(_)) => {}
                Ok(Outcome::Failure(failure)) => {
                    // It is the method's own no, and as such a good answer.
                    span.set("cleat.reason", &failure.kind);
                }
                Ok(Outcome::Defect(defect)) => span.fail(format_args!("{}: {}", defect.kind, defect.message)),
                Err(error) => span.fail(error),
            }
        }
    }
}

fn span(traces: &Recorder, within: &TraceContext, envelope: &Envelope, fence: &Fence) -> Option<Box<Span>> {
    if !within.sampled || !traces.is_on() {
        return None;
    }
    let name = format!("{}.{}", envelope.address.entity_type, envelope.method);
    let mut span = traces.span(name, Kind::Server, Some(within))?;
    span.set("cleat.entity", &envelope.address);
    span.set("cleat.method", &envelope.method);
    span.set("cleat.shard", &fence.shard);
    span.set("cleat.epoch", fence.epoch);
    span.set("cleat.request", envelope.id);
    Some(Box::new(span))
}
