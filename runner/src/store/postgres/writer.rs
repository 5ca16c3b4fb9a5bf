//! One lane's connection: commits batches, and finds out what became of those that it lost sight of.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnection;

use super::barrier;
use super::batch::{Applied, Statements};
use super::columns::Columns;
use super::connect::{Meaning, Target, Transaction};
use super::diagnosis::{self, Finding};
use super::groups::Groups;
use super::lineage::Replaced;
use super::lone::{self, Lone};
use super::notices;
use super::patience::{Patience, silence};
use crate::store::lane::Commit;
use crate::store::{Cause, Change, Committed, Error, Write};

type Answer = Result<Committed, Error>;

/// A writer and its connection.
pub(super) struct Writer {
    target: Target,
    groups: Arc<Groups>,
    lane: String,
    connection: Option<PgConnection>,
    /// All transactions of this lane before this one are accounted for.
    next: Transaction,
    /// The first transaction that can still come on a server that has lost nothing: a lower one is flushed to its log, with rows.
    flushed: Transaction,
    statements: Statements,
    patience: Duration,
}

/// Why a batch as a whole was not done.
enum Trouble {
    /// A row did not find what it needed, or the data cannot be stored: each write must be looked at by itself.
    Someone(sqlx::Error),
    /// The database was in trouble for longer than anybody wants to wait.
    Everyone(Cause),
    /// The batch could not even be written down.
    Malformed(Error),
}

/// What has been tried for a part of a batch.
struct Trials {
    patience: Patience,
    /// An attempt whose outcome is not known was this transaction or a later one.
    lost: Option<Transaction>,
}

impl Trials {
    /// Waits before the next attempt, or gives up.
    async fn again(&mut self, error: sqlx::Error) -> Result<(), Cause> {
        let hopeless = Replaced::of(&error).is_some();
        if !hopeless && self.patience.again(&error).await { Ok(()) } else { Err(Arc::new(error)) }
    }
}

/// What callers are told whose writes were given up.
fn gave_up(source: Cause, lost: Option<Transaction>) -> Error {
    let replaced = source.downcast_ref().and_then(Replaced::of).cloned();
    match (lost, replaced) {
        (Some(_), _) => Error::Unknown { source },
        (None, Some(replaced)) => replaced.into(),
        (None, None) => Error::Unavailable { source },
    }
}

impl Commit for Writer {
    /// Where someone's write spoils the batch, it is halved until that write is by itself.
    async fn commit(&mut self, batch: &[Write]) -> Vec<Answer> {
        let answers = match self.target.lineage.valid() {
            Ok(()) => self.answer(batch).await,
            Err(replaced) => batch.iter().map(|_| Err(replaced.clone().into())).collect(),
        };
        answers.into_iter().map(|answer| self.target.lineage.vouch(answer)).collect()
    }
}

impl Writer {
    async fn answer(&mut self, batch: &[Write]) -> Vec<Answer> {
        let mut patience = Patience::new(self.patience);
        let mut answers = Vec::with_capacity(batch.len());
        // The next part is the last.
        let mut parts = vec![(batch, None)];
        while let Some((part, lost)) = parts.pop() {
            let mut trials = Trials { patience, lost };
            match self.decide(part, &mut trials).await {
                Decision::Answered(more) => answers.extend(more),
                Decision::Again => parts.push((part, trials.lost)),
                Decision::Halve => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([(second, trials.lost), (first, trials.lost)]);
                }
                // Nobody else of the batch waits for as long again.
                Decision::GiveUp(cause) => {
                    parts.push((part, trials.lost));
                    for (part, lost) in parts.drain(..).rev() {
                        answers.extend(part.iter().map(|_| Err(gave_up(Arc::clone(&cause), lost))));
                    }
                }
            }
            patience = trials.patience;
        }
        answers
    }
}

