//! What the function of a workflow may do.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::activity::{self, Activity, Attempted};
use super::child::Child;
use super::journal::{Asked, Kind, Step};
use super::machine::{Blocked, Machine};
use super::report::{StepKind, StepPhase};
use super::trace::{Noted, Trace};
use super::wait::{Asking, Cancelled, Promised, Signalled};
use crate::message::codec::time::from_millis;
use crate::message::{EntityAddress, Outcome, Snowflake, codec};
use crate::shard::GroupName;

/// What the function of a workflow may do. Cheap to clone.
///
/// # Guarantees
/// Everything that it offers gives the same when the function is replayed. What it returns may be awaited one after the other, in
/// [`join`](super::join) and [`select`](super::select), or with anything else that polls in a fixed order.
///
/// # Caveats
/// Nothing else may be awaited in a workflow: what is woken by anything else blocks the execution. A step begins when it is first
/// polled.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    about: About,
    state: Mutex<State>,
}

/// Which execution it is.
#[derive(Debug, Clone)]
pub struct About {
    /// Its address.
    pub address: EntityAddress,
    /// The shard group that it lives in.
    pub group: GroupName,
    /// Which run of it.
    pub run: Snowflake,
    /// What its random numbers are drawn from.
    pub seed: u64,
    /// What it keeps of its definition, if its workflow was written down and not compiled.
    pub definition: Option<Bytes>,
}

/// What is done for a step that the journal has no answer to.
pub(super) enum Work {
    Activity(Activity),
    Sleep(Duration),
    Record { name: String, make: Make },
    Child(Child),
}

pub(super) type Make = Box<dyn FnOnce() -> Result<Bytes, codec::Error> + Send>;

/// What undoes something, and the path of the step that did it if it has one.
struct Undo {
    path: String,
    /// How many entries had been delivered when the step began.
    since: usize,
    /// How many had been delivered when this was registered.
    registered: usize,
    run: Compensation,
}

type Compensate = Box<dyn FnOnce() -> BoxFuture<'static, Result<(), String>> + Send>;

enum Compensation {
    Run(Compensate),
    /// It is not known whether the step took effect, so nothing is run: this says so. An attempt of the block around it may follow
    /// only if the step has no compensation.
    Unknown {
        message: String,
        repeatable: bool,
    },
}

/// A compensation that was begun when the execution as a whole was compensated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Compensated {
    /// The path of the step; empty if the workflow does not say which one.
    pub(super) path: String,
    /// How many entries had been delivered when the step began.
    pub(super) since: usize,
    /// How many had been delivered when the compensation was registered.
    pub(super) registered: usize,
    /// Whether it succeeded.
    pub(super) done: bool,
}

pub(super) struct State {
    pub(super) machine: Machine,
    /// What is to be done for steps that were asked for and have not begun.
    pub(super) work: BTreeMap<Step, Work>,
    /// What queries see.
    pub(super) shown: BTreeMap<String, Bytes>,
    undo: Vec<Undo>,
    /// What was compensated as the execution failed or was cancelled.
    pub(super) compensated: Vec<Compensated>,
    /// The paths of steps that start children.
    pub(super) children: BTreeMap<Step, String>,
    /// Steps that failed, with how many entries had been delivered by then.
    pub(super) failures: Vec<(String, usize)>,
    /// What went wrong while undoing.
    pub(super) not_undone: Vec<String>,
    /// The input with which the execution is to begin anew.
    pub(super) renewal: Option<Bytes>,
    /// Why the execution fails, whatever its function does.
    pub(super) fatal: Option<Outcome>,
    /// Whether the function looks after its cancellation itself.
    pub(super) shielded: bool,
    /// The steps that the function told of itself.
    pub(super) trace: Trace,
    drawn: u64,
}

