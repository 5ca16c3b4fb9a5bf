//! One lane's connection: commits batches, and finds out what became of those that it lost sight of.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnection;
use tokio::time::Instant;

use super::batch::{Applied, Statements};
use super::columns::Columns;
use super::connect::{Meaning, Target};
use super::diagnosis::{self, Finding};
use super::groups::Groups;
use crate::store::lane::Commit;
use crate::store::{Cause, Change, Committed, Error, Write};

type Answer = Result<Committed, Error>;

/// A writer and its connection.
pub(super) struct Writer {
    target: Target,
    groups: Arc<Groups>,
    lane: String,
    connection: Option<PgConnection>,
    statements: Statements,
    patience: Duration,
}

/// Why a batch as a whole was not done.
enum Trouble {
    /// A row did not find what it needed, or the data cannot be stored: each write must be looked at by itself.
    Someone(sqlx::Error),
    /// The database was in trouble for longer than anybody wants to wait.
    Everyone(Error),
    /// The batch could not even be written down.
    Malformed(Error),
}

/// How often the database was asked in vain.
struct Trials {
    deadline: Instant,
    pause: Duration,
    /// Whether a lost attempt may have been committed.
    uncertain: bool,
}

impl Trials {
    const FIRST_PAUSE: Duration = Duration::from_millis(20);
    const LONGEST_PAUSE: Duration = Duration::from_secs(1);

    fn new(patience: Duration) -> Self {
        Self { deadline: Instant::now() + patience, pause: Self::FIRST_PAUSE, uncertain: false }
    }

    /// Waits before the next attempt, or gives up.
    async fn again(&mut self, error: sqlx::Error) -> Result<(), Error> {
        if Instant::now() + self.pause > self.deadline {
            let source: Cause = Arc::new(error);
            return Err(if self.uncertain {
                Error::Unknown { source }
            } else {
                Error::Unavailable { source }
            });
        }
        tracing::warn!(error = &error as &dyn std::error::Error, "the database is in trouble, trying again");
        tokio::time::sleep(self.pause.mul_f64(0.5 + rand::random::<f64>() / 2.0)).await;
        self.pause = (self.pause * 2).min(Self::LONGEST_PAUSE);
        Ok(())
    }
}

impl Commit for Writer {
    async fn commit(&mut self, batch: &[Write]) -> Vec<Answer> {
        let mut trials = Trials::new(self.patience);
        match self.attempt(batch, &mut trials).await {
            Ok(answers) => answers,
            Err(Trouble::Everyone(error)) => vec![Err(error); batch.len()],
            Err(Trouble::Someone(_) | Trouble::Malformed(_)) if batch.len() > 1 => {
                let mut answers = Vec::with_capacity(batch.len());
                for write in batch {
                    answers.push(self.alone(write, trials.uncertain).await);
                }
                answers
            }
            Err(trouble) => match batch {
                [write] => vec![self.judge(write, trouble, trials.uncertain).await],
                _ => Vec::new(),
            },
        }
    }
}

impl Writer {
    pub(super) fn new(target: Target, groups: Arc<Groups>, lane: usize, patience: Duration) -> Self {
        Self {
            target,
            groups,
            lane: format!("lane {lane}"),
            connection: None,
            statements: Statements::default(),
            patience,
        }
    }

    /// Commits one write by itself, after it could not be done together with others.
    async fn alone(&mut self, write: &Write, uncertain: bool) -> Answer {
        let mut trials = Trials::new(self.patience);
        trials.uncertain = uncertain;
        match self.attempt(std::slice::from_ref(write), &mut trials).await {
            Ok(mut answers) => answers.pop().unwrap_or(Err(Error::Closed)),
            Err(trouble) => self.judge(write, trouble, trials.uncertain).await,
        }
    }

