//! What a step means, given the journal: the pure half of replay.
//!
//! Entries are first [noted](Machine::note), so that it is known what the journal has about steps that the function has not asked for
//! yet, then [delivered](Machine::deliver) one at a time. A live run does the same with entries that have just been written, so
//! that running and replaying are one path.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::task::Waker;

use bytes::Bytes;

use super::journal::{Asked, Entry, Event, Kind, Step, Why};
use super::keys::Keys;
use crate::message::Outcome;

/// Why an execution cannot go on with this code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    /// The function asks for something else than it did.
    #[error(
        "step {step} was {recorded} when it was recorded, and now the function asks for {asked}: deploy code that asks for what it \
         did then (see `patched`), and retry"
    )]
    Mismatch {
        /// Which step.
        step: Step,
        /// What the journal has.
        recorded: Asked,
        /// What the function asks for.
        asked: Asked,
    },
    /// The function has not asked for something that the journal has an answer to.
    #[error(
        "the journal has an answer to step {step} ({recorded}), and the function has not asked for it: deploy code that does what \
         it did then (see `patched`), and retry"
    )]
    NotAsked {
        /// Which step.
        step: Step,
        /// What the journal has.
        recorded: String,
    },
    /// The function waits for something that the journal knows nothing of.
    #[error(
        "the function was woken by something else than its steps: only what the context offers can be awaited in a workflow; do \
         the rest in an activity, and retry"
    )]
    Foreign,
    /// What the execution keeps of its definition cannot be used.
    #[error("{0}: deploy a release that can use it, and retry")]
    Undefined(String),
    /// The journal is as long as it may be.
    #[error(
        "the journal has {longest} entries, which is as many as the setting for the longest history allows: let the workflow \
         continue as new (`continue_as_new`) before that, or raise the setting, and retry"
    )]
    TooLong {
        /// How many there may be.
        longest: i64,
    },
    /// An entry of the journal cannot be read.
    #[error(
        "entry {place} of the journal cannot be read ({why}): deploy the release that wrote it or a later one and retry, or reset \
         to the entries before it"
    )]
    Unreadable {
        /// Which one, counted from 0.
        place: i64,
        /// Why.
        why: String,
    },
}

impl Blocked {
    /// One word for conditions, Events and metric labels.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Mismatch { .. } | Self::NotAsked { .. } => "NonDeterministic",
            Self::Foreign => "ForeignWake",
            Self::Undefined(_) => "UnusableDefinition",
            Self::TooLong { .. } => "HistoryTooLong",
            Self::Unreadable { .. } => "UnreadableJournal",
        }
    }
}

/// A step that the function waits for.
#[derive(Debug)]
pub struct Open {
    /// What it is.
    pub asked: Asked,
    /// What the function called now when it asked, in milliseconds of Unix time.
    pub since: i64,
    /// How many attempts have failed.
    pub attempts: u32,
    /// When the next one is due; 0 if at once.
    pub again: i64,
    /// How far it had come, by its own account.
    pub progress: Option<Bytes>,
    /// Whether the child was started.
    pub begun: bool,
    result: Option<Outcome>,
    waker: Option<Waker>,
}

impl Open {
    /// Whether the journal has no answer yet.
    pub fn is_waiting(&self) -> bool {
        self.result.is_none()
    }
}

/// One run of a function over its journal.
#[derive(Debug, Default)]
pub struct Machine {
    /// What the journal has about steps that the function has not asked for yet.
    recorded: BTreeMap<Step, Option<Asked>>,
    /// Steps whose end the journal has already as one that nobody waited for.
    written: HashSet<Step>,
    /// How many entries were noted and not delivered.
    ahead: usize,
    next: u32,
    open: BTreeMap<Step, Open>,
    signals: HashMap<String, VecDeque<Bytes>>,
    promises: HashMap<String, Outcome>,
    patches: HashMap<String, bool>,
    wakers: HashMap<Waited, Vec<Waker>>,
    /// How many wait for each of these, since when the first.
    waits: BTreeMap<Waited, (usize, i64)>,
    cancel: Option<Why>,
    now: i64,
    blocked: Option<Blocked>,
    /// Entries that the function's own doing calls for, to be written with the next.
    owed: Vec<Event>,
    /// Steps that the function does not wait for any more, to be told to stop.
    dropped: Vec<Step>,
    steps_done: u32,
    /// How many entries were delivered.
    delivered: usize,
    keys: Keys,
}

/// What else than steps can be waited for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Waited {
    /// A signal.
    Signal(String),
    /// A promise.
    Promise(String),
    /// That the execution is cancelled.
    Cancel,
}

impl Machine {
    /// A run that begins at a time.
    pub fn new(now: i64) -> Self {
        Self { now, ..Self::default() }
    }

    /// Takes notice of the next entry of the journal, without delivering it.
    pub fn note(&mut self, entry: &Entry) {
        self.ahead += 1;
        let Some((step, asked)) = entry.event.step() else { return };
        if matches!(entry.event, Event::Dropped { .. }) {
            self.written.insert(step);
        }
        if step.0 >= self.next {
            // Entries that do not say what was asked come after one that does, or belong to a step that was never answered.
            let recorded = self.recorded.entry(step).or_default();
            *recorded = recorded.take().or(asked);
        }
    }

