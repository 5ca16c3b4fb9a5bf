//! What can be asked of the gateway about entities and requests, whichever way it is said.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{Action, Caller, Credential, Guard, Kind, Metrics, Options, Problem, Schemas, problem};
use crate::client::{Router, Runtime, draw_id};
use crate::cluster::Node;
use crate::entity::{self, Delivered, Delivery, Error, Want};
use crate::message::{
    EntityAddress, Envelope, Headers, IdempotencyKey, Outcome, RequestId, TraceContext, Uninterruptible,
};
use crate::shard::GroupName;
use crate::shard::ownership::Stage;
use crate::store::Progress;

/// Under this name a handler is told who asked, if that is known.
const USER: &str = "cleat-user";

/// A request that the database does not know may run: whoever owns it has so long to say.
const LOOK: Duration = Duration::from_secs(1);

/// What all connections share.
pub(super) struct Desk {
    pub(super) node: Node,
    pub(super) guard: Arc<dyn Guard>,
    pub(super) schemas: Arc<dyn Schemas>,
    pub(super) options: Options,
    pub(super) metrics: Metrics,
    pub(super) running: Arc<Semaphore>,
    /// No connection is accepted any more, and nobody should wait for long.
    pub(super) stop: CancellationToken,
}

/// What is asked of an entity.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) address: EntityAddress,
    pub(super) method: String,
    pub(super) payload: Bytes,
    pub(super) key: Option<String>,
    pub(super) at: Option<SystemTime>,
    pub(super) trace: Option<TraceContext>,
    pub(super) caller: Caller,
}

/// Where a question goes.
pub(super) struct Asked {
    pub(super) group: GroupName,
    pub(super) persisted: bool,
    pub(super) streams: bool,
}

/// How far a request is.
#[derive(Debug)]
pub(super) enum State {
    Pending,
    Completed(Bytes),
    Failed(Problem),
}

impl From<Outcome> for State {
    fn from(outcome: Outcome) -> Self {
        problem::reply(outcome).map_or_else(Self::Failed, Self::Completed)
    }
}

impl Desk {
    /// Who this is, if they may do that.
    pub(super) async fn allow(&self, credential: &Credential, action: &Action) -> Result<Caller, Problem> {
        Ok(self.guard.allow(credential, action).await?)
    }

    /// Whether users should come here.
    pub(super) fn is_ready(&self) -> bool {
        let status = self.node.ownership().status();
        let status = status.borrow();
        status.ready
            && status.stage == Stage::Running
            && !self.stop.is_cancelled()
            && self.node.health().is_ready()
    }

    /// Whether this runner is about to go.
    pub(super) fn is_leaving(&self) -> bool {
        self.stop.is_cancelled() || self.node.ownership().status().borrow().stage != Stage::Running
    }

    pub(super) fn router(&self) -> Arc<dyn Router> {
        self.node.router()
    }

    /// Looks a method up, as it is registered here: what is not is not waited for.
    pub(super) fn asked(&self, question: &Question) -> Result<Asked, Problem> {
        let entity_type = &question.address.entity_type;
        let entity = self.node.host().registered(entity_type).filter(|_| !self.is_workflow(entity_type));
        let entity = entity.ok_or_else(|| Error::UnknownType(entity_type.clone()))?;
        let definition = entity.definition();
        let method = definition.methods.get(&question.method).ok_or_else(|| Error::UnknownMethod {
            entity_type: entity_type.clone(),
            method: question.method.clone(),
        })?;
        let persisted = method.delivery == Delivery::Persisted;
        Ok(Asked { group: definition.group.clone(), persisted, streams: method.stream })
    }

    async fn request(
        &self,
        question: Question,
        asked: &Asked,
        want: Want,
    ) -> Result<entity::Request, Problem> {
        let Question { address, method, payload, key, at, trace, caller } = question;
        let key = key.map(|key| IdempotencyKey::new(&address, &method, key.as_bytes()));
        let headers: Headers =
            caller.user.map(|user| (USER.to_owned(), user.as_ref().to_owned())).into_iter().collect();
        let envelope = Envelope {
            id: draw_id(self.router().as_ref()).await.map_err(Error::from)?,
            address,
            method,
            payload,
            // The method's definition decides, where the message arrives.
            persisted: false,
            key,
            deliver_at: at,
            uninterruptible: Uninterruptible::No,
            trace,
            headers,
        };
        let (caller, group) = (entity::Caller::User, asked.group.clone());
        Ok(entity::Request { want, caller, group, ..entity::Request::new(envelope) })
    }

