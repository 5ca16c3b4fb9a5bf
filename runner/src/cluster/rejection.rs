//! Errors of the runtime between runners: a caller gets the same error from a remote owner as from a local one.
//!
//! An error travels in MessagePack beside the reason and the sentence that every release understands. A release that does not know a
//! variant, or none of this, still gets a defect with both.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::entity::{Chain, Error};
use crate::message::snowflake::{Exhausted, Machine};
use crate::message::{Defect, EntityAddress, EntityType, Failure, Snowflake, codec};
use crate::shard::{GroupName, ShardId};
use crate::store;
use crate::transport::Rejection;

/// An error as it travels. Variants may be added; fields may be added if they have a default.
#[derive(Serialize, Deserialize)]
enum Wire {
    Failed(Failure),
    Defect(Defect),
    UnknownType(EntityType),
    UnknownMethod(Method),
    NotPermitted { method: Method, private: bool },
    NotPersisted(Method),
    Streams(Method),
    NotStreaming(Method),
    ItemTooLarge { number: i64, size: usize, limit: usize },
    StreamTooLong { limit: i32 },
    Acknowledged { request: Snowflake, from: i64, to: i64 },
    Deadlock { address: EntityAddress, chain: Chain },
    TooDeep(Chain),
    NoTransaction(Method),
    CallInTransaction(EntityAddress),
    MailboxFull { address: EntityAddress, capacity: usize },
    Interrupted(Snowflake),
    NoSuchRequest(Snowflake),
    NoMachine(u16),
    Codec { what: String, detail: String },
    Fenced { group: GroupName, shard: u16 },
    NotOpen(Snowflake),
    KeyReused(Snowflake),
    IdReused(Snowflake),
    Rejected(Vec<String>),
    Unavailable(Vec<String>),
    Unknown(Vec<String>),
    NoSuchGroup(GroupName),
    NoMachineLeft,
    Closed,
}

#[derive(Serialize, Deserialize)]
struct Method {
    entity_type: EntityType,
    method: String,
}

/// A cause on another runner, of which only the sentences are left: the outermost first.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct RemoteCause {
    text: String,
    #[source]
    source: Option<Box<RemoteCause>>,
}

impl RemoteCause {
    fn chain(texts: Vec<String>) -> Option<Box<Self>> {
        texts.into_iter().rev().fold(None, |source, text| Some(Box::new(Self { text, source })))
    }

    fn read(texts: Vec<String>) -> store::Cause {
        let unsaid = || Box::new(Self { text: "the cause is not known".to_owned(), source: None });
        Arc::from(Self::chain(texts).unwrap_or_else(unsaid) as Box<dyn std::error::Error + Send + Sync>)
    }

    fn write(cause: &store::Cause) -> Vec<String> {
        let first: &dyn std::error::Error = cause.as_ref();
        std::iter::successors(Some(first), |error| error.source()).map(ToString::to_string).collect()
    }
}

/// The error of this runner for a peer.
pub(super) fn write(error: Error) -> Rejection {
    let (kind, message) = (error.reason().to_owned(), error.to_string());
    let wire = to_wire(error)
        .unwrap_or_else(|| Wire::Defect(Defect { kind: kind.clone(), message: message.clone() }));
    // Without it, the peer has a defect of the same kind.
    let error = codec::encode(&wire).unwrap_or_default().into();
    Rejection { kind, message, error }
}

/// The error of a peer, as it was there.
pub(super) fn read(rejection: Rejection) -> Error {
    let Rejection { kind, message, error } = rejection;
    // A variant that only a later release knows.
    codec::decode(&error).map_or_else(|_| Error::Defect(Defect { kind, message }), from_wire)
}

