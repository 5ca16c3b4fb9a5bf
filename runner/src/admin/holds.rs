//! Who keeps executions from being forgotten.

use cleat_proto::v1::{
    ExecutionHold, ExecutionRef, HoldExecutionsRequest, ListHoldsRequest, ListHoldsResponse,
    ReleaseExecutionsRequest,
};
use tonic::Status;

use super::executions::reference;
use super::refusal::{invalid, store};
use super::service::Service;
use crate::store::Hold;
use crate::workflow::address;

/// How many are held or let go at once.
const MOST: usize = 500;
/// How many are listed at once.
const PAGE: u32 = 1000;
/// The longest name of a holder.
const HOLDER: usize = 1024;

impl Service {
    /// Holds an execution, also if it is yet to begin.
    pub(super) async fn held(&self, workflow: &str, id: &str, holder: String) -> Result<(), Status> {
        let execution = ExecutionRef { r#type: workflow.to_owned(), id: id.to_owned() };
        let hold = ExecutionHold { execution: Some(execution), holder };
        self.hold(HoldExecutionsRequest { holds: vec![hold] }).await
    }

    pub(super) async fn hold(&self, request: HoldExecutionsRequest) -> Result<(), Status> {
        let holds = self.read(request.holds)?;
        self.node.host().store().hold(&holds).await.map_err(|error| store(&error))
    }

    pub(super) async fn release(&self, request: ReleaseExecutionsRequest) -> Result<(), Status> {
        let holds = self.read(request.holds)?;
        self.node.host().store().release(&holds).await.map_err(|error| store(&error))
    }

    pub(super) async fn holds(&self, request: ListHoldsRequest) -> Result<ListHoldsResponse, Status> {
        let after = request.after.map(|after| self.one("after", after)).transpose()?;
        let limit = if request.limit == 0 { PAGE } else { request.limit.min(PAGE) };
        let holds = self.node.host().store().holds(after, limit).await.map_err(|error| store(&error))?;
        let told =
            |hold: Hold| ExecutionHold { execution: Some(reference(&hold.address)), holder: hold.holder };
        Ok(ListHoldsResponse { holds: holds.into_iter().map(told).collect() })
    }

    fn read(&self, holds: Vec<ExecutionHold>) -> Result<Vec<Hold>, Status> {
        if holds.len() > MOST {
            return Err(invalid("holds", format_args!("more than {MOST} at once")));
        }
        holds.into_iter().map(|hold| self.one("holds", hold)).collect()
    }

    fn one(&self, field: &str, hold: ExecutionHold) -> Result<Hold, Status> {
        let execution = hold.execution.ok_or_else(|| invalid(field, "the execution is missing"))?;
        let address = address(&execution.r#type, &execution.id).map_err(|error| invalid(field, error))?;
        if hold.holder.is_empty() || hold.holder.len() > HOLDER || hold.holder.contains('\0') {
            let why = format_args!("a holder has a name of 1 to {HOLDER} bytes without a NUL");
            return Err(invalid(field, why));
        }
        let group = self.node.host().group_of(&address.entity_type);
        Ok(Hold { address, holder: hold.holder, group })
    }
}
