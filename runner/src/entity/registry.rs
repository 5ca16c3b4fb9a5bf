//! The types of entities that this runner knows.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::host::Options;
use super::metrics::OfType;
use super::now::Pace;
use super::{Concurrency, Definition, Delivery, Entity, InvalidDefinition};
use crate::message::EntityType;

/// Something was registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistrationEvent {
    /// A type of entity.
    Entity(EntityType),
    /// A singleton, by its name.
    Singleton(String),
}

/// A registered type, with the defaults filled in.
pub(super) struct Kind {
    pub(super) entity: Arc<dyn Entity>,
    pub(super) idle: Duration,
    pub(super) mailbox: usize,
    pub(super) concurrency: Concurrency,
    /// Whether what is persisted begins at once and waits for its turn inside, so that it counts as waiting until it has run.
    pub(super) waits_inside: bool,
    pub(super) metrics: Option<OfType>,
    paces: HashMap<String, Pace>,
    /// How many instances of it are in memory, of this registration and of earlier ones.
    pub(super) active: Arc<AtomicUsize>,
    /// Cancelled when it is registered anew, or no more.
    pub(super) replaced: CancellationToken,
}

impl Kind {
    pub(super) fn definition(&self) -> &Definition {
        self.entity.definition()
    }

    /// How quick the handlers of a method are; none if they have to be given tasks anyway.
    pub(super) fn pace(&self, method: &str) -> Option<&Pace> {
        self.paces.get(method)
    }
}

fn paces(definition: &Definition) -> HashMap<String, Pace> {
    let volatile = definition.methods.iter().filter(|(_, method)| method.delivery == Delivery::Volatile);
    volatile.map(|(name, _)| (name.clone(), Pace::default())).collect()
}

/// All registered types at one moment.
pub(super) type Kinds = HashMap<EntityType, Arc<Kind>>;

/// All registered types.
pub(super) struct Registry {
    /// Looked at on every call, so looking writes nothing that other threads read.
    kinds: ArcSwap<Kinds>,
    /// Held by whoever makes the next version of them.
    changing: Mutex<()>,
    events: broadcast::Sender<RegistrationEvent>,
    /// How many sources of definitions have not been read for the first time.
    unread: watch::Sender<usize>,
}

/// A source of definitions that has not been read for the first time, until this is dropped. Stored messages whose type is not known
/// wait for it.
#[must_use]
pub struct UnreadDefinitions(watch::Sender<usize>);

impl Drop for UnreadDefinitions {
    fn drop(&mut self) {
        self.0.send_modify(|unread| *unread = unread.saturating_sub(1));
    }
}

impl Registry {
    pub(super) fn new() -> Self {
        Self {
            kinds: ArcSwap::default(),
            changing: Mutex::default(),
            events: broadcast::channel(256).0,
            unread: watch::Sender::new(0),
        }
    }

    /// Adds a type, or replaces it: instances that are in memory end what they are doing, and go on as the new one says.
    pub(super) fn register(
        &self,
        entity: Arc<dyn Entity>,
        options: &Options,
    ) -> Result<(), InvalidDefinition> {
        let definition = entity.definition();
        definition.check()?;
        if entity.reserved().is_none() {
            definition.check_name()?;
        }
        let entity_type = definition.entity_type.clone();
        let changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kinds = Kinds::clone(&self.kinds.load());
        let concurrency = definition.concurrency.unwrap_or(options.concurrency);
        let kind = Kind {
            metrics: options.metrics.as_ref().map(|metrics| metrics.of(definition)),
            active: kinds.get(&entity_type).map(|earlier| Arc::clone(&earlier.active)).unwrap_or_default(),
            idle: definition.idle.unwrap_or(options.idle),
            mailbox: definition.mailbox.unwrap_or(options.mailbox).get(),
            concurrency,
            // The runtime's own types have an order of their own; what users write may do all that comes at the same time.
            waits_inside: entity.reserved().is_some() && concurrency == Concurrency::Unbounded,
            paces: paces(definition),
            replaced: CancellationToken::new(),
            entity,
        };
        let earlier = kinds.insert(entity_type.clone(), Arc::new(kind));
        self.kinds.store(Arc::new(kinds));
        drop(changing);
        // After the new one is there: instances that notice look for it.
        if let Some(earlier) = earlier {
            earlier.replaced.cancel();
        }
        self.announce(RegistrationEvent::Entity(entity_type));
        Ok(())
    }

    /// Forgets a type. Messages for it wait until it is registered again, though not for ever. Whether it was there.
    pub(super) fn unregister(&self, entity_type: &EntityType) -> bool {
        let changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kinds = Kinds::clone(&self.kinds.load());
        let removed = kinds.remove(entity_type);
        self.kinds.store(Arc::new(kinds));
        drop(changing);
        if let Some(removed) = &removed {
            removed.replaced.cancel();
        }
        removed.is_some()
    }

    pub(super) fn get(&self, entity_type: &EntityType) -> Option<Arc<Kind>> {
        self.look(entity_type, Arc::clone)
    }

    /// All of them as they are now, for whoever does not keep any for long: nothing is counted.
    pub(super) fn now(&self) -> Guard<Arc<Kinds>> {
        self.kinds.load()
    }

    /// Takes a short look at a type.
    pub(super) fn look<T>(&self, entity_type: &EntityType, look: impl FnOnce(&Arc<Kind>) -> T) -> Option<T> {
        self.kinds.load().get(entity_type).map(look)
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> Vec<Arc<Kind>> {
        let kinds = self.kinds.load();
        let mut all: Vec<_> = kinds.values().cloned().collect();
        all.sort_by(|a, b| a.definition().entity_type.cmp(&b.definition().entity_type));
        all
    }

    /// Tells whoever listens.
    pub(super) fn announce(&self, event: RegistrationEvent) {
        // Nobody has to be interested.
        let _ = self.events.send(event);
    }

    pub(super) fn events(&self) -> broadcast::Receiver<RegistrationEvent> {
        self.events.subscribe()
    }

    /// From now on there is a source of definitions that has not been read.
    pub(super) fn expect_definitions(&self) -> UnreadDefinitions {
        self.unread.send_modify(|unread| *unread += 1);
        UnreadDefinitions(self.unread.clone())
    }

    /// Waits until every source of definitions has been read once.
    pub(super) async fn definitions_known(&self) {
        // It cannot fail: the sender is ours.
        let _ = self.unread.subscribe().wait_for(|unread| *unread == 0).await;
    }

    /// Waits for a type as long as `patience` says, counted from when all definitions have been read.
    pub(super) async fn wait_after_definitions(
        &self,
        entity_type: &EntityType,
        patience: Duration,
    ) -> Option<Arc<Kind>> {
        loop {
            let registered = self.wait(entity_type, patience).await;
            if registered.is_some() || *self.unread.borrow() == 0 {
                return registered;
            }
            self.definitions_known().await;
        }
    }

    /// Waits for a type, but not for ever.
    pub(super) async fn wait(&self, entity_type: &EntityType, patience: Duration) -> Option<Arc<Kind>> {
        let mut events = self.events();
        let registered = async {
            loop {
                // Subscribed before looking, so that no registration falls between the two.
                if let Some(kind) = self.get(entity_type) {
                    return kind;
                }
                if let Err(broadcast::error::RecvError::Closed) = events.recv().await {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::time::timeout(patience, registered).await.ok()
    }
}
