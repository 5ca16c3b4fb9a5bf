//! What can be asked of a runner through gRPC.

use std::collections::BTreeSet;
use std::pin::Pin;

use cleat_proto::v1::{self, admin_server::Admin};
use futures::{Stream, StreamExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use super::status::{is_users, wide};
use super::{Definitions, Options, follow, refusal};
use crate::cluster::Node;
use crate::cron::Crons;
use crate::message::codec::{self, time::to_millis};
use crate::message::{EntityType, Snowflake};
use crate::shard::GroupName;
use crate::store::DeadLetter;
use crate::workflow::{self, Runtime as _};

/// The most instances that are listed.
const INSTANCES: u32 = 10_000;
/// The most dead letters that are listed, and how many if nothing is said.
const LETTERS: (u32, u32) = (1000, 100);

/// Answers for a runner. Cheap to clone.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) options: Options,
    pub(super) node: Node,
    pub(super) definitions: watch::Receiver<Definitions>,
    pub(super) stop: CancellationToken,
}

type Told<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

fn told<T: Send + 'static>(stream: impl Stream<Item = T> + Send + 'static) -> Response<Told<T>> {
    Response::new(Box::pin(stream.map(Ok)))
}

#[tonic::async_trait]
impl Admin for Service {
    type WatchStream = Told<v1::RunnerStatus>;
    type FollowExecutionsStream = Told<v1::ExecutionChanges>;

    async fn watch(&self, _: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Ok(told(self.clone().statuses()))
    }

    async fn start_execution(
        &self,
        request: Request<v1::StartExecutionRequest>,
    ) -> Result<Response<v1::StartExecutionResponse>, Status> {
        Ok(Response::new(self.start(request.into_inner()).await?))
    }

    async fn tell_execution(
        &self,
        request: Request<v1::TellExecutionRequest>,
    ) -> Result<Response<v1::TellExecutionResponse>, Status> {
        self.tell(request.into_inner()).await?;
        Ok(Response::new(v1::TellExecutionResponse {}))
    }

    async fn describe_executions(
        &self,
        request: Request<v1::DescribeExecutionsRequest>,
    ) -> Result<Response<v1::DescribeExecutionsResponse>, Status> {
        Ok(Response::new(self.describe(request.into_inner()).await?))
    }

    async fn hold_executions(
        &self,
        request: Request<v1::HoldExecutionsRequest>,
    ) -> Result<Response<v1::HoldExecutionsResponse>, Status> {
        self.hold(request.into_inner()).await?;
        Ok(Response::new(v1::HoldExecutionsResponse {}))
    }

    async fn release_executions(
        &self,
        request: Request<v1::ReleaseExecutionsRequest>,
    ) -> Result<Response<v1::ReleaseExecutionsResponse>, Status> {
        self.release(request.into_inner()).await?;
        Ok(Response::new(v1::ReleaseExecutionsResponse {}))
    }

    async fn list_holds(
        &self,
        request: Request<v1::ListHoldsRequest>,
    ) -> Result<Response<v1::ListHoldsResponse>, Status> {
        Ok(Response::new(self.holds(request.into_inner()).await?))
    }

    async fn follow_executions(
        &self,
        request: Request<v1::FollowExecutionsRequest>,
    ) -> Result<Response<Self::FollowExecutionsStream>, Status> {
        let types: BTreeSet<String> = request.into_inner().types.into_iter().collect();
        Ok(told(follow::follow(self.node.workflows().changes(), types, self.stop.clone())))
    }

    async fn cron_status(
        &self,
        request: Request<v1::CronStatusRequest>,
    ) -> Result<Response<v1::CronStatusResponse>, Status> {
        let (crons, name) = self.crons(request.into_inner().cron)?;
        let status = crons.status(&name).await.map_err(|error| refusal::cron(&error))?;
        let cron = status.map(|status| v1::cron_status_response::Cron {
            schedule: status.schedule,
            zone: status.zone,
            suspended: status.suspended,
            last_ms: status.last.map(|last| last.timestamp_millis()),
            next_ms: status.next.map(|next| next.timestamp_millis()),
            fired: status.fired,
            skipped: status.skipped,
            last_successful_ms: status.last_successful.map(|last| last.timestamp_millis()),
            active: u64::try_from(status.active).unwrap_or(u64::MAX),
        });
        Ok(Response::new(v1::CronStatusResponse { cron }))
    }

