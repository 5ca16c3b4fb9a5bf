//! What a driver does for steps that have no answer yet.

use std::pin::pin;
use std::sync::Arc;
use std::task::{self, Poll, Waker};
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use super::activity::{Activity, Next, millis};
use super::attempt::{Attempt, Tried};
use super::context::{Context, Work};
use super::definition::name_of;
use super::driver::{Driver, Due, Leave, now};
use super::journal::{Event, Step};
use crate::message::Outcome;
use crate::message::codec::time::from_millis;
use crate::store::{Message, Phase};
use crate::trace::{self, Span};

impl Driver {
    /// Begins what is to be done for steps that have no answer. Whether something was written, so that there is more to deliver.
    pub(super) async fn work(&mut self) -> Result<bool, Leave> {
        let Some(context) = self.function.as_ref().map(|function| function.context().clone()) else {
            return Ok(false);
        };
        let (dropped, owed, work) = {
            let mut state = context.state();
            let work = std::mem::take(&mut state.work);
            (state.machine.take_dropped(), state.machine.take_owed(), work)
        };
        let mut now = Vec::new();
        let mut sends = Vec::new();
        for step in dropped {
            self.stop(step, &mut sends)?;
        }
        // What tells paths apart and what others are told of is known before anything else is done.
        let urgent = !sends.is_empty() || owed.iter().any(|event| matches!(event, Event::Patched { .. }));
        self.owed.extend(owed);
        let mut starting = Vec::new();
        for (step, work) in work {
            let Some((since, again, begun)) = waiting(&context, step) else { continue };
            match work {
                Work::Sleep(duration) => {
                    let until = since.saturating_add(millis(duration));
                    self.due.insert((until, step), Due::Slept);
                }
                Work::Record { name, make } => match make() {
                    Ok(value) => now.push(Event::Recorded { step, name, value }),
                    Err(error) => {
                        return Err(self.panicked(format!("{name} cannot be recorded: {error}")).await?);
                    }
                },
                Work::Child(child) => {
                    if !begun {
                        let (address, policy) = (child.address.clone(), child.policy);
                        now.push(Event::Child { step, address, policy });
                        let mut start = self.shard.start_of(&child, &self.me.address, step).await?;
                        start.envelope.trace.clone_from(&self.trace);
                        sends.push(start);
                    }
                    self.children.insert(step, child);
                }
                Work::Activity(activity) => starting.push((step, activity, again)),
            }
        }
        let wrote = urgent || !now.is_empty();
        if wrote {
            self.append(now, sends).await?;
        }
        for (step, activity, again) in starting {
            self.schedule(step, activity, again);
        }
        Ok(wrote)
    }

    /// A step that nobody waits for any more is told to stop.
    fn stop(&mut self, step: Step, sends: &mut Vec<Message>) -> Result<(), Leave> {
        self.due.retain(|(_, of), _| *of != step);
        self.resting.remove(&step);
        if let Some((_, cancel)) = self.running.remove(&step) {
            cancel.cancel();
        }
        if let Some(child) = self.children.remove(&step) {
            sends.extend(self.shard.cancel_of(&child).map_err(Leave::Failed)?);
        }
        Ok(())
    }

    /// Tries an activity, now or later.
    fn schedule(&mut self, step: Step, activity: Activity, again: i64) {
        if again > now() {
            self.due.insert((again, step), Due::Attempt);
            self.resting.insert(step, activity);
            return;
        }
        let Some(function) = &self.function else { return };
        let (since, attempt, progress, kept_key) = {
            let state = function.context().state();
            let Some(open) = state.machine.open(step) else { return };
            let kept_key = state.machine.keys().of(step, &activity.name).map(ToOwned::to_owned);
            (open.since, open.attempts, open.progress.clone(), kept_key)
        };
        let cancel = CancellationToken::new();
        let about = function.context().about();
        let attempting = Attempt {
            address: about.address.clone(),
            run: about.run,
            step,
            attempt,
            kept_key,
            progress,
            since,
            cancel: cancel.clone(),
            store: self.shard.store(),
            options: activity.options.clone(),
            work: Arc::clone(&activity.run),
            inbox: Arc::clone(&self.me),
            metrics: self.shard.metrics().cloned(),
            trace: self.trace.clone(),
            span: self.span(step, attempt, &activity.name),
        };
        self.running.insert(step, (activity, cancel));
        self.attempt(attempting);
    }

