//! One message through its handler, with all its attempts.

use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use tracing::Instrument;

use super::activation::{Activation, Body};
use super::call::{Call, HandlerError, Held};
use super::context::{Commits, Context, Outgoing};
use super::definition::{Access, Method};
use super::earlier::Earlier;
use super::job::{Job, Origin};
use super::reach::{self, Reach};
use super::registry::Kind;
use super::retry::Next;
use super::running::{Registered, RunningHandler};
use super::shard::Shard;
use super::stream::{Stop, Streaming};
use crate::message::{Outcome, RequestId, Snowflake};
use crate::shard::Fence;
use crate::store::{self, Attempt, Change, Committed, Write};
use crate::trace;

/// The shortest pause of a message that an open circuit breaker delays.
const SHORTEST_DELAY: Duration = Duration::from_millis(10);

/// What became of a message.
pub(super) enum Done {
    /// It has an outcome.
    Ended(Job, Ended),
    /// It failed too often.
    GivenUp(Job, String),
    /// Somebody interrupted it.
    Interrupted(Job),
    /// It is stored, and its next attempt is for whoever owns the shard then.
    Parked(Job),
    /// It is stored, and its next attempt is for the definition that has taken the place of this one.
    Outdated(Job),
    /// It was there already.
    Duplicate(Job, Committed),
    /// The database failed while the message or an attempt was to be noted.
    Broken(Job, store::Error),
}

impl Done {
    /// The message.
    pub(super) fn job(&self) -> &Job {
        match self {
            Self::Ended(job, _)
            | Self::GivenUp(job, _)
            | Self::Interrupted(job)
            | Self::Parked(job)
            | Self::Outdated(job)
            | Self::Duplicate(job, _)
            | Self::Broken(job, _) => job,
        }
    }
}

/// What a handler did.
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    /// The version of the state that it saw or made.
    pub(super) version: i64,
    /// The new state.
    pub(super) state: Option<Bytes>,
    /// The messages that are to be sent with it, each with its id.
    pub(super) sends: Vec<(Snowflake, Outgoing)>,
    /// What else is to be committed with it.
    pub(super) effects: Commits,
}

impl Ended {
    /// An end without any effects.
    pub(super) fn only(outcome: Outcome) -> Self {
        Self { outcome, version: 0, state: None, sends: Vec::new(), effects: Commits::default() }
    }
}

enum Tried {
    Ended(Ended),
    /// Worth another attempt, after so much time at least.
    Failed(String, Duration),
    /// Not tried: it is tried after so much time, and this was no attempt.
    Delayed(String, Duration),
    Interrupted,
    /// The shard goes elsewhere, and what it gave so far is stored.
    Parted,
    /// The database failed while its items were to be stored.
    Broken(store::Error),
    /// It turned out to have run before.
    Duplicate(Committed),
    /// It saw a state that does not exist.
    Stale,
}

/// Handles a message until it has ended, one way or the other.
pub(super) async fn run(
    me: Arc<Activation>,
    shard: Arc<Shard>,
    mut job: Job,
    method: Method,
    earlier: Earlier,
) -> Done {
    let mut noted = false;
    loop {
        let setback = match attempt(&me, &shard, &mut job, &method, &earlier).await {
            Tried::Ended(ended) => return Done::Ended(job, ended),
            Tried::Interrupted => return Done::Interrupted(job),
            Tried::Parted => return Done::Parked(job),
            Tried::Broken(error) => return Done::Broken(job, error),
            Tried::Duplicate(committed) => return Done::Duplicate(job, committed),
            Tried::Stale => return Done::Broken(job, reach::stale(&me)),
            Tried::Failed(error, _) | Tried::Delayed(error, _) if !job.persisted => {
                let outcome = Outcome::defect("Crashed", error);
                return Done::Ended(job, Ended::only(outcome));
            }
            Tried::Failed(error, least) => Setback { error, least, counts: true, noted: false },
            Tried::Delayed(error, least) => Setback { error, least, counts: false, noted },
        };
        noted = !setback.counts;
        // It is rare and takes much, which the others do not carry along.
        match Box::pin(pause(&me, &shard, job, &method, setback)).await {
            ControlFlow::Continue(again) => job = again,
            ControlFlow::Break(done) => return done,
        }
    }
}

/// Why a message was not handled this time.
struct Setback {
    error: String,
    /// How long to wait at least.
    least: Duration,
    /// Whether it was an attempt. One that an open circuit breaker kept from being made is none.
    counts: bool,
    /// Whether the message is known to be delayed already, so that nothing new is stored.
    noted: bool,
}