fn to_wire(error: Error) -> Option<Wire> {
    Some(match error {
        Error::Failed(failure) => Wire::Failed(failure),
        Error::Defect(defect) => Wire::Defect(defect),
        Error::UnknownType(entity_type) => Wire::UnknownType(entity_type),
        Error::UnknownMethod { entity_type, method } => Wire::UnknownMethod(Method { entity_type, method }),
        Error::NotPermitted { entity_type, method, private } => {
            Wire::NotPermitted { method: Method { entity_type, method }, private }
        }
        Error::NotPersisted { entity_type, method } => Wire::NotPersisted(Method { entity_type, method }),
        Error::Streams { entity_type, method } => Wire::Streams(Method { entity_type, method }),
        Error::NotStreaming { entity_type, method } => Wire::NotStreaming(Method { entity_type, method }),
        Error::ItemTooLarge { number, size, limit } => Wire::ItemTooLarge { number, size, limit },
        Error::StreamTooLong { limit } => Wire::StreamTooLong { limit },
        Error::Acknowledged { request, from, to } => Wire::Acknowledged { request, from, to },
        Error::Deadlock { address, chain } => Wire::Deadlock { address, chain: *chain },
        Error::TooDeep(chain) => Wire::TooDeep(*chain),
        Error::NoTransaction { entity_type, method } => Wire::NoTransaction(Method { entity_type, method }),
        Error::CallInTransaction(address) => Wire::CallInTransaction(address),
        Error::MailboxFull { address, capacity } => Wire::MailboxFull { address, capacity },
        Error::Interrupted(request) => Wire::Interrupted(request),
        Error::NoSuchRequest(request) => Wire::NoSuchRequest(request),
        Error::Exhausted(Exhausted(machine)) => Wire::NoMachine(machine.get()),
        Error::Codec { what, detail } => Wire::Codec { what: what.to_owned(), detail },
        Error::Store(error) => return store_to_wire(error),
        // An address is checked before it travels; the other two are told in frames of their own.
        _ => return None,
    })
}

fn store_to_wire(error: store::Error) -> Option<Wire> {
    use store::Error as E;
    Some(match error {
        E::Fenced { shard } => Wire::Fenced { group: shard.group, shard: shard.id },
        E::NotOpen { request } => Wire::NotOpen(request),
        E::KeyReused { earlier } => Wire::KeyReused(earlier),
        E::IdReused { request } => Wire::IdReused(request),
        E::Rejected { source } => Wire::Rejected(RemoteCause::write(&source)),
        E::Unavailable { source } => Wire::Unavailable(RemoteCause::write(&source)),
        E::Unknown { source } => Wire::Unknown(RemoteCause::write(&source)),
        E::NoSuchGroup(group) => Wire::NoSuchGroup(group),
        E::NoMachine => Wire::NoMachineLeft,
        E::Closed => Wire::Closed,
        // No caller of a method has reason to tell these apart.
        _ => return None,
    })
}

fn from_wire(wire: Wire) -> Error {
    use store::Error as E;
    match wire {
        Wire::Failed(failure) => Error::Failed(failure),
        Wire::Defect(defect) => Error::Defect(defect),
        Wire::UnknownType(entity_type) => Error::UnknownType(entity_type),
        Wire::UnknownMethod(Method { entity_type, method }) => Error::UnknownMethod { entity_type, method },
        Wire::NotPermitted { method: Method { entity_type, method }, private } => {
            Error::NotPermitted { entity_type, method, private }
        }
        Wire::NotPersisted(Method { entity_type, method }) => Error::NotPersisted { entity_type, method },
        Wire::Streams(Method { entity_type, method }) => Error::Streams { entity_type, method },
        Wire::NotStreaming(Method { entity_type, method }) => Error::NotStreaming { entity_type, method },
        Wire::ItemTooLarge { number, size, limit } => Error::ItemTooLarge { number, size, limit },
        Wire::StreamTooLong { limit } => Error::StreamTooLong { limit },
        Wire::Acknowledged { request, from, to } => Error::Acknowledged { request, from, to },
        Wire::Deadlock { address, chain } => Error::Deadlock { address, chain: Box::new(chain) },
        Wire::TooDeep(chain) => Error::TooDeep(Box::new(chain)),
        Wire::NoTransaction(Method { entity_type, method }) => Error::NoTransaction { entity_type, method },
        Wire::CallInTransaction(address) => Error::CallInTransaction(address),
        Wire::MailboxFull { address, capacity } => Error::MailboxFull { address, capacity },
        Wire::Interrupted(request) => Error::Interrupted(request),
        Wire::NoSuchRequest(request) => Error::NoSuchRequest(request),
        Wire::NoMachine(number) => {
            Machine::new(number).map_or(E::NoMachine.into(), |machine| Exhausted(machine).into())
        }
        Wire::Codec { what, detail } => Error::Codec { what: converted(&what), detail },
        Wire::Fenced { group, shard } => E::Fenced { shard: ShardId::new(group, shard) }.into(),
        Wire::NotOpen(request) => E::NotOpen { request }.into(),
        Wire::KeyReused(earlier) => E::KeyReused { earlier }.into(),
        Wire::IdReused(request) => E::IdReused { request }.into(),
        Wire::Rejected(texts) => E::Rejected { source: RemoteCause::read(texts) }.into(),
        Wire::Unavailable(texts) => E::Unavailable { source: RemoteCause::read(texts) }.into(),
        Wire::Unknown(texts) => E::Unknown { source: RemoteCause::read(texts) }.into(),
        Wire::NoSuchGroup(group) => E::NoSuchGroup(group).into(),
        Wire::NoMachineLeft => E::NoMachine.into(),
        Wire::Closed => E::Closed.into(),
    }
}

