//! Finding an entity, wherever it lives.

use async_trait::async_trait;
use tokio::time::Instant;

use super::node::Inner;
use super::redirect::Route;
use super::wire::{self, About};
use super::{rejection, request};
use crate::client::Router;
use crate::entity::{Answer, Error, Placement, Replies, Request};
use crate::message::snowflake::Exhausted;
use crate::message::{IdempotencyKey, Outcome, RequestId, Sequence, Snowflake};
use crate::shard::ownership::Location;
use crate::shard::{Fence, GroupName, Slot};
use crate::store::Progress;
use crate::transport::{self, Moved};

impl Inner {
    /// The fence under which a volatile request would be answered here, and whether it stands.
    pub(super) fn volatile_under(&self, request: &Request) -> Option<(Fence, bool)> {
        // Whoever waits for a type to be registered is not answered from memory.
        let placed = self.host.place(request).ok().filter(|placed| placed.is_known && placed.volatile)?;
        match self.ownership.locate_standing(&placed.shard) {
            (Location::Here(fence), stands) => Some((fence, stands)),
            _ => None,
        }
    }

    /// Asks the database whether a fence stands.
    pub(super) async fn prove(&self, fence: Fence) -> Result<(), Error> {
        let shard = fence.shard.clone();
        match self.ownership.confirm(vec![fence]).await {
            Ok(standing) if standing.iter().all(|stands| *stands) => Ok(()),
            _ => Err(Error::NotHere(shard)),
        }
    }

    /// Takes a message to its entity.
    async fn take(&self, mut request: Request) -> Answer {
        let placed = self.host.place(&request)?;
        let (location, stands) = self.ownership.locate_standing(&placed.shard);
        if let (true, true, Location::Here(fence)) = (placed.volatile, stands, &location) {
            match self.now(request, fence).await {
                Ok(answer) => return answer,
                Err(busy) => request = *busy,
            }
        }
        // What takes longer takes more room, too.
        Box::pin(self.follow(request, placed, location)).await
    }

    /// Asks an entity of this runner that can answer at once. Gives the request back otherwise.
    async fn now(&self, request: Request, fence: &Fence) -> Result<Answer, Box<Request>> {
        // It is not handed over before what was answered is proven: afterwards nobody could tell when that was.
        let (answer, _held) = self.host.request_now(request).await?;
        Ok(self.proven(answer, fence).await)
    }

    /// Takes a message to its entity, following it as it moves.
    async fn follow(&self, mut request: Request, placed: Placement, location: Location) -> Answer {
        let Placement { shard, mut volatile, is_known } = placed;
        let mut route = Route::to(shard, location);
        let deadline = Instant::now() + self.patience;
        loop {
            let missed = match route.target() {
                Location::Here(fence) => match self.here(&request, fence, volatile).await {
                    // Its type was registered meanwhile, in another group.
                    Err(Error::NotHere(shard)) if shard != *route.shard() => {
                        if route.redirect(self, Moved { shard, holder: None }) {
                            continue;
                        }
                        Missed::NotRun
                    }
                    Err(Error::NotHere(_)) => Missed::NotRun,
                    Err(Error::Lost(_)) if !volatile => Missed::MayHaveRun,
                    answer => return answer,
                },
                Location::There(holder) => {
                    match self.peers.call(&holder.address, wire::outward(&request)).await {
                        Ok(outcome) => return Ok(wire::heard(request.want, outcome)),
                        Err(transport::Error::Moved(moved)) => {
                            tracing::debug!(%moved, "following");
                            if route.redirect(self, moved) {
                                continue;
                            }
                            Missed::NotRun
                        }
                        Err(transport::Error::Rejected(error)) => return Err(rejection::read(error)),
                        Err(error) if !error.may_have_run() => {
                            fatal(&error).map_or(Ok(Missed::NotRun), Err)?
                        }
                        Err(_) if volatile && (is_known || !self.is_stored(&request).await) => {
                            return Err(Error::Lost(route.shard().clone()));
                        }
                        Err(_) => {
                            volatile = false;
                            Missed::MayHaveRun
                        }
                    }
                }
                Location::Nowhere => Missed::NotRun,
            };
            request.resent |= matches!(missed, Missed::MayHaveRun);
            let waited = route.wait(self, deadline).await;
            // Whoever may have it can still run it, however long we do not hear of that.
            waited
                .map_err(|error| if request.resent { Error::Lost(route.shard().clone()) } else { error })?;
        }
    }

    /// Whether a request of a type that is not registered here is in the database: then its method is persisted, and it can be sent again.
    async fn is_stored(&self, request: &Request) -> bool {
        let progress = self.host.store().progress(request.envelope.id).await;
        progress.is_ok_and(|progress| progress != Progress::Unknown)
    }

    /// Asks an entity of this runner.
    async fn here(&self, request: &Request, fence: &Fence, volatile: bool) -> Answer {
        if !volatile {
            return self.host.request(request.clone()).await;
        }
        if !self.ownership.stands(fence) {
            self.prove(fence.clone()).await?;
        }
        // As above.
        let _held = self.host.hold(fence);
        let answer = self.host.request(request.clone()).await;
        self.proven(answer, fence).await
    }

    /// A volatile answer counts only if the fence stands when it is given.
    async fn proven(&self, answer: Answer, fence: &Fence) -> Answer {
        if answer.is_ok() && !self.ownership.stands(fence) {
            let proof = Box::pin(self.prove(fence.clone())).await;
            proof.map_err(|_| Error::Lost(fence.shard.clone()))?;
        }
        answer
    }
}

/// What is known of a request that was not answered.
enum Missed {
    NotRun,
    MayHaveRun,
}

/// An error that comes again however often the request is sent.
pub(super) fn fatal(error: &transport::Error) -> Option<Error> {
    match error {
        transport::Error::RequestTooLarge { .. } | transport::Error::Invalid(_) => {
            Some(Error::Codec { what: "the request", detail: error.to_string() })
        }
        _ => None,
    }
}

#[async_trait]
impl Router for Inner {
    fn next_id(&self) -> Result<Snowflake, Exhausted> {
        self.host.next_id()
    }

    async fn draw_id(&self) -> Result<Snowflake, Exhausted> {
        self.host.draw_id().await
    }

    async fn request(&self, request: Request) -> Answer {
        self.take(request).await
    }

    async fn stream(&self, request: Request) -> Result<Replies, Error> {
        self.open(request).await
    }

    async fn replies(&self, request: &RequestId, after: Option<Sequence>) -> Result<Replies, Error> {
        self.read(request, after)
    }

    async fn acknowledge(&self, request: &RequestId, sequence: Sequence) -> Result<(), Error> {
        self.ask(request, About::Acknowledge(sequence)).await.map(drop)
    }

    async fn progress(&self, request: &RequestId) -> Result<Progress, Error> {
        Router::progress(&self.host, request).await
    }

    async fn keyed(
        &self,
        group: &GroupName,
        slot: Slot,
        key: &IdempotencyKey,
    ) -> Result<Option<Snowflake>, Error> {
        Router::keyed(&self.host, group, slot, key).await
    }

    async fn join(&self, request: &RequestId) -> Result<Outcome, Error> {
        let told = self.ask(request, About::Join).await?;
        request::read::<Option<Outcome>>(&told)?.ok_or(Error::NoSuchRequest(request.id))
    }

    async fn interrupt(&self, request: &RequestId) -> Result<bool, Error> {
        request::read(&self.ask(request, About::Interrupt).await?)
    }
}
