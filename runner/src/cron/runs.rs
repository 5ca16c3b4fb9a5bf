//! Which runs of a cron have not ended, and what that means for the next tick: pure.

use std::collections::BTreeMap;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::message::EntityAddress;

/// How many runs are followed at once. Beyond that the oldest are taken for ended.
const FOLLOWED: usize = 1000;

/// What happens if the run before has not ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Concurrency {
    /// Both run.
    #[default]
    Allow,
    /// The new one is left out.
    Forbid,
    /// The earlier one is stopped: a workflow is cancelled, a call interrupted.
    Replace,
    /// The new one begins when the earlier one has ended. At most one waits; a later one takes its place.
    BufferOne,
}

/// What a run does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// Asks an entity. The run ends with its reply.
    Call {
        /// Who is asked.
        address: EntityAddress,
        /// What is asked.
        method: String,
        /// The input, encoded.
        input: Bytes,
    },
    /// Starts a workflow. The run ends with the execution.
    Workflow {
        /// Its name.
        workflow: String,
        /// The input, encoded.
        input: Bytes,
    },
}

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) number: u64,
    pub(super) scheduled: DateTime<Utc>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ended {
    pub(super) number: u64,
    pub(super) successful: bool,
}

/// What is stored of the runs of a cron.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Runs {
    /// Those that have not ended.
    active: BTreeMap<u64, DateTime<Utc>>,
    /// The tick that waits for the end of the run before it.
    #[serde(default)]
    buffered: Option<DateTime<Utc>>,
    count: u64,
    #[serde(default)]
    successful: Option<DateTime<Utc>>,
}

/// What is to be done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Moves {
    pub(super) begin: Vec<Run>,
    pub(super) stop: Vec<Run>,
    /// Those that others wait for: they may have ended without a word.
    pub(super) check: Vec<Run>,
    pub(super) skipped: u64,
}

impl Runs {
    pub(super) fn active(&self) -> usize {
        self.active.len()
    }

    pub(super) fn last_successful(&self) -> Option<DateTime<Utc>> {
        self.successful
    }

    /// Ticks have come, in order.
    pub(super) fn tick(&mut self, ticks: &[DateTime<Utc>], concurrency: Concurrency) -> Moves {
        let mut moves = Moves::default();
        for scheduled in ticks {
            let busy = !self.active.is_empty();
            match concurrency {
                Concurrency::Forbid if busy => moves.skipped += 1,
                Concurrency::BufferOne if busy => {
                    moves.skipped += u64::from(self.buffered.replace(*scheduled).is_some());
                }
                Concurrency::Replace if busy => {
                    let earlier = std::mem::take(&mut self.active);
                    for (number, scheduled) in earlier {
                        // One that has not even begun is simply left out.
                        let begun = moves.begin.iter().position(|run| run.number == number);
                        match begun {
                            Some(place) => {
                                moves.begin.remove(place);
                                moves.skipped += 1;
                            }
                            None => moves.stop.push(Run { number, scheduled }),
                        }
                    }
                    self.begin(*scheduled, &mut moves);
                }
                _ => self.begin(*scheduled, &mut moves),
            }
        }
        if matches!(concurrency, Concurrency::Forbid | Concurrency::BufferOne) {
            // The oldest that this tick did not begin itself; the others have their turn when it has ended.
            let oldest = self.active.first_key_value().map(|(&number, &scheduled)| Run { number, scheduled });
            moves.check.extend(oldest.filter(|oldest| !moves.begin.contains(oldest)));
        }
        moves
    }

    /// Somebody wants a run now, whatever else runs.
    pub(super) fn trigger(&mut self, now: DateTime<Utc>) -> Moves {
        let mut moves = Moves::default();
        self.begin(now, &mut moves);
        moves
    }

    /// A run has ended. One that nobody knows was stopped.
    pub(super) fn ended(&mut self, ended: Ended) -> Moves {
        let mut moves = Moves::default();
        let Some(scheduled) = self.active.remove(&ended.number) else { return moves };
        if ended.successful {
            self.successful = self.successful.max(Some(scheduled));
        }
        if self.active.is_empty()
            && let Some(scheduled) = self.buffered.take()
        {
            self.begin(scheduled, &mut moves);
        }
        moves
    }

    fn begin(&mut self, scheduled: DateTime<Utc>, moves: &mut Moves) {
        self.count += 1;
        self.active.insert(self.count, scheduled);
        if self.active.len() > FOLLOWED {
            self.active.pop_first();
        }
        moves.begin.push(Run { number: self.count, scheduled });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: u32) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(&format!("2026-01-01T00:{minute:02}:00Z")).unwrap().to_utc()
    }

    fn numbers(runs: &[Run]) -> Vec<u64> {
        runs.iter().map(|run| run.number).collect()
    }

    fn end(number: u64, successful: bool) -> Ended {
        Ended { number, successful }
    }

    #[test]
    fn each_policy_does_what_it_says_while_a_run_goes_on() {
        let second = |concurrency| {
            let mut runs = Runs::default();
            assert_eq!(numbers(&runs.tick(&[at(0)], concurrency).begin), [1]);
            let moves = runs.tick(&[at(1)], concurrency);
            let then = runs.ended(end(1, true));
            (numbers(&moves.begin), numbers(&moves.stop), moves.skipped, numbers(&then.begin))
        };
        assert_eq!(second(Concurrency::Allow), (vec![2], vec![], 0, vec![]));
        assert_eq!(second(Concurrency::Forbid), (vec![], vec![], 1, vec![]));
        assert_eq!(second(Concurrency::Replace), (vec![2], vec![1], 0, vec![]));
        assert_eq!(second(Concurrency::BufferOne), (vec![], vec![], 0, vec![2]));
    }

    #[test]
    fn a_run_that_others_wait_for_is_looked_after() {
        let checked = |concurrency| {
            let mut runs = Runs::default();
            assert!(runs.tick(&[at(0)], concurrency).check.is_empty(), "it has just begun");
            numbers(&runs.tick(&[at(1)], concurrency).check)
        };
        assert_eq!(checked(Concurrency::Forbid), [1]);
        assert_eq!(checked(Concurrency::BufferOne), [1]);
        assert!(checked(Concurrency::Allow).is_empty() && checked(Concurrency::Replace).is_empty());
    }

    #[test]
    fn several_ticks_at_once_are_one_after_the_other() {
        let at_once = |concurrency| {
            let mut runs = Runs::default();
            let moves = runs.tick(&[at(0), at(1), at(2)], concurrency);
            (numbers(&moves.begin), numbers(&moves.stop), moves.skipped, runs.active())
        };
        assert_eq!(at_once(Concurrency::Allow), (vec![1, 2, 3], vec![], 0, 3));
        assert_eq!(at_once(Concurrency::Forbid), (vec![1], vec![], 2, 1));
        assert_eq!(at_once(Concurrency::Replace), (vec![3], vec![], 2, 1));
        assert_eq!(at_once(Concurrency::BufferOne), (vec![1], vec![], 1, 1));
    }

    #[test]
    fn only_success_counts_as_such_and_an_end_counts_once() {
        let mut runs = Runs::default();
        runs.tick(&[at(0), at(1)], Concurrency::Allow);
        runs.ended(end(1, false));
        assert_eq!((runs.active(), runs.last_successful()), (1, None));
        runs.ended(end(2, true));
        assert_eq!(runs.ended(end(2, true)), Moves::default());
        assert_eq!((runs.active(), runs.last_successful()), (0, Some(at(1))));
    }
}
