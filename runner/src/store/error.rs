//! What can go wrong at the door to the database.

use crate::message::{EntityAddress, Snowflake, codec};
use crate::shard::{InvalidMap, ShardId};

/// Why the store did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A newer owner exists. Nothing was written.
    #[error("shard {shard} has a newer owner: this write came too late")]
    Fenced {
        /// The shard that is lost.
        shard: ShardId,
    },
    /// What the write was built on is not there, or not any more. Nothing was written.
    #[error("{basis}")]
    Conflict {
        /// What it was built on.
        basis: Basis,
    },
    /// The request is not open: it has ended or was never stored. Nothing was written.
    #[error("request {request} is not open")]
    NotOpen {
        /// Which request.
        request: Snowflake,
    },
    /// The same idempotency key came with another payload. Nothing was written.
    #[error(
        "the idempotency key was used before with another payload, by request {earlier}: use another key for another request"
    )]
    KeyReused {
        /// The request that had the key first.
        earlier: Snowflake,
    },
    /// The id belongs to another request: the lease of a machine number was lost, and two runners issued the same id. Nothing was written.
    #[error(
        "the id {request} belongs to another request, because the lease of a machine number was lost in a failover, restore or repair: \
         send this request again under a new id"
    )]
    IdReused {
        /// The id.
        request: Snowflake,
    },
    /// The database cannot store this, and never will. Nothing was written.
    #[error("the database refuses this write")]
    Rejected {
        /// What the database says.
        #[source]
        source: Cause,
    },
    /// The database could not be reached or was in trouble for too long. Nothing was written.
    #[error("the database is not available")]
    Unavailable {
        /// What the database says.
        #[source]
        source: Cause,
    },
    /// The database went away in the middle, and whether the write was committed could not be found out in time.
    #[error("whether the write was committed could not be found out")]
    Unknown {
        /// What the database said last.
        #[source]
        source: Cause,
    },
    /// No connection for a transaction became free in time. Nothing was written.
    #[error("the pool of {size} connections for transactions was in use for {waited:?}: {advice}")]
    Exhausted {
        /// How many there are.
        size: u32,
        /// How long was waited for one.
        waited: std::time::Duration,
        /// What can be done about it.
        advice: &'static str,
    },
    /// The schema is newer than this binary understands.
    #[error(
        "the database needs a binary that knows schema {oldest} or later; this one knows {known}: upgrade it"
    )]
    TooOld {
        /// The oldest schema that may still be used.
        oldest: i32,
        /// The newest that this binary knows.
        known: i32,
    },
    /// The database belongs to another Cluster.
    #[error(
        "the database belongs to the Cluster with UID {owner}: give each Cluster a database of its own or, if that one is gone, \
         take it over with the annotation cleat.dev/adopt-database={owner}"
    )]
    DatabaseInUse {
        /// The UID that is recorded in it.
        owner: String,
    },
    /// The database is not the one that this process began with, or has lost what was committed: a failover or a restore. Nothing that
    /// this process knows of it is valid any more, and the process ends.
    #[error(
        "the database was replaced by a failover or a restore: this process ends, and its successor starts afresh"
    )]
    DatabaseReplaced {
        /// What has changed.
        #[source]
        source: Cause,
    },
    /// The database, or what stands before it, lacks something that correctness depends on.
    #[error("this database is not supported: {0}")]
    Unsupported(&'static str),
    /// The shard group is not in the database.
    #[error("the database has no shard group {0}")]
    NoSuchGroup(crate::shard::GroupName),
    /// All 1,024 machine numbers are leased.
    #[error("all machine numbers are leased: more than 1,024 processes were started within an hour")]
    NoMachine,
    /// No id could be given to a message. Nothing was written.
    #[error("nothing was written because a message could not get an id")]
    NoIds {
        /// Whose ids are used up.
        #[source]
        source: crate::message::snowflake::Exhausted,
    },
    /// What is stored is not what this binary writes.
    #[error("a stored {what} cannot be read")]
    Corrupt {
        /// What was read.
        what: &'static str,
        /// Why it cannot be.
        #[source]
        source: Cause,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

/// What a write was built on and did not find.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Basis {
    /// A version of an entity's state.
    #[error("the state of {address} is not at version {version} any more")]
    State {
        /// Whose state.
        address: EntityAddress,
        /// The version that it should have had.
        version: i64,
    },
    /// An address without an execution.
    #[error("there is an execution {address} already")]
    Vacancy {
        /// The address.
        address: EntityAddress,
    },
    /// An execution in a run.
    #[error("there is no execution {address} in run {run} any more")]
    Execution {
        /// Which execution.
        address: EntityAddress,
        /// The run that it should have been in.
        run: Snowflake,
    },
    /// The end of a run's journal.
    #[error("the journal of run {run} does not end before place {place}")]
    Journal {
        /// Whose journal.
        run: Snowflake,
        /// The place that should have been the next.
        place: i64,
    },
}

impl From<Basis> for Error {
    fn from(basis: Basis) -> Self {
        Self::Conflict { basis }
    }
}

/// The cause of an error, shared by all operations of a failed batch.
pub type Cause = std::sync::Arc<dyn std::error::Error + Send + Sync>;

impl Error {
    /// One word for conditions, Events and metric labels.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Fenced { .. } => "Fenced",
            Self::Conflict { .. } => "Conflict",
            Self::NotOpen { .. } => "NotOpen",
            Self::KeyReused { .. } => "KeyReused",
            Self::IdReused { .. } => "IdReused",
            Self::Rejected { .. } => "Rejected",
            Self::Unavailable { .. } => "DatabaseUnavailable",
            Self::Unknown { .. } => "OutcomeUnknown",
            Self::Exhausted { .. } => "TransactionsExhausted",
            Self::TooOld { .. } => "BinaryTooOld",
            Self::DatabaseInUse { .. } => "DatabaseInUse",
            Self::Unsupported(_) => "DatabaseUnsupported",
            Self::DatabaseReplaced { .. } => "DatabaseReplaced",
            Self::NoSuchGroup(_) => "NoSuchGroup",
            Self::NoMachine | Self::NoIds { .. } => "NoMachine",
            Self::Corrupt { .. } => "Corrupt",
            Self::Closed => "Closed",
        }
    }

    /// Whether the same may work when the database is well again.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Unknown { .. } | Self::NoIds { .. })
    }

    pub(super) fn corrupt(
        what: &'static str,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Corrupt { what, source: std::sync::Arc::new(source) }
    }
}

impl From<codec::Error> for Error {
    fn from(source: codec::Error) -> Self {
        Self::corrupt("value", source)
    }
}

impl From<InvalidMap> for Error {
    fn from(source: InvalidMap) -> Self {
        Self::corrupt("shard map", source)
    }
}