    /// Tells the function of the next entry. Whoever waits for it is woken.
    ///
    /// # Errors
    /// The function has not asked for what the entry answers.
    pub fn deliver(&mut self, entry: Entry) -> Result<(), Blocked> {
        self.ahead = self.ahead.saturating_sub(1);
        self.delivered = self.delivered.saturating_add(1);
        // Clocks of several owners may differ, but a function never sees time go back.
        self.now = self.now.max(entry.at);
        if let Some((step, asked)) = entry.event.step()
            && step.0 >= self.next
        {
            let recorded = asked.map_or_else(|| "a child or a race".to_owned(), |asked| asked.to_string());
            return Err(self.block(Blocked::NotAsked { step, recorded }));
        }
        match entry.event {
            Event::Activity { step, outcome, .. } => {
                self.keys.answered(step, &outcome);
                self.answer(step, outcome);
            }
            Event::ChildEnded { step, outcome } => self.answer(step, outcome),
            Event::Forked { keys, restarted, .. } => {
                self.keys.replace(keys);
                for step in restarted {
                    if let Some(open) = self.open.get_mut(&step) {
                        open.since = self.now;
                        open.attempts = 0;
                        open.again = 0;
                    }
                }
            }
            Event::Slept { step, .. } => self.answer(step, Outcome::Success(Bytes::new())),
            Event::Recorded { step, value, .. } => self.answer(step, Outcome::Success(value)),
            Event::Attempt { step, attempts, again, progress, .. } => {
                if let Some(open) = self.open.get_mut(&step) {
                    open.attempts = attempts;
                    open.again = again;
                    open.progress = progress;
                }
            }
            Event::Progress { step, progress, .. } => {
                if let Some(open) = self.open.get_mut(&step) {
                    open.progress = Some(progress);
                }
            }
            Event::Child { step, .. } => {
                if let Some(open) = self.open.get_mut(&step) {
                    open.begun = true;
                }
            }
            Event::Signal { name, payload } => {
                self.signals.entry(name.clone()).or_default().push_back(payload);
                self.wake(&Waited::Signal(name));
            }
            Event::Promise { name, outcome } => {
                // Whoever keeps it first has kept it.
                self.promises.entry(name.clone()).or_insert(outcome);
                self.wake(&Waited::Promise(name));
            }
            Event::Cancel(why) => {
                self.cancel.get_or_insert(why);
                self.wake(&Waited::Cancel);
            }
            Event::Begun { .. }
            | Event::Defined { .. }
            | Event::Patched { .. }
            | Event::Dropped { .. }
            | Event::Ended { .. } => {}
        }
        Ok(())
    }

    fn answer(&mut self, step: Step, outcome: Outcome) {
        self.steps_done = self.steps_done.saturating_add(1);
        // The loser of a race may have been answered before anybody told it to stop.
        let Some(open) = self.open.get_mut(&step) else { return };
        if open.result.is_none() {
            open.result = Some(outcome);
            open.waker.take().into_iter().for_each(Waker::wake);
        }
    }

    fn wake(&mut self, what: &Waited) {
        self.wakers.remove(what).unwrap_or_default().into_iter().for_each(Waker::wake);
    }

    /// The function asks for something: which step that is.
    ///
    /// # Errors
    /// The journal has something else there.
    pub fn ask(&mut self, asked: Asked) -> Result<Step, Blocked> {
        let step = Step(self.next);
        if let Some(Some(recorded)) = self.recorded.remove(&step)
            && recorded != asked
        {
            return Err(self.block(Blocked::Mismatch { step, recorded, asked }));
        }
        self.next += 1;
        self.keys.asked(step, &asked);
        self.open.insert(
            step,
            Open {
                asked,
                since: self.now,
                attempts: 0,
                again: 0,
                progress: None,
                begun: false,
                result: None,
                waker: None,
            },
        );
        Ok(step)
    }

    /// The answer to a step, once. Until it is there, the waker is kept.
    pub fn take(&mut self, step: Step, waker: &Waker) -> Option<Outcome> {
        let open = self.open.get_mut(&step)?;
        match open.result.take() {
            Some(outcome) => {
                self.open.remove(&step);
                Some(outcome)
            }
            None => {
                open.waker = Some(waker.clone());
                None
            }
        }
    }

    /// The function does not wait for a step any more.
    pub fn drop_step(&mut self, step: Step) {
        let Some(open) = self.open.remove(&step) else { return };
        if open.result.is_some() {
            return;
        }
        self.dropped.push(step);
        if matches!(open.asked.kind, Kind::Activity | Kind::Child) && !self.written.contains(&step) {
            self.owed.push(Event::Dropped { step });
        }
    }

