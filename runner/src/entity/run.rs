//! One message through its handler, with all its attempts.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;

use super::activation::Activation;
use super::call::{Call, HandlerError, Held};
use super::context::{Commits, Context};
use super::definition::{Access, Method};
use super::earlier::Earlier;
use super::job::{Job, Origin};
use super::reach::{self, Reach};
use super::retry::Next;
use super::shard::Shard;
use crate::message::Outcome;
use crate::store::{self, Attempt, Change, Committed, Write};

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
    /// It was there already.
    Duplicate(Job, Committed),
    /// The database failed while the message or an attempt was to be noted.
    Broken(Job, store::Error),
}

/// What a handler did.
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    /// The version of the state that it saw or made.
    pub(super) version: i64,
    /// The new state.
    pub(super) state: Option<Bytes>,
    /// What else is to be committed with it.
    pub(super) effects: Commits,
}

impl Ended {
    /// An end without any effects.
    pub(super) fn only(outcome: Outcome) -> Self {
        Self { outcome, version: 0, state: None, effects: Commits::default() }
    }
}

enum Tried {
    Ended(Ended),
    /// Worth another attempt.
    Failed(String),
    Interrupted,
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
    loop {
        let error = match attempt(&me, &shard, &mut job, &method, &earlier).await {
            Tried::Ended(ended) => return Done::Ended(job, ended),
            Tried::Interrupted => return Done::Interrupted(job),
            Tried::Duplicate(committed) => return Done::Duplicate(job, committed),
            Tried::Stale => return Done::Broken(job, reach::stale(&me)),
            Tried::Failed(error) if !job.persisted => {
                let outcome = Outcome::defect("Crashed", error);
                return Done::Ended(job, Ended::only(outcome));
            }
            Tried::Failed(error) => error,
        };
        // A second attempt is only made of what is stored: whoever owns the shard by then must know of it.
        let before = match job.origin {
            Origin::Stored { attempt } => attempt,
            Origin::Fresh { .. } => match shard.accept(&job.message).await {
                Ok(Committed::Applied) => 0,
                Ok(duplicate) => return Done::Duplicate(job, duplicate),
                Err(error) => return Done::Broken(job, error),
            },
        };
        let failed = before.saturating_add(1);
        job.origin = Origin::Stored { attempt: failed };
        let retry = method.retry.unwrap_or(shard.options().retry);
        let Next::After(pause) = retry.next(failed, rand::random()) else { return Done::GivenUp(job, error) };
        tracing::debug!(entity = %me.address, request = %job.id(), failed, error, "an attempt failed");
        let due = std::time::SystemTime::now() + pause;
        let attempt = Change::Attempt(Attempt { request: job.id(), attempt: failed, due, error });
        if let Err(error) = shard.store().commit(Write::one(shard.fence.clone(), attempt)).await {
            return Done::Broken(job, error);
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shard.closing.cancelled() => return Done::Parked(job),
            () = interrupted(&job, &method) => return Done::Interrupted(job),
        }
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
    let body = match me.body(shard).await {
        Ok(body) => body,
        Err(error) => return refused(error),
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
    let context = Context::new(job.message.clone(), attempt, shard.fence.clone(), reach);
    let mut call = Call { context, held };
    let handled = tokio::select! {
        biased;
        () = interrupted(job, method) => None,
        handled = limited(method, AssertUnwindSafe(body.handler.handle(&mut call)).catch_unwind()) => Some(handled),
    };
    let Call { held, context: Context { mut effects, reach, .. } } = call;
    if !matches!(handled, Some(Some(Ok(Ok(_)))))
        && let Some(opened) = effects.transaction.take()
    {
        // What comes next may want to write, too.
        opened.transaction.rollback().await;
    }
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
        Some(Some(Ok(Ok(reply)))) => ended(reply, held, effects),
        Some(Some(Ok(Err(error)))) => {
            revert(held);
            refused(error)
        }
        Some(Some(Err(panic))) => {
            drop(held);
            // Whatever the handler keeps in memory may be half done.
            me.crash().await;
            Tried::Failed(format!("the handler panicked: {}", message_of(panic.as_ref())))
        }
        Some(None) => {
            revert(held);
            Tried::Failed(format!("the handler took longer than {:?}", method.timeout.unwrap_or_default()))
        }
        None => {
            revert(held);
            Tried::Interrupted
        }
    }
}

async fn limited<F: Future>(method: &Method, handling: F) -> Option<F::Output> {
    match method.timeout {
        Some(limit) => tokio::time::timeout(limit, handling).await.ok(),
        None => Some(handling.await),
    }
}

/// Waits for an interrupt that counts.
async fn interrupted(job: &Job, method: &Method) {
    if method.uninterruptible.by_client() || job.message.envelope.uninterruptible.by_client() {
        std::future::pending::<()>().await;
    }
    job.interrupt.requested().await;
}

/// Takes the state as the method wants it, as the handlers' own type.
async fn hold(me: &Activation, body: &super::activation::Body, access: Access) -> Result<Held, HandlerError> {
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

fn ended(reply: Bytes, held: Held, effects: Commits) -> Tried {
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
    Tried::Ended(Ended { outcome: Outcome::Success(reply), version, state, effects })
}

fn revert(held: Held) {
    if let Held::Write(mut state) = held {
        state.revert();
    }
}

fn refused(error: HandlerError) -> Tried {
    match error {
        HandlerError::Failed(failure) => Tried::Ended(Ended::only(Outcome::Failure(failure))),
        HandlerError::Retry(error) => Tried::Failed(error),
    }
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
