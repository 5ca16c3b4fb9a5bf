//! What a handler is given and what it gives back.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::Serialize;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard};

use super::state::State;
use super::stream::Output;
use super::{Context, Definition, Emitter, Refusal, Reserved};
use crate::message::{EntityAddress, Failure, Headers, Snowflake, codec};
use crate::shard::Fence;

/// A type of entity.
pub trait Entity: Send + Sync + 'static {
    /// What can be asked of it.
    fn definition(&self) -> &Definition;

    /// The right to a name that only types of the runtime have. Others have none.
    #[doc(hidden)]
    fn reserved(&self) -> Option<Reserved> {
        None
    }

    /// Makes what an instance has besides its state and keeps for as long as it is in memory: each handler that is made for it gets the
    /// same, also after a crash. Nothing, if it is not said otherwise.
    ///
    /// # Errors
    /// As [`activate`](Self::activate).
    fn acquire<'a>(&'a self, _address: &'a EntityAddress) -> BoxFuture<'a, Result<Resources, HandlerError>> {
        let nothing: Resources = Arc::new(());
        Box::pin(std::future::ready(Ok(nothing)))
    }

    /// Makes the handler of one instance with its resources.
    ///
    /// # Errors
    /// As [`activate`](Self::activate).
    fn activate_with<'a>(
        &'a self,
        address: &'a EntityAddress,
        _resources: Resources,
    ) -> BoxFuture<'a, Result<Arc<dyn Handler>, HandlerError>> {
        self.activate(address)
    }

    /// Makes the handler of one instance, when that is first asked something, and again after it was evicted or crashed.
    ///
    /// # Errors
    /// A failure ends the request for which it was made; [`HandlerError::Retry`] counts as a failed attempt of it.
    fn activate<'a>(
        &'a self,
        address: &'a EntityAddress,
    ) -> BoxFuture<'a, Result<Arc<dyn Handler>, HandlerError>>;
}

/// What an instance of an entity keeps while it is in memory, whatever happens to its handler: connections, caches, subscriptions.
pub type Resources = Arc<dyn std::any::Any + Send + Sync>;

/// One instance of an entity.
pub trait Handler: Send + Sync + 'static {
    /// Handles one message. What it gives back is the reply.
    ///
    /// # Errors
    /// See [`HandlerError`]. A handler that fails has changed nothing: its state and its sends are forgotten.
    fn handle<'a>(&'a self, call: &'a mut Call) -> BoxFuture<'a, Result<Bytes, HandlerError>>;
}

/// Why a handler has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandlerError {
    /// A considered no: the request's end.
    Failed(Failure),
    /// It did not work this time. A persisted message is tried again after a while; a volatile one ends as a defect.
    Retry(String),
    /// The same, and so much time should pass at least before it is tried again.
    RetryAfter(String, Duration),
    /// Nothing was tried, because a circuit breaker is open. A persisted message is tried after so much time, and this does not count as
    /// an attempt; a volatile one ends as a defect.
    Delayed(String, Duration),
}

impl HandlerError {
    /// A considered no, in words.
    pub fn failed(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Failed(Failure { kind: kind.into(), message: message.into(), details: Bytes::new() })
    }
}

impl From<codec::Error> for HandlerError {
    fn from(error: codec::Error) -> Self {
        let error = super::Error::codec("a value", &error);
        Self::failed(error.reason().to_owned(), error.to_string())
    }
}

/// The state, as far as the method asked for it.
pub(super) enum Held {
    Nothing,
    Read(OwnedRwLockReadGuard<State>),
    Write(OwnedRwLockWriteGuard<State>),
}

/// One message, with all that its handler may do.
pub struct Call {
    pub(super) context: Context,
    pub(super) held: Held,
    pub(super) output: Option<Arc<Output>>,
}

impl Call {
    /// Who is asked.
    pub fn address(&self) -> &EntityAddress {
        self.context.address()
    }

    /// What is asked.
    pub fn method(&self) -> &str {
        self.context.method()
    }

    /// The input, as the caller wrote it.
    pub fn payload(&self) -> &Bytes {
        self.context.payload()
    }

    /// The request's id: the same for each attempt.
    pub fn request(&self) -> Snowflake {
        self.context.request()
    }

    /// What else the caller said.
    pub fn headers(&self) -> &Headers {
        self.context.headers()
    }

