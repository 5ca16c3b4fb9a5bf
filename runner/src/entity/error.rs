//! Why a request has no answer.

use super::Chain;
use crate::message::{Defect, EntityAddress, EntityType, Failure, Snowflake, codec};
use crate::shard::ShardId;
use crate::store;

/// Why a request has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The handler said no.
    #[error("{}: {}", .0.kind, .0.message)]
    Failed(Failure),
    /// The handler is broken, or gave up.
    #[error("{}: {}", .0.kind, .0.message)]
    Defect(Defect),
    /// No such type is registered on the runner that owns the entity.
    #[error("no entity type {0} is registered: is it in this image, and is its name spelled so?")]
    UnknownType(EntityType),
    /// The type has no such method.
    #[error("entity type {entity_type} has no method {method}")]
    UnknownMethod {
        /// The type.
        entity_type: EntityType,
        /// What was asked.
        method: String,
    },
    /// The caller may not ask this.
    #[error("method {method} of {entity_type} is {}: it cannot be called from here", if *.private { "private" } else { "protected" })]
    NotPermitted {
        /// The type.
        entity_type: EntityType,
        /// What was asked.
        method: String,
        /// Whether nobody may, and not only those who are no entities.
        private: bool,
    },
    /// The message asks for what its method does not give.
    #[error(
        "method {method} of {entity_type} is volatile: it can be neither scheduled nor deduplicated by key"
    )]
    NotPersisted {
        /// The type.
        entity_type: EntityType,
        /// What was asked.
        method: String,
    },
    /// The method's reply is a stream, and one reply was asked for.
    #[error("method {method} of {entity_type} streams its reply: read it as a stream")]
    Streams {
        /// The type.
        entity_type: EntityType,
        /// What was asked.
        method: String,
    },
    /// The method gives one reply, and a stream was asked for.
    #[error("method {method} of {entity_type} gives one reply: it cannot be read as a stream")]
    NotStreaming {
        /// The type.
        entity_type: EntityType,
        /// What was asked.
        method: String,
    },
    /// An item of a stream is larger than any may be.
    #[error(
        "item {number} of the stream has {size} bytes, and at most {limit} are allowed: give it in smaller parts"
    )]
    ItemTooLarge {
        /// Its number, counted from 0.
        number: i64,
        /// What it has.
        size: usize,
        /// What is allowed.
        limit: usize,
    },
    /// A stream has more items than can be counted.
    #[error("the stream has more than {limit} items: end it, and begin another one")]
    StreamTooLong {
        /// How many there may be.
        limit: i32,
    },
    /// Items were acknowledged by somebody else before this reader had them.
    #[error("items {from} to {to} of request {request} were acknowledged by another reader and are not kept")]
    Acknowledged {
        /// The request.
        request: Snowflake,
        /// The first item that is missing.
        from: i64,
        /// The last one.
        to: i64,
    },
    /// The entity waits, directly or through others, for the caller.
    #[error("{address} is waiting for this very call ({chain} -> {address}): it would wait for ever")]
    Deadlock {
        /// Who is asked.
        address: EntityAddress,
        /// Who waits for whom, up to the caller.
        chain: Box<Chain>,
    },
    /// Too many entities wait for each other.
    #[error("{limit} entities wait for each other already ({0}): a longer chain of calls is not allowed", limit = Chain::LIMIT)]
    TooDeep(Box<Chain>),
    /// A handler that commits nothing asked for a transaction.
    #[error(
        "method {method} of {entity_type} is volatile: it commits nothing, so make it persisted for a transaction"
    )]
    NoTransaction {
        /// The type.
        entity_type: EntityType,
        /// The method.
        method: String,
    },
    /// A handler asked another entity while its transaction was open, or the other way round.
    #[error(
        "{0} cannot call others while its transaction is open: await the calls first, then begin the transaction"
    )]
    CallInTransaction(EntityAddress),
    /// As many messages wait for the entity as its type allows. This one was not taken.
    #[error("{address} has {capacity} messages waiting, and no room for more: come back later")]
    MailboxFull {
        /// Who is asked.
        address: EntityAddress,
        /// How many may wait.
        capacity: usize,
    },
    /// The request was interrupted.
    #[error("request {0} was interrupted")]
    Interrupted(Snowflake),
    /// Nobody knows such a request: it was never stored, or its retention has passed.
    #[error("request {0} is not known: it was never stored, or it ended long ago")]
    NoSuchRequest(Snowflake),
    /// What was asked cannot be an entity's address.
    #[error(transparent)]
    Address(#[from] crate::message::InvalidAddress),
    /// The shard is not served here. The request was not run; ask its owner.
    #[error("shard {0} is not served by this runner")]
    NotHere(ShardId),
    /// The shard was lost while the request was under way: it may have been run or not.
    #[error("shard {0} moved while the request was under way: it may have been run or not")]
    Lost(ShardId),
    /// The database said no, or nothing.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// No id could be given to the message.
    #[error(transparent)]
    Exhausted(#[from] crate::message::snowflake::Exhausted),
    /// Input or output could not be written or read.
    #[error("{what} could not be converted: {detail}")]
    Codec {
        /// Input or output.
        what: &'static str,
        /// Why.
        detail: String,
    },
}

impl Error {
    /// One word for conditions, metrics and gRPC.
    pub fn reason(&self) -> &str {
        match self {
            Self::Failed(failure) => &failure.kind,
            Self::Defect(defect) => &defect.kind,
            Self::UnknownType(_) => "UnknownType",
            Self::UnknownMethod { .. } => "UnknownMethod",
            Self::NotPermitted { .. } => "NotPermitted",
            Self::NotPersisted { .. } => "NotPersisted",
            Self::Streams { .. } => "Streams",
            Self::NotStreaming { .. } => "NotStreaming",
            Self::ItemTooLarge { .. } => "ItemTooLarge",
            Self::StreamTooLong { .. } => "StreamTooLong",
            Self::Acknowledged { .. } => "Acknowledged",
            Self::Deadlock { .. } => "Deadlock",
            Self::TooDeep(_) => "TooDeep",
            Self::NoTransaction { .. } => "NoTransaction",
            Self::CallInTransaction(_) => "CallInTransaction",
            Self::MailboxFull { .. } => "MailboxFull",
            Self::Interrupted(_) => "Interrupted",
            Self::NoSuchRequest(_) => "NoSuchRequest",
            Self::Address(_) => "InvalidAddress",
            Self::NotHere(_) => "NotHere",
            Self::Lost(_) => "Lost",
            Self::Store(error) => error.reason(),
            Self::Exhausted(_) => "NoMachine",
            Self::Codec { .. } => "Malformed",
        }
    }

    /// Whether the same request can be sent again without the danger that it runs twice, also when it is volatile.
    pub fn was_not_run(&self) -> bool {
        matches!(self, Self::NotHere(_))
    }

    /// An error of a codec, for what was converted.
    pub fn codec(what: &'static str, error: &codec::Error) -> Self {
        let mut detail = error.to_string();
        if let Some(source) = std::error::Error::source(error) {
            detail = format!("{detail}: {source}");
        }
        Self::Codec { what, detail }
    }
}
