//! Takes the steps of a program, one after the other and side by side.
//!
//! What is asked of others goes through the context of the workflow, and so into the journal, under the path of the step: `reserve`,
//! `parcels[2].ship`. Everything else follows from the definition, the input and the journal.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use cleat_cel::Value;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value as Json;

use super::fault::TOO_LARGE;
use super::program::{Act, Action, Block, Program, Retry, Step};
use super::reach::Reach;
use super::scope::{Scope, Shared, object};
use super::stop::{Stop, Stopped, all, finish, limited, unless};
use crate::entity::HandlerError;
use crate::message::{Defect, Failure, Outcome, codec};
use crate::workflow::{Context, Noted, StepKind, StepPhase};

/// The longest list that is gone through.
pub const MAX_ITEMS: usize = 10_000;
/// How long what is under way has to end when its block is told to stop.
const GRACE: Duration = Duration::from_secs(30);
/// How long it is tried to undo something.
const UNDOING: Duration = Duration::from_secs(24 * 3600);
/// How what is undone is tried again.
const UNDO: Retry = Retry { attempts: None, backoff: Duration::from_secs(1), max: Duration::from_secs(60) };

/// An execution, while its function runs.
pub(super) struct Run {
    pub(super) context: Context,
    pub(super) program: Arc<Program>,
    pub(super) reach: Reach,
    pub(super) input: Value,
    /// What expressions know as `workflow`.
    pub(super) about: Value,
    shared: Mutex<Shared>,
}

/// Why a block does not go on.
#[derive(Debug, Clone)]
pub(super) enum Halt {
    /// A step failed.
    Failed(Failure),
    /// Nobody knows what became of a step.
    Unknown(Defect),
    /// It was told to stop.
    Stopped,
}

impl Halt {
    pub(super) fn failed(reason: &str, message: impl Into<String>) -> Self {
        Self::Failed(Failure { kind: reason.to_owned(), message: message.into(), details: Bytes::new() })
    }

    /// The better reason of two: being told to stop is none.
    pub(super) fn or(self, other: Self) -> Self {
        if matches!(self, Self::Stopped) { other } else { self }
    }
}

impl From<Stopped> for Halt {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(Failure { kind, message, .. }) | Self::Unknown(Defect { kind, message }) => {
                write!(f, "{kind}: {message}")
            }
            Self::Stopped => f.write_str("it was told to stop"),
        }
    }
}

impl From<Halt> for HandlerError {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Failed(failure) => Self::Failed(failure),
            Halt::Unknown(Defect { kind, message }) => Self::failed(kind, message),
            Halt::Stopped => Self::failed("Cancelled", "the execution was cancelled"),
        }
    }
}

type Taken<'a> = BoxFuture<'a, Result<Value, Halt>>;

impl Run {
    pub(super) fn new(context: Context, program: Arc<Program>, reach: Reach, input: Value) -> Arc<Self> {
        let address = &context.about().address;
        let workflow = crate::workflow::name_of(&address.entity_type);
        let about = [("id", address.id.as_str()), ("type", workflow)];
        let about = object(about.map(|(name, text)| (Arc::from(name), Value::from(text))));
        Arc::new(Self { context, program, reach, input, about, shared: Mutex::default() })
    }

    pub(super) fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all steps, and gives the output.
    pub(super) async fn execute(self: Arc<Self>) -> Result<Bytes, HandlerError> {
        let steps = &self.program.block.steps;
        self.context.outlined(steps.iter().map(|step| (step.name.to_string(), kind(&step.action))).collect());
        let stop = Stop::default();
        let mut scope = Scope::default();
        {
            let mut cancelled = pin!(self.context.cancelled());
            let mut body = pin!(self.block(&self.program.block, "", &mut scope, &stop));
            poll_fn(|task| {
                // Before the steps, so that they hear of it.
                if !stop.is_set() && cancelled.as_mut().poll(task).is_ready() {
                    stop.set();
                }
                body.as_mut().poll(task)
            })
            .await?;
        }
        let output = match &self.program.output {
            Some(output) => self.json(output, &scope, "", "output")?,
            None => Json::Null,
        };
        Ok(codec::encode(&output)?.into())
    }

