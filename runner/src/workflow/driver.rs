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
use super::attempt::Tried;
use super::child::Child;
use super::function::{Function, Turn};
use super::host::Registered;
use super::journal::{Entry, Event, Step};
use super::machine::{Blocked, Machine, Waited};
use super::report::{StepKind, shown_as};
use super::resident::Resident;
use super::shard::Shard;
use super::summary::{Open, Summary};
use super::tail::{Lease, Row, Tail, Writing};
use crate::entity::Pace;
use crate::message::TraceContext;
use crate::message::codec::time::{from_millis, to_millis};
use crate::store::{self, Change, Committed, Message, Phase, Write};

/// How many of the things that an execution waits for its row says.
const GLANCE: usize = 20;

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
    /// Whether attempts of activities are begun here.
    pub(super) pace: Arc<Pace>,
    pub(super) inbox: mpsc::UnboundedReceiver<Happening>,
    pub(super) function: Option<Function>,
    /// Entries that are written and not delivered.
    pub(super) backlog: VecDeque<Entry>,
    /// Activities that run, with how to tell them to stop.
    pub(super) running: BTreeMap<Step, (Activity, CancellationToken)>,
    pub(super) tasks: JoinSet<Tried>,
    /// Attempts that ended where they were begun, and are still to be written down.
    pub(super) ended: Vec<Tried>,
    /// Activities that are tried again later.
    pub(super) resting: BTreeMap<Step, Activity>,
    /// When something is due: sleeps and next attempts, in milliseconds of Unix time.
    pub(super) due: BTreeMap<(i64, Step), Due>,
    pub(super) children: BTreeMap<Step, Child>,
    /// Entries to be written with the next.
    pub(super) owed: Vec<Event>,
    /// The trace that the execution was started in.
    pub(super) trace: Option<TraceContext>,
    asked: Vec<(String, oneshot::Sender<Shown>)>,
    /// What came of the function when it was last told something, if it does not just wait.
    pub(super) turned: Option<Turn>,
    /// Why what is in the journal cannot be delivered.
    unreadable: Option<Blocked>,
    alarm: Arc<Notify>,
    quiet_since: Instant,
    /// Whether something was written since it came into memory: whoever brought it there has had a turn.
    served: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Slept,
    Attempt,
}

impl Driver {
    pub(super) fn new(
        shard: Arc<Shard>,
        me: Arc<Resident>,
        Registered { workflow, pace }: Registered,
        inbox: mpsc::UnboundedReceiver<Happening>,
    ) -> Self {
        Self {
            shard,
            me,
            workflow,
            pace,
            inbox,
            function: None,
            backlog: VecDeque::new(),
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            ended: Vec::new(),
            resting: BTreeMap::new(),
            due: BTreeMap::new(),
            children: BTreeMap::new(),
            owed: Vec::new(),
            trace: None,
            asked: Vec::new(),
            turned: None,
            unreadable: None,
            alarm: Arc::new(Notify::new()),
            quiet_since: Instant::now(),
            served: false,
        }
    }