/// Notes a failed attempt or a delay, and waits until the next attempt is due.
async fn pause(
    me: &Activation,
    shard: &Arc<Shard>,
    mut job: Job,
    method: &Method,
    setback: Setback,
) -> ControlFlow<Done, Job> {
    let Setback { error, least, counts, noted } = setback;
    // A second attempt is only made of what is stored: whoever owns the shard by then must know of it.
    let before = match job.origin {
        Origin::Stored { attempt } => attempt,
        Origin::Fresh { .. } => match shard.accept(&job.message).await {
            Ok(Committed::Applied) => 0,
            Ok(duplicate) => return ControlFlow::Break(Done::Duplicate(job, duplicate)),
            Err(error) => return ControlFlow::Break(Done::Broken(job, error)),
        },
    };
    let failed = before.saturating_add(i32::from(counts));
    job.origin = Origin::Stored { attempt: before };
    let pause = if counts {
        if let Some(metrics) = &me.kind.metrics {
            metrics.failed_attempts.inc();
        }
        let retry = method.retry.unwrap_or(shard.options().retry);
        let Next::After(pause) = retry.next(failed, rand::random()) else {
            return ControlFlow::Break(Done::GivenUp(job, error));
        };
        pause.max(least)
    } else {
        // Spread out: those that wait for one circuit breaker should not all come at the moment when it lets one through.
        least.max(SHORTEST_DELAY).mul_f64(1.0 + rand::random::<f64>() / 4.0)
    };
    // With 4, 8, 16... failed attempts: often enough for whoever is on call, rarely enough for a log.
    if counts && failed >= 4 && failed.count_ones() == 1 {
        let (group, slot) = (shard.fence.shard.group.clone(), me.address.slot());
        let request = RequestId { group, slot, id: job.id() };
        tracing::warn!(
            event = "message_retrying", entity = %me.address, %request, failed, error,
            "a message is still being retried; to abandon it, cancel the request"
        );
    } else {
        tracing::debug!(entity = %me.address, request = %job.id(), failed, counts, error, "not handled this time");
    }
    if !noted {
        let due = std::time::SystemTime::now() + pause;
        let attempt = Change::Attempt(Attempt { request: job.id(), attempt: failed, due, error });
        if let Err(error) = shard.commit(Write::one(shard.fence.clone(), attempt)).await {
            // An attempt that could not even be noted does not count.
            return ControlFlow::Break(Done::Broken(job, error));
        }
    }
    job.origin = Origin::Stored { attempt: failed };
    let ended = tokio::select! {
        () = tokio::time::sleep(pause) => None,
        () = shard.closing.cancelled() => Some(Done::Parked as fn(Job) -> Done),
        // What is wrong may be what was replaced.
        () = me.kind.replaced.cancelled() => Some(Done::Outdated as fn(Job) -> Done),
        () = interrupted(&job, method) => Some(Done::Interrupted as fn(Job) -> Done),
    };
    match ended {
        None => ControlFlow::Continue(job),
        Some(done) => ControlFlow::Break(done(job)),
    }
}

