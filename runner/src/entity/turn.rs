//! The work of one instance, from its first waiting message until there is none.
//!
//! A message passes four stages: it is *taken* from the mailbox as far as there is room, *looked up or stored* if that comes before
//! its handler, *run*, and *committed*. Each stage keeps the order of the one before it. Handlers run ahead of commits: the next one
//! sees a state that is not committed yet, and its reply waits. If a commit fails, everything that was built on it is
//! run again from what the database has.

mod callback;
mod commit;
mod renewal;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesOrdered, FuturesUnordered};
use tokio::sync::watch;

use self::commit::{Finished, explain};
use super::Error;
use super::activation::Activation;
use super::context::{Commits, Outgoing};
use super::definition::{Access, Delivery, Effects, Method};
use super::earlier::{Earlier, Settlement};
use super::job::{Delivered, Job, Origin};
use super::reach::Opened;
use super::run::{self, Done, Ended};
use super::shard::Shard;
use crate::message::{Envelope, Outcome, Snowflake};
use crate::store::{self, Change, Committed, Finish, Message, Request, StateChange, Write};

/// How often a message is run again because commits before it failed, before its caller is told.
const RERUNS: u8 = 5;

pub(super) struct Turn {
    me: Arc<Activation>,
    shard: Arc<Shard>,
    /// Messages that are looked up or stored before they run.
    entering: FuturesOrdered<BoxFuture<'static, Entered>>,
    ready: VecDeque<Job>,
    running: FuturesUnordered<BoxFuture<'static, Done>>,
    /// Whether the one that runs changes the state.
    exclusive: bool,
    /// How many of those that run wait for their turn inside.
    queued: usize,
    /// What handlers did, in order, while a user's transaction before it is being committed.
    finished: VecDeque<Finished>,
    committing: FuturesOrdered<BoxFuture<'static, Settled>>,
    /// Whether the last that is being committed is a user's transaction. It is not queued with the others, so they wait for it.
    transacting: bool,
    /// How many commits there have been, settled or not.
    commits: u64,
    settlement: watch::Sender<Settlement>,
    /// Messages that can never run.
    stuck: Vec<Job>,
    /// Messages to run again once everything that was built on a failed commit has failed, too.
    again: VecDeque<Job>,
    /// Messages whose next attempt is for a newer definition.
    outdated: VecDeque<Job>,
    /// Raised when a commit fails: what was handled under an earlier number saw a state that does not exist.
    generation: u32,
}

enum Entered {
    Ready(Job),
    Duplicate(Job, Committed),
    Failed(Job, Error),
}

/// A commit that has succeeded or failed, with what is owed then.
struct Settled {
    job: Job,
    outcome: Outcome,
    generation: u32,
    after: After,
    /// Whether a user's transaction was committed with it.
    transacted: bool,
    /// None for a volatile message that only waited for the commits before it.
    result: Option<Result<Committed, store::Error>>,
}

/// What is done once a commit has succeeded.
#[derive(Default)]
struct After {
    sends: Vec<Message>,
    then: Vec<Box<dyn FnOnce() + Send + Sync>>,
}

impl Turn {
    pub(super) fn new(me: Arc<Activation>, shard: Arc<Shard>) -> Self {
        Self {
            me,
            shard,
            entering: FuturesOrdered::new(),
            ready: VecDeque::new(),
            running: FuturesUnordered::new(),
            exclusive: false,
            queued: 0,
            finished: VecDeque::new(),
            committing: FuturesOrdered::new(),
            transacting: false,
            commits: 0,
            settlement: watch::Sender::default(),
            stuck: Vec::new(),
            again: VecDeque::new(),
            outdated: VecDeque::new(),
            generation: 0,
        }
    }

    /// With a handler that is at work already. It does not change the state.
    pub(super) fn begun(self, handling: BoxFuture<'static, Done>) -> Self {
        self.running.push(handling);
        self
    }

