//! Executions of workflows.

use cleat_proto::gateway::v1::workflows_server::Workflows;
use cleat_proto::gateway::v1::{
    CancelRequest, Control as Verb, ControlReply, ControlRequest, DescribeRequest, Execution, HistoryReply,
    HistoryRequest, ListReply, ListRequest, QueryReply, QueryRequest, ResultReply, ResultRequest,
    SignalReply, SignalRequest, StartReply, StartRequest,
};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::payload::{format, read, write};
use super::{Service, credential, said};
use crate::gateway::execution::ExecutionId;
use crate::gateway::http::{page, read_wait, time};
use crate::gateway::workflows::{Control, Listing, listed, phase, shown};
use crate::gateway::{Action, Problem, json};
use crate::runner::duration;

impl Service {
    async fn execution(
        &self,
        metadata: &MetadataMap,
        action: &Action,
        id: &str,
    ) -> Result<ExecutionId, Problem> {
        self.0.allow(&credential(metadata), action).await?;
        id.parse()
    }
}

#[tonic::async_trait]
impl Workflows for Service {
    async fn start(&self, request: Request<StartRequest>) -> Result<Response<StartReply>, Status> {
        let (metadata, _, start) = request.into_parts();
        self.0.allow(&credential(&metadata), &Action::StartWorkflow).await?;
        let input = read(format(start.format)?, start.input)?;
        let timeout = said(&start.timeout)
            .map(|text| duration(text).map_err(|why| Problem::parameter("timeout", why)))
            .transpose()?;
        let key = said(&start.key).map(str::to_owned);
        let (id, existing) = self.0.start(&start.r#type, key, input, timeout).await?;
        Ok(Response::new(StartReply { id: id.to_string(), existing }))
    }

    async fn result(&self, request: Request<ResultRequest>) -> Result<Response<ResultReply>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let id = self.execution(&metadata, &Action::ReadWorkflow, &asked.id).await?;
        let format = format(asked.format)?;
        let output = self.0.result(&id, read_wait(&asked.wait)?).await?;
        let ended = output.is_some();
        let output = output.map(|output| write(format, output)).transpose()?.unwrap_or_default();
        Ok(Response::new(ResultReply { ended, output }))
    }

    async fn signal(&self, request: Request<SignalRequest>) -> Result<Response<SignalReply>, Status> {
        let (metadata, _, signal) = request.into_parts();
        let id = self.execution(&metadata, &Action::ChangeWorkflow, &signal.id).await?;
        let payload = json::value(&read(format(signal.format)?, signal.payload)?)?;
        self.0.signal(&id, &signal.name, &payload, said(&signal.idempotency_key)).await?;
        Ok(Response::new(SignalReply {}))
    }

    async fn query(&self, request: Request<QueryRequest>) -> Result<Response<QueryReply>, Status> {
        let (metadata, _, query) = request.into_parts();
        let id = self.execution(&metadata, &Action::ReadWorkflow, &query.id).await?;
        let shown = self.0.query(&id, &query.name).await?;
        let output = write(format(query.format)?, json::payload(&shown)?)?;
        Ok(Response::new(QueryReply { output }))
    }

    async fn control(&self, request: Request<ControlRequest>) -> Result<Response<ControlReply>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let control = match Verb::try_from(asked.control) {
            Ok(Verb::Cancel) => Control::Cancel,
            Ok(Verb::Suspend) => Control::Suspend,
            Ok(Verb::Resume) => Control::Resume,
            Ok(Verb::Retry) => Control::Retry,
            Ok(Verb::Reset) => Control::Reset(usize::try_from(asked.entries).unwrap_or(usize::MAX)),
            Ok(Verb::Terminate) => Control::Terminate(asked.reason),
            Ok(Verb::Unspecified) | Err(_) => {
                return Err(Problem::parameter("control", "it does not say what to do").into());
            }
        };
        let id = self.execution(&metadata, &control.action(), &asked.id).await?;
        self.0.control(&id, control).await?;
        Ok(Response::new(ControlReply {}))
    }

    async fn cancel(&self, request: Request<CancelRequest>) -> Result<Response<ControlReply>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let id = self.execution(&metadata, &Action::ChangeWorkflow, &asked.id).await?;
        self.0.control(&id, Control::Cancel).await?;
        Ok(Response::new(ControlReply {}))
    }

    async fn describe(&self, request: Request<DescribeRequest>) -> Result<Response<Execution>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let id = self.execution(&metadata, &Action::ReadWorkflow, &asked.id).await?;
        let report = shown(&id, &self.0.report(&id).await?)?;
        Ok(Response::new(execution(&report)))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListReply>, Status> {
        let (metadata, _, asked) = request.into_parts();
        self.0.allow(&credential(&metadata), &Action::ListWorkflows).await?;
        let listing = Listing {
            workflow: said(&asked.r#type),
            phases: asked.phases.iter().map(|name| phase(name)).collect::<Result<_, _>>()?,
            since: said(&asked.since).map(|since| time("since", since)).transpose()?,
            from: said(&asked.r#continue),
            limit: page(asked.limit)?,
        };
        let (page, next) = self.0.list(listing).await?;
        let executions = page.iter().map(|description| execution(&listed(description))).collect();
        Ok(Response::new(ListReply { executions, r#continue: next.unwrap_or_default() }))
    }

    async fn history(&self, request: Request<HistoryRequest>) -> Result<Response<HistoryReply>, Status> {
        let (metadata, _, asked) = request.into_parts();
        let id = self.execution(&metadata, &Action::ReadWorkflow, &asked.id).await?;
        let entries = self.0.history(&id, None).await?.iter().map(|entry| entry.to_string().into()).collect();
        Ok(Response::new(HistoryReply { entries }))
    }
}

/// What is shown over HTTP, with its most important fields beside it.
fn execution(report: &serde_json::Value) -> Execution {
    let text = |name: &str| report[name].as_str().unwrap_or_default().to_owned();
    Execution {
        id: text("id"),
        r#type: text("type"),
        phase: text("phase"),
        report: report.to_string().into(),
    }
}