/// One attempt.
async fn attempt(
    me: &Arc<Activation>,
    shard: &Arc<Shard>,
    job: &mut Job,
    method: &Method,
    earlier: &Earlier,
) -> Tried {
    let body = match me.made() {
        Some(body) => body,
        // A panic drops the state from memory while commits are under way: it is loaded again only after they are decided.
        None if !Box::pin(earlier.clone().succeeded()).await => return Tried::Stale,
        None => match me.body(shard).await {
            Ok(body) => body,
            Err(error) => return refused(error),
        },
    };
    let held = match hold(me, &body, method.access).await {
        Ok(held) => held,
        Err(error) => return refused(error),
    };
    let attempt = match job.origin {
        Origin::Stored { attempt } => attempt,
        Origin::Fresh { .. } => 0,
    };
    let reach = Reach::new(me, shard, job, earlier.clone(), method.access);
    let context = Context::new(Arc::clone(&job.message), job.trace(), attempt, reach);
    let mut call = Call { context, held, output: None };
    let span = span(job, shard, attempt);
    let handled = if method.stream {
        // Few are, so the others do not carry what it takes.
        Box::pin(stream(&body, &mut call, me, shard, job, method).instrument(span)).await
    } else {
        Ok(handle(&body, &mut call, me, shard, job, method).instrument(span).await)
    };
    let Call { held, context: Context { mut effects, reach, .. }, .. } = call;
    if !matches!(handled, Ok(Handled::Returned(Ok(Ok(_)))))
        && let Some(opened) = effects.transaction.take()
    {
        // What comes next may want to write, too.
        Box::pin(opened.transaction.rollback()).await;
    }
    let handled = match handled {
        Ok(handled) => handled,
        Err(error) => {
            revert(held);
            return Tried::Broken(error);
        }
    };
    match reach.accepted() {
        Some(Committed::Applied) => job.origin = Origin::Stored { attempt: 0 },
        Some(duplicate) => {
            revert(held);
            return Tried::Duplicate(duplicate.clone());
        }
        None => {}
    }
    if reach.is_stale() {
        revert(held);
        return Tried::Stale;
    }
    match handled {
        Handled::Returned(Ok(Ok(reply))) => match number(shard, job, &mut effects).await {
            Ok(sends) => ended(reply, held, sends, effects),
            Err(error) => {
                revert(held);
                Tried::Broken(error)
            }
        },
        Handled::Returned(Ok(Err(error))) | Handled::Stopped(Stop::Fault(error)) => {
            revert(held);
            refused(error)
        }
        Handled::Returned(Err(panic)) => {
            drop(held);
            // Whatever the handler keeps in memory may be half done.
            me.crash().await;
            Tried::Failed(format!("the handler panicked: {}", panic_message(panic.as_ref())), Duration::ZERO)
        }
        Handled::TookTooLong => {
            revert(held);
            let limit = time_limit(&me.kind, shard, method).unwrap_or_default();
            Tried::Failed(format!("the handler took longer than {limit:?}"), Duration::ZERO)
        }
        Handled::Interrupted | Handled::Stopped(Stop::ReaderGone) => {
            revert(held);
            Tried::Interrupted
        }
        Handled::Stopped(Stop::Parted) => {
            revert(held);
            Tried::Parted
        }
    }
}

/// Runs a handler that gives one reply.
async fn handle(
    body: &Body,
    call: &mut Call,
    me: &Activation,
    shard: &Shard,
    job: &Job,
    method: &Method,
) -> Handled {
    let mut handling = pin!(guarded(body, call, me, shard, job, method));
    if job.interrupt.is_none() {
        return handling.await;
    }
    tokio::select! {
        biased;
        () = interrupted(job, method) => Handled::Interrupted,
        handled = &mut handling => handled,
    }
}

/// Runs a handler that streams. What it gave is stored before anything else becomes of it, so that another attempt goes on after it.
async fn stream(
    body: &Body,
    call: &mut Call,
    me: &Activation,
    shard: &Arc<Shard>,
    job: &Job,
    method: &Method,
) -> Result<Handled, store::Error> {
    let mut streaming = Streaming::begin(shard, job, method).await?;
    call.context.position = streaming.position();
    call.output = streaming.output.clone();
    let mut storing = pin!(streaming.take_pump());
    let handled = {
        let mut handling = pin!(guarded(body, call, me, shard, job, method));
        tokio::select! {
            biased;
            () = interrupted(job, method) => Handled::Interrupted,
            stop = streaming.stop(shard, job, method) => Handled::Stopped(stop),
            // It ends before the handler only if it fails.
            stored = &mut storing, if streaming.is_stored() => {
                return stored.map(|()| Handled::Interrupted);
            }
            handled = &mut handling => handled,
        }
    };
    call.output = None;
    drop(streaming);
    storing.await?;
    Ok(handled)
}

/// Runs a handler within its time and its trace, and lets no panic out.
async fn guarded(
    body: &Body,
    call: &mut Call,
    me: &Activation,
    shard: &Shard,
    job: &Job,
    method: &Method,
) -> Handled {
    let trace = call.context.trace().cloned();
    let limit = time_limit(&me.kind, shard, method);
    let watched = (!method.stream && me.kind.entity.reserved().is_none()).then_some(|| {
        let report_after = method.timeout.unwrap_or(shard.options().handler_report);
        shard.running.register(RunningHandler::new(Arc::clone(&job.message), Instant::now(), report_after))
    });
    let handling = AssertUnwindSafe(async { body.handler.handle(call).await }).catch_unwind();
    let handled = trace::within(trace, limited(limit, watched, handling)).await;
    handled.map_or(Handled::TookTooLong, Handled::Returned)
}

/// What a handler logs, it logs within this. Volatile calls are too quick to pay for it, unless somebody looks closely.
fn span(job: &Job, shard: &Shard, attempt: i32) -> tracing::Span {
    let envelope = &job.message.envelope;
    let (entity, method, request) = (&envelope.address, &envelope.method, job.id());
    let Fence { shard, epoch } = &shard.fence;
    if job.persisted {
        tracing::info_span!("request", %entity, method, %shard, %epoch, %request, attempt)
    } else {
        tracing::debug_span!("request", %entity, method, %shard, %epoch, %request)
    }
}