    /// Asks, and waits for the reply.
    pub(super) async fn call(&self, question: Question) -> Result<Bytes, Problem> {
        let asked = self.asked(&question)?;
        let request = self.request(question, &asked, Want::Reply).await?;
        let (key, address) = (request.envelope.key, request.envelope.address.clone());
        let id = RequestId { group: asked.group, slot: address.slot(), id: request.envelope.id };
        let router = self.router();
        let uncertain = match tokio::time::timeout(self.options.timeout, router.request(request)).await {
            Ok(Ok(Delivered::Ended(outcome))) => match problem::reply(outcome) {
                Err(problem) if problem.kind() == Kind::Uncertain => problem,
                answer => return answer,
            },
            Ok(Ok(Delivered::Accepted(_))) => return Err(Error::NoSuchRequest(id.id).into()),
            Ok(Err(error)) => match Problem::from(error) {
                problem if problem.kind() == Kind::Uncertain => problem,
                problem => return Err(problem),
            },
            Err(_) => {
                let after = self.options.timeout;
                let goes_on = if asked.persisted {
                    "its request goes on, and can be asked for by its id"
                } else {
                    "the method is volatile, and whether it was done is not known"
                };
                let detail = format!("there was no reply of {address} within {after:?}: {goes_on}");
                Problem::new(Kind::TimedOut, "TimedOut", detail)
            }
        };
        if !asked.persisted {
            return Err(uncertain);
        }
        // Under a key it may be an earlier request that goes on.
        let first = match key {
            Some(key) => {
                let look = tokio::time::timeout(LOOK, router.keyed(&id.group, id.slot, &key)).await;
                look.ok().and_then(Result::ok).flatten()
            }
            None => None,
        };
        Err(uncertain.with_request(RequestId { id: first.unwrap_or(id.id), ..id }))
    }

    /// Asks, and comes back once the message is in good hands. Its id, if its reply is kept.
    pub(super) async fn notify(&self, question: Question) -> Result<Option<RequestId>, Problem> {
        let asked = self.asked(&question)?;
        let request = self.request(question, &asked, Want::Acceptance).await?;
        let (slot, id) = (request.envelope.address.slot(), request.envelope.id);
        let router = self.router();
        let delivered = tokio::time::timeout(self.options.timeout, router.request(request)).await;
        let id = match delivered.map_err(|_| self.overdue("the message was not stored"))?? {
            Delivered::Accepted(first) => first,
            // What keeps another runner from taking a message comes as the end of it.
            Delivered::Ended(outcome) => problem::reply(outcome).map(|_| id)?,
        };
        Ok(asked.persisted.then_some(RequestId { group: asked.group, slot, id }))
    }

    pub(super) fn overdue(&self, what: &str) -> Problem {
        let detail = format!("{what} within {:?}: whether it was done is not known", self.options.timeout);
        Problem::new(Kind::TimedOut, "TimedOut", detail)
    }

    /// Asks a method whose reply is a stream.
    pub(super) async fn open(&self, question: Question) -> Result<super::stream::Opened, Problem> {
        let asked = self.asked(&question)?;
        let Question { address, method, .. } = &question;
        if !asked.streams {
            let (entity_type, method) = (address.entity_type.clone(), method.clone());
            return Err(Error::NotStreaming { entity_type, method }.into());
        }
        let slot = address.slot();
        let request = self.request(question, &asked, Want::Stream).await?;
        let router = self.router();
        let begun = async {
            let mut replies = router.stream(request).await?;
            if !asked.persisted {
                return Ok(super::stream::Opened { replies, request: None });
            }
            // It is stored now, and read by its id; or what is wrong with it is said at once.
            match futures::StreamExt::next(&mut replies).await {
                Some(Ok(entity::Part::Accepted(id))) => {
                    self.reopen(RequestId { group: asked.group, slot, id }, None).await
                }
                Some(Ok(entity::Part::End(outcome))) => Err(problem::reply(outcome)
                    .err()
                    .unwrap_or_else(|| self.overdue("the stream was not begun"))),
                Some(Ok(entity::Part::Items(_))) | None => Err(self.overdue("the stream was not begun")),
                Some(Err(error)) => Err(error.into()),
            }
        };
        let begun = tokio::time::timeout(self.options.timeout, begun).await;
        begun.map_err(|_| self.overdue("the stream was not begun"))?
    }

    /// How far a request is; waits for its end for a while.
    pub(super) async fn state(&self, id: &RequestId, wait: Duration) -> Result<State, Problem> {
        let router = self.router();
        let wait = match router.progress(id).await? {
            Progress::Done(outcome) => return Ok(outcome.into()),
            Progress::Open if wait.is_zero() => return Ok(State::Pending),
            Progress::Open => wait.min(self.options.wait),
            Progress::Unknown => wait.min(self.options.wait).max(LOOK),
        };
        tokio::select! {
            ended = router.join(id) => Ok(ended?.into()),
            () = tokio::time::sleep(wait) => Ok(State::Pending),
            // Whoever waits asks another runner.
            () = self.stop.cancelled() => Ok(State::Pending),
        }
    }

    /// Stops a request. How far it was, and whether somebody was told to stop.
    pub(super) async fn interrupt(&self, id: &RequestId) -> Result<(State, bool), Problem> {
        if self.router().interrupt(id).await? {
            return Ok((State::Pending, true));
        }
        Ok((self.state(id, Duration::ZERO).await?, false))
    }
}
