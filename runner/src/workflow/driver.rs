//! Runs one execution while it is in memory.
//!
//! A driver delivers what is in the journal to the function, does the work of steps that have no answer yet, and writes down what
//! comes of it. It is the only one that polls the function. It leaves when there is nothing to do for a while, and journals nothing
//! when it does.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Workflow;
use super::activity::Activity;
use super::attempt::{Attempt, Tried};
use super::child::Child;
use super::context::{Context, Work};
use super::function::{Function, Turn};
use super::journal::{Entry, Event, Step, Why};
use super::machine::Blocked;
use super::resident::Resident;
use super::shard::Shard;
use super::summary::Problem;
use super::tail::{Becoming, Lease, Row, Tail, Wake, Writing};
use crate::message::Outcome;
use crate::message::codec::time::{from_millis, to_millis};
use crate::store::{self, Change, Committed, Message, Phase, Write};

/// What a driver is told.
pub(super) enum Happening {
    /// Entries were written, or the row was; they come in the order of the journal.
    Written(Vec<Entry>),
    /// Nobody knows what became of a write.
    Broken,
    /// A running activity says how far it has come.
    Progress { step: Step, progress: Bytes },
    /// Somebody wants to see what the function shows.
    Query { name: String, reply: oneshot::Sender<Shown> },
}

/// What a function shows under a name.
pub(super) enum Shown {
    Value(Bytes),
    Nothing(Vec<String>),
}

/// Why a driver leaves.
pub(super) enum Leave {
    /// It is not needed for now: it waits, has ended or cannot go on.
    Rest,
    /// It has to be read again, now.
    Again,
    /// It has to be read again after a while, because the function panicked.
    Panicked,
    /// The database failed.
    Failed(store::Error),
    /// The shard goes elsewhere.
    Closed,
}

pub(super) struct Driver {
    pub(super) shard: Arc<Shard>,
    pub(super) me: Arc<Resident>,
    pub(super) workflow: Arc<dyn Workflow>,
    pub(super) inbox: mpsc::UnboundedReceiver<Happening>,
    function: Option<Function>,
    /// Entries that are written and not delivered.
    backlog: VecDeque<Entry>,
    /// Activities that run, with how to tell them to stop.
    running: BTreeMap<Step, (Activity, CancellationToken)>,
    tasks: JoinSet<Tried>,
    /// Activities that are tried again later.
    resting: BTreeMap<Step, Activity>,
    /// When something is due: sleeps and next attempts, in milliseconds of Unix time.
    due: BTreeMap<(i64, Step), Due>,
    pub(super) children: BTreeMap<Step, Child>,
    /// Entries to be written with the next.
    owed: Vec<Event>,
    asked: Vec<(String, oneshot::Sender<Shown>)>,
    alarm: Arc<Notify>,
    quiet_since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Slept,
    Attempt,
}

impl Driver {
    pub(super) fn new(
        shard: Arc<Shard>,
        me: Arc<Resident>,
        workflow: Arc<dyn Workflow>,
        inbox: mpsc::UnboundedReceiver<Happening>,
    ) -> Self {
        Self {
            shard,
            me,
            workflow,
            inbox,
            function: None,
            backlog: VecDeque::new(),
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            resting: BTreeMap::new(),
            due: BTreeMap::new(),
            children: BTreeMap::new(),
            owed: Vec::new(),
            asked: Vec::new(),
            alarm: Arc::new(Notify::new()),
            quiet_since: Instant::now(),
        }
    }

