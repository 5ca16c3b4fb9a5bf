//! What a handler reaches beyond its message and its state: SQL, and other entities.

use std::future::IntoFuture;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;

use super::activation::Activation;
use super::chain::{Chain, DERIVED};
use super::earlier::Earlier;
use super::job::{Interrupt, Job, Origin};
use super::native::Declared;
use super::shard::Shard;
use super::{Access, Context, Error, InvalidDefinition};
use crate::client::{self, EntityClient, Router};
use crate::message::{EntityType, IdempotencyKey, RequestId, Snowflake};
use crate::shard::{Fence, GroupName};
use crate::store::{self, Committed, Message, Transaction};

/// What a handler needs for that.
pub(super) struct Reach {
    me: Arc<Activation>,
    shard: Arc<Shard>,
    interrupt: Option<Arc<Interrupt>>,
    earlier: Earlier,
    /// Whether the handler is alone in its instance.
    alone: bool,
    persisted: bool,
    /// Whether the message was stored for the sake of a call. None if it was stored before it ran, or if nothing is.
    accepted: Option<Arc<OnceCell<Committed>>>,
    /// How many calls have been made.
    calls: u32,
    /// One for each call that is under way, and one for this, once there was a call.
    under_way: Option<Arc<()>>,
    /// A state that the handler may have seen was never committed: whatever it says, it is run again.
    stale: bool,
}

/// A user's transaction that commits with the reply.
pub(super) struct Opened {
    pub(super) transaction: Transaction,
    /// The generation that the handler began in.
    pub(super) generation: u32,
}

impl Reach {
    pub(super) fn new(
        me: &Arc<Activation>,
        shard: &Arc<Shard>,
        job: &Job,
        earlier: Earlier,
        access: Access,
    ) -> Self {
        let fresh = job.persisted && matches!(job.origin, Origin::Fresh { .. });
        Self {
            me: Arc::clone(me),
            shard: Arc::clone(shard),
            interrupt: job.interrupt.clone(),
            earlier,
            alone: access == Access::Write,
            persisted: job.persisted,
            accepted: fresh.then(Arc::default),
            calls: 0,
            under_way: None,
            stale: false,
        }
    }

    /// Whose handler it is.
    pub(super) fn instance(&self) -> &Activation {
        &self.me
    }

    /// The right under which it runs.
    pub(super) fn fence(&self) -> &Fence {
        &self.shard.fence
    }

    /// What became of storing the message, if a call made that necessary.
    pub(super) fn accepted(&self) -> Option<&Committed> {
        self.accepted.as_ref()?.get()
    }

    /// Whether the handler has to be run again.
    pub(super) fn is_stale(&self) -> bool {
        self.stale
    }
}

impl Context {
    /// A SQL transaction that commits together with this handler's reply, state and sends, exactly once; the same one each time.
    ///
    /// # Guarantees
    /// - If the handler fails or panics, or its reply cannot be committed, nothing of the transaction is.
    /// - What the handler saw of its state is committed when this comes back: it waits for the commits that it ran ahead of.
    ///
    /// # Caveats
    /// - A method that does nothing but this says `effects = "inside"`: then its message is not stored before it runs.
    /// - It holds a connection, on SQLite the right to write at all. So open it late; calls of other entities come before it.
    ///
    /// # Errors
    /// The method is volatile, a call is under way, or the store's. A handler passes them on as worth another attempt
    /// ([`OrRetry::retry`](super::OrRetry::retry)), as it does with most errors of its statements.
    pub async fn tx(&mut self) -> Result<&mut Transaction, Error> {
        let address = self.message.envelope.address.clone();
        if !self.reach.persisted {
            let method = self.message.envelope.method.clone();
            return Err(Error::NoTransaction { entity_type: address.entity_type, method });
        }
        if self.reach.under_way.as_ref().is_some_and(|calls| Arc::strong_count(calls) > 1) {
            return Err(Error::CallInTransaction(address));
        }
        let opened = match &mut self.effects.transaction {
            Some(opened) => opened,
            none => {
                if !self.reach.earlier.succeeded().await {
                    self.reach.stale = true;
                    return Err(Error::Lost(self.reach.shard.fence.shard.clone()));
                }
                let transaction = self.reach.shard.store().begin().await?;
                none.insert(Opened { transaction, generation: self.reach.earlier.generation() })
            }
        };
        Ok(&mut opened.transaction)
    }

    /// The way to all entities.
    pub(crate) fn router(&self) -> Arc<dyn Router> {
        self.reach.shard.router()
    }

    /// The shard group of a type, as far as it is known here.
    pub(crate) fn group_of(&self, entity_type: &EntityType) -> GroupName {
        self.reach.shard.group_of(entity_type)
    }

    /// A client for another type of entity, wherever it lives.
    ///
    /// # Errors
    /// [`InvalidDefinition`] if the type's name or group is malformed.
    pub fn client<T: Declared>(&self) -> Result<T::Client, InvalidDefinition> {
        let (entity_type, group) = T::settings().place()?;
        Ok(EntityClient::new(self.reach.shard.router(), entity_type).in_group(group).into())
    }