impl Context {
    pub(super) fn new(about: About, machine: Machine) -> Self {
        let state = State {
            machine,
            work: BTreeMap::new(),
            shown: BTreeMap::new(),
            undo: Vec::new(),
            compensated: Vec::new(),
            children: BTreeMap::new(),
            failures: Vec::new(),
            not_undone: Vec::new(),
            renewal: None,
            fatal: None,
            shielded: false,
            trace: Trace::default(),
            drawn: 0,
        };
        Self(Arc::new(Inner { about, state: Mutex::new(state) }))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which execution it is.
    pub fn about(&self) -> &About {
        &self.0.about
    }

    /// The execution's id.
    pub fn id(&self) -> &str {
        self.0.about.address.id.as_str()
    }

    /// What time it is: that of the last thing that happened to the execution. It stands still while the function computes.
    pub fn now(&self) -> SystemTime {
        from_millis(self.state().machine.now())
    }

    /// Waits, also across crashes and moves, and at no cost.
    pub fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + use<> {
        self.sleep_named("", duration)
    }

    /// The same with a name, for those who look on.
    pub fn sleep_named(&self, name: &str, duration: Duration) -> impl Future<Output = ()> + Send + use<> {
        let asking = self.ask(Asked::new(Kind::Sleep, name), Work::Sleep(duration));
        async move {
            asking.await;
        }
    }

    /// Waits until a time, which may have passed.
    pub fn sleep_until(&self, time: SystemTime) -> impl Future<Output = ()> + Send + use<> {
        self.sleep(time.duration_since(self.now()).unwrap_or_default())
    }

    /// Does something outside, at least once, until it has an outcome, which is remembered.
    pub fn activity<F>(
        &self,
        name: &str,
        options: activity::Options,
        run: F,
    ) -> impl Future<Output = Outcome> + Send + use<F>
    where
        F: Fn(activity::Context) -> BoxFuture<'static, Attempted> + Send + Sync + 'static,
    {
        let work = Activity { name: name.to_owned(), options, run: Arc::new(run) };
        self.ask(Asked::new(Kind::Activity, name), Work::Activity(work))
    }

    /// Takes a value from outside, such as a setting: it is remembered, and the same whenever the function is replayed.
    ///
    /// # Errors
    /// The value cannot be written, or what was recorded under this name is of another type.
    pub async fn record<T, F>(&self, name: &str, make: F) -> Result<T, codec::Error>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> T + Send + 'static,
    {
        let make: Make = Box::new(move || Ok(codec::encode(&make())?.into()));
        let work = Work::Record { name: name.to_owned(), make };
        match self.ask(Asked::new(Kind::Record, name), work).await {
            Outcome::Success(value) => codec::decode(&value),
            // Only values are recorded.
            Outcome::Failure(_) | Outcome::Defect(_) => codec::decode(&[]),
        }
    }

    /// A random number. It is drawn from the execution's own seed, so that it is the same whenever the function is replayed.
    pub fn random(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.draw();
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    /// A random UUID (version 4), the same whenever the function is replayed.
    pub fn uuid(&self) -> String {
        let drawn = self.draw();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&drawn[..16]);
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let hex = format!("{:032x}", u128::from_be_bytes(bytes));
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }

    fn draw(&self) -> [u8; 32] {
        let mut state = self.state();
        state.drawn += 1;
        let mut hash = Sha256::new();
        hash.update(b"cleat.random.1");
        hash.update(self.0.about.seed.to_be_bytes());
        hash.update(state.drawn.to_be_bytes());
        hash.finalize().into()
    }

    /// Whether to take the new one of two paths: yes, unless this execution has been here with older code. The answer stays the same
    /// for each id.
    pub fn patched(&self, id: &str) -> bool {
        self.state().machine.patched(id)
    }

    /// The next signal of a name. Signals that came before are kept, in their order; each is given to one that waits.
    pub fn signal(&self, name: &str) -> Signalled {
        Signalled::new(self.clone(), name)
    }

    /// What somebody promised under a name: whoever resolves it first has kept it. It can be awaited any number of times.
    pub fn promise(&self, name: &str) -> Promised {
        Promised::new(self.clone(), name)
    }

    /// Starts another workflow and waits for its end.
    pub(crate) fn child(&self, child: Child) -> impl Future<Output = Outcome> + Send + use<> {
        self.ask(Asked::new(Kind::Child, child.address.entity_type.as_str()), Work::Child(child))
    }

    /// Comes back when the execution is cancelled. From this call on the function looks after that itself, and is not stopped.
    pub fn cancelled(&self) -> Cancelled {
        self.state().shielded = true;
        Cancelled::new(self.clone())
    }

    /// What to do if the execution fails or is cancelled later: all such things are done in reverse, each as durably as the rest.
    pub fn compensate<F>(&self, undo: F)
    where
        F: FnOnce() -> BoxFuture<'static, Result<(), String>> + Send + 'static,
    {
        // Which of the steps before it this undoes is not said, so it may be any of them.
        self.compensate_at("", 0, undo);
    }

    /// The same for the step of a path, which began when so many entries had been delivered.
    pub(crate) fn compensate_at<F>(&self, path: &str, since: usize, undo: F)
    where
        F: FnOnce() -> BoxFuture<'static, Result<(), String>> + Send + 'static,
    {
        self.register(path, since, Compensation::Run(Box::new(undo)));
    }

    /// Notes that it is not known whether the step of a path took effect. Whether a block may take it again is said by whoever knows
    /// whether it has a compensation.
    pub(crate) fn unknown_at(&self, path: &str, since: usize, message: String, repeatable: bool) {
        self.register(path, since, Compensation::Unknown { message, repeatable });
    }

    fn register(&self, path: &str, since: usize, run: Compensation) {
        let mut state = self.state();
        let registered = state.machine.delivered();
        state.undo.push(Undo { path: path.to_owned(), since, registered, run });
    }

    /// How many entries were delivered.
    pub(crate) fn delivered(&self) -> usize {
        self.state().machine.delivered()
    }

    /// Notes that the step of a path failed.
    pub(crate) fn failed_at(&self, path: &str) {
        let mut state = self.state();
        let delivered = state.machine.delivered();
        state.failures.push((path.to_owned(), delivered));
    }

    /// Failures within a path are over, because it is taken again.
    pub(crate) fn forget_failures(&self, path: &str) {
        self.state().failures.retain(|(failed, _)| failed != path && !is_within(path, failed));
    }

    /// Shows a value to queries, until another one is shown under the same name.
    ///
    /// # Errors
    /// It has no form in MessagePack.
    pub fn show<T: Serialize + ?Sized>(&self, name: &str, value: &T) -> Result<(), codec::Error> {
        let value = codec::encode(value)?.into();
        self.state().shown.insert(name.to_owned(), value);
        Ok(())
    }

    /// Ends this run and begins the execution anew with another input and an empty journal. Signals that were not read are kept.
    /// It does not come back.
    ///
    /// # Errors
    /// The input has no form in MessagePack.
    pub async fn continue_as_new<T: Serialize + ?Sized>(&self, input: &T) -> Result<Gone, codec::Error> {
        let input = codec::encode(input)?.into();
        self.state().renewal = Some(input);
        std::future::pending().await
    }

    /// Blocks the execution: what it keeps of its definition cannot be used.
    pub(crate) async fn block<T>(&self, why: String) -> T {
        self.state().machine.block(Blocked::Undefined(why));
        std::future::pending().await
    }

    /// Notes that a step with a name begins, for those who look on.
    pub(crate) fn began(&self, name: &str, kind: StepKind) -> Noted {
        let mut state = self.state();
        let now = state.machine.now();
        state.trace.begin(name, kind, now)
    }

    /// Notes how such a step ended.
    pub(crate) fn ended(&self, noted: Noted, phase: StepPhase, message: Option<String>) {
        let mut state = self.state();
        let now = state.machine.now();
        state.trace.end(noted, phase, message, now);
    }

    /// Says which steps there are, before they are taken.
    pub(crate) fn outlined(&self, outline: Vec<(String, StepKind)>) {
        self.state().trace.outline = outline;
    }

    /// Fails the execution, whatever its function does.
    pub(super) async fn fail<T>(&self, outcome: Outcome) -> T {
        self.state().fatal.get_or_insert(outcome);
        std::future::pending().await
    }

    pub(super) fn ask(&self, asked: Asked, work: Work) -> Asking {
        Asking::new(self.clone(), asked, work)
    }

    /// Does what is left to undo, last first.
    pub(super) fn undo(&self) -> BoxFuture<'static, ()> {
        let context = self.clone();
        context.state().machine.compensate();
        Box::pin(async move {
            loop {
                let Some(Undo { path, since, registered, run }) = context.state().undo.pop() else {
                    return context.list_unknown();
                };
                let compensate = match run {
                    Compensation::Run(compensate) => compensate,
                    Compensation::Unknown { message, .. } => {
                        context.state().not_undone.push(message);
                        continue;
                    }
                };
                let place = {
                    let mut state = context.state();
                    state.compensated.push(Compensated { path, since, registered, done: false });
                    state.compensated.len() - 1
                };
                let result = compensate().await;
                let mut state = context.state();
                match result {
                    Ok(()) => {
                        if let Some(compensated) = state.compensated.get_mut(place) {
                            compensated.done = true;
                        }
                    }
                    Err(error) => state.not_undone.push(error),
                }
            }
        })
    }