/// A batch, ready to be written.
enum Work<'a> {
    Alone(Lone<'a>),
    Together(Box<Columns<'a>>),
}

/// How to go on with a part of a batch.
enum Decision {
    Answered(Vec<Answer>),
    Again,
    Halve,
    GiveUp(Cause),
}

impl Writer {
    pub(super) fn new(target: Target, groups: Arc<Groups>, lane: usize, patience: Duration) -> Self {
        Self {
            target,
            groups,
            lane: format!("lane {lane}"),
            connection: None,
            next: Transaction::default(),
            flushed: Transaction::default(),
            statements: Statements::default(),
            patience,
        }
    }

    async fn decide(&mut self, part: &[Write], trials: &mut Trials) -> Decision {
        match (self.attempt(part, trials).await, part) {
            (Ok(answers), _) => Decision::Answered(answers),
            (Err(Trouble::Everyone(cause)), _) => Decision::GiveUp(cause),
            (Err(Trouble::Malformed(error)), [_]) => Decision::Answered(vec![Err(error)]),
            (Err(Trouble::Someone(error)), [write]) => match self.judge(write, error, trials).await {
                Ok(Some(answer)) => Decision::Answered(vec![answer]),
                Ok(None) => Decision::Again,
                Err(cause) => Decision::GiveUp(cause),
            },
            (Err(_), _) => Decision::Halve,
        }
    }

    /// Tries to commit a batch as a whole until it is clear what became of it.
    async fn attempt(&mut self, batch: &[Write], trials: &mut Trials) -> Result<Vec<Answer>, Trouble> {
        loop {
            // One alone needs no columns. What a lost attempt did has to be looked for, and that is the other way's business.
            let alone = lone::only(batch).filter(|_| trials.lost.is_none());
            let work = match alone {
                Some((fence, message)) => Lone::new(fence, message, &self.groups).map(Work::Alone),
                None => Columns::of(batch, &self.groups, trials.lost.is_some())
                    .map(|columns| Work::Together(Box::new(columns))),
            };
            let work = work.map_err(Trouble::Malformed)?;
            let limit = trials.patience.attempt;
            let error = match tokio::time::timeout(limit, self.ready())
                .await
                .unwrap_or_else(|_| Err(silence()))
            {
                // Nothing was sent.
                Err(error) => error,
                Ok(_) => {
                    let before = self.next;
                    let work = self.execute(work, batch, trials.lost);
                    match tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(silence())) {
                        Ok(answers) => return Ok(answers),
                        Err(error) => {
                            match Meaning::of(&error) {
                                Meaning::Mismatch | Meaning::Refused => return Err(Trouble::Someone(error)),
                                Meaning::Later if self.next == before => {}
                                // Or the batch is committed, and only what to say about duplicates is missing, or the word of the
                                // standbys.
                                Meaning::Later | Meaning::Unknown => {
                                    trials.lost.get_or_insert(before);
                                }
                            }
                            error
                        }
                    }
                }
            };
            self.connection = None;
            trials.again(error).await.map_err(Trouble::Everyone)?;
        }
    }

    async fn execute(
        &mut self,
        work: Work<'_>,
        batch: &[Write],
        lost: Option<Transaction>,
    ) -> Result<Vec<Answer>, sqlx::Error> {
        let Some(connection) = &mut self.connection else { return Err(sqlx::Error::WorkerCrashed) };
        let columns = match work {
            Work::Together(columns) => columns,
            Work::Alone(lone) => {
                let (inserted, warning) =
                    notices::watch(lone.insert(&self.target.identity, connection)).await;
                if let Some(transaction) = inserted? {
                    self.next = transaction.next();
                    self.flushed = self.next;
                    barrier::confirm(self.target.lineage.durability, warning, connection).await?;
                    return Ok(vec![Ok(Committed::Applied)]);
                }
                // Fenced, or there already: the other way says which.
                let columns = Columns::of(batch, &self.groups, true);
                Box::new(columns.map_err(|error| sqlx::Error::Encode(Box::new(error)))?)
            }
        };
        let work = columns.execute(&mut self.statements, &self.target.identity, connection);
        let (applied, warning) = notices::watch(work).await;
        let applied = applied?;
        self.next = applied.transaction.next();
        // PostgreSQL does not flush the commit of a transaction that wrote nothing, such as that of fenced writes, and gives its number
        // out again after a crash.
        if !applied.stored.is_empty() {
            self.flushed = self.next;
        }
        barrier::confirm(self.target.lineage.durability, warning, connection).await?;
        self.answers(batch, applied, lost).await
    }

    /// What to tell each caller of a committed batch.
    async fn answers(
        &mut self,
        batch: &[Write],
        applied: Applied,
        lost: Option<Transaction>,
    ) -> Result<Vec<Answer>, sqlx::Error> {
        let stored: HashSet<i64> = applied.stored.into_iter().collect();
        let mut answers = Vec::with_capacity(batch.len());
        for (write, number) in batch.iter().zip(applied.fences) {
            // PostgreSQL counts from 1.
            let place = usize::try_from(number - 1).unwrap_or(usize::MAX);
            let answer = if !applied.standing.get(place).is_some_and(|stands| *stands) {
                self.fenced(write, lost).await?
            } else if let [Change::Accept(message)] = write.changes.as_slice()
                && !stored.contains(&message.envelope.id.get())
            {
                let found = diagnosis::of(self.ready().await?, write, lost).await?;
                found.map_or(Ok(Committed::Applied), Finding::answer)
            } else {
                Ok(Committed::Applied)
            };
            answers.push(answer);
        }
        Ok(answers)
    }

    /// A write whose fence has fallen was not done, unless an attempt that we lost sight of did it before.
    async fn fenced(&mut self, write: &Write, lost: Option<Transaction>) -> Result<Answer, sqlx::Error> {
        let fenced = Err(Error::Fenced { shard: write.fence.shard.clone() });
        let Some(lost) = lost else { return Ok(fenced) };
        Ok(match diagnosis::traces(self.ready().await?, write, lost).await? {
            Some(true) => Ok(Committed::Applied),
            Some(false) => fenced,
            None => Err(Error::Unknown {
                source: Arc::new(std::io::Error::other("the shard was lost while the database was away")),
            }),
        })
    }

    /// Why a write by itself was not done. None if whatever was in the way is gone: somebody else's message came or went.
    async fn judge(
        &mut self,
        write: &Write,
        error: sqlx::Error,
        trials: &mut Trials,
    ) -> Result<Option<Answer>, Cause> {
        let refused = Meaning::of(&error) == Meaning::Refused;
        let rejected = Err(Error::Rejected { source: Arc::new(error) });
        if refused && trials.lost.is_none() {
            return Ok(Some(rejected));
        }
        loop {
            let lost = trials.lost;
            let look = async { diagnosis::of(self.ready().await?, write, lost).await };
            let found = tokio::time::timeout(trials.patience.attempt, look).await;
            let trouble = match found.unwrap_or_else(|_| Err(silence())) {
                Ok(Some(finding)) => return Ok(Some(finding.answer())),
                Ok(None) if refused => return Ok(Some(rejected)),
                Ok(None) => {
                    let gone =
                        sqlx::Error::Io(std::io::Error::other("what was in the way of a write is gone"));
                    return trials.again(gone).await.map(|()| None);
                }
                Err(error) => error,
            };
            self.connection = None;
            trials.again(trouble).await?;
        }
    }

    /// The lane's connection. When there is a new one, all that an earlier one had in flight is decided, and what of it was committed is
    /// on the synchronous standbys.
    async fn ready(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        match &mut self.connection {
            Some(connection) => Ok(connection),
            empty => {
                let (mut connection, next) = self.target.succeed(&self.lane).await?;
                // Numbers that are given out again would let another's rows pass for those of a lost attempt.
                self.target.lineage.follow(self.flushed, next)?;
                barrier::pass(self.target.lineage.durability, &mut connection).await?;
                // The barrier was a later one, and is flushed.
                (self.next, self.flushed) = (next, next);
                Ok(empty.insert(connection))
            }
        }
    }
}