    /// Asks another entity and gives its reply. Several calls may be under way at once; each counts from when this is called.
    ///
    /// # Guarantees
    /// - A handler that is run again asks the same question and gets the same answer, if both methods are persisted: the call's
    ///   key is made of this request's id and the call's number. So the order of calls, and what they ask, must not depend on
    ///   chance; the same number with another input is refused as `KeyReused`. A key of the call's own is left as it is.
    /// - Protected methods are open to it.
    /// - The message that is being handled is stored before the first call is made, whatever the method's effects are said to be.
    /// - A call that could only wait for its own caller fails at once as [`Error::Deadlock`].
    /// - If this request is interrupted, the call is, too.
    ///
    /// # Errors
    /// The method's own, or anything else. While [`tx`](Self::tx) is open, no call can be made.
    pub fn call<T, E>(&mut self, call: client::Call<T, E>) -> BoxFuture<'static, Result<T, client::Error<E>>>
    where
        T: DeserializeOwned + Send + 'static,
        E: DeserializeOwned + Send + 'static,
    {
        let number = self.reach.calls;
        self.reach.calls = number.saturating_add(1);
        let envelope = &self.message.envelope;
        if self.effects.transaction.is_some() {
            let error = Error::CallInTransaction(envelope.address.clone());
            return std::future::ready(Err(error.into())).boxed();
        }
        let chain = Chain::of(envelope);
        let Some(chain) = chain.clone().and(envelope) else {
            return std::future::ready(Err(Error::TooDeep(Box::new(chain)).into())).boxed();
        };
        let trace = self.trace();
        let key = self.reach.persisted.then(|| derived_key(envelope.id, number));
        let call = call.asked_inside(|parts| {
            parts.headers.extend(chain.header());
            parts.trace = parts.trace.take().or_else(|| trace.cloned());
            if let (Some(key), None) = (&key, &parts.key) {
                parts.key = Some(IdempotencyKey::new(&parts.address, &parts.method, key));
                parts.headers.insert(DERIVED.to_owned(), String::new());
            }
        });
        let asking = Asking {
            me: Arc::clone(&self.reach.me),
            shard: Arc::clone(&self.reach.shard),
            message: Arc::clone(&self.message),
            accepted: self.reach.accepted.clone(),
            _under_way: Arc::clone(self.reach.under_way.get_or_insert_default()),
        };
        let (alone, interrupt) = (self.reach.alone, self.reach.interrupt.clone());
        async move {
            asking.store().await?;
            let (call, target) = call.numbered().await?;
            let waits = Waits::enter(&asking, alone, interrupt, target);
            let reply = call.into_future().await;
            waits.done();
            reply
        }
        .boxed()
    }
}

/// What makes the question of a rerun the same question.
fn derived_key(request: Snowflake, number: u32) -> Vec<u8> {
    let mut key = b"cleat-call-".to_vec();
    key.extend(request.get().to_be_bytes());
    key.extend(number.to_be_bytes());
    key
}

/// A handler that asks.
struct Asking {
    me: Arc<Activation>,
    shard: Arc<Shard>,
    message: Arc<Message>,
    accepted: Option<Arc<OnceCell<Committed>>>,
    _under_way: Arc<()>,
}

impl Asking {
    /// Stores the message that is being handled, unless it is: a call is an effect that outlives the handler.
    async fn store(&self) -> Result<(), Error> {
        let Some(accepted) = &self.accepted else { return Ok(()) };
        match accepted.get_or_try_init(|| self.shard.accept(&self.message)).await? {
            Committed::Applied => Ok(()),
            // It ran before: what this handler says does not count any more.
            Committed::Duplicate { .. } => Err(Error::Lost(self.shard.fence.shard.clone())),
        }
    }
}

/// Whom to interrupt.
pub(crate) struct Target {
    pub(crate) router: Arc<dyn Router>,
    pub(crate) request: RequestId,
    pub(crate) key: Option<IdempotencyKey>,
}

impl Target {
    /// Interrupts the request, also if it is an earlier one's duplicate.
    async fn interrupt(mut self) -> Result<(), Error> {
        if self.router.interrupt(&self.request).await? {
            return Ok(());
        }
        if let Some(key) = &self.key
            && let Some(first) = self.router.keyed(&self.request.group, self.request.slot, key).await?
        {
            self.request.id = first;
            self.router.interrupt(&self.request).await?;
        }
        Ok(())
    }
}

/// A request that waits for another one, for as long as this is there.
struct Waits {
    me: Arc<Activation>,
    request: Snowflake,
    interrupt: Option<Arc<Interrupt>>,
    target: Option<Target>,
}

impl Waits {
    fn enter(asking: &Asking, alone: bool, interrupt: Option<Arc<Interrupt>>, target: Target) -> Self {
        let request = asking.message.envelope.id;
        asking.me.waiting.enter(request, alone);
        Self { me: Arc::clone(&asking.me), request, interrupt, target: Some(target) }
    }

    fn done(mut self) {
        self.target = None;
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.me.waiting.leave(self.request);
        // A handler that is dropped for another reason, such as a hand-over, is run again and asks again.
        if let Some(target) = self.target.take()
            && self.interrupt.as_ref().is_some_and(|interrupt| interrupt.is_requested())
        {
            tokio::spawn(async move {
                if let Err(error) = target.interrupt().await {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "a call goes on though its caller was interrupted"
                    );
                }
            });
        }
    }
}

/// The error of a commit whose handler saw a state that does not exist.
pub(super) fn stale(me: &Activation) -> store::Error {
    store::Basis::State { address: me.address.clone(), version: 0 }.into()
}
