//! Starting, telling and describing executions.

use std::time::Duration;

use cleat_proto::v1::execution_report::{Failed, Result as Reported, Unknown};
use cleat_proto::v1::tell_execution_request::What;
use cleat_proto::v1::{
    DescribeExecutionsRequest, DescribeExecutionsResponse, ExecutionRef, ExecutionReport,
    StartExecutionRequest, StartExecutionResponse, TellExecutionRequest,
};
use futures::{StreamExt, TryStreamExt};
use serde_json::Value;
use tonic::{Code, Status};

use super::refusal::{entity, invalid, refuse};
use super::service::Service;
use crate::entity::Error;
use crate::message::EntityAddress;
use crate::steps::{Definition, INLINE};
use crate::workflow::{Executions, Key, Started, Terms, name_of};

/// How many executions are described at once.
const MOST: usize = 500;
/// How many of them are read side by side.
const SIDE_BY_SIDE: usize = 8;

impl Service {
    fn executions(&self, workflow: &str) -> Result<Executions, Status> {
        Executions::new(&self.node, workflow).map_err(|error| invalid("type", error))
    }

    fn of(&self, execution: Option<ExecutionRef>) -> Result<(Executions, String), Status> {
        let execution = execution.ok_or_else(|| invalid("execution", "it is missing"))?;
        if execution.id.is_empty() {
            return Err(invalid("execution.id", "it is empty"));
        }
        Ok((self.executions(&execution.r#type)?, execution.id))
    }

    pub(super) async fn start(&self, start: StartExecutionRequest) -> Result<StartExecutionResponse, Status> {
        // Whose steps come along has no other type.
        let (workflow, definition) = if start.definition.is_empty() {
            (start.r#type, None)
        } else {
            let definition = Definition::decode(start.definition.as_bytes()).and_then(|steps| steps.encode());
            (INLINE.to_owned(), Some(definition.map_err(|error| invalid("definition", error))?))
        };
        let input = json("input", &start.input)?;
        let timeout = match start.timeout_ms.map(u64::try_from) {
            None => None,
            Some(Ok(milliseconds)) => Some(Duration::from_millis(milliseconds)),
            Some(Err(_)) => return Err(invalid("timeout_ms", "it is negative")),
        };
        let key = (!start.key.is_empty()).then_some(Key::Hashed(start.key));
        if !start.holder.is_empty() {
            let key = key.as_ref().ok_or_else(|| invalid("key", "an execution that is held has one"))?;
            // Before it begins, so that there is no moment at which it could be forgotten.
            self.held(&workflow, &key.id(), start.holder).await?;
        }
        let terms = Terms { key, timeout, definition, ..Terms::default() };
        let executions = self.executions(&workflow)?;
        let (id, started) = executions.start(&input, &terms).await.map_err(|error| entity(&error))?;
        let Started { run, existing } = started;
        Ok(StartExecutionResponse {
            execution: Some(ExecutionRef { r#type: workflow, id: id.as_str().to_owned() }),
            run: run.to_string(),
            existed: existing,
        })
    }

    pub(super) async fn tell(&self, tell: TellExecutionRequest) -> Result<(), Status> {
        let (executions, id) = self.of(tell.execution)?;
        let told = match tell.what {
            Some(What::Signal(signal)) => {
                let payload = json("signal.payload", &signal.payload)?;
                let key = (!signal.key.is_empty()).then_some(signal.key.as_str());
                executions.signal_once(&id, &signal.name, &payload, key).await
            }
            // A controller asks until it is done, so one that has ended is no error here.
            Some(What::Cancel(_)) => executions.cancel(&id).await.or_else(unless_finished),
            Some(What::Suspend(_)) => executions.suspend(&id).await,
            Some(What::Resume(_)) => executions.resume(&id).await,
            Some(What::Retry(_)) => executions.retry(&id).await,
            Some(What::Reset(reset)) => {
                let entries = usize::try_from(reset.entries).unwrap_or(usize::MAX);
                executions.reset(&id, entries).await.map(drop)
            }
            Some(What::Terminate(terminate)) => {
                executions.terminate(&id, &terminate.message).await.or_else(unless_finished)
            }
            None => {
                return Err(invalid("what", "this release does not know what the execution is to be told"));
            }
        };
        told.map_err(|error| entity(&error))
    }

    pub(super) async fn describe(
        &self,
        request: DescribeExecutionsRequest,
    ) -> Result<DescribeExecutionsResponse, Status> {
        if request.executions.len() > MOST {
            return Err(invalid("executions", format_args!("more than {MOST} at once")));
        }
        let described = futures::stream::iter(request.executions).map(|execution| self.report(execution));
        let executions = described.buffered(SIDE_BY_SIDE).try_collect().await?;
        Ok(DescribeExecutionsResponse { executions })
    }

    /// What is known of one. Only what concerns all of them is an error.
    async fn report(&self, execution: ExecutionRef) -> Result<ExecutionReport, Status> {
        let (executions, id) = self.of(Some(execution.clone()))?;
        let result = match executions.report(&id).await {
            Ok(report) => Reported::Report(serde_json::to_string(&report).map_err(|error| {
                refuse(Code::Internal, "Malformed", format!("the report of {id} cannot be written: {error}"))
            })?),
            Err(Error::Failed(failure)) if failure.kind == "NoSuchExecution" => Reported::Unknown(Unknown {}),
            Err(error @ Error::Store(_)) => return Err(entity(&error)),
            Err(error) => {
                let (reason, message) = (error.reason().to_owned(), error.to_string());
                Reported::Failed(Failed { reason, message })
            }
        };
        Ok(ExecutionReport { execution: Some(execution), result: Some(result) })
    }
}

/// Which execution, as it is told.
pub(super) fn reference(address: &EntityAddress) -> ExecutionRef {
    ExecutionRef { r#type: name_of(&address.entity_type).to_owned(), id: address.id.as_str().to_owned() }
}

fn json(field: &str, text: &str) -> Result<Value, Status> {
    if text.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_str(text).map_err(|error| invalid(field, format_args!("it is no JSON: {error}")))
}

fn unless_finished(error: crate::entity::Error) -> Result<(), crate::entity::Error> {
    if error.reason() == "Finished" { Ok(()) } else { Err(error) }
}