/// How a handler came to its end.
enum Handled {
    Returned(std::thread::Result<Result<Bytes, HandlerError>>),
    TookTooLong,
    Interrupted,
    Stopped(Stop),
}

/// How long one attempt may take: what the method says, or the default for handlers of users that give one reply.
fn time_limit(kind: &Kind, shard: &Shard, method: &Method) -> Option<Duration> {
    let default = || {
        let limit = shard.options().handler_timeout;
        (!method.stream && kind.entity.reserved().is_none() && !limit.is_zero()).then_some(limit)
    };
    method.timeout.or_else(default)
}

/// Runs a handler within its time. One that waits is registered, if it is to be watched, for as long as it does.
async fn limited<'a, F: Future>(
    limit: Option<Duration>,
    register: Option<impl FnOnce() -> Registered<'a>>,
    handling: F,
) -> Option<F::Output> {
    let mut handling = pin!(handling);
    // Most end at once, and need neither a timer nor to be registered.
    if let Poll::Ready(handled) = futures::poll!(handling.as_mut()) {
        return Some(handled);
    }
    let _running = register.map(|register| register());
    match limit {
        Some(limit) => tokio::time::timeout(limit, handling).await.ok(),
        None => Some(handling.await),
    }
}

/// Waits for an interrupt that counts.
async fn interrupted(job: &Job, method: &Method) {
    if method.uninterruptible.by_client() || job.message.envelope.uninterruptible.by_client() {
        std::future::pending::<()>().await;
    }
    job.interrupted().await;
}

/// Takes the state as the method wants it, as the handlers' own type.
async fn hold(me: &Activation, body: &Body, access: Access) -> Result<Held, HandlerError> {
    let Some(kind) = me.kind.definition().state.filter(|_| access != Access::None) else {
        return Ok(Held::Nothing);
    };
    if access == Access::Read {
        let state = Arc::clone(&body.state).read_owned().await;
        if state.is_materialized() {
            return Ok(Held::Read(state));
        }
    }
    let mut state = Arc::clone(&body.state).write_owned().await;
    kind.materialize(&mut state)
        .map_err(|error| HandlerError::Retry(super::Error::codec("the stored state", &error).to_string()))?;
    Ok(if access == Access::Read { Held::Read(state.downgrade()) } else { Held::Write(state) })
}

/// Gives each message that is sent with the reply its id. All or none is sent, so this comes before anything is written.
async fn number(
    shard: &Shard,
    job: &Job,
    effects: &mut Commits,
) -> Result<Vec<(Snowflake, Outgoing)>, store::Error> {
    if !job.persisted || effects.sends.is_empty() {
        return Ok(Vec::new());
    }
    let mut numbered = Vec::with_capacity(effects.sends.len());
    for send in std::mem::take(&mut effects.sends) {
        match shard.draw_id().await {
            Ok(id) => numbered.push((id, send)),
            Err(error) => {
                if let Some(opened) = effects.transaction.take() {
                    opened.transaction.rollback().await;
                }
                return Err(error);
            }
        }
    }
    Ok(numbered)
}

fn ended(reply: Bytes, held: Held, sends: Vec<(Snowflake, Outgoing)>, effects: Commits) -> Tried {
    let (version, state) = match held {
        Held::Nothing => (0, None),
        Held::Read(state) => (state.version, None),
        Held::Write(mut state) => match state.advance() {
            Ok(change) => (state.version, change),
            Err(error) => {
                state.revert();
                let error = super::Error::codec("the new state", &error);
                let outcome = Outcome::defect(error.reason().to_owned(), error.to_string());
                return Tried::Ended(Ended::only(outcome));
            }
        },
    };
    Tried::Ended(Ended { outcome: Outcome::Success(reply), version, state, sends, effects })
}

fn revert(held: Held) {
    if let Held::Write(mut state) = held {
        state.revert();
    }
}

fn refused(error: HandlerError) -> Tried {
    match error {
        HandlerError::Failed(failure) => Tried::Ended(Ended::only(Outcome::Failure(failure))),
        HandlerError::Retry(error) => Tried::Failed(error, Duration::ZERO),
        HandlerError::RetryAfter(error, least) => Tried::Failed(error, least),
        HandlerError::Delayed(error, least) => Tried::Delayed(error, least),
    }
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
