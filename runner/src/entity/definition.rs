//! What can be asked of an entity.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use super::StateType;
use crate::message::{EntityType, InvalidAddress, Uninterruptible};
use crate::shard::{GroupName, InvalidGroupName};

/// A type of entity: what can be asked of it, and how its instances are kept.
///
/// What is `None` is as the host's options say.
#[derive(Debug, Clone)]
pub struct Definition {
    /// Its name.
    pub entity_type: EntityType,
    /// The shard group that its instances live in.
    pub group: GroupName,
    /// What can be asked.
    pub methods: BTreeMap<String, Method>,
    /// The state of each instance that is stored, if it has one.
    pub state: Option<StateType>,
    /// After how long an instance that is not asked anything leaves memory.
    pub idle: Option<Duration>,
    /// How many messages may wait for one instance before its senders have to.
    pub mailbox: Option<NonZeroUsize>,
    /// How many messages one instance handles at once.
    pub concurrency: Option<Concurrency>,
}

/// A definition that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDefinition {
    /// A volatile method would change a durable state, and nothing would store that.
    #[error("method {method} of {entity_type} changes the state and is volatile: make it persisted")]
    VolatileWrite {
        /// The type.
        entity_type: EntityType,
        /// The method.
        method: String,
    },
    /// Two parts of an entity have a method of the same name.
    #[error(
        "{entity_type} has two methods {method}: rename one of them, or compose only one of their groups"
    )]
    Duplicate {
        /// The type.
        entity_type: EntityType,
        /// The method.
        method: String,
    },
    /// The type's name cannot be one.
    #[error(transparent)]
    Name(#[from] InvalidAddress),
    /// The shard group's name cannot be one.
    #[error(transparent)]
    Group(#[from] InvalidGroupName),
    /// The type's name begins as only those of the runtime do.
    #[error(
        "{entity_type} begins with `{prefix}`, as only the types of the runtime itself do: choose another name"
    )]
    Reserved {
        /// The type.
        entity_type: EntityType,
        /// How it begins.
        prefix: &'static str,
    },
    /// A method wants a state that the entity does not have.
    #[error("method {method} of {entity_type} wants a state, and the entity has none: declare one")]
    NoState {
        /// The type.
        entity_type: EntityType,
        /// The method.
        method: String,
    },
}

/// How the names of the runtime's own types begin.
const RESERVED: [&str; 2] = ["workflow:", "cleat."];

/// The right to a name that only types of the runtime have. Nobody else can make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved(());

impl Reserved {
    pub(crate) fn new() -> Self {
        Self(())
    }
}

impl Definition {
    /// A stateless type without any methods, with the host's defaults.
    pub fn new(entity_type: EntityType) -> Self {
        Self {
            entity_type,
            group: GroupName::default(),
            methods: BTreeMap::new(),
            state: None,
            idle: None,
            mailbox: None,
            concurrency: None,
        }
    }

    /// The same with one more method.
    #[must_use]
    pub fn method(mut self, name: impl Into<String>, method: Method) -> Self {
        self.methods.insert(name.into(), method);
        self
    }

    /// Checks that its name is not one of those that only types of the runtime have.
    ///
    /// # Errors
    /// [`InvalidDefinition::Reserved`] names it.
    pub fn check_name(&self) -> Result<(), InvalidDefinition> {
        let entity_type = &self.entity_type;
        match RESERVED.into_iter().find(|prefix| entity_type.as_str().starts_with(prefix)) {
            Some(prefix) => Err(InvalidDefinition::Reserved { entity_type: entity_type.clone(), prefix }),
            None => Ok(()),
        }
    }

    /// Checks that it does not contradict itself.
    ///
    /// # Errors
    /// [`InvalidDefinition`] names the method.
    pub fn check(&self) -> Result<(), InvalidDefinition> {
        let entity_type = &self.entity_type;
        for (name, method) in &self.methods {
            if method.access != Access::None && self.state.is_none() {
                return Err(InvalidDefinition::NoState {
                    entity_type: entity_type.clone(),
                    method: name.clone(),
                });
            }
            if method.access == Access::Write && method.delivery == Delivery::Volatile {
                return Err(InvalidDefinition::VolatileWrite {
                    entity_type: entity_type.clone(),
                    method: name.clone(),
                });
            }
        }
        Ok(())
    }
}

/// One thing that can be asked.
#[derive(Debug, Clone)]
pub struct Method {
    /// What is promised about the message.
    pub delivery: Delivery,
    /// Who may ask.
    pub visibility: Visibility,
    /// What the handler does with the state.
    pub access: Access,
    /// Where the handler's effects are.
    pub effects: Effects,
    /// Whose interrupts it ignores, at least.
    pub uninterruptible: Uninterruptible,
    /// How failed attempts are repeated.
    pub retry: Option<Retry>,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
    /// Whether the reply is a stream of items.
    pub stream: bool,
}