    /// Steps, one after the other. It gives what the last one gives.
    fn block<'a>(
        self: &'a Arc<Self>,
        block: &'a Block,
        within: &'a str,
        scope: &'a mut Scope,
        stop: &'a Stop,
    ) -> Taken<'a> {
        async move {
            let mut last = Value::Null;
            for step in &block.steps {
                if stop.is_set() {
                    return Err(Halt::Stopped);
                }
                let path = join(within, &step.name);
                let since = self.context.delivered();
                let taken = self.step(step, &path, scope, stop).await?;
                let skipped = taken.is_none();
                last = taken.unwrap_or(Value::Null);
                scope.add_step(&step.name, last.clone(), skipped);
                if let (Some(undo), false) = (&step.compensate, skipped) {
                    self.compensate(undo, &path, since, scope);
                }
            }
            if stop.is_set() { Err(Halt::Stopped) } else { Ok(last) }
        }
        .boxed()
    }

    /// What a step gives; nothing if it is skipped.
    async fn step(
        self: &Arc<Self>,
        step: &Step,
        path: &str,
        scope: &Scope,
        stop: &Stop,
    ) -> Result<Option<Value>, Halt> {
        let noted = self.context.began(path, kind(&step.action));
        let since = self.context.delivered();
        let taken = async {
            let when = step.when.as_ref();
            if !when.map_or(Ok(true), |when| self.holds(when, scope, path, "when"))? {
                return Ok(None);
            }
            self.in_time(step, path, noted, scope, stop).await.map(Some)
        };
        let taken = taken.await;
        let (phase, message) = match &taken {
            Ok(Some(_)) => (StepPhase::Completed, None),
            Ok(None) => (StepPhase::Skipped, None),
            Err(Halt::Stopped) => (StepPhase::Cancelled, None),
            Err(halt) => (StepPhase::Failed, Some(halt.to_string())),
        };
        self.context.ended(noted, phase, message);
        if matches!(taken, Err(Halt::Failed(_) | Halt::Unknown(_))) {
            self.context.failed_at(path);
        }
        if doubtful(step, &taken) {
            let told = format!("{path}: it is not known whether it was done, so it was not undone");
            self.context.unknown_at(path, since, told, step.compensate.is_none());
        }
        taken
    }

    /// Takes a step within its time. What asks somebody once keeps its time itself.
    async fn in_time(
        self: &Arc<Self>,
        step: &Step,
        path: &str,
        noted: Noted,
        scope: &Scope,
        stop: &Stop,
    ) -> Result<Value, Halt> {
        let blocks = match step.action {
            Action::Act { .. } => false,
            Action::Signal { .. } => step.again.is_some(),
            _ => true,
        };
        let Some(timeout) = step.timeout.filter(|_| blocks) else {
            return self.attempts(step, path, noted, scope, stop).await;
        };
        let stop = stop.inside();
        let timer = self.context.sleep_named(&format!("{path}:timeout"), timeout);
        let (taken, late) = limited(&stop, timer, self.attempts(step, path, noted, scope, &stop)).await;
        match taken {
            Err(halt) if !late || !matches!(halt, Halt::Stopped) => Err(halt),
            Ok(value) if !late => Ok(value),
            _ => Err(Halt::failed("TimedOut", format!("step {path} took longer than {timeout:?}"))),
        }
    }

    pub(super) async fn action(
        self: &Arc<Self>,
        step: &Step,
        path: &str,
        scope: &Scope,
        stop: &Stop,
    ) -> Result<Value, Halt> {
        match &step.action {
            Action::Act { act, retry } => {
                let question = self.question(act, scope, path, act.kind())?;
                self.ask(question, retry, step.timeout, path, stop).await
            }
            Action::Sleep(template) => {
                let duration = self.duration(template, scope, path)?;
                unless(stop, self.context.sleep_named(path, duration)).await?;
                Ok(Value::Null)
            }
            Action::Until(template) => {
                let time = self.time(template, scope, path)?;
                let left = time.duration_since(self.context.now()).unwrap_or_default();
                unless(stop, self.context.sleep_named(path, left)).await?;
                Ok(Value::Null)
            }
            Action::Signal { name, timeout } => {
                // With several attempts the step's own time is for all of them.
                let whole = step.timeout.filter(|_| step.again.is_none());
                let timeout = timeout.iter().chain(&whole).min().copied();
                self.signal(name, timeout, path, stop).await
            }
            Action::Parallel(branches) => self.parallel(branches, path, scope, stop).await,
            Action::ForEach { items, name, concurrency, block } => {
                let Value::List(items) = self.value(items, scope, path, "forEach.in")? else {
                    return Err(Halt::expression(path, "forEach.in", "this is no list"));
                };
                self.for_each(&items, name, *concurrency, block, path, scope, stop).await
            }
            Action::Switch(cases) => {
                for (when, block) in cases {
                    let taken =
                        when.as_ref().map_or(Ok(true), |when| self.holds(when, scope, path, "switch"))?;
                    if taken {
                        return self.block(block, path, &mut scope.clone(), stop).await;
                    }
                }
                Ok(Value::Null)
            }
            Action::Set(values) => {
                let mut set = Vec::with_capacity(values.len());
                for (name, template) in values {
                    let value = self.value(template, scope, path, &format!("set.{name}"))?;
                    set.push((Arc::clone(name), value));
                }
                self.assign(set.clone());
                Ok(object(set))
            }
            Action::Workflow { workflow, key, input, retry } => {
                self.workflow(workflow, key.as_ref(), input.as_ref(), *retry, path, scope, stop).await
            }
            Action::Fail { reason, message } => {
                let message = message.as_ref().map(|message| self.text(message, scope, path, "fail.message"));
                Err(Halt::failed(reason, message.transpose()?.unwrap_or_default()))
            }
        }
    }

    async fn signal(
        &self,
        name: &str,
        timeout: Option<Duration>,
        path: &str,
        stop: &Stop,
    ) -> Result<Value, Halt> {
        let signal = self.context.signal(name);
        let Some(timeout) = timeout else {
            return self.received_value(path, &unless(stop, signal).await?);
        };
        let timer = self.context.sleep_named(path, timeout);
        match unless(stop, crate::workflow::select(signal, timer)).await? {
            crate::workflow::Either::First(payload) => self.received_value(path, &payload),
            crate::workflow::Either::Second(()) => {
                let message = format!("step {path}: nobody sent the signal {name} within {timeout:?}");
                Err(Halt::failed("TimedOut", message))
            }
        }
    }

    async fn parallel(
        self: &Arc<Self>,
        branches: &[(Arc<str>, Block)],
        path: &str,
        scope: &Scope,
        stop: &Stop,
    ) -> Result<Value, Halt> {
        let stop = stop.inside();
        let done = all(branches.len(), branches.len(), &stop, |n| {
            let (name, block) = &branches[n];
            let (path, mut scope, stop) = (join(path, name), scope.clone(), stop.clone());
            async move { self.block(block, &path, &mut scope, &stop).await }.boxed()
        });
        let names = branches.iter().map(|(name, _)| Arc::clone(name));
        Ok(object(names.zip(done.await?)))
    }

    #[expect(clippy::too_many_arguments, reason = "they are the parts of one step")]
    async fn for_each(
        self: &Arc<Self>,
        items: &[Value],
        name: &Arc<str>,
        concurrency: usize,
        block: &Block,
        path: &str,
        scope: &Scope,
        stop: &Stop,
    ) -> Result<Value, Halt> {
        if items.len() > MAX_ITEMS {
            let message = format!(
                "step {path}: the list has {} items, and at most {MAX_ITEMS} are gone through: split it, and give the parts to workflows \
                 of their own",
                items.len()
            );
            return Err(Halt::failed(TOO_LARGE, message));
        }
        let stop = stop.inside();
        let done = all(items.len(), concurrency, &stop, |n| {
            let (path, stop) = (format!("{path}[{n}]"), stop.clone());
            let mut scope = scope.clone().with_item(name, items[n].clone());
            async move { self.block(block, &path, &mut scope, &stop).await }.boxed()
        });
        Ok(Value::list(done.await?))
    }

    /// Asks somebody, as often as it takes. What is under way when the block is told to stop has a moment to end.
    pub(super) async fn ask(
        &self,
        question: super::reach::Question,
        retry: &Retry,
        timeout: Option<Duration>,
        path: &str,
        stop: &Stop,
    ) -> Result<Value, Halt> {
        let options = crate::workflow::activity::Options {
            attempts: Some(retry.attempts.unwrap_or(u32::MAX)),
            backoff: crate::workflow::activity::Backoff::Exponential {
                first: retry.backoff,
                factor: 2.0,
                max: retry.max,
            },
            deadline: timeout,
            ..Default::default()
        };
        let (reach, name) = (self.reach.clone(), path.to_owned());
        let asking = self.context.activity(path, options, move |activity| {
            let (reach, question, key) = (reach.clone(), question.clone(), activity.key_by_name(&name));
            Box::pin(async move { reach.ask(question, &key).await })
        });
        let grace = || self.context.sleep_named(&format!("{path}:grace"), GRACE);
        match finish(stop, asking, grace).await? {
            Outcome::Success(output) => self.received_value(path, &output),
            Outcome::Failure(failure) => Err(Halt::Failed(failure)),
            Outcome::Defect(Defect { kind, message }) => {
                Err(Halt::Unknown(Defect { kind, message: format!("step {path}: {message}") }))
            }
        }
    }

    /// Something from outside, as expressions see it.
    pub(super) fn received_value(&self, path: &str, bytes: &Bytes) -> Result<Value, Halt> {
        self.received(path, bytes.len())?;
        let value = codec::to_json(bytes).map_err(|error| error.to_string());
        let value = value.and_then(|json| Value::from_json(&json).map_err(|fault| fault.to_string()));
        value.map_err(|error| {
            Halt::failed("Malformed", format!("step {path}: it was answered what cannot be read: {error}"))
        })
    }

    /// Remembers how to undo a step that has been taken. Expressions see what there is now: variables may change.
    fn compensate(self: &Arc<Self>, undo: &Act, path: &str, since: usize, scope: &Scope) {
        let (at, path) = (path, format!("{path}:compensate"));
        let (run, kind) = (Arc::clone(self), act_kind(undo));
        let question = self.question(undo, scope, &path, undo.kind());
        self.context.compensate_at(at, since, move || {
            async move {
                let noted = run.context.began(&path, kind);
                let undone = match question {
                    Ok(question) => run.ask(question, &UNDO, Some(UNDOING), &path, &Stop::default()).await,
                    Err(halt) => Err(halt),
                };
                let phase = if undone.is_ok() { StepPhase::Completed } else { StepPhase::Failed };
                let message = undone.err().map(|halt| halt.to_string());
                run.context.ended(noted, phase, message.clone());
                message.map_or(Ok(()), |message| Err(format!("{path}: {message}")))
            }
            .boxed()
        });
    }
}