    /// Runs the execution until it can leave memory. One that was just begun needs not be read.
    pub(super) async fn run(mut self, fresh: Option<(Row, Vec<Entry>)>) -> Leave {
        let found = match fresh {
            Some((row, entries)) => {
                self.backlog.extend(entries);
                self.served = true;
                Ok(Tail { row: Some(row), ..Tail::default() })
            }
            None => Box::pin(self.shard.read(&self.me.address)).await.map(|read| match read {
                Some((row, journal)) => {
                    self.backlog.extend(journal.entries);
                    self.unreadable = journal.unreadable;
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
        // However long that took: whoever brought it into memory has its turn before it leaves again.
        self.quiet_since = Instant::now();
        loop {
            // Most executions wait most of the time: they keep no room for what they do otherwise.
            let left = match Box::pin(self.advance()).await {
                Ok(()) => self.wait().await,
                Err(leave) => Err(leave),
            };
            if let Err(leave) = left {
                return leave;
            }
        }
    }

    /// Delivers what is written, does what is to be done, until the function rests.
    pub(super) async fn advance(&mut self) -> Result<(), Leave> {
        loop {
            let Some(row) = self.me.look().await.row.clone() else { return Ok(()) };
            self.take_written()?;
            self.show(&row);
            if row.phase.is_final() && self.function.is_some() {
                // Somebody ended it where it stood.
                self.dismiss();
                self.shard.leave(&self.me);
                return Err(Leave::Rest);
            }
            // Whoever has the shard next goes on.
            if !matches!(row.phase, Phase::Running | Phase::Cancelling) || self.shard.closing.is_cancelled() {
                return Ok(());
            }
            let mut turn = match (&self.function, &self.unreadable) {
                (_, Some(blocked)) => Turn::Blocked(blocked.clone()),
                (Some(_), None) => self.turned.take().unwrap_or(Turn::Waiting),
                (None, None) => self.begin(&row),
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
                    let longest = self.shard.longest_history();
                    if row.phase == Phase::Running && row.next >= longest {
                        return Err(self.block(&Blocked::TooLong { longest }).await?);
                    }
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
        self.trace.clone_from(&row.summary.trace);
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
    pub(super) fn take_written(&mut self) -> Result<(), Leave> {
        while let Ok(happening) = self.inbox.try_recv() {
            self.hear(happening)?;
        }
        Ok(())
    }

    pub(super) fn hear(&mut self, happening: Happening) -> Result<(), Leave> {
        match happening {
            Happening::Written(entries) => {
                self.served = true;
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

    /// Waits until something happens, and writes it down.
    async fn wait(&mut self) -> Result<(), Leave> {
        if !self.ended.is_empty() {
            return Box::pin(self.tried()).await;
        }
        let (phase, deadline) = self.standing().await;
        let runs = self.function.is_some() && matches!(phase, Some(Phase::Running | Phase::Cancelling));
        let closing = self.shard.closing.clone();
        if closing.is_cancelled() && self.tasks.is_empty() {
            return Err(Leave::Closed);
        }
        let next = if runs { self.next_due(deadline) } else { None };
        let grace = self.quiet_since + self.grace(next);
        let idle = self.tasks.is_empty();
        tokio::select! {
            biased;
            Some(happening) = self.inbox.recv() => self.hear(happening)?,
            Some(tried) = self.tasks.join_next(), if !idle => return match tried {
                Ok(tried) => {
                    self.ended.push(tried);
                    Box::pin(self.tried()).await
                }
                // Nobody knows what became of it.
                Err(_) => Err(Leave::Again),
            },
            () = self.alarm.notified() => return Err(Box::pin(self.block(&Blocked::Foreign)).await?),
            () = sleep_until(next), if runs && next.is_some() && !closing.is_cancelled() => return Box::pin(self.fire()).await,
            () = closing.cancelled(), if idle => return Err(Leave::Closed),
            () = tokio::time::sleep_until(grace), if idle => return Err(Box::pin(self.park(next)).await?),
        }
        // A running activity says how far it has come, at most now and then.
        if self.owed.iter().any(|event| matches!(event, Event::Progress { .. })) {
            Box::pin(self.append(Vec::new(), Vec::new())).await?;
        }
        Ok(())
    }

    /// Its phase, and when it must have ended, in milliseconds of Unix time.
    async fn standing(&mut self) -> (Option<Phase>, Option<i64>) {
        let tail = self.me.look().await;
        let row = tail.row.as_ref();
        let running = row.filter(|row| row.phase == Phase::Running);
        (row.map(|row| row.phase), running.and_then(|row| row.summary.deadline))
    }

    /// How long it stays in memory if nothing happens. Nobody is expected to ask one that sleeps for long and waits for nothing else.
    fn grace(&self, next: Option<i64>) -> Duration {
        let asleep = next.is_some_and(|due| !self.shard.is_soon(due)) && self.children.is_empty();
        let waits = |function: &Function| function.context().state().machine.waits().next().is_some();
        if self.served && asleep && !self.function.as_ref().is_some_and(waits) {
            Duration::ZERO
        } else {
            self.shard.grace()
        }
    }

    /// When something is due, in milliseconds of Unix time.
    fn next_due(&self, deadline: Option<i64>) -> Option<i64> {
        self.due.keys().next().map(|(due, _)| *due).into_iter().chain(deadline).min()
    }

    /// Writes down what happened, with what was owed before.
    pub(super) async fn append(&mut self, events: Vec<Event>, sends: Vec<Message>) -> Result<(), Leave> {
        let entries = self.owed.drain(..).chain(events).map(Entry::now).collect();
        self.write(Writing { entries, ..Writing::default() }, sends).await
    }

    /// What the function has come to, for the row.
    pub(super) fn summarise(&self, row: &Row) -> Summary {
        let mut summary = Summary::clone(&row.summary);
        if let Some(function) = &self.function {
            let state = function.context().state();
            summary.steps = state.machine.steps_done();
            summary.not_undone.clone_from(&state.not_undone);
            summary.open = self.open_steps(&state.machine);
        }
        summary
    }

    /// What the function waits for, as far as a glance goes.
    fn open_steps(&self, machine: &Machine) -> Vec<Open> {
        let due: BTreeMap<_, _> = self.due.keys().map(|(due, step)| (*step, *due)).collect();
        let steps = machine.waiting().filter_map(|(step, open)| {
            let kind = StepKind::of(open.asked.kind)?;
            let (name, since) = (shown_as(&open.asked).to_owned(), open.since);
            Some(Open { step: Some(step), kind, name, since, until: due.get(&step).copied() })
        });
        let waits = machine.waits().filter_map(|(what, since)| {
            let (kind, name) = match what {
                Waited::Signal(name) => (StepKind::Signal, name.clone()),
                Waited::Promise(name) => (StepKind::Promise, name.clone()),
                Waited::Cancel => return None,
            };
            Some(Open { step: None, kind, name, since, until: None })
        });
        steps.chain(waits).take(GLANCE).collect()
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

    /// Nobody waits for what still runs: it has a moment to tidy up.
    pub(super) fn dismiss(&mut self) {
        std::mem::take(&mut self.running).into_values().for_each(|(_, cancel)| cancel.cancel());
        self.tasks.detach_all();
        self.ended.clear();
    }

    pub(super) fn function(&self) -> Option<&Function> {
        self.function.as_ref()
    }

    pub(super) async fn lease(&mut self) -> Result<Lease, Leave> {
        let lease = self.me.lease().await;
        // What runs here is over if somebody ended the execution where it stood.
        let ended = self.function.is_some() && lease.row().is_some_and(|row| row.phase.is_final());
        if lease.tail().gone || ended { Err(Leave::Again) } else { Ok(lease) }
    }

    pub(super) async fn write(&mut self, writing: Writing, sends: Vec<Message>) -> Result<(), Leave> {
        let lease = self.lease().await?;
        self.write_by(lease, writing, sends, Lease::committed).await
    }

    /// Writes by a right that is held already.
    pub(super) async fn write_by(
        &mut self,
        mut lease: Lease,
        writing: Writing,
        sends: Vec<Message>,
        committed: fn(Lease),
    ) -> Result<(), Leave> {
        self.quiet_since = Instant::now();
        self.served = true;
        let mut changes = lease.write(writing).map_err(Leave::Failed)?;
        changes.extend(sends.iter().cloned().map(Change::Send));
        if changes.is_empty() {
            return Ok(());
        }
        match self.shard.store().commit(Write { fence: self.shard.fence.clone(), changes }).await {
            Ok(Committed::Applied) => {
                committed(lease);
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
}

/// A function as far as its journal goes. What it asks for beyond is not done.
pub(super) fn look_at(workflow: &dyn Workflow, row: &Row, journal: &[Entry]) -> Function {
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
