//! States of entities, read together.
//!
//! Many entities are often asked for the first time at once. While one statement reads, those that come gather for the next, so a
//! lone entity is never delayed and a crowd shares a round trip.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::postgres::PgPool;
use tokio::sync::oneshot;

use super::patience::Patience;
use super::reads;
use crate::message::EntityAddress;
use crate::store::{Error, State};

/// How many statements may be under way: one that has no answer does not keep the others waiting.
const READERS: usize = 2;

/// The most states in one statement.
const MOST: usize = 256;

pub(super) struct States {
    pool: PgPool,
    patience: Duration,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    wanted: VecDeque<Wanted>,
    readers: usize,
    /// Whether the last statement read several.
    crowded: bool,
}

struct Wanted {
    address: EntityAddress,
    reply: oneshot::Sender<Answer>,
}

type Answer = Result<Option<State>, Error>;

impl States {
    pub(super) fn new(pool: PgPool, patience: Duration) -> Arc<Self> {
        Arc::new(Self { pool, patience, queue: Mutex::default() })
    }

    pub(super) async fn get(self: &Arc<Self>, address: &EntityAddress) -> Answer {
        let (reply, state) = oneshot::channel();
        if self.queue().put(Wanted { address: address.clone(), reply }) {
            tokio::spawn(Arc::clone(self).read());
        }
        // Everybody is answered, unless the runtime is being torn down.
        state.await.unwrap_or(Err(Error::Closed))
    }

    /// Reads until there is nothing to read.
    async fn read(self: Arc<Self>) {
        loop {
            // Those whom the last commit woke get to say what they want next, as in the lanes.
            let crowded = self.queue().crowded;
            if crowded {
                tokio::task::yield_now().await;
            }
            let wanted = self.queue().take();
            if wanted.is_empty() {
                return;
            }
            let (addresses, replies): (Vec<_>, Vec<_>) =
                wanted.into_iter().map(|wanted| (wanted.address, wanted.reply)).unzip();
            let patience = Patience::new(self.patience);
            match patience.through(|| reads::states(&self.pool, &addresses)).await {
                Ok(states) => answer(replies, states.into_iter().map(Ok)),
                Err(error) => answer(replies, std::iter::repeat_with(|| Err(error.clone()))),
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    /// Whether somebody has to begin to read.
    fn put(&mut self, wanted: Wanted) -> bool {
        self.wanted.push_back(wanted);
        let begin = self.readers < READERS;
        self.readers += usize::from(begin);
        begin
    }

    /// What is read next. A reader that gets nothing has ended.
    fn take(&mut self) -> Vec<Wanted> {
        let taken: Vec<_> = self.wanted.drain(..self.wanted.len().min(MOST)).collect();
        if taken.is_empty() {
            self.readers -= 1;
        } else {
            self.crowded = taken.len() > 1;
        }
        taken
    }
}

fn answer(replies: Vec<oneshot::Sender<Answer>>, answers: impl Iterator<Item = Answer>) {
    for (reply, answer) in replies.into_iter().zip(answers) {
        // Whoever no longer waits does not need it.
        let _ = reply.send(answer);
    }
}
