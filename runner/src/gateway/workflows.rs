//! What can be asked of the gateway about executions of workflows, whichever way it is said.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde_json::{Value, json};

use super::desk::Desk;
use super::execution::ExecutionId;
use super::letters::time;
use super::problem::{of_door, of_end};
use super::{Action, Kind, Problem, history};
use crate::entity;
use crate::message::codec::time::{from_millis, to_millis};
use crate::message::{EntityAddress, EntityType, Outcome, Snowflake, codec};
use crate::store::{Cursor, Phase};
use crate::workflow::{self, Description, Executions, Key, Repair, Report, Runtime, Select, Terms};

/// Something that is done to an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Control {
    Cancel,
    Suspend,
    Resume,
    Retry,
    /// Goes on from where the journal had so many entries.
    Reset(usize),
    /// Ends it where it stands, for a reason.
    Terminate(String),
}

impl Control {
    /// What somebody must be allowed to do for it.
    pub(super) fn action(&self) -> Action {
        match self {
            Self::Terminate(_) => Action::TerminateWorkflow,
            _ => Action::ChangeWorkflow,
        }
    }
}

/// Which executions to list.
#[derive(Debug, Default)]
pub(super) struct Listing<'a> {
    pub(super) workflow: Option<&'a str>,
    pub(super) phases: Vec<Phase>,
    pub(super) since: Option<SystemTime>,
    pub(super) from: Option<&'a str>,
    pub(super) limit: u32,
}

impl Desk {
    /// Whether a type stands for executions, which have a door of their own.
    pub(super) fn is_workflow(&self, entity_type: &EntityType) -> bool {
        self.node.workflows().definition(entity_type).is_some()
    }

    /// The workflows that are registered here.
    pub(super) fn workflows(&self) -> Vec<workflow::Definition> {
        let types = self.node.host().all_registered();
        types.iter().filter_map(|it| self.node.workflows().definition(&it.definition().entity_type)).collect()
    }

    /// The executions of a workflow, as it is registered here: what is not is not waited for.
    fn executions(&self, workflow: &str) -> Result<Executions, Problem> {
        let definition = workflow::Definition::new(workflow)?;
        if !self.is_workflow(&definition.entity_type) {
            let detail = format!(
                "no workflow {workflow} is registered: is it in this image, and is its name spelled so?"
            );
            return Err(Problem::new(Kind::NotFound, "UnknownWorkflow", detail));
        }
        Ok(Executions::new(&self.node, workflow)?)
    }

    /// Starts an execution. Its id, and whether it was there before.
    pub(super) async fn start(
        &self,
        workflow: &str,
        key: Option<String>,
        input: Bytes,
        timeout: Option<Duration>,
    ) -> Result<(ExecutionId, bool), Problem> {
        let executions = self.executions(workflow)?;
        let terms = Terms { key: key.map(Key::Raw), timeout, ..Terms::default() };
        let (id, started) = self.timely(executions.start_encoded(input, &terms)).await?;
        Ok((ExecutionId::new(workflow, id.as_str()), started.existing))
    }

    /// What came of an execution, if it ends within this time.
    pub(super) async fn result(&self, id: &ExecutionId, wait: Duration) -> Result<Option<Bytes>, Problem> {
        let wait = wait.min(self.options.wait);
        let outcome = match self.executions(&id.workflow) {
            Ok(executions) => tokio::select! {
                outcome = executions.result(&id.key, wait) => outcome.map_err(of_door)?,
                // Whoever waits asks another runner.
                () = self.stop.cancelled() => None,
            },
            // Its workflow is not here any more, but what came of it is.
            Err(_) => self.ended(id).await?,
        };
        outcome.map(of_end).transpose()
    }

    async fn ended(&self, id: &ExecutionId) -> Result<Option<Outcome>, Problem> {
        let described = self.node.workflows().describe(&id.address()?).await.map_err(of_door)?;
        Ok(described.outcome.filter(|_| described.phase.is_final()))
    }

    /// Sends a signal. Those with the same key are one.
    pub(super) async fn signal(
        &self,
        id: &ExecutionId,
        name: &str,
        payload: &Value,
        key: Option<&str>,
    ) -> Result<(), Problem> {
        let executions = self.executions(&id.workflow)?.for_users();
        self.timely(executions.signal_once(&id.key, name, payload, key)).await
    }

    /// What the execution's function shows under a name.
    pub(super) async fn query(&self, id: &ExecutionId, name: &str) -> Result<Value, Problem> {
        let executions = self.executions(&id.workflow)?;
        self.timely(executions.query(&id.key, name)).await
    }

    pub(super) async fn control(&self, id: &ExecutionId, control: Control) -> Result<(), Problem> {
        let (executions, key) = (self.executions(&id.workflow)?, &id.key);
        match control {
            Control::Cancel => self.timely(executions.cancel(key)).await,
            Control::Suspend => self.timely(executions.suspend(key)).await,
            Control::Resume => self.timely(executions.resume(key)).await,
            Control::Retry => self.timely(executions.retry(key)).await,
            Control::Terminate(reason) => self.timely(executions.terminate(key, &reason)).await,
            Control::Reset(entries) => self.timely(executions.reset(key, entries)).await.map(drop),
        }
    }