    async fn trigger_cron(
        &self,
        request: Request<v1::TriggerCronRequest>,
    ) -> Result<Response<v1::TriggerCronResponse>, Status> {
        let v1::TriggerCronRequest { cron, key } = request.into_inner();
        let (crons, name) = self.crons(cron)?;
        let key = (!key.is_empty()).then_some(key.as_str());
        crons.trigger(&name, key).await.map_err(|error| refusal::cron(&error))?;
        Ok(Response::new(v1::TriggerCronResponse {}))
    }

    async fn list_entities(
        &self,
        request: Request<v1::ListEntitiesRequest>,
    ) -> Result<Response<v1::ListEntitiesResponse>, Status> {
        let v1::ListEntitiesRequest { r#type, limit } = request.into_inner();
        let wanted = |entity_type: &EntityType| match r#type.as_str() {
            "" => is_users(entity_type) && !workflow::is_execution(entity_type),
            wanted => entity_type.as_str() == wanted,
        };
        let limit = if limit == 0 { INSTANCES } else { limit.min(INSTANCES) };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let (present, total) = self.node.host().instances(wanted, limit);
        let entities = present.into_iter().map(|present| v1::list_entities_response::Active {
            r#type: present.address.entity_type.as_str().to_owned(),
            id: present.address.id.as_str().to_owned(),
            group: present.shard.group.as_str().to_owned(),
            shard: u32::from(present.shard.id),
            messages: wide(present.waiting),
        });
        Ok(Response::new(v1::ListEntitiesResponse { entities: entities.collect(), total: wide(total) }))
    }

    async fn list_dead_letters(
        &self,
        request: Request<v1::ListDeadLettersRequest>,
    ) -> Result<Response<v1::ListDeadLettersResponse>, Status> {
        let v1::ListDeadLettersRequest { group, before, limit } = request.into_inner();
        let group = group_of(&group)?;
        let (most, usual) = LETTERS;
        let limit = if limit == 0 { usual } else { limit.min(most) };
        let before = before.map(Snowflake::new);
        let letters = self.node.host().store().dead_letters(&group, before, limit).await;
        let letters = letters.map_err(|error| refusal::store(&error))?;
        let letters = letters.into_iter().map(letter).collect();
        Ok(Response::new(v1::ListDeadLettersResponse { letters }))
    }
}

impl Service {
    fn crons(&self, cron: Option<v1::CronRef>) -> Result<(Crons, String), Status> {
        let cron = cron.ok_or_else(|| refusal::invalid("cron", "it is missing"))?;
        Ok((self.node.crons().in_group(group_of(&cron.group)?), cron.name))
    }
}

fn group_of(name: &str) -> Result<GroupName, Status> {
    if name.is_empty() {
        return Ok(GroupName::default());
    }
    GroupName::new(name).map_err(|error| refusal::invalid("group", error))
}

fn letter(letter: DeadLetter) -> v1::list_dead_letters_response::DeadLetter {
    let DeadLetter { message, attempt, error, died } = letter;
    let envelope = message.envelope;
    // What is no JSON is not shown.
    let input = codec::decode::<serde_json::Value>(&envelope.payload).map(|input| input.to_string());
    v1::list_dead_letters_response::DeadLetter {
        id: envelope.id.get(),
        entity_type: envelope.address.entity_type.as_str().to_owned(),
        entity_id: envelope.address.id.as_str().to_owned(),
        method: envelope.method,
        input: input.unwrap_or_default(),
        attempts: u32::try_from(attempt).unwrap_or_default(),
        error,
        died_ms: to_millis(died),
    }
}