impl Method {
    /// A volatile method that anybody may ask.
    pub fn volatile() -> Self {
        Self {
            delivery: Delivery::Volatile,
            visibility: Visibility::Public,
            access: Access::None,
            effects: Effects::Outside,
            uninterruptible: Uninterruptible::No,
            retry: None,
            timeout: None,
            stream: false,
        }
    }

    /// A persisted method that anybody may ask.
    pub fn persisted() -> Self {
        Self { delivery: Delivery::Persisted, ..Self::volatile() }
    }

    /// The same with the state: a handler that changes it has no effects elsewhere unless it says so.
    #[must_use]
    pub fn with_state(self, access: Access) -> Self {
        let effects = if access == Access::Write { Effects::Inside } else { self.effects };
        Self { access, effects, ..self }
    }

    /// The same for others than anybody.
    #[must_use]
    pub fn visible_to(self, visibility: Visibility) -> Self {
        Self { visibility, ..self }
    }

    /// The same with effects in the transaction only, or also elsewhere.
    #[must_use]
    pub fn with_effects(self, effects: Effects) -> Self {
        Self { effects, ..self }
    }

    /// The same, ignoring interrupts.
    #[must_use]
    pub fn uninterruptible(self, by: Uninterruptible) -> Self {
        Self { uninterruptible: by, ..self }
    }

    /// The same with so many attempts, at least one, and otherwise the usual pauses. `usize::MAX`: without limit.
    #[must_use]
    pub fn attempts(self, attempts: usize) -> Self {
        let attempts = NonZeroUsize::new(attempts).unwrap_or(NonZeroUsize::MIN);
        Self { retry: Some(Retry { attempts, ..self.retry.unwrap_or_default() }), ..self }
    }

    /// The same with another pause after the first failure.
    #[must_use]
    pub fn backoff(self, backoff: Duration) -> Self {
        Self { retry: Some(Retry { backoff, ..self.retry.unwrap_or_default() }), ..self }
    }

    /// The same with a reply that is a stream of items.
    #[must_use]
    pub fn streaming(self) -> Self {
        Self { stream: true, ..self }
    }

    /// The same with so much time for one attempt.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }
}

/// What is promised about a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Handled at most once; nothing is stored.
    Volatile,
    /// Handled at least once, deduplicated, its reply kept.
    Persisted,
}

/// Who may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Anybody.
    Public,
    /// Other entities and workflows.
    Protected,
    /// Nobody but the entity itself.
    Private,
}

/// What a handler does with the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It does not want it.
    None,
    /// It looks at it, together with other readers.
    Read,
    /// It changes it, and is alone while it does, whatever the concurrency.
    Write,
}

/// Where a handler's effects are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effects {
    /// All in the transaction: state and sends. Message and reply commit with them, once, in one commit.
    Inside,
    /// Also elsewhere. The message is stored before the handler runs.
    Outside,
}

/// How many messages one instance handles at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concurrency {
    /// At most so many.
    Limited(NonZeroUsize),
    /// All that come.
    Unbounded,
}

impl Concurrency {
    /// One after the other.
    pub const SEQUENTIAL: Self = Self::Limited(NonZeroUsize::MIN);

    /// Whether one more may start.
    pub(super) fn allows(self, running: usize) -> bool {
        match self {
            Self::Limited(most) => running < most.get(),
            Self::Unbounded => true,
        }
    }
}

/// How failed attempts of a persisted message are repeated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retry {
    /// How many attempts there are before the message becomes a dead letter. [`NonZeroUsize::MAX`]: it is retried without limit.
    pub attempts: NonZeroUsize,
    /// The pause after the first failure.
    pub backoff: Duration,
    /// What each further pause is multiplied with.
    pub factor: f64,
    /// The longest pause.
    pub max: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: NonZeroUsize::MAX,
            backoff: Duration::from_millis(100),
            factor: 2.0,
            max: Duration::from_secs(60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volatile_method_cannot_change_a_durable_state() {
        let stateful = |method| {
            let entity_type = EntityType::new("stock").unwrap();
            Definition { state: Some(StateType::of::<i64>()), ..Definition::new(entity_type) }
                .method("take", method)
        };
        assert!(stateful(Method::persisted().with_state(Access::Write)).check().is_ok());
        assert_eq!(
            stateful(Method::volatile().with_state(Access::Write)).check().unwrap_err().to_string(),
            "method take of stock changes the state and is volatile: make it persisted"
        );
    }

    #[test]
    fn the_names_of_the_runtimes_own_types_are_refused() {
        let check = |name: &str| Definition::new(EntityType::new(name).unwrap()).check_name();
        assert!(check("workflows").is_ok());
        assert_eq!(
            check("workflow:order").unwrap_err().to_string(),
            "workflow:order begins with `workflow:`, as only the types of the runtime itself do: choose another name"
        );
        assert!(check("cleat.mine").is_err());
    }

    #[test]
    fn a_method_cannot_want_a_state_that_is_not_there() {
        let definition = Definition::new(EntityType::new("stock").unwrap())
            .method("look", Method::volatile().with_state(Access::Read));
        assert!(matches!(definition.check(), Err(InvalidDefinition::NoState { .. })));
    }
}
