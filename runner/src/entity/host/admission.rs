//! Which messages are taken, and where they go.

use std::sync::Arc;

use super::Inner;
use crate::entity::chain::{self, Chain};
use crate::entity::job::{Caller, ReplyTo, Request, Waiter};
use crate::entity::registry::Kind;
use crate::entity::shard::Shard;
use crate::entity::{Delivery, Error, Visibility, stream};
use crate::shard::{GroupName, ShardId};
use crate::store::{self, Message};

impl Inner {
    pub(super) fn deliver(self: &Arc<Self>, request: Request, reply_to: ReplyTo) {
        let entity_type = &request.envelope.address.entity_type;
        let Some(kind) = self.registry.get(entity_type) else {
            // It may be registered any moment: runners start before their types are all there.
            let inner = Arc::clone(self);
            self.tasks.spawn(async move {
                let entity_type = request.envelope.address.entity_type.clone();
                let shard = ShardId::new(GroupName::default(), 0);
                let waiter = Waiter::new(request.want, shard, reply_to);
                let registered = tokio::select! {
                    kind = inner.registry.wait(&entity_type, inner.options.registration) => kind,
                    () = inner.stop.cancelled() => None,
                };
                match registered {
                    Some(_) => inner.deliver_known(request, waiter),
                    None => waiter.answer(Err(Error::UnknownType(entity_type))),
                }
            });
            return;
        };
        let group = &kind.definition().group;
        let Some(map) = self.map(group) else {
            let waiter = Waiter::new(request.want, ShardId::new(group.clone(), 0), reply_to);
            return waiter.answer(Err(store::Error::NoSuchGroup(group.clone()).into()));
        };
        let shard = map.shard_of(request.envelope.address.id.as_str());
        let waiter = Waiter::new(request.want, shard, reply_to);
        self.deliver_known(request, waiter);
    }

    fn deliver_known(self: &Arc<Self>, request: Request, waiter: Waiter) {
        match self.admit(&request) {
            Ok((kind, shard, message)) => shard.deliver(&kind, message, request.resent, waiter),
            Err(error) => waiter.answer(Err(error)),
        }
    }

    /// Checks a request against its type's definition, and finds its shard.
    fn admit(&self, request: &Request) -> Result<(Arc<Kind>, Arc<Shard>, Message), Error> {
        let envelope = &request.envelope;
        let entity_type = &envelope.address.entity_type;
        let kind = self.registry.get(entity_type).ok_or_else(|| Error::UnknownType(entity_type.clone()))?;
        let definition = kind.definition();
        let method = definition.methods.get(&envelope.method).ok_or_else(|| Error::UnknownMethod {
            entity_type: entity_type.clone(),
            method: envelope.method.clone(),
        })?;
        let allowed = match method.visibility {
            Visibility::Public => true,
            Visibility::Protected => request.caller == Caller::Inside,
            Visibility::Private => false,
        };
        if !allowed {
            return Err(Error::NotPermitted {
                entity_type: entity_type.clone(),
                method: envelope.method.clone(),
                private: method.visibility == Visibility::Private,
            });
        }
        stream::check(request, method)?;
        // A key that was made for an entity's call is for methods that have use for it.
        let derived = request.caller == Caller::Inside && envelope.headers.contains_key(chain::DERIVED);
        let wants_store = envelope.deliver_at.is_some() || (envelope.key.is_some() && !derived);
        if method.delivery == Delivery::Volatile && wants_store {
            return Err(Error::NotPersisted {
                entity_type: entity_type.clone(),
                method: envelope.method.clone(),
            });
        }
        let group = definition.group.clone();
        let map = self.map(&group).ok_or_else(|| store::Error::NoSuchGroup(group.clone()))?;
        let id = map.shard_of(envelope.address.id.as_str());
        let shard = self.shard(&id).ok_or(Error::NotHere(id))?;
        let mut message =
            Message { envelope: envelope.clone(), group, seq: self.ids.next()?, resent: request.resent };
        message.envelope.persisted = method.delivery == Delivery::Persisted;
        if !message.envelope.persisted {
            message.envelope.key = None;
        }
        match request.caller {
            Caller::Inside => drop(message.envelope.headers.remove(chain::DERIVED)),
            Caller::Outside | Caller::User => Chain::strip(&mut message.envelope),
        }
        if Chain::is_in(&message.envelope) {
            let chain = Chain::of(&message.envelope);
            if shard.is_deadlock(&chain, &kind, &message) {
                let address = message.envelope.address;
                return Err(Error::Deadlock { address, chain: Box::new(chain) });
            }
        }
        // One that is sent again may have been taken before, and one for later does not wait here.
        let impatient = request.caller == Caller::User && !request.resent && envelope.deliver_at.is_none();
        if impatient && shard.is_full(&kind, &envelope.address) {
            return Err(Error::MailboxFull { address: envelope.address.clone(), capacity: kind.mailbox });
        }
        Ok((kind, shard, message))
    }
}