    /// Lists activities that used up their attempts without a known outcome. Workflows that are written as steps do so themselves.
    fn list_unknown(&self) {
        if self.0.about.definition.is_some() {
            return;
        }
        let mut state = self.state();
        let unknown = state.machine.keys().unknown().filter(|(_, unknown)| unknown.ended);
        let listed: Vec<_> = unknown
            .map(|(_, unknown)| {
                format!("{}: it is not known whether it was done, so it was not undone", unknown.name)
            })
            .collect();
        state.not_undone.extend(listed);
    }

    /// Undoes now what steps within a path did, last first. Whether all of it could be undone.
    pub(crate) async fn undo_within(&self, path: &str) -> bool {
        let inside = |undo: &Undo| is_within(path, &undo.path);
        let mut undone = true;
        loop {
            let undo = {
                let undo = &mut self.state().undo;
                let last = undo.iter().rposition(inside);
                last.map(|last| undo.remove(last))
            };
            let Some(undo) = undo else { return undone };
            let result = match undo.run {
                Compensation::Run(compensate) => compensate().await,
                Compensation::Unknown { repeatable: true, .. } => Ok(()),
                Compensation::Unknown { message, .. } => Err(message),
            };
            if let Err(error) = result {
                self.state().not_undone.push(error);
                undone = false;
            }
        }
    }

    /// Notes which attempt of such a step begins, and why the last one failed.
    pub(crate) fn tried(&self, noted: Noted, attempt: u32, error: Option<String>) {
        self.state().trace.tried(noted, attempt, error);
    }

    /// Forgets what holds this context in turn.
    pub(super) fn clear(&self) {
        let (undo, work) = {
            let mut state = self.state();
            (std::mem::take(&mut state.undo), std::mem::take(&mut state.work))
        };
        drop((undo, work));
    }
}

/// Whether a path is inside of another one.
pub(super) fn is_within(outer: &str, path: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.starts_with(['.', '[']))
}

/// What nobody gets to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("about", &self.0.about).finish_non_exhaustive()
    }
}