    /// Tries to commit a batch as a whole until it is clear what became of it.
    async fn attempt(&mut self, batch: &[Write], trials: &mut Trials) -> Result<Vec<Answer>, Trouble> {
        loop {
            let error = match self.execute(batch).await? {
                Ok(applied) => match self.answers(batch, applied, trials.uncertain).await {
                    Ok(answers) => return Ok(answers),
                    // The batch is committed; only what to say about duplicates is missing. Asking again says it.
                    Err(error) => {
                        trials.uncertain = true;
                        error
                    }
                },
                Err(error) => error,
            };
            match Meaning::of(&error) {
                Meaning::Mismatch | Meaning::Refused => return Err(Trouble::Someone(error)),
                Meaning::Later => {}
                Meaning::Unknown => trials.uncertain = true,
            }
            self.connection = None;
            trials.again(error).await.map_err(Trouble::Everyone)?;
        }
    }

    async fn execute(&mut self, batch: &[Write]) -> Result<Result<Applied, sqlx::Error>, Trouble> {
        let columns = Columns::of(batch, &self.groups).map_err(Trouble::Malformed)?;
        let Self { target, connection, statements, lane, patience, .. } = self;
        let work = async {
            let connection = match connection {
                Some(connection) => connection,
                None => connection.insert(target.succeed(lane).await?),
            };
            columns.execute(statements, &target.identity, connection).await
        };
        // A server that says nothing at all, as behind a broken network, is a lost connection.
        Ok(tokio::time::timeout(*patience, work).await.unwrap_or_else(|_| {
            Err(sqlx::Error::Io(std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                "the database does not answer",
            )))
        }))
    }

    /// What to tell each caller of a committed batch.
    async fn answers(
        &mut self,
        batch: &[Write],
        applied: Applied,
        uncertain: bool,
    ) -> Result<Vec<Answer>, sqlx::Error> {
        let stored: HashSet<i64> = applied.stored.into_iter().collect();
        let mut answers = Vec::with_capacity(batch.len());
        for (write, number) in batch.iter().zip(applied.fences) {
            // PostgreSQL counts from 1.
            let place = usize::try_from(number - 1).unwrap_or(usize::MAX);
            let answer = if !applied.standing.get(place).is_some_and(|stands| *stands) {
                self.fenced(write, uncertain).await?
            } else if let [Change::Accept(message)] = write.changes.as_slice()
                && !stored.contains(&message.envelope.id.get())
            {
                let found = diagnosis::of(self.ready().await?, write, uncertain).await?;
                // An earlier attempt of ours stored it, and then the connection broke.
                found.map_or(Ok(Committed::Applied), Finding::answer)
            } else {
                Ok(Committed::Applied)
            };
            answers.push(answer);
        }
        Ok(answers)
    }

    /// A write whose fence has fallen was not done, unless an attempt that we lost sight of did it before.
    async fn fenced(&mut self, write: &Write, uncertain: bool) -> Result<Answer, sqlx::Error> {
        let fenced = Err(Error::Fenced { shard: write.fence.shard.clone() });
        if !uncertain {
            return Ok(fenced);
        }
        let traces = diagnosis::traces(self.ready().await?, write).await?;
        Ok(match traces {
            Some(true) => Ok(Committed::Applied),
            Some(false) => fenced,
            None => Err(Error::Unknown {
                source: Arc::new(std::io::Error::other("the shard was lost while the database was away")),
            }),
        })
    }

    /// Why a write by itself was not done.
    async fn judge(&mut self, write: &Write, trouble: Trouble, uncertain: bool) -> Answer {
        let error = match trouble {
            Trouble::Everyone(error) | Trouble::Malformed(error) => return Err(error),
            Trouble::Someone(error) => error,
        };
        if Meaning::of(&error) == Meaning::Refused {
            return Err(Error::Rejected { source: Arc::new(error) });
        }
        let mut trials = Trials::new(self.patience);
        trials.uncertain = uncertain;
        loop {
            let found = match self.ready().await {
                Ok(connection) => diagnosis::of(connection, write, uncertain).await,
                Err(error) => Err(error),
            };
            match found {
                Ok(Some(finding)) => return finding.answer(),
                // Whatever was in the way is gone: somebody else's message or dead letter came or went meanwhile.
                Ok(None) => return Err(Error::Unavailable { source: Arc::new(error) }),
                Err(error) => {
                    self.connection = None;
                    trials.again(error).await?;
                }
            }
        }
    }

    async fn ready(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        match &mut self.connection {
            Some(connection) => Ok(connection),
            empty => Ok(empty.insert(self.target.succeed(&self.lane).await?)),
        }
    }
}