    /// The trace that this message, and whatever is done because of it, belongs to.
    pub fn trace(&self) -> Option<&crate::message::TraceContext> {
        self.context.trace()
    }

    /// How many attempts have failed before this one.
    pub fn attempt(&self) -> i32 {
        self.context.attempt()
    }

    /// What to show to systems outside that can refuse a writer of an earlier epoch.
    pub fn fence(&self) -> &Fence {
        self.context.fence()
    }

    /// The input as a value.
    ///
    /// # Errors
    /// The bytes are not such a value.
    pub fn input<T: serde::de::DeserializeOwned>(&self) -> Result<T, HandlerError> {
        codec::decode(self.payload()).map_err(|error| {
            let error = super::Error::codec("the input", &error);
            HandlerError::failed(error.reason().to_owned(), error.to_string())
        })
    }

    /// Everything but the input and the state.
    pub fn context(&mut self) -> &mut Context {
        &mut self.context
    }

    /// The state, for methods that look at it or change it.
    ///
    /// # Errors
    /// The method's definition does not ask for the state, or the state is of another type.
    pub fn state<T: 'static>(&self) -> Result<&T, HandlerError> {
        self.held.read()
    }

    /// The state, for methods that change it.
    ///
    /// # Errors
    /// The method's definition does not say that it changes the state, or the state is of another type.
    pub fn state_mut<T: 'static>(&mut self) -> Result<&mut T, HandlerError> {
        self.held.write()
    }

    /// The context together with the state, for methods that look at it.
    ///
    /// # Errors
    /// Those of [`state`](Self::state).
    pub fn reading<T: 'static>(&mut self) -> Result<(&mut Context, &T), HandlerError> {
        Ok((&mut self.context, self.held.read()?))
    }

    /// The context together with the state, for methods that change it.
    ///
    /// # Errors
    /// Those of [`state_mut`](Self::state_mut).
    pub fn writing<T: 'static>(&mut self) -> Result<(&mut Context, &mut T), HandlerError> {
        Ok((&mut self.context, self.held.write()?))
    }

    /// What the items of a streamed reply are given to.
    ///
    /// # Errors
    /// The method's definition does not say that its reply is a stream.
    pub fn emitter<T: Serialize>(&self) -> Result<Emitter<T>, HandlerError> {
        let output = self.output.clone().ok_or_else(|| {
            HandlerError::failed("NotStreaming", "this method is not declared to give a stream of items")
        })?;
        Ok(Emitter::new(output))
    }

    /// Sends a one-way message: stored together with this handler's reply, or not at all.
    ///
    /// # Errors
    /// The input has no form in MessagePack.
    pub fn send<T: Serialize>(
        &mut self,
        address: EntityAddress,
        method: &str,
        input: &T,
        deliver_at: Option<SystemTime>,
    ) -> Result<(), HandlerError> {
        self.context.send_to(address, method, input, deliver_at)
    }

    /// The reply to give back for what a handler's own function returned.
    ///
    /// # Errors
    /// The function's, in the form in which it travels to the caller; or that of a message which could not be sent.
    pub fn answer<T: Serialize, E: Refusal>(&mut self, result: Result<T, E>) -> Result<Bytes, HandlerError> {
        let reply = result.map_err(Refusal::into_handler_error)?;
        if let Some(error) = self.context.take_broken() {
            return Err(HandlerError::failed(error.reason().to_owned(), error.to_string()));
        }
        Ok(codec::encode(&reply)?.into())
    }
}

impl Held {
    fn read<T: 'static>(&self) -> Result<&T, HandlerError> {
        let state = match self {
            Self::Nothing => None,
            Self::Read(state) => state.get::<T>(),
            Self::Write(state) => state.get::<T>(),
        };
        state.ok_or_else(|| no_state::<T>("look at"))
    }

    fn write<T: 'static>(&mut self) -> Result<&mut T, HandlerError> {
        let state = match self {
            Self::Nothing | Self::Read(_) => None,
            Self::Write(state) => state.get_mut::<T>(),
        };
        state.ok_or_else(|| no_state::<T>("change"))
    }
}

fn no_state<T>(what: &str) -> HandlerError {
    let state = std::any::type_name::<T>();
    HandlerError::failed("NoState", format!("this method is not declared to {what} a state of type {state}"))
}
