//! Forgetting what nobody needs any more.

use std::time::{Duration, SystemTime};

use sqlx::SqliteConnection;

use super::error::convert;
use crate::message::codec::time;
use crate::store::{Error, Retention};

/// How many requests go in one transaction: few enough that writers hardly notice.
const STEP: u32 = 500;

/// What grows old, each by its own measure.
#[derive(Debug, Clone, Copy)]
pub(super) enum Class {
    Completed,
    Failed,
    DeadLetters,
    CompletedExecutions,
    FailedExecutions,
}

impl Class {
    pub(super) const ALL: [Self; 5] =
        [Self::Completed, Self::Failed, Self::DeadLetters, Self::CompletedExecutions, Self::FailedExecutions];

    /// Everything before this is too old, in milliseconds of Unix time.
    pub(super) fn horizon(self, retention: &Retention, now: SystemTime) -> i64 {
        let kept: Duration = match self {
            Self::Completed | Self::CompletedExecutions => retention.completed,
            Self::Failed | Self::FailedExecutions => retention.failed,
            Self::DeadLetters => retention.dead_letters,
        };
        now.checked_sub(kept).map_or(0, time::to_millis)
    }

    fn select(self) -> &'static str {
        match self {
            Self::Completed => {
                "SELECT id FROM cleat_outcomes WHERE status = 0 AND done < ? ORDER BY done LIMIT ?"
            }
            Self::Failed => {
                "SELECT id FROM cleat_outcomes WHERE status <> 0 AND done < ? ORDER BY done LIMIT ?"
            }
            Self::DeadLetters => "SELECT id FROM cleat_dead_letters WHERE died < ? ORDER BY died LIMIT ?",
            // The phases are those of `Phase::Completed` and the ones after it. What somebody holds is kept.
            Self::CompletedExecutions => {
                "SELECT rowid FROM cleat_executions WHERE phase = 4 AND ended < ? AND (entity_type, entity_id) \
                 NOT IN (SELECT entity_type, entity_id FROM cleat_holds) ORDER BY ended LIMIT ?"
            }
            Self::FailedExecutions => {
                "SELECT rowid FROM cleat_executions WHERE phase > 4 AND ended < ? AND (entity_type, entity_id) \
                 NOT IN (SELECT entity_type, entity_id FROM cleat_holds) ORDER BY ended LIMIT ?"
            }
        }
    }

    /// The statements that forget one of them.
    fn deletes(self) -> &'static [&'static str] {
        match self {
            Self::Completed | Self::Failed => &[
                "DELETE FROM cleat_outcomes WHERE id = ?",
                "DELETE FROM cleat_keys WHERE id = ?",
                "DELETE FROM cleat_chunks WHERE id = ?",
                "DELETE FROM cleat_streams WHERE id = ?",
            ],
            Self::DeadLetters => &["DELETE FROM cleat_dead_letters WHERE id = ?"],
            Self::CompletedExecutions | Self::FailedExecutions => &[
                "INSERT INTO cleat_forgotten_runs (run) SELECT run FROM cleat_executions WHERE rowid = ? \
                 ON CONFLICT DO NOTHING",
                "INSERT INTO cleat_forgotten_runs (run) SELECT f.run FROM cleat_executions e \
                 JOIN cleat_former_runs f USING (entity_type, entity_id) WHERE e.rowid = ? ON CONFLICT DO NOTHING",
                "DELETE FROM cleat_former_runs WHERE (entity_type, entity_id) = \
                 (SELECT entity_type, entity_id FROM cleat_executions WHERE rowid = ?)",
                "DELETE FROM cleat_executions WHERE rowid = ?",
            ],
        }
    }
}

/// Forgets one step's worth, within a transaction that may write. Returns how many went and whether there may be more.
pub(super) async fn step(
    connection: &mut SqliteConnection,
    class: Class,
    horizon: i64,
) -> Result<(u64, bool), Error> {
    let select = sqlx::query_scalar(class.select()).bind(horizon).bind(STEP);
    let old: Vec<i64> = select.fetch_all(&mut *connection).await.map_err(convert)?;
    for id in &old {
        for delete in class.deletes() {
            sqlx::query(*delete).bind(id).execute(&mut *connection).await.map_err(convert)?;
        }
    }
    let count = u64::try_from(old.len()).unwrap_or(u64::MAX);
    Ok((count, count >= u64::from(STEP)))
}

/// Deletes one step's worth of the journals of executions that are gone: one journal may be longer than what should be deleted at
/// once. To be called like [`step`].
pub(super) async fn journals(connection: &mut SqliteConnection) -> Result<(u64, bool), Error> {
    let delete = "DELETE FROM cleat_journal WHERE (run, seq) IN (SELECT run, seq FROM cleat_journal \
                  WHERE run IN (SELECT run FROM cleat_forgotten_runs) LIMIT ?)";
    let deleted = sqlx::query(delete).bind(STEP).execute(&mut *connection).await.map_err(convert)?;
    let more = deleted.rows_affected() >= u64::from(STEP);
    if !more {
        sqlx::query("DELETE FROM cleat_forgotten_runs").execute(connection).await.map_err(convert)?;
    }
    Ok((deleted.rows_affected(), more))
}
