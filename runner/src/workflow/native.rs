//! Workflows with types: what the macros' code stands on.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::{Client, Context, Definition, Host, Workflow};
use crate::client;
use crate::entity::{self, HandlerError, InvalidDefinition, Refusal};
use crate::message::codec;

/// What runs workflows.
pub trait Runtime: client::Runtime {
    /// Who runs the executions.
    fn workflows(&self) -> &Host;
}

impl client::Runtime for Host {
    fn register_entity(&self, entity: Arc<dyn entity::Entity>) -> Result<(), InvalidDefinition> {
        self.entities().register(entity)
    }

    fn router(&self) -> Arc<dyn client::Router> {
        self.entities().router()
    }
}

impl Runtime for Host {
    fn workflows(&self) -> &Host {
        self
    }
}

/// A workflow as `#[workflow]` declares it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not declared as a workflow",
    label = "this type has the function of a workflow, but is none",
    note = "put `#[workflow]` on the struct"
)]
pub trait Declared {
    /// What it is called and where its executions live.
    ///
    /// # Errors
    /// Its name or that of its shard group is malformed.
    fn definition() -> Result<Definition, InvalidDefinition>;
}

/// The activity groups of a workflow, as `#[workflow_impl]` says.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no function",
    label = "a workflow needs one",
    note = "put `#[workflow_impl]` on an impl block with `execute`"
)]
pub trait Grouped {
    /// All of them.
    type Groups: Clone + Send + Sync + 'static;
}

/// A workflow with types, as `#[workflow]` and `#[workflow_impl]` make it.
pub trait Execute: Send + Sync + 'static {
    /// What its function is given.
    type Input: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// What it gives.
    type Output: Serialize + DeserializeOwned + Send + 'static;
    /// Its own error.
    type Error: Serialize + DeserializeOwned + std::fmt::Display + Send + 'static;

    /// What it is called and where its executions live.
    ///
    /// # Errors
    /// Its name or that of its shard group is malformed.
    fn definition() -> Result<Definition, InvalidDefinition>;

    /// What makes two starts one execution. If there is none, the input does.
    fn key(input: &Self::Input) -> Option<Key>;
}

/// What makes two starts one execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// The execution's id itself.
    Raw(String),
    /// The execution's id is its digest.
    Hashed(String),
}

impl Key {
    /// The id of the execution.
    pub fn id(&self) -> String {
        match self {
            Self::Raw(key) => key.clone(),
            Self::Hashed(key) => digest(key.as_bytes()),
        }
    }
}

/// 128 bits of a digest: nobody finds two that collide.
pub(super) fn digest(bytes: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(b"cleat.execution.1");
    hash.update(bytes);
    let full: [u8; 32] = hash.finalize().into();
    full.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// A typed workflow as the engine runs it.
pub struct Service<W: Execute> {
    definition: Definition,
    run: Box<Run<W>>,
}

type Run<W> = dyn Fn(Context, <W as Execute>::Input) -> BoxFuture<'static, Result<<W as Execute>::Output, HandlerError>>
    + Send
    + Sync;

impl<W: Execute> Service<W> {
    /// A workflow whose function is this one.
    ///
    /// # Errors
    /// Its name is malformed.
    pub fn new<F, E>(run: F) -> Result<Self, InvalidDefinition>
    where
        F: Fn(Context, W::Input) -> BoxFuture<'static, Result<W::Output, E>> + Send + Sync + 'static,
        E: Refusal + Send + 'static,
    {
        let run = Box::new(move |context, input| {
            let running = run(context, input);
            let running: BoxFuture<'static, _> =
                Box::pin(async move { running.await.map_err(Refusal::into_handler_error) });
            running
        });
        Ok(Self { definition: W::definition()?, run })
    }

    /// Registers it, and gives the client that starts it.
    ///
    /// # Errors
    /// [`InvalidDefinition`] says what contradicts itself.
    pub fn register(self, runtime: &(impl Runtime + ?Sized)) -> Result<Client<W>, InvalidDefinition> {
        runtime.workflows().register(Arc::new(self))?;
        Client::new(runtime)
    }
}

impl<W: Execute> Workflow for Service<W> {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn key(&self, input: &Bytes) -> Option<Key> {
        // An input that cannot be read has no key of its own: its execution begins, and fails.
        W::key(&codec::decode(input).ok()?)
    }

    fn execute(&self, context: Context, input: Bytes) -> BoxFuture<'static, Result<Bytes, HandlerError>> {
        let input = match codec::decode(&input) {
            Ok(input) => input,
            Err(error) => return Box::pin(std::future::ready(Err(HandlerError::from(error)))),
        };
        let running = (self.run)(context, input);
        Box::pin(async move { Ok(codec::encode(&running.await?)?.into()) })
    }
}

/// What a function that a user wrote into an attribute gives.
pub fn apply<I: ?Sized, O>(function: impl FnOnce(&I) -> O, input: &I) -> O {
    function(input)
}