    /// Runs the execution until it can leave memory. A row that was just begun needs not be read.
    pub(super) async fn run(mut self, fresh: Option<Row>) -> Leave {
        let found = match fresh {
            Some(row) => Ok(Tail { row: Some(row), ..Tail::default() }),
            None => self.shard.read(&self.me.address).await.map(|read| match read {
                Some((row, entries)) => {
                    self.backlog.extend(entries);
                    Tail { row: Some(row), ..Tail::default() }
                }
                None => Tail::default(),
            }),
        };
        let tail = match found {
            Ok(tail) => tail,
            Err(error) => {
                self.me.found(Tail { gone: true, failed: Some(error.clone()), ..Tail::default() }).await;
                return Leave::Failed(error);
            }
        };
        self.me.found(tail).await;
        loop {
            let left = match self.advance().await {
                Ok(()) => self.wait().await,
                Err(leave) => Err(leave),
            };
            if let Err(leave) = left {
                return leave;
            }
        }
    }

    /// Delivers what is written, does what is to be done, until the function rests.
    async fn advance(&mut self) -> Result<(), Leave> {
        loop {
            let Some(row) = self.me.lease().await.row().cloned() else { return Ok(()) };
            self.take_written()?;
            self.show(&row);
            // Whoever has the shard next goes on.
            if !matches!(row.phase, Phase::Running | Phase::Cancelling) || self.shard.closing.is_cancelled() {
                return Ok(());
            }
            let mut turn = match &self.function {
                Some(_) => Turn::Waiting,
                None => self.begin(&row),
            };
            while turn == Turn::Waiting
                && let (Some(function), Some(entry)) = (&mut self.function, self.backlog.pop_front())
            {
                self.quiet_since = Instant::now();
                if let Event::ChildEnded { step, .. } = &entry.event {
                    self.children.remove(step);
                }
                turn = function.deliver(entry);
            }
            match turn {
                Turn::Waiting => {
                    if !self.work().await? {
                        return Ok(());
                    }
                }
                Turn::Ended(end) => return Err(self.finish(end).await?),
                Turn::Renewed(input) => return Err(self.renew(input).await?),
                Turn::Blocked(blocked) => return Err(self.block(&blocked).await?),
                Turn::Panicked(message) => return Err(self.panicked(message).await?),
            }
        }
    }