    pub(super) async fn run(mut self) {
        loop {
            if self.me.kind.replaced.is_cancelled() {
                if self.renew() {
                    return;
                }
            } else {
                self.take();
                self.start();
                // What has started makes room for more.
                while self.take() {
                    self.start();
                }
            }
            self.unstick().await;
            if self.is_idle() && self.me.mailbox().rest(Instant::now()) {
                return;
            }
            let (me, shard) = (Arc::clone(&self.me), Arc::clone(&self.shard));
            tokio::select! {
                biased;
                Some(settled) = self.committing.next() => self.settle(settled).await,
                Some(done) = self.running.next() => self.done(done).await,
                Some(entered) = self.entering.next() => self.entered(entered),
                () = me.wake.notified() => {}
                () = me.kind.replaced.cancelled(), if !me.kind.replaced.is_cancelled() => {}
                () = shard.closing.cancelled() => return self.close().await,
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.entering.is_empty()
            && self.ready.is_empty()
            && self.running.is_empty()
            && self.finished.is_empty()
            && self.committing.is_empty()
            && self.again.is_empty()
            && self.outdated.is_empty()
    }

    /// Takes messages from the mailbox, as many as its capacity allows. Whether there were any.
    fn take(&mut self) -> bool {
        let mut taken = false;
        // While a request waits for other entities, theirs may be anywhere in the mailbox.
        while self.entering.len() + self.ready.len() < self.me.kind.mailbox || self.me.waiting.any() {
            let inside = self.entering.len() + self.ready.len() + self.queued;
            let Some(mut job) = self.me.mailbox().take(inside) else { break };
            self.shard.taken(1);
            taken = true;
            let Some(method) = self.me.kind.definition().methods.get(&job.message.envelope.method) else {
                if matches!(job.origin, Origin::Stored { .. }) {
                    self.shard.await_method(job);
                    continue;
                }
                let error = Error::UnknownMethod {
                    entity_type: self.me.address.entity_type.clone(),
                    method: job.message.envelope.method.clone(),
                };
                self.entering.push_back(std::future::ready(Entered::Failed(job, error)).boxed());
                continue;
            };
            if let Some(waiter) = job.waiter.take_if(|waiter| waiter.is_content_with_acceptance()) {
                waiter.answer(Ok(Delivered::Accepted(job.id())));
            }
            match enter(&self.shard, method, job) {
                Ok(job) if self.entering.is_empty() => self.ready.push_back(job),
                Ok(job) => self.entering.push_back(std::future::ready(Entered::Ready(job)).boxed()),
                Err(entering) => self.entering.push_back(entering),
            }
        }
        taken
    }

    fn entered(&mut self, entered: Entered) {
        match entered {
            Entered::Ready(job) => {
                if matches!(job.origin, Origin::Stored { .. }) {
                    self.shard.accepted(job.id());
                }
                self.ready.push_back(job);
            }
            Entered::Duplicate(job, committed) => self.shard.duplicate(job, committed),
            Entered::Failed(job, error) => self.shard.refuse(job, error),
        }
    }

    /// Starts what may run now, in order.
    fn start(&mut self) {
        if !self.again.is_empty() {
            if !self.running.is_empty() || !self.committing.is_empty() || !self.finished.is_empty() {
                self.call_back();
                return;
            }
            // They came before everything that is ready.
            while let Some(job) = self.again.pop_back() {
                self.ready.push_front(job);
            }
        }
        while let Some(job) = self.ready.front() {
            // Checked when it was taken; a definition does not change under an instance.
            let Some(method) = self.me.kind.definition().methods.get(&job.message.envelope.method).cloned()
            else {
                return;
            };
            let alone = method.access == Access::Write;
            let blocked = self.exclusive || (alone && !self.running.is_empty());
            // What a stream shows of the state is seen before its end, so it has to be committed before it begins.
            let ahead = method.stream
                && method.access != Access::None
                && (!self.committing.is_empty() || !self.finished.is_empty());
            if blocked || ahead || !self.me.kind.concurrency.allows(self.running.len()) {
                break;
            }
            let Some(job) = self.ready.pop_front() else { break };
            self.launch(job, method);
        }
        self.call_back();
    }

    fn launch(&mut self, mut job: Job, method: Method) {
        self.exclusive = method.access == Access::Write;
        job.basis = (method.access != Access::None).then_some(self.generation);
        self.queued += usize::from(self.me.kind.waits_inside && job.persisted);
        let generation = self.generation;
        let earlier = Earlier::new(self.commits, generation, self.settlement.subscribe());
        tracing::trace!(entity = %self.me.address, request = %job.id(), generation, "running");
        let (me, shard) = (Arc::clone(&self.me), Arc::clone(&self.shard));
        self.running.push(run::run(me, shard, job, method, earlier).boxed());
    }

    /// A handler is done: what it did goes into a commit, or its caller is told.
    async fn done(&mut self, done: Done) {
        self.exclusive = false;
        self.queued -= usize::from(self.me.kind.waits_inside && done.job().persisted);
        match done {
            Done::Ended(job, ended) if job.persisted => {
                let (write, outcome, after, transaction) = self.finish(&job, ended);
                self.commit(job, outcome, Some(write), after, transaction).await;
            }
            // Also a rejection is computed on the state: it is answered once the commits before it have succeeded.
            Done::Ended(job, ended) if self.is_ahead(&job) => {
                self.commit(job, ended.outcome, None, After::default(), None).await;
            }
            Done::Ended(job, ended) => self.shard.end(job, ended.outcome),
            Done::GivenUp(job, error) => {
                tracing::warn!(entity = %self.me.address, request = %job.id(), error, "retry limit exhausted");
                if let Some(metrics) = &self.me.kind.metrics {
                    metrics.dead_letters.inc();
                }
                let outcome = Outcome::defect("RetriesExhausted", format!("retry limit exhausted: {error}"));
                let bury = Change::Bury { request: job.id(), outcome: outcome.clone(), error };
                let write = Write::one(self.shard.fence.clone(), bury);
                self.commit(job, outcome, Some(write), After::default(), None).await;
            }
            Done::Interrupted(job) if job.persisted => {
                let outcome =
                    Outcome::failure("Interrupted", format!("request {} was interrupted", job.id()));
                self.end(job, outcome).await;
            }
            Done::Interrupted(job) => {
                let id = job.id();
                self.shard.refuse(job, Error::Interrupted(id));
            }
            Done::Parked(job) => {
                let shard = self.shard.fence.shard.clone();
                // What is volatile has begun, and cannot go on elsewhere.
                let error = if job.persisted { Error::NotHere(shard) } else { Error::Lost(shard) };
                self.shard.refuse(job, error);
            }
            Done::Outdated(job) => self.outdated.push_back(job),
            Done::Duplicate(job, committed) => self.shard.duplicate(job, committed),
            Done::Broken(job, error) => self.broken(job, error, false).await,
        }
    }

    /// Whether the handler of a message read a state that is not committed, or was not when a commit failed.
    fn is_ahead(&self, job: &Job) -> bool {
        let is_pending = || self.commits > self.settlement.borrow().commits;
        job.basis.is_some_and(|basis| basis != self.generation || is_pending())
    }

    /// Ends a request without any effects, whatever the state is.
    async fn end(&mut self, mut job: Job, outcome: Outcome) {
        job.basis = None;
        let (write, outcome, after, _) = self.finish(&job, Ended::only(outcome));
        self.commit(job, outcome, Some(write), after, None).await;
    }

    /// The write that ends a request, with everything that its handler did.
    fn finish(&self, job: &Job, ended: Ended) -> (Write, Outcome, After, Option<Opened>) {
        let Ended { outcome, version, state, sends, effects } = ended;
        let Commits { sends: _, changes: also, then, transaction } = effects;
        let request = match job.origin {
            Origin::Stored { .. } => Request::Stored(job.id()),
            Origin::Fresh { .. } => Request::New(Box::new(Message::clone(&job.message))),
        };
        let mut changes = vec![Change::Finish(Finish { outcome: outcome.clone(), request })];
        if let Some(value) = state {
            changes.push(Change::State(StateChange {
                address: self.me.address.clone(),
                group: job.message.group.clone(),
                base: version - 1,
                value,
            }));
        }
        let sends: Vec<Message> = sends.into_iter().map(|(id, send)| self.message(id, send)).collect();
        changes.extend(sends.iter().cloned().map(Change::Send));
        changes.extend(also);
        (Write { fence: self.shard.fence.clone(), changes }, outcome, After { sends, then }, transaction)
    }

    fn message(&self, id: Snowflake, send: Outgoing) -> Message {
        Message {
            group: self.shard.registered_group(&send.address.entity_type).unwrap_or(send.group),
            envelope: Envelope {
                id,
                address: send.address,
                method: send.method,
                payload: send.payload,
                persisted: true,
                key: send.key,
                deliver_at: send.deliver_at,
                uninterruptible: Default::default(),
                trace: send.trace,
                headers: send.headers,
            },
            seq: self.shard.order.next(),
            resent: false,
        }
    }

    async fn settle(&mut self, settled: Settled) {
        let Settled { job, outcome, generation, after, transacted, result } = settled;
        if transacted {
            self.transacting = false;
        }
        if !matches!(result, None | Some(Ok(Committed::Applied))) {
            self.crash(generation).await;
        }
        self.settled();
        match result {
            Some(Ok(Committed::Applied)) => {
                // First, so that whoever has the reply finds it done.
                after.then.into_iter().for_each(|then| then());
                self.shard.end(job, outcome);
                self.shard.sent(after.sends);
            }
            Some(Ok(duplicate)) => self.shard.duplicate(job, duplicate),
            // What the handler did is what the database refuses, and would be again.
            Some(Err(error @ store::Error::Rejected { .. })) if transacted => {
                let outcome = Outcome::defect(error.reason(), explain(&error));
                self.end(job, outcome).await;
            }
            Some(Err(error)) => self.broken(job, error, transacted).await,
            None if generation == self.generation => self.shard.end(job, outcome),
            None => {
                let shard = self.shard.fence.shard.clone();
                self.shard.refuse(job, Error::Lost(shard));
            }
        }
        self.advance().await;
    }

    /// A commit failed: what is in memory is not what the database has.
    async fn crash(&mut self, generation: u32) {
        if generation == self.generation {
            self.generation += 1;
            self.me.crash().await;
        }
    }

    /// A message whose commit failed is run again, or its caller is told.
    async fn broken(&mut self, mut job: Job, error: store::Error, transacted: bool) {
        match error {
            store::Error::Fenced { .. } => {
                let shard = self.shard.fence.shard.clone();
                // Nothing of it was written, so whoever owns the shard now can run it.
                self.shard.refuse(job, Error::NotHere(shard));
                self.shard.fenced();
            }
            store::Error::Conflict { .. } if job.reruns < RERUNS => {
                job.reruns += 1;
                self.again.push_back(job);
            }
            // The connection of a user's transaction broke before anything was committed.
            store::Error::Unavailable { .. } if transacted && job.reruns < RERUNS => {
                job.reruns += 1;
                self.again.push_back(job);
            }
            // It is stored and will be run, so it keeps its place: what came later must not overtake it. Those who wait are told.
            error if error.may_pass() && matches!(job.origin, Origin::Stored { .. }) => {
                self.shard.tell(job.id(), error.into());
                self.again.push_back(job);
            }
            error => self.shard.refuse(job, Error::Store(error)),
        }
    }

    /// The shard goes elsewhere: nothing more is started, and what runs has until the deadline.
    async fn close(mut self) {
        let elsewhere = |shard: &Arc<Shard>, job: Job| {
            let id = shard.fence.shard.clone();
            shard.refuse(job, Error::NotHere(id));
        };
        let left = self.me.mailbox().close();
        self.shard.taken(left.len());
        for job in left {
            elsewhere(&self.shard, job);
        }
        let shard = Arc::clone(&self.shard);
        loop {
            let left = self.ready.drain(..).chain(self.again.drain(..)).chain(self.outdated.drain(..));
            for job in left {
                elsewhere(&shard, job);
            }
            if self.is_idle() {
                return;
            }
            tokio::select! {
                biased;
                Some(settled) = self.committing.next() => self.settle(settled).await,
                Some(done) = self.running.next() => self.done(done).await,
                Some(entered) = self.entering.next() => self.entered(entered),
                () = shard.aborting.cancelled() => break,
            }
        }
        // Handlers that are still at work are dropped where they stand. Commits that are under way end by themselves; waiting
        // for them keeps what their callers are told true.
        self.running.clear();
        self.entering.clear();
        while let Some(settled) = self.committing.next().await {
            self.settle(settled).await;
        }
        let finished = self.finished.drain(..).map(|finished| finished.job);
        for job in finished.chain(self.again.drain(..)) {
            elsewhere(&shard, job);
        }
    }
}

/// What comes before a message runs: nothing (then it comes back), a look whether it ran before, or storing it.
fn enter(shard: &Arc<Shard>, method: &Method, mut job: Job) -> Result<Job, BoxFuture<'static, Entered>> {
    let Origin::Fresh { doubtful } = job.origin else { return Ok(job) };
    if method.delivery == Delivery::Volatile {
        return Ok(job);
    }
    let shard = Arc::clone(shard);
    if method.effects == Effects::Outside || method.stream || shard.is_awaited_for_acceptance(job.id()) {
        // Storing finds duplicates by itself. The write is queued now, in the order of the messages.
        let write = Write::one(shard.fence.clone(), Change::Accept(Message::clone(&job.message)));
        return Err(async move {
            match shard.commit(write).await {
                Ok(Committed::Applied) => {
                    job.origin = Origin::Stored { attempt: 0 };
                    Entered::Ready(job)
                }
                Ok(duplicate) => Entered::Duplicate(job, duplicate),
                Err(store::Error::Fenced { shard: id }) => {
                    shard.fenced();
                    Entered::Failed(job, Error::NotHere(id))
                }
                Err(error) => Entered::Failed(job, Error::Store(error)),
            }
        }
        .boxed());
    }
    if doubtful || job.message.envelope.key.is_some() {
        return Err(async move {
            match shard.earlier(&job.message).await {
                Ok(None) => Entered::Ready(job),
                Ok(Some(duplicate)) => Entered::Duplicate(job, duplicate),
                Err(error) => Entered::Failed(job, Error::Store(error)),
            }
        }
        .boxed());
    }
    Ok(job)
}