    /// What a retry or a reset would do.
    pub(super) async fn plan(&self, id: &ExecutionId, repair: Repair) -> Result<Value, Problem> {
        let plan = self.node.workflows().plan(&id.address()?, repair).await.map_err(of_door)?;
        let mut shown = serde_json::to_value(&plan).map_err(|error| {
            Problem::new(Kind::Internal, "Malformed", format!("the plan cannot be written: {error}"))
        })?;
        shown["id"] = json!(id.to_string());
        Ok(shown)
    }

    async fn timely<T>(&self, asked: impl Future<Output = Result<T, entity::Error>>) -> Result<T, Problem> {
        let answer = tokio::time::timeout(self.options.timeout, asked).await;
        answer.map_err(|_| self.overdue("the execution did not answer"))?.map_err(of_door)
    }

    pub(super) async fn report(&self, id: &ExecutionId) -> Result<Report, Problem> {
        self.node.workflows().report(&id.address()?).await.map_err(of_door)
    }

    /// The journal of an execution's present run, or of an earlier one.
    pub(super) async fn history(&self, id: &ExecutionId, run: Option<&str>) -> Result<Vec<Value>, Problem> {
        let (workflows, address) = (self.node.workflows(), id.address()?);
        let entries = match run {
            None => workflows.history(&address).await,
            Some(run) => {
                let run = run.parse().map(Snowflake::new);
                let run = run.map_err(|_| Problem::parameter("run", "it is the number of a run"))?;
                workflows.history_of_run(&address, run).await
            }
        };
        let entries = entries.map_err(of_door)?;
        Ok(entries.iter().enumerate().map(|(place, entry)| history::shown(place, entry)).collect())
    }

    /// A page of executions, and where the next one begins.
    pub(super) async fn list(
        &self,
        listing: Listing<'_>,
    ) -> Result<(Vec<Description>, Option<String>), Problem> {
        let Listing { workflow, phases, since, from, limit } = listing;
        let after = from.map(read_cursor).transpose()?;
        let select = Select { workflow: workflow.map(str::to_owned), phases, since, ..Select::default() };
        let (page, next) = self.node.workflows().list(&select, after, limit).await.map_err(of_door)?;
        let full = page.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
        let next = next.filter(|_| full).map(|cursor| write_cursor(&cursor)).transpose()?;
        Ok((page, next))
    }
}

/// An execution in JSON, with the id that users ask for it with.
pub(super) fn shown(id: &ExecutionId, report: &Report) -> Result<Value, Problem> {
    let mut shown = serde_json::to_value(report).map_err(|error| {
        Problem::new(Kind::Internal, "Malformed", format!("the report cannot be written: {error}"))
    })?;
    shown["id"] = json!(id.to_string());
    Ok(shown)
}

/// What a listing says of an execution.
pub(super) fn listed(description: &Description) -> Value {
    let id = ExecutionId::new(&description.workflow, description.id.as_str());
    let mut shown = json!({
        "id": id.to_string(),
        "type": description.workflow,
        "phase": description.phase,
        "started": time(description.started),
    });
    if let Some(ended) = description.ended {
        shown["ended"] = json!(time(ended));
    }
    if let Some(problem) = &description.problem {
        shown["problem"] = json!(problem);
    }
    shown
}

/// The phase of a name.
pub(super) fn phase(name: &str) -> Result<Phase, Problem> {
    serde_json::from_value(json!(name)).map_err(|_| {
        Problem::parameter("phase", format!("there is no phase {name}, but Running, Failed, ..."))
    })
}

/// Where a listing goes on, as text that says nothing to users.
fn write_cursor(cursor: &Cursor) -> Result<String, Problem> {
    let place = (to_millis(cursor.started), &cursor.address);
    let bytes = codec::encode(&place).map_err(|error| entity::Error::codec("a place", &error))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn read_cursor(text: &str) -> Result<Cursor, Problem> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok();
    let place = bytes.and_then(|bytes| codec::decode::<(i64, EntityAddress)>(&bytes).ok());
    let (started, address) = place.ok_or_else(|| Problem::parameter("continue", "no page ended there"))?;
    Ok(Cursor { started: from_millis(started), address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_a_listing_survives_being_written_and_read() {
        let address = EntityAddress::new("workflow:order", "o/1").unwrap();
        let cursor = Cursor { started: from_millis(1_769_842_800_123), address };
        assert_eq!(read_cursor(&write_cursor(&cursor).unwrap()).unwrap(), cursor);
        for bad in ["", "x", "AAAA"] {
            assert_eq!(read_cursor(bad).unwrap_err().reason(), "InvalidParameter");
        }
    }

    #[test]
    fn phases_have_the_names_that_users_see() {
        assert_eq!(phase("Running").unwrap(), Phase::Running);
        assert_eq!(phase("TimedOut").unwrap(), Phase::TimedOut);
        assert_eq!(phase("running").unwrap_err().reason(), "InvalidParameter");
    }
}
