//! Entities written in Rust: what the macros' code stands on.
//!
//! `#[entity]` says how a type is kept ([`Declared`], and [`Stateful`] if it has a state), `#[entity_impl]` and `#[rpc_group_impl]`
//! say what can be asked ([`Serve`]). A [`Service`] puts a type and its groups together. All of it can be written by hand, too.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;

use super::{
    Call, Concurrency, Context, Definition, Entity, Handler, HandlerError, InvalidDefinition, Method,
    StateType,
};
use crate::client::{EntityClient, Runtime};
use crate::message::{EntityAddress, EntityType};
use crate::shard::GroupName;

/// What can be asked of something, and the answers.
pub trait Serve: Send + Sync + 'static {
    /// What can be asked, by name.
    fn methods(&self) -> Vec<(&'static str, Method)>;

    /// Handles one message of any instance.
    ///
    /// # Errors
    /// See [`HandlerError`].
    fn serve<'a>(&'a self, call: &'a mut Call) -> Serving<'a>;
}

/// A message that is being handled.
pub type Serving<'a> = BoxFuture<'a, Result<Bytes, HandlerError>>;

/// An RPC group as `#[rpc_group]` declares it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not declared as an RPC group",
    label = "it cannot be composed into an entity",
    note = "put `#[rpc_group]` on the struct and `#[rpc_group_impl]` on its impl block"
)]
pub trait Group {}

/// A client of entities into which a group is composed, as other entities and workflows ask them.
pub trait Has<G>: AsRef<EntityClient> {}

/// A type of entity as `#[entity]` declares it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not declared as an entity",
    label = "this type has methods of an entity, but is none",
    note = "put `#[entity]` on the struct"
)]
pub trait Declared: Sized {
    /// The client that asks it.
    type Client: From<EntityClient>;

    /// Its name and how its instances are kept.
    fn settings() -> Settings;
}

/// A type of entity with a durable state.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no state",
    label = "this method wants a state",
    note = "declare it: `#[entity(state = YourState)]`"
)]
pub trait Stateful {
    /// The state of each instance.
    type State: 'static;
}

/// How instances are kept, as written in `#[entity(...)]`. What is not said is as the host's options say.
#[derive(Debug, Clone)]
pub struct Settings {
    name: &'static str,
    group: Option<&'static str>,
    state: Option<StateType>,
    idle: Option<Duration>,
    mailbox: Option<NonZeroUsize>,
    concurrency: Option<Concurrency>,
}

impl Settings {
    /// A stateless type with the host's defaults.
    pub fn new(name: &'static str) -> Self {
        Self { name, group: None, state: None, idle: None, mailbox: None, concurrency: None }
    }

    /// With a durable state.
    #[must_use]
    pub fn state(self, state: StateType) -> Self {
        Self { state: Some(state), ..self }
    }

    /// In another shard group.
    #[must_use]
    pub fn group(self, group: &'static str) -> Self {
        Self { group: Some(group), ..self }
    }

    /// Instances that are not asked anything leave memory after so much time.
    #[must_use]
    pub fn idle(self, idle: Duration) -> Self {
        Self { idle: Some(idle), ..self }
    }

    /// So many messages may wait for one instance; at least one.
    #[must_use]
    pub fn mailbox(self, capacity: usize) -> Self {
        Self { mailbox: Some(NonZeroUsize::new(capacity).unwrap_or(NonZeroUsize::MIN)), ..self }
    }

    /// One instance handles so many messages at once; 0 for all that come.
    #[must_use]
    pub fn concurrency(self, most: usize) -> Self {
        let concurrency = NonZeroUsize::new(most).map_or(Concurrency::Unbounded, Concurrency::Limited);
        Self { concurrency: Some(concurrency), ..self }
    }

    /// The type's name and its group.
    pub(super) fn place(&self) -> Result<(EntityType, GroupName), InvalidDefinition> {
        let group = self.group.map(GroupName::new).transpose()?;
        Ok((EntityType::new(self.name)?, group.unwrap_or_default()))
    }