    /// Whether the function takes the new one of two paths: yes, unless the journal shows that it has been here with older code.
    pub fn patched(&mut self, id: &str) -> bool {
        if let Some(known) = self.patches.get(id) {
            return *known;
        }
        let step = Step(self.next);
        let recorded = self.recorded.get(&step).and_then(Option::as_ref);
        let patched = match recorded {
            Some(recorded) if recorded.kind == Kind::Patch && recorded.name == id => {
                self.recorded.remove(&step);
                self.next += 1;
                true
            }
            _ if self.ahead > 0 => false,
            _ => {
                self.next += 1;
                self.owed.push(Event::Patched { step, id: id.to_owned() });
                true
            }
        };
        self.patches.insert(id.to_owned(), patched);
        patched
    }

    /// The oldest signal of a name that was not read, which it then is.
    pub fn signal(&mut self, name: &str, waker: &Waker) -> Option<Bytes> {
        if let Some(payload) = self.signals.get_mut(name).and_then(VecDeque::pop_front) {
            return Some(payload);
        }
        self.await_for(Waited::Signal(name.to_owned()), waker);
        None
    }

    /// What was promised under a name, if somebody kept it.
    pub fn promise(&mut self, name: &str, waker: &Waker) -> Option<Outcome> {
        if let Some(outcome) = self.promises.get(name) {
            return Some(outcome.clone());
        }
        self.await_for(Waited::Promise(name.to_owned()), waker);
        None
    }

    /// Whether a promise was kept.
    pub fn is_kept(&self, name: &str) -> bool {
        self.promises.contains_key(name)
    }

    /// Why the execution is cancelled, if it is.
    pub fn cancelled(&self) -> Option<Why> {
        self.cancel
    }

    /// Keeps a waker until something comes.
    pub fn await_for(&mut self, what: Waited, waker: &Waker) {
        let wakers = self.wakers.entry(what).or_default();
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    /// The function begins to wait for something, for those who want to know.
    pub fn begin_waiting(&mut self, what: Waited) {
        let (waiting, _) = self.waits.entry(what).or_insert((0, self.now));
        *waiting += 1;
    }

    /// One of those who wait for something has it, or does not want it any more.
    pub fn end_waiting(&mut self, what: &Waited) {
        if let Some((waiting, _)) = self.waits.get_mut(what) {
            *waiting = waiting.saturating_sub(1);
            if *waiting == 0 {
                self.waits.remove(what);
            }
        }
    }

    /// What else than steps the function waits for, and since when.
    pub fn waits(&self) -> impl Iterator<Item = (&Waited, i64)> {
        self.waits.iter().map(|(what, (_, since))| (what, *since))
    }

    /// The function has returned.
    ///
    /// # Errors
    /// The journal has steps that it did not ask for.
    pub fn end(&mut self) -> Result<(), Blocked> {
        let left = self.recorded.iter().find_map(|(step, recorded)| Some((*step, recorded.clone()?)));
        match left {
            Some((step, asked)) => Err(self.block(Blocked::NotAsked { step, recorded: asked.to_string() })),
            None => Ok(()),
        }
    }

    /// The execution cannot go on.
    pub fn block(&mut self, blocked: Blocked) -> Blocked {
        self.blocked.get_or_insert(blocked).clone()
    }

    /// Why the execution cannot go on, if so.
    pub fn blocked(&self) -> Option<&Blocked> {
        self.blocked.as_ref()
    }

    /// What the function calls now, in milliseconds of Unix time.
    pub fn now(&self) -> i64 {
        self.now
    }

    /// Whether there are entries that the function has not been told of.
    pub fn is_behind(&self) -> bool {
        self.ahead > 0
    }

    /// How many entries were delivered.
    pub fn delivered(&self) -> usize {
        self.delivered
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// From now on, what the function asks for compensates the execution as a whole.
    pub(super) fn compensate(&mut self) {
        self.keys.compensate_from(Step(self.next));
    }

    /// How many steps have been answered.
    pub fn steps_done(&self) -> u32 {
        self.steps_done
    }

    /// How many steps the function has asked for.
    pub fn steps_asked(&self) -> u32 {
        self.next
    }

    /// A step that the function waits for.
    pub fn open(&self, step: Step) -> Option<&Open> {
        self.open.get(&step)
    }

    /// The steps that have no answer yet.
    pub fn waiting(&self) -> impl Iterator<Item = (Step, &Open)> {
        self.open.iter().filter(|(_, open)| open.is_waiting()).map(|(step, open)| (*step, open))
    }

    /// Entries that the function's own doing calls for, and that are not in the journal yet.
    pub fn take_owed(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.owed)
    }

    /// Steps that are to be told to stop.
    pub fn take_dropped(&mut self) -> Vec<Step> {
        std::mem::take(&mut self.dropped)
    }

    /// Signals that nobody has read, by name, each in its order.
    pub fn unread(&self) -> Vec<(String, Bytes)> {
        let mut unread: Vec<_> = self
            .signals
            .iter()
            .flat_map(|(name, payloads)| payloads.iter().map(|payload| (name.clone(), payload.clone())))
            .collect();
        unread.sort_by(|a, b| a.0.cmp(&b.0));
        unread
    }
}