/// What could not be converted, in the words that the runtime has for it.
fn converted(what: &str) -> &'static str {
    const KNOWN: [&str; 8] = [
        "the input",
        "the reply",
        "the request",
        "the answer",
        "the new state",
        "the stored state",
        "a sequence",
        "an item",
    ];
    KNOWN.into_iter().find(|known| *known == what).unwrap_or("a value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_comes_back_as_it_was() {
        use store::Error as E;
        let entity_type = || EntityType::new("account").unwrap();
        let address = || EntityAddress::new("account", "ann").unwrap();
        let (method, request) = (|| "pay".to_owned(), Snowflake::new(7));
        let cause = || RemoteCause::read(vec!["a timeout".to_owned(), "the network is down".to_owned()]);
        let failure = Failure { kind: "Overdrawn".into(), message: "no".into(), details: "x".into() };
        let errors: Vec<Error> = vec![
            Error::Failed(failure),
            Error::Defect(Defect { kind: "Crashed".into(), message: "oh".into() }),
            Error::UnknownType(entity_type()),
            Error::UnknownMethod { entity_type: entity_type(), method: method() },
            Error::NotPermitted { entity_type: entity_type(), method: method(), private: true },
            Error::NotPersisted { entity_type: entity_type(), method: method() },
            Error::Streams { entity_type: entity_type(), method: method() },
            Error::NotStreaming { entity_type: entity_type(), method: method() },
            Error::ItemTooLarge { number: 1, size: 2, limit: 1 },
            Error::StreamTooLong { limit: 9 },
            Error::Acknowledged { request, from: 0, to: 3 },
            Error::Deadlock { address: address(), chain: Box::default() },
            Error::TooDeep(Box::default()),
            Error::NoTransaction { entity_type: entity_type(), method: method() },
            Error::CallInTransaction(address()),
            Error::MailboxFull { address: address(), capacity: 100 },
            Error::Interrupted(request),
            Error::NoSuchRequest(request),
            Exhausted(Machine::new(5).unwrap()).into(),
            Error::Codec { what: "the input", detail: "not a number".into() },
            E::Fenced { shard: ShardId::new(GroupName::default(), 3) }.into(),
            E::NotOpen { request }.into(),
            E::KeyReused { earlier: request }.into(),
            E::IdReused { request }.into(),
            E::Rejected { source: cause() }.into(),
            E::Unavailable { source: cause() }.into(),
            E::Unknown { source: cause() }.into(),
            E::NoSuchGroup(GroupName::default()).into(),
            E::NoMachine.into(),
            E::Closed.into(),
        ];
        for error in errors {
            let rejection = write(error.clone());
            assert_eq!((&rejection.kind[..], rejection.message.clone()), (error.reason(), error.to_string()));
            assert_eq!(format!("{:?}", read(rejection)), format!("{error:?}"));
        }
    }

    #[test]
    fn an_error_that_only_a_later_release_knows_is_a_defect_with_its_reason() {
        #[derive(Serialize)]
        enum Later {
            OutOfTea { cups: u32 },
        }
        let error = codec::encode(&Later::OutOfTea { cups: 0 }).unwrap().into();
        let rejection = Rejection { kind: "OutOfTea".into(), message: "no tea".into(), error };
        let Error::Defect(defect) = read(rejection) else { panic!("it is not known") };
        assert_eq!(defect, Defect { kind: "OutOfTea".into(), message: "no tea".into() });
    }
}