    fn definition(self) -> Result<Definition, InvalidDefinition> {
        let (entity_type, group) = self.place()?;
        Ok(Definition {
            group,
            state: self.state,
            idle: self.idle,
            mailbox: self.mailbox,
            concurrency: self.concurrency,
            ..Definition::new(entity_type)
        })
    }
}

/// A type of entity together with the groups that are composed into it. All its instances share it: what tells them apart is their
/// durable state and the context of each call.
pub struct Service {
    definition: Definition,
    parts: Arc<Parts>,
}

struct Parts {
    parts: Vec<Arc<dyn Serve>>,
    /// Which part has a method.
    methods: HashMap<&'static str, usize>,
}

impl Service {
    /// Puts parts together.
    ///
    /// # Errors
    /// [`InvalidDefinition`] if the settings are not well formed, or if two parts have methods of the same name.
    pub fn new(settings: Settings, parts: Vec<Arc<dyn Serve>>) -> Result<Self, InvalidDefinition> {
        let mut definition = settings.definition()?;
        let mut methods = HashMap::new();
        for (index, part) in parts.iter().enumerate() {
            for (name, method) in part.methods() {
                if methods.insert(name, index).is_some() {
                    let entity_type = definition.entity_type;
                    return Err(InvalidDefinition::Duplicate { entity_type, method: name.to_owned() });
                }
                definition = definition.method(name, method);
            }
        }
        Ok(Self { definition, parts: Arc::new(Parts { parts, methods }) })
    }

    /// Registers it, and gives the client that asks it.
    ///
    /// # Errors
    /// [`InvalidDefinition`] says what contradicts itself.
    pub fn register<C: From<EntityClient>>(
        self,
        runtime: &(impl Runtime + ?Sized),
    ) -> Result<C, InvalidDefinition> {
        let client = EntityClient::new(runtime.router(), self.definition.entity_type.clone())
            .in_group(self.definition.group.clone());
        runtime.register_entity(Arc::new(self))?;
        Ok(client.into())
    }
}

impl Entity for Service {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn activate<'a>(&'a self, _: &'a EntityAddress) -> BoxFuture<'a, Result<Arc<dyn Handler>, HandlerError>> {
        let handler: Arc<dyn Handler> = self.parts.clone();
        Box::pin(std::future::ready(Ok(handler)))
    }
}

impl Handler for Parts {
    fn handle<'a>(&'a self, call: &'a mut Call) -> BoxFuture<'a, Result<Bytes, HandlerError>> {
        match self.methods.get(call.method()).and_then(|index| self.parts.get(*index)) {
            Some(part) => part.serve(call),
            None => Box::pin(std::future::ready(Err(unknown_method(call)))),
        }
    }
}

/// Makes a client for a type that is registered somewhere, maybe not here.
///
/// # Errors
/// [`InvalidDefinition`] if the settings are not well formed.
pub fn client<T: Declared>(runtime: &(impl Runtime + ?Sized)) -> Result<T::Client, InvalidDefinition> {
    let (entity_type, group) = T::settings().place()?;
    Ok(EntityClient::new(runtime.router(), entity_type).in_group(group).into())
}

/// The context and the state of a method that looks at it.
///
/// # Errors
/// Those of [`Call::state`].
pub fn reading<T: Stateful<State = S>, S: 'static>(
    call: &mut Call,
) -> Result<(&mut Context, &S), HandlerError> {
    call.reading()
}

/// The context and the state of a method that changes it.
///
/// # Errors
/// Those of [`Call::state_mut`].
pub fn writing<T: Stateful<State = S>, S: 'static>(
    call: &mut Call,
) -> Result<(&mut Context, &mut S), HandlerError> {
    call.writing()
}

/// A group as a part of an entity.
pub fn group(group: impl Group + Serve) -> Arc<dyn Serve> {
    Arc::new(group)
}

/// There is no such method.
pub fn unknown_method(call: &Call) -> HandlerError {
    let error = super::Error::UnknownMethod {
        entity_type: call.address().entity_type.clone(),
        method: call.method().to_owned(),
    };
    HandlerError::failed(error.reason().to_owned(), error.to_string())
}