/// Whether something may have been done that was not told of. A request that only reads does nothing.
fn doubtful(step: &Step, taken: &Result<Option<Value>, Halt>) -> bool {
    let acts = match &step.action {
        Action::Act { act, .. } => match act.as_ref() {
            Act::Http(http) => step.compensate.is_some() || !matches!(http.method.as_str(), "GET" | "HEAD"),
            Act::Call { .. } => true,
        },
        _ => false,
    };
    acts && matches!(taken, Err(Halt::Unknown(_) | Halt::Stopped))
}

fn join(within: &str, name: &str) -> String {
    if within.is_empty() { name.to_owned() } else { format!("{within}.{name}") }
}

fn act_kind(act: &Act) -> StepKind {
    match act {
        Act::Call { .. } => StepKind::Call,
        Act::Http(_) => StepKind::Http,
    }
}

/// What users see as the kind of a step.
fn kind(action: &Action) -> StepKind {
    match action {
        Action::Act { act, .. } => act_kind(act),
        Action::Sleep(_) => StepKind::Sleep,
        Action::Until(_) => StepKind::Until,
        Action::Signal { .. } => StepKind::Signal,
        Action::Parallel(_) => StepKind::Parallel,
        Action::ForEach { .. } => StepKind::ForEach,
        Action::Switch(_) => StepKind::Switch,
        Action::Set(_) => StepKind::Set,
        Action::Workflow { .. } => StepKind::Child,
        Action::Fail { .. } => StepKind::Fail,
    }
}