    /// Begins an attempt: here if those of its workflow are quick until they wait or end, and then most have ended; otherwise in a task.
    fn attempt(&mut self, attempt: Attempt) {
        if self.pace.is_quick() {
            let mut attempting = Box::pin(attempt.run());
            let begun = Instant::now();
            // Whoever is woken by it looks again anyway: a task begins by polling it.
            let polled = attempting.as_mut().poll(&mut task::Context::from_waker(Waker::noop()));
            self.pace.took(begun.elapsed());
            match polled {
                Poll::Ready(tried) => self.ended.push(tried),
                Poll::Pending => drop(self.tasks.spawn(attempting)),
            }
            return;
        }
        let pace = Arc::clone(&self.pace);
        self.tasks.spawn(async move {
            let mut attempting = pin!(attempt.run());
            let begun = Instant::now();
            let polled = futures::poll!(attempting.as_mut());
            pace.took(begun.elapsed());
            match polled {
                Poll::Ready(tried) => tried,
                Poll::Pending => attempting.await,
            }
        });
    }

    /// What an attempt of an activity is seen as in the trace of its execution.
    fn span(&self, step: Step, attempt: u32, activity: &str) -> Option<Span> {
        let within = self.trace.as_ref().filter(|trace| trace.sampled && self.shard.traces().is_on())?;
        let name = format!("{}.{activity}", name_of(&self.me.address.entity_type));
        let mut span = self.shard.traces().span(name, trace::Kind::Internal, Some(within))?;
        span.set("cleat.execution", &self.me.address);
        span.set("cleat.shard", &self.shard.fence.shard);
        span.set("cleat.epoch", self.shard.fence.epoch);
        span.set("cleat.step", step);
        span.set("cleat.attempt", attempt);
        Some(span)
    }

    /// Writes down what is due.
    pub(super) async fn fire(&mut self) -> Result<(), Leave> {
        let now = now();
        let row = self.me.look().await.row.clone();
        let late = row.is_some_and(|row| {
            row.phase == Phase::Running && row.summary.deadline.is_some_and(|deadline| deadline <= now)
        });
        if late {
            return self.cancel().await;
        }
        let mut events = Vec::new();
        while let Some(entry) = self.due.first_entry()
            && entry.key().0 <= now
        {
            let ((at, step), due) = entry.remove_entry();
            if let Some(metrics) = self.shard.metrics() {
                metrics.fired(from_millis(at));
            }
            match due {
                Due::Slept => events.push(Event::Slept { step, name: self.name_of(step) }),
                Due::Attempt => {
                    if let Some(activity) = self.resting.remove(&step) {
                        self.schedule(step, activity, 0);
                    }
                }
            }
        }
        if events.is_empty() { Ok(()) } else { self.tell(events).await }
    }

    /// Attempts have ended.
    pub(super) async fn tried(&mut self) -> Result<(), Leave> {
        let mut all = std::mem::take(&mut self.ended);
        while let Some(Ok(more)) = self.tasks.try_join_next() {
            all.push(more);
        }
        let mut events = Vec::new();
        for Tried { step, result, transaction, progress } in all {
            // Whoever does not wait any more does not hear it.
            let Some((activity, _)) = self.running.remove(&step) else { continue };
            let Some((since, attempts)) = self.open(step) else { continue };
            let attempts = attempts.saturating_add(1);
            let name = activity.name.clone();
            let failed = match result {
                Ok(value) => {
                    let outcome = Outcome::Success(value);
                    let event = Event::Activity { step, name: name.clone(), attempts, outcome };
                    match transaction {
                        None => {
                            events.push(event);
                            continue;
                        }
                        // Few have one, and the others do not carry what it takes.
                        Some(transaction) => match Box::pin(self.commit(event, transaction)).await? {
                            None => continue,
                            Some(failed) => failed,
                        },
                    }
                }
                Err(failed) => failed,
            };
            let error = failed.to_string();
            tracing::debug!(execution = %self.me.address, %step, activity = name, attempts, error, "an attempt failed");
            match activity.options.next(attempts, failed, since, now(), rand::random()) {
                Next::End(outcome) => {
                    events.push(Event::Activity { step, name, attempts, outcome });
                }
                Next::At(again) => {
                    events.push(Event::Attempt { step, name, attempts, error, again, progress });
                    self.due.insert((again, step), Due::Attempt);
                    self.resting.insert(step, activity);
                }
            }
        }
        if events.is_empty() { Ok(()) } else { self.tell(events).await }
    }

    fn name_of(&self, step: Step) -> String {
        let Some(function) = &self.function else { return String::new() };
        let state = function.context().state();
        state.machine.open(step).map(|open| open.asked.name.clone()).unwrap_or_default()
    }

    fn open(&self, step: Step) -> Option<(i64, u32)> {
        let state = self.function.as_ref()?.context().state();
        let open = state.machine.open(step)?;
        Some((open.since, open.attempts))
    }
}

/// Since when a step waits, when it is tried again, and whether it has begun.
fn waiting(context: &Context, step: Step) -> Option<(i64, i64, bool)> {
    let state = context.state();
    let open = state.machine.open(step).filter(|open| open.is_waiting())?;
    Some((open.since, open.again, open.begun))
}