    /// Begins the function over what is in the journal.
    fn begin(&mut self, row: &Row) -> Turn {
        let alarm = Arc::clone(&self.alarm);
        let entries = self.backlog.make_contiguous();
        let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Function::over(self.workflow.as_ref(), row, entries, move || alarm.notify_one())
        }));
        match made {
            Ok(mut function) => {
                let turn = function.turn();
                self.function = Some(function);
                turn
            }
            Err(panic) => Turn::Panicked(super::function::message_of(panic.as_ref()).to_owned()),
        }
    }

    /// Takes notice of what was written.
    fn take_written(&mut self) -> Result<(), Leave> {
        while let Ok(happening) = self.inbox.try_recv() {
            self.hear(happening)?;
        }
        Ok(())
    }

    fn hear(&mut self, happening: Happening) -> Result<(), Leave> {
        match happening {
            Happening::Written(entries) => {
                if let Some(function) = &self.function {
                    entries.iter().for_each(|entry| function.note(entry));
                }
                self.backlog.extend(entries);
            }
            Happening::Broken => return Err(Leave::Again),
            Happening::Progress { step, progress } => {
                if let Some((activity, _)) = self.running.get(&step) {
                    let name = activity.name.clone();
                    self.owed.push(Event::Progress { step, name, progress });
                }
            }
            Happening::Query { name, reply } => {
                self.asked.push((name, reply));
            }
        }
        Ok(())
    }

    /// Answers queries. An execution that does not run is only looked at.
    fn show(&mut self, row: &Row) {
        for (name, reply) in std::mem::take(&mut self.asked) {
            let looked_at = match &self.function {
                Some(_) => None,
                None => Some(look_at(self.workflow.as_ref(), row, self.backlog.make_contiguous())),
            };
            let Some(function) = looked_at.as_ref().or(self.function.as_ref()) else { continue };
            let state = function.context().state();
            let known = || state.shown.keys().cloned().collect();
            let shown = state.shown.get(&name).cloned().map_or_else(|| Shown::Nothing(known()), Shown::Value);
            let _ = reply.send(shown);
        }
    }

    /// Begins what is to be done for steps that have no answer. Whether something was written, so that there is more to deliver.
    async fn work(&mut self) -> Result<bool, Leave> {
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
                    let until = since.saturating_add(super::activity::millis(duration));
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
                        now.push(Event::Child { step, address: child.address.clone() });
                        sends.push(self.shard.start_of(&child, &self.me.address, step).await?);
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
        let (since, attempt, progress) = {
            let state = function.context().state();
            let Some(open) = state.machine.open(step) else { return };
            (open.since, open.attempts, open.progress.clone())
        };
        let cancel = CancellationToken::new();
        let about = function.context().about();
        let attempting = Attempt {
            address: about.address.clone(),
            run: about.run,
            step,
            attempt,
            progress,
            since,
            cancel: cancel.clone(),
            store: self.shard.store(),
            options: activity.options.clone(),
            work: Arc::clone(&activity.run),
            inbox: Arc::clone(&self.me),
        };
        self.tasks.spawn(attempting.run());
        self.running.insert(step, (activity, cancel));
    }

    /// Waits until something happens, and writes it down.
    async fn wait(&mut self) -> Result<(), Leave> {
        let phase = self.phase().await;
        let runs = self.function.is_some() && matches!(phase, Some(Phase::Running | Phase::Cancelling));
        let closing = self.shard.closing.clone();
        if closing.is_cancelled() && self.tasks.is_empty() {
            return Err(Leave::Closed);
        }
        let next = if runs { self.next_due().await } else { None };
        let grace = self.quiet_since + self.shard.grace();
        let idle = self.tasks.is_empty();
        tokio::select! {
            biased;
            Some(happening) = self.inbox.recv() => self.hear(happening)?,
            Some(tried) = self.tasks.join_next(), if !idle => return self.tried(tried.ok()).await,
            () = self.alarm.notified() => return Err(self.block(&Blocked::Foreign).await?),
            () = sleep_until(next), if runs && next.is_some() && !closing.is_cancelled() => return self.fire().await,
            () = closing.cancelled(), if idle => return Err(Leave::Closed),
            () = tokio::time::sleep_until(grace), if idle => return Err(self.park(next).await?),
        }
        // A running activity says how far it has come, at most now and then.
        if self.owed.iter().any(|event| matches!(event, Event::Progress { .. })) {
            self.append(Vec::new(), Vec::new()).await?;
        }
        Ok(())
    }

    async fn phase(&mut self) -> Option<Phase> {
        self.me.lease().await.row().map(|row| row.phase)
    }

    /// When something is due, in milliseconds of Unix time.
    async fn next_due(&mut self) -> Option<i64> {
        let lease = self.me.lease().await;
        let deadline =
            lease.row().filter(|row| row.phase == Phase::Running).and_then(|row| row.summary.deadline);
        self.due.keys().next().map(|(due, _)| *due).into_iter().chain(deadline).min()
    }

    /// Writes down what is due.
    async fn fire(&mut self) -> Result<(), Leave> {
        let now = now();
        let row = self.me.lease().await.row().cloned();
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
            let ((_, step), due) = entry.remove_entry();
            match due {
                Due::Slept => events.push(Event::Slept { step }),
                Due::Attempt => {
                    if let Some(activity) = self.resting.remove(&step) {
                        self.schedule(step, activity, 0);
                    }
                }
            }
        }
        if events.is_empty() { Ok(()) } else { self.append(events, Vec::new()).await }
    }

    /// An attempt has ended, and maybe others with it.
    async fn tried(&mut self, tried: Option<Tried>) -> Result<(), Leave> {
        let mut all: Vec<_> = tried.into_iter().collect();
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
                        Some(transaction) => match self.commit(event, transaction).await? {
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
                super::activity::Next::End(outcome) => {
                    events.push(Event::Activity { step, name, attempts, outcome });
                }
                super::activity::Next::At(again) => {
                    events.push(Event::Attempt { step, name, attempts, error, again, progress });
                    self.due.insert((again, step), Due::Attempt);
                    self.resting.insert(step, activity);
                }
            }
        }
        if events.is_empty() { Ok(()) } else { self.append(events, Vec::new()).await }
    }

    fn open(&self, step: Step) -> Option<(i64, u32)> {
        let state = self.function.as_ref()?.context().state();
        let open = state.machine.open(step)?;
        Some((open.since, open.attempts))
    }

    /// Writes down what happened, with what was owed before.
    pub(super) async fn append(&mut self, events: Vec<Event>, sends: Vec<Message>) -> Result<(), Leave> {
        let entries = self.owed.drain(..).chain(events).map(Entry::now).collect();
        self.write(Writing { entries, ..Writing::default() }, sends).await
    }

    /// What the function has come to, for the row.
    pub(super) fn summarise(&self, row: &Row) -> super::summary::Summary {
        let mut summary = row.summary.clone();
        if let Some(function) = &self.function {
            let state = function.context().state();
            summary.steps = state.machine.steps_done();
            summary.not_undone.clone_from(&state.not_undone);
        }
        summary
    }

    pub(super) fn take_owed(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.owed)
    }

    /// Signals and promises that are in the journal and that the function was not told of. Nobody may write meanwhile.
    pub(super) fn undelivered(&mut self) -> Result<Vec<Event>, Leave> {
        self.take_written()?;
        let told =
            |event: &Event| matches!(event, Event::Signal { .. } | Event::Promise { .. } | Event::Cancel(_));
        Ok(self.backlog.drain(..).map(|entry| entry.event).filter(told).collect())
    }

    pub(super) fn function(&self) -> Option<&Function> {
        self.function.as_ref()
    }

    pub(super) async fn lease(&mut self) -> Result<Lease, Leave> {
        let lease = self.me.lease().await;
        if lease.tail().gone { Err(Leave::Again) } else { Ok(lease) }
    }

    pub(super) async fn write(&mut self, writing: Writing, sends: Vec<Message>) -> Result<(), Leave> {
        self.quiet_since = Instant::now();
        let mut lease = self.lease().await?;
        let mut changes = lease.write(writing).map_err(Leave::Failed)?;
        changes.extend(sends.iter().cloned().map(Change::Send));
        if changes.is_empty() {
            return Ok(());
        }
        match self.shard.store().commit(Write { fence: self.shard.fence.clone(), changes }).await {
            Ok(Committed::Applied) => {
                lease.committed();
                self.shard.sent(sends);
                Ok(())
            }
            Ok(Committed::Duplicate { .. }) => Err(Leave::Again),
            Err(store::Error::Conflict { basis }) => {
                tracing::warn!(execution = %self.me.address, %basis, "somebody else wrote to it: it is read again");
                Err(Leave::Again)
            }
            Err(error) => Err(Leave::Failed(error)),
        }
    }

    /// The execution took longer than it was given.
    async fn cancel(&mut self) -> Result<(), Leave> {
        let row = self.lease().await?.row().cloned();
        let Some(row) = row else { return Ok(()) };
        let becoming = Becoming { phase: Phase::Cancelling, active: true, summary: row.summary };
        let entries = self.owed.drain(..).chain([Event::Cancel(Why::Deadline)]).map(Entry::now).collect();
        self.write(Writing { entries, row: Some(becoming), timer: None }, Vec::new()).await
    }

    /// Leaves memory until something happens. Nothing is journalled; the row says that it needs not be resumed, and its timer
    /// when it must be.
    async fn park(&mut self, next: Option<i64>) -> Result<Leave, Leave> {
        let mut lease = self.lease().await?;
        if let Ok(happening) = self.inbox.try_recv() {
            // Something came at the last moment.
            self.hear(happening)?;
            drop(lease);
            return self.advance().await.map(|()| Leave::Again);
        }
        let Some(row) = lease.row() else {
            self.shard.leave(&self.me);
            lease.close();
            return Ok(Leave::Rest);
        };
        if row.active && matches!(row.phase, Phase::Running | Phase::Cancelling) {
            let becoming = Becoming { phase: row.phase, active: false, summary: self.summarise(row) };
            let timer = next.map_or(Wake::Never, |due| Wake::At(from_millis(due)));
            let entries = self.owed.drain(..).map(Entry::now).collect();
            let writing = Writing { entries, row: Some(becoming), timer: Some(timer) };
            let changes = lease.write(writing).map_err(Leave::Failed)?;
            let write = Write { fence: self.shard.fence.clone(), changes };
            self.shard.store().commit(write).await.map_err(Leave::Failed)?;
            self.shard.wake_at(&self.me.address, next);
            // Nobody else can write before it has left.
            lease.tail_mut().gone = true;
            self.shard.leave(&self.me);
            lease.committed();
            return Ok(Leave::Rest);
        }
        self.shard.wake_at(&self.me.address, next);
        self.shard.leave(&self.me);
        lease.close();
        Ok(Leave::Rest)
    }

    /// The function cannot go on with this code: it waits for other code, and costs nothing meanwhile.
    async fn block(&mut self, blocked: &Blocked) -> Result<Leave, Leave> {
        tracing::warn!(execution = %self.me.address, %blocked, "blocked");
        let problem = Problem { reason: blocked.reason().to_owned(), message: blocked.to_string() };
        let row = self.lease().await?.row().cloned();
        if let Some(row) = row {
            let mut summary = self.summarise(&row);
            summary.problem = Some(problem);
            summary.cancelling = row.phase == Phase::Cancelling;
            let becoming = Becoming { phase: Phase::Blocked, active: false, summary };
            let writing = Writing { row: Some(becoming), timer: Some(Wake::Never), ..Writing::default() };
            self.write(writing, Vec::new()).await?;
        }
        Ok(Leave::Rest)
    }

    /// The function panicked: it is tried again later.
    async fn panicked(&mut self, message: String) -> Result<Leave, Leave> {
        tracing::error!(execution = %self.me.address, message, "the function panicked and is tried again");
        let row = self.lease().await?.row().cloned();
        if let Some(row) = row {
            let mut summary = self.summarise(&row);
            summary.problem = Some(Problem { reason: "Panicked".to_owned(), message });
            let becoming = Becoming { phase: row.phase, active: true, summary };
            self.write(Writing { row: Some(becoming), ..Writing::default() }, Vec::new()).await?;
        }
        Ok(Leave::Panicked)
    }
}

/// A function as far as its journal goes. What it asks for beyond is not done.
fn look_at(workflow: &dyn Workflow, row: &Row, journal: &[Entry]) -> Function {
    let mut function = Function::over(workflow, row, journal, || {});
    let mut turn = function.turn();
    for entry in journal {
        if turn != Turn::Waiting {
            break;
        }
        turn = function.deliver(entry.clone());
    }
    function
}

/// Since when a step waits, when it is tried again, and whether it has begun.
fn waiting(context: &Context, step: Step) -> Option<(i64, i64, bool)> {
    let state = context.state();
    let open = state.machine.open(step).filter(|open| open.is_waiting())?;
    Some((open.since, open.again, open.begun))
}

pub(super) fn now() -> i64 {
    to_millis(SystemTime::now())
}

/// Sleeps until a time of the wall clock. It may be set while we wait, so long waits look at it again.
async fn sleep_until(due: Option<i64>) {
    let Some(due) = due else { return std::future::pending().await };
    loop {
        let Ok(left) = from_millis(due).duration_since(SystemTime::now()) else { return };
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(Duration::from_secs(60))).await;
    }
}
