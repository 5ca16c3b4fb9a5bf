//! One attempt of an activity.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::FutureExt;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::Metrics;
use super::activity::{Attempted, Context, Failed, Options, Run};
use super::driver::Happening;
use super::function::message_of;
use super::journal::Step;
use super::resident::Resident;
use super::tx::Tx;
use crate::message::codec::time::from_millis;
use crate::message::{EntityAddress, Snowflake, TraceContext};
use crate::store::{Store, Transaction};
use crate::trace::{self, Span};

/// How long an activity has to tidy up when nobody waits for it any more.
const GRACE: Duration = Duration::from_secs(10);

/// How often it is written down how far an activity has come, at most.
const NOTES: Duration = Duration::from_secs(1);

/// One attempt of an activity.
pub(super) struct Attempt {
    pub(super) address: EntityAddress,
    pub(super) run: Snowflake,
    pub(super) step: Step,
    pub(super) attempt: u32,
    pub(super) kept_key: Option<String>,
    pub(super) progress: Option<Bytes>,
    /// When the function asked for it, in milliseconds of Unix time.
    pub(super) since: i64,
    pub(super) cancel: CancellationToken,
    pub(super) store: Arc<dyn Store>,
    pub(super) options: Options,
    pub(super) work: Run,
    pub(super) inbox: Arc<Resident>,
    pub(super) metrics: Option<Metrics>,
    /// The trace of its execution.
    pub(super) trace: Option<TraceContext>,
    /// What it is seen as in that trace.
    pub(super) span: Option<Span>,
}

/// What came of an attempt.
pub(super) struct Tried {
    pub(super) step: Step,
    pub(super) result: Attempted,
    /// What is to be committed with it.
    pub(super) transaction: Option<Transaction>,
    /// How far it came, by its own account.
    pub(super) progress: Option<Bytes>,
}

impl Attempt {
    pub(super) async fn run(self) -> Tried {
        let Self {
            address,
            run,
            step,
            attempt,
            kept_key,
            progress,
            since,
            cancel,
            store,
            options,
            work,
            inbox,
            ..
        } = self;
        let Self { metrics, trace, mut span, .. } = self;
        let begun = Instant::now();
        let entity_type = address.entity_type.clone();
        let log = tracing::info_span!("activity", execution = %address, %step, attempt);
        let tx = Tx::new(Some(store));
        let (beat, mut beats) = watch::channel(None);
        // Kept here as well, since an activity that drops its context is not over.
        let beat = Arc::new(beat);
        let context = Context {
            address,
            run,
            step,
            attempt,
            tx: tx.clone(),
            kept_key,
            progress: progress.clone(),
            beat: Arc::clone(&beat),
            cancel: cancel.clone(),
        };
        let ends = options.ends(since).map(from_millis);
        let trace = span.as_ref().map(|span| span.context().clone()).or(trace);
        let working = async { AssertUnwindSafe(work(context)).catch_unwind().await };
        let working = trace::within(trace, working).instrument(log);
        let result = tokio::select! {
            // Most end at once, and then nothing else has to be waited for.
            biased;
            done = AssertUnwindSafe(working).catch_unwind() => match done {
                Ok(Ok(attempted)) => attempted,
                Ok(Err(panic)) | Err(panic) => Err(Failed::Defect {
                    kind: "Panicked",
                    message: format!("the activity panicked: {}", message_of(panic.as_ref())),
                }),
            },
            message = overtime(&options, ends) => Err(Failed::Defect { kind: "TimedOut", message }),
            limit = silence(options.heartbeat, beats.clone()) => {
                let message = format!("the activity said nothing for {limit:?}");
                Err(Failed::Defect { kind: "TimedOut", message })
            }
            () = tell(beats.clone(), &inbox, step) => Err(Failed::retry("unreachable")),
            () = abandoned(&cancel) => Err(Failed::retry("nobody waited for the activity any more")),
        };
        if let Some(metrics) = metrics {
            metrics.tried(&entity_type, result.is_ok(), begun.elapsed());
        }
        if let (Some(span), Err(error)) = (&mut span, &result) {
            span.fail(error);
        }
        let transaction = tx.take().await;
        let transaction = match (&result, transaction) {
            (Ok(_), transaction) => transaction,
            (Err(_), Some(transaction)) => {
                transaction.rollback().await;
                None
            }
            (Err(_), None) => None,
        };
        drop(beat);
        let progress = beats.borrow_and_update().clone().or(progress);
        Tried { step, result, transaction, progress }
    }
}

/// Comes back when an attempt, or all of them together, took too long.
async fn overtime(options: &Options, ends: Option<SystemTime>) -> String {
    let left = ends.map(|ends| ends.duration_since(SystemTime::now()).unwrap_or_default());
    let Some(limit) = options.timeout.into_iter().chain(left).min() else {
        return std::future::pending().await;
    };
    tokio::time::sleep(limit).await;
    match options.timeout {
        Some(timeout) if timeout == limit => format!("an attempt took longer than {timeout:?}"),
        _ => format!("all attempts together took longer than {:?}", options.deadline.unwrap_or_default()),
    }
}

/// Comes back when an activity was silent for too long.
async fn silence(limit: Option<Duration>, mut beats: watch::Receiver<Option<Bytes>>) -> Duration {
    let Some(limit) = limit else { return std::future::pending().await };
    loop {
        match tokio::time::timeout(limit, beats.changed()).await {
            Ok(Ok(())) => {}
            // Nobody can say anything any more.
            Ok(Err(_)) => return std::future::pending().await,
            Err(_) => return limit,
        }
    }
}

/// Tells how far an activity has come, now and then. Never comes back.
async fn tell(mut beats: watch::Receiver<Option<Bytes>>, inbox: &Resident, step: Step) {
    let mut next = Instant::now() + NOTES;
    while beats.changed().await.is_ok() {
        tokio::time::sleep_until(next).await;
        let progress = beats.borrow_and_update().clone();
        if let Some(progress) = progress {
            inbox.tell(Happening::Progress { step, progress });
        }
        next = Instant::now() + NOTES;
    }
    std::future::pending::<()>().await;
}

async fn abandoned(cancel: &CancellationToken) {
    cancel.cancelled().await;
    tokio::time::sleep(GRACE).await;
}
