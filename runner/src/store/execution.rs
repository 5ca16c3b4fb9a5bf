//! Executions of workflows as they are stored: one row each, and a journal for every run.

use std::time::SystemTime;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Error;
use crate::message::{EntityAddress, EntityType, Snowflake};
use crate::shard::GroupName;

/// An execution, which is addressed like an entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    /// Which one: the workflow's name, and the execution's id.
    pub address: EntityAddress,
    /// The shard group that runs it.
    pub group: GroupName,
    /// Its present run, which the journal is kept by.
    pub run: Snowflake,
    /// How far it is.
    pub phase: Phase,
    /// Whether it has to be resumed when its shard is opened: not if it only waits for a timer, a signal or a child.
    pub active: bool,
    /// When it began.
    pub started: SystemTime,
    /// What it was begun with.
    pub input: Bytes,
    /// What the engine wants to know of it at a glance. The store does not look into it.
    pub summary: Bytes,
}

/// How far an execution is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// It makes steps, or waits for a timer, a signal or a child.
    Running,
    /// It rests because somebody said so.
    Suspended,
    /// It cannot go on without help.
    Blocked,
    /// It cleans up because it was cancelled.
    Cancelling,
    /// It succeeded.
    Completed,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It took too long.
    TimedOut,
}

impl Phase {
    /// The word that users and metrics know it by.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Suspended => "Suspended",
            Self::Blocked => "Blocked",
            Self::Cancelling => "Cancelling",
            Self::Completed => "Completed",
            Self::Failed => "Failed",
            Self::Cancelled => "Cancelled",
            Self::TimedOut => "TimedOut",
        }
    }

    /// All of them. The place of each is the number that it is stored as, so new ones go to the end.
    pub const ALL: [Self; 8] = [
        Self::Running,
        Self::Suspended,
        Self::Blocked,
        Self::Cancelling,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::TimedOut,
    ];

    /// Whether the execution has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::TimedOut)
    }

    /// As rows have it.
    pub(super) const fn number(self) -> i16 {
        match self {
            Self::Running => 0,
            Self::Suspended => 1,
            Self::Blocked => 2,
            Self::Cancelling => 3,
            Self::Completed => 4,
            Self::Failed => 5,
            Self::Cancelled => 6,
            Self::TimedOut => 7,
        }
    }

    /// The phase of a row.
    pub(super) fn stored(number: i16) -> Result<Self, Error> {
        let place = usize::try_from(number).ok();
        let phase = place.and_then(|place| Self::ALL.get(place)).copied();
        phase.ok_or_else(|| Error::corrupt("phase", UnknownPhase(number)))
    }
}

/// A phase of a later version.
#[derive(Debug, thiserror::Error)]
#[error("there is no phase {0}")]
struct UnknownPhase(i16);

/// What an execution has become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionChange {
    /// Which execution.
    pub address: EntityAddress,
    /// The run that it must be in.
    pub run: Snowflake,
    /// How far it is now.
    pub phase: Phase,
    /// Whether it has to be resumed when its shard is opened.
    pub active: bool,
    /// When it ended: there if the phase is final, and only then. Its retention is counted from here.
    pub ended: Option<SystemTime>,
    /// The new summary.
    pub summary: Bytes,
}

/// An execution with what only its row knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredExecution {
    /// The execution.
    pub execution: Execution,
    /// When it ended, if it has.
    pub ended: Option<SystemTime>,
}

impl StoredExecution {
    /// Where a listing goes on after this one.
    pub fn cursor(&self) -> Cursor {
        Cursor { started: self.execution.started, address: self.execution.address.clone() }
    }
}

/// Which executions to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// Of which group.
    pub group: GroupName,
    /// Only of this workflow.
    pub types: Option<EntityType>,
    /// Only in one of these phases; in any if there are none.
    pub phases: Vec<Phase>,
    /// Only those that began at this time or later.
    pub since: Option<SystemTime>,
    /// Only those that began before this time.
    pub until: Option<SystemTime>,
}

/// A place in a listing, which is ordered by the time at which executions began and then by address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// When the last one that was seen began.
    pub started: SystemTime,
    /// Which one it was.
    pub address: EntityAddress,
}

/// Somebody who still shows an execution, which is not forgotten for so long.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hold {
    /// Which execution.
    pub address: EntityAddress,
    /// Who holds it, in words of its own. Several may hold one execution.
    pub holder: String,
    /// The shard group of the execution. Listings are ordered by address and holder.
    pub group: GroupName,
}

/// How many executions of a group are in a phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// Of which group.
    pub group: GroupName,
    /// In which phase.
    pub phase: Phase,
    /// How many.
    pub count: u64,
}

/// What an execution cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Impossible {
    #[error("execution {0} cannot begin in a final phase: begin it as running and end it with a change")]
    BegunAtItsEnd(EntityAddress),
    #[error("execution {0} must have the time at which it ended if its phase is final, and only then")]
    HalfEnded(EntityAddress),
    #[error("the journal of run {run} has no place {place}: places are counted from 0")]
    NoPlace { run: Snowflake, place: i64 },
}

impl Execution {
    pub(super) fn check(&self) -> Result<(), Impossible> {
        if self.phase.is_final() { Err(Impossible::BegunAtItsEnd(self.address.clone())) } else { Ok(()) }
    }
}

impl ExecutionChange {
    pub(super) fn check(&self) -> Result<(), Impossible> {
        let whole = self.phase.is_final() == self.ended.is_some();
        if whole { Ok(()) } else { Err(Impossible::HalfEnded(self.address.clone())) }
    }
}

/// The place after a journal's new entries, if all of them have one.
pub(super) fn end_of(run: Snowflake, from: i64, entries: &[Bytes]) -> Result<i64, Impossible> {
    let end = i64::try_from(entries.len()).ok().and_then(|count| from.checked_add(count));
    end.filter(|_| from >= 0).ok_or(Impossible::NoPlace { run, place: from })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_keep_their_numbers() {
        for (number, phase) in (0..).zip(Phase::ALL) {
            assert_eq!(phase.number(), number);
            assert_eq!(Phase::stored(number).unwrap(), phase);
        }
        for number in [-1, 8, i16::MAX] {
            assert_eq!(Phase::stored(number).unwrap_err().reason(), "Corrupt");
        }
    }

    #[test]
    fn four_phases_are_final() {
        let last: Vec<_> = Phase::ALL.into_iter().filter(|phase| phase.is_final()).collect();
        assert_eq!(last, [Phase::Completed, Phase::Failed, Phase::Cancelled, Phase::TimedOut]);
    }

    #[test]
    fn places_are_counted_from_zero_and_end() {
        let (run, two) = (Snowflake::new(1), [Bytes::new(), Bytes::new()]);
        assert_eq!(end_of(run, 0, &two), Ok(2));
        assert_eq!(end_of(run, 7, &[]), Ok(7));
        assert!(end_of(run, -1, &two).is_err());
        assert!(end_of(run, i64::MAX - 1, &two).is_err());
    }
}
