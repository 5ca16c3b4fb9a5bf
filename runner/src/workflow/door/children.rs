//! Children whose parent has begun another run: they report their end to that one.

use bytes::Bytes;

use super::requests::{Adopt, ChildEnded, METHOD_CHILD_ENDED, Start, Started};
use super::{Desk, reply, retry};
use crate::entity::{Call, HandlerError};
use crate::store::Phase;
use crate::workflow::child::Parent;
use crate::workflow::summary::Summary;
use crate::workflow::tail::{Becoming, Lease, Row, Writing};

impl Desk {
    /// Another run of the parent waits for this child: it hears of the end, also if that has come already.
    pub(super) async fn adopt(&self, call: &mut Call) -> Result<Bytes, HandlerError> {
        let Adopt { parent } = call.input()?;
        let (_, lease, row) = self.lease(call).await?;
        let known = row.summary.parent.as_ref();
        if known.is_none_or(|known| known.address != parent.address) {
            return reply(&());
        }
        match row.summary.outcome.clone().filter(|_| row.phase.is_final()) {
            Some(outcome) => {
                let ended = ChildEnded { run: parent.run, step: parent.step, outcome };
                call.send(parent.address.clone(), METHOD_CHILD_ENDED, &ended, None)?;
            }
            None => Self::report_to(call, lease, &row, parent)?,
        }
        reply(&())
    }

    /// Another run of the parent starts a child whose id it chose itself. What that child did for an earlier run does not count.
    pub(super) async fn start_again(&self, call: &mut Call, start: Start) -> Result<Bytes, HandlerError> {
        let (_, lease, row) = self.lease(call).await?;
        match (row.phase, &start.parent) {
            (phase, _) if phase.is_final() => {
                drop(lease);
                self.anew(call, start).await
            }
            // It was cancelled with that run, and compensates first.
            (Phase::Cancelling, _) | (_, None) => {
                let message = format!("execution {} is still being cancelled", row.address);
                Err(HandlerError::Retry(message))
            }
            (_, Some(parent)) => {
                Self::report_to(call, lease, &row, parent.clone())?;
                reply(&Started { run: row.run, existing: true })
            }
        }
    }

    fn report_to(call: &mut Call, mut lease: Lease, row: &Row, parent: Parent) -> Result<(), HandlerError> {
        let summary = Summary { parent: Some(parent), ..Summary::clone(&row.summary) };
        let becoming = Becoming { phase: row.phase, active: row.active, summary };
        let writing = Writing { row: Some(becoming), ..Writing::default() };
        for change in lease.write(writing).map_err(retry)? {
            call.context().also(change);
        }
        call.context().then(move || lease.committed());
        Ok(())
    }
}
