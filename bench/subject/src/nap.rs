//! Where workflows note that they begin to sleep and that they go on, by a clock that their replay does not know.
//!
//! Wall clocks, because a durable timer is due by such a one.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use crate::Subject;
use crate::protocol::{Slept, Wait};
use crate::serve::next_number;

/// How long workflows may take to begin to sleep, beyond the first of them.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How many are started at a time.
const STARTERS: usize = 256;

struct Note {
    begun: SystemTime,
    ended: Option<SystemTime>,
}

fn notes() -> MutexGuard<'static, HashMap<u64, Note>> {
    static NOTES: LazyLock<Mutex<HashMap<u64, Note>>> = LazyLock::new(Mutex::default);
    NOTES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A workflow begins to sleep at what it takes for now. One that is replayed comes here again: the first time counts.
pub fn begin(number: u64, now: SystemTime) {
    notes().entry(number).or_insert(Note { begun: now, ended: None });
}

/// It goes on.
pub fn end(number: u64) {
    if let Some(note) = notes().get_mut(&number) {
        note.ended.get_or_insert_with(SystemTime::now);
    }
}

/// Lets workflows sleep, all at the same time.
pub(crate) async fn sleep<S: Subject>(node: &Arc<S>, workflows: usize, time: Duration) -> Result<Slept> {
    let mut sleepers = JoinSet::new();
    for _ in 0..workflows {
        let node = Arc::clone(node);
        sleepers.spawn(async move {
            let number = next_number();
            node.sleep(number, time).await?;
            let answered = SystemTime::now();
            let note = notes().remove(&number).context("a workflow has not slept")?;
            let ended = note.ended.context("a workflow has not gone on")?;
            let due = note.begun + time;
            let overshoot = ended.duration_since(due).context("a workflow went on too early")?;
            anyhow::Ok((overshoot, answered.duration_since(due)?))
        });
    }
    let mut slept = Slept { overshoot: Vec::new(), late: Vec::new() };
    while let Some(ended) = sleepers.join_next().await {
        let (overshoot, late) = ended??;
        slept.overshoot.push(overshoot.as_secs_f64() * 1000.0);
        slept.late.push(late.as_secs_f64() * 1000.0);
    }
    slept.overshoot.sort_by(f64::total_cmp);
    slept.late.sort_by(f64::total_cmp);
    Ok(slept)
}

/// Starts workflows that wait, and comes back when all do.
pub(crate) async fn wait<S: Subject>(node: &Arc<S>, workflows: usize, wait: Wait) -> Result<()> {
    let numbers: Arc<[u64]> = (0..workflows).map(|_| next_number()).collect();
    let mut starters = JoinSet::new();
    for first in 0..STARTERS {
        let (node, numbers) = (Arc::clone(node), Arc::clone(&numbers));
        starters.spawn(async move {
            for number in numbers.iter().skip(first).step_by(STARTERS) {
                node.wait(*number, wait).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(started) = starters.join_next().await {
        started??;
    }
    let waiting = async {
        while !numbers.iter().all(|number| notes().contains_key(number)) {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.context("not all workflows began to wait")?;
    // What is left of them shall not be counted as the measured system's memory.
    let mut notes = notes();
    notes.clear();
    notes.shrink_to_fit();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_does_not_begin_its_sleep_anew() {
        let first = SystemTime::UNIX_EPOCH;
        begin(7, first);
        begin(7, SystemTime::now());
        end(7);
        let note = notes().remove(&7).unwrap();
        assert_eq!(note.begun, first);
        assert!(note.ended.is_some());
        end(8);
        assert!(notes().get(&8).is_none());
    }
}
