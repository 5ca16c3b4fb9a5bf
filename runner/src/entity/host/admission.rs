//! Which messages are taken, and where they go.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Inner;
use crate::entity::chain::{self, Chain};
use crate::entity::job::{Answer, Caller, ReplyTo, Request, Waiter};
use crate::entity::registry::{Kind, Kinds};
use crate::entity::shard::{Hold, Shard};
use crate::entity::{Delivery, Error, Method, Visibility, stream};
use crate::message::EntityType;
use crate::shard::{GroupName, ShardId};
use crate::store::{self, Message};

/// A message that may be handled, and where.
struct Admitted<'a> {
    kind: &'a Arc<Kind>,
    method: Method,
    shard: Arc<Shard>,
    message: Message,
}

impl Admitted<'_> {
    fn deliver(self, waiter: Waiter) {
        let Self { kind, method, shard, message } = self;
        let doubtful = message.resent;
        shard.deliver(kind, &method, message, doubtful, waiter);
    }
}

/// A message that may not, and why.
struct Refused {
    error: Error,
    request: Request,
}

impl Inner {
    pub(super) fn deliver(self: &Arc<Self>, request: Request, reply_to: ReplyTo) {
        let want = request.want;
        let kinds = self.registry.now();
        match self.admit(&kinds, request) {
            Ok(admitted) => {
                let shard = admitted.shard.fence.shard.clone();
                admitted.deliver(Waiter::new(want, shard, reply_to));
            }
            Err(refused) => match refused.error {
                Error::UnknownType(entity_type) => self.await_type(entity_type, refused.request, reply_to),
                error => reply_to.answer(Err(error)),
            },
        }
    }

    /// Delivers a message once its type is registered. That may be any moment: runners start before their types are all there.
    fn await_type(self: &Arc<Self>, entity_type: EntityType, request: Request, reply_to: ReplyTo) {
        let inner = Arc::clone(self);
        let shard = ShardId::new(GroupName::default(), 0);
        let waiter = Waiter::new(request.want, shard, reply_to);
        self.tasks.spawn(async move {
            let registered = tokio::select! {
                kind = inner.registry.wait(&entity_type, inner.options.registration) => kind,
                () = inner.stop.cancelled() => None,
            };
            if registered.is_none() {
                return waiter.answer(Err(Error::UnknownType(entity_type)));
            }
            match inner.admit(&inner.registry.now(), request) {
                Ok(admitted) => admitted.deliver(waiter),
                Err(refused) => waiter.answer(Err(refused.error)),
            }
        });
    }

    /// Takes a volatile message if it can be handled at once, and says where its answer comes from. Gives it back otherwise.
    pub(super) fn deliver_now(
        self: &Arc<Self>,
        request: Request,
    ) -> Result<(oneshot::Receiver<Answer>, Hold), Box<Request>> {
        let (caller, want, resent) = (request.caller, request.want, request.resent);
        let group = request.group.clone();
        // Taken off for a handler here, and not for whoever is asked instead.
        let key = request.envelope.key;
        let derived =
            request.envelope.headers.get(chain::DERIVED).filter(|_| caller == Caller::Inside).cloned();
        let kinds = self.registry.now();
        let Admitted { kind, method, shard, message } = match self.admit(&kinds, request) {
            Ok(admitted) => admitted,
            Err(refused) => return Err(Box::new(refused.request)),
        };
        let (waiter, answer) = oneshot::channel();
        let waiter = Waiter::new(want, shard.fence.shard.clone(), ReplyTo::Waiter(waiter));
        match shard.deliver_now(kind, &method, message, waiter) {
            Ok(hold) => Ok((answer, hold)),
            Err(message) => {
                let mut envelope = message.envelope;
                envelope.key = key;
                envelope.headers.extend(derived.map(|value| (chain::DERIVED.to_owned(), value)));
                Err(Box::new(Request { envelope, caller, want, resent, group }))
            }
        }
    }

    /// Checks a request against its type's definition, and finds its shard.
    fn admit<'a>(&self, kinds: &'a Kinds, request: Request) -> Result<Admitted<'a>, Box<Refused>> {
        match self.check(kinds, &request) {
            Ok((kind, method, shard)) => self.message(kind, method, shard, request),
            Err(error) => Err(Box::new(Refused { error, request })),
        }
    }

    fn check<'a>(
        &self,
        kinds: &'a Kinds,
        request: &Request,
    ) -> Result<(&'a Arc<Kind>, Method, Arc<Shard>), Error> {
        let envelope = &request.envelope;
        let entity_type = &envelope.address.entity_type;
        let kind = kinds.get(entity_type).ok_or_else(|| Error::UnknownType(entity_type.clone()))?;
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
        if method.delivery == Delivery::Volatile && request.wants_storage() {
            return Err(Error::NotPersisted {
                entity_type: entity_type.clone(),
                method: envelope.method.clone(),
            });
        }
        let map = self.map(&definition.group);
        let map = map.ok_or_else(|| store::Error::NoSuchGroup(definition.group.clone()))?;
        let id = map.shard_of(envelope.address.id.as_str());
        let shard = self.shard(&id).ok_or(Error::NotHere(id))?;
        // One that is sent again may have been taken before, and one for later does not wait here.
        let impatient = request.caller == Caller::User && !request.resent && envelope.deliver_at.is_none();
        if impatient && shard.is_full(kind, &envelope.address) {
            return Err(Error::MailboxFull { address: envelope.address.clone(), capacity: kind.mailbox });
        }
        let method = method.clone();
        Ok((kind, method, shard))
    }

    /// The message as its handler gets it.
    fn message<'a>(
        &self,
        kind: &'a Arc<Kind>,
        method: Method,
        shard: Arc<Shard>,
        request: Request,
    ) -> Result<Admitted<'a>, Box<Refused>> {
        let persisted = method.delivery == Delivery::Persisted;
        // Only what is stored has a place in an order that outlives the mailbox.
        let seq = if persisted { shard.order.next() } else { request.envelope.id };
        let Request { envelope, caller, want, resent, group } = request;
        let mut message = Message { envelope, group: kind.definition().group.clone(), seq, resent };
        message.envelope.persisted = persisted;
        if !persisted {
            message.envelope.key = None;
        }
        match caller {
            Caller::Inside => drop(message.envelope.headers.remove(chain::DERIVED)),
            Caller::Outside | Caller::User => Chain::strip(&mut message.envelope),
        }
        if Chain::is_in(&message.envelope) {
            let chain = Chain::of(&message.envelope);
            if shard.is_deadlock(&chain, kind, &message) {
                let envelope = message.envelope;
                let error = Error::Deadlock { address: envelope.address.clone(), chain: Box::new(chain) };
                let request = Request { envelope, caller, want, resent, group };
                return Err(Box::new(Refused { error, request }));
            }
        }
        Ok(Admitted { kind, method, shard, message })
    }
}
