//! Where the database is and how it is opened.

use std::path::PathBuf;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

use crate::health::Health;
use crate::shard::{GroupName, Instance, ShardMap};
use crate::store::{LaneOptions, Metrics};

/// How long a writer waits for another process that writes to the same file.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the database is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Location {
    /// In a file, which is made if it is not there. Survives everything that the disk survives.
    File(PathBuf),
    /// In the memory of this process, under a name. Stores that give the same name share it; it is gone when the last of them is
    /// closed.
    Memory(String),
}

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the database is.
    pub location: Location,
    /// Who writes through this store.
    pub instance: Instance,
    /// The groups that must be there, with the number of shards that each gets if it is new. A group that is there already
    /// keeps its own number.
    pub groups: Vec<(GroupName, u16)>,
    /// The UID of the Cluster that the database is to belong to, if there is one.
    pub cluster: Option<String>,
    /// The UID of a Cluster that is gone, whose database this one takes over.
    pub adopts: Option<String>,
    /// How group commit is tuned. There is always one lane, because SQLite has one writer.
    pub lanes: LaneOptions,
    /// Where commits are counted.
    pub metrics: Option<Metrics>,
    /// Where health findings are reported.
    pub health: Health,
}

impl Options {
    /// A database in a file, with one group and everything else as usual.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::at(Location::File(path.into()))
    }

    /// A database in memory that nobody else has.
    pub fn memory() -> Self {
        Self::at(Location::Memory(Instance::random().as_str().to_owned()))
    }

    /// A database at a location, with one group and everything else as usual.
    pub fn at(location: Location) -> Self {
        Self {
            location,
            instance: Instance::random(),
            groups: vec![(GroupName::default(), ShardMap::DEFAULT_SHARDS)],
            cluster: None,
            adopts: None,
            lanes: LaneOptions::default(),
            metrics: None,
            health: Health::default(),
        }
    }
}

impl Location {
    /// How every connection is made.
    pub(super) fn connect(&self) -> SqliteConnectOptions {
        let options =
            SqliteConnectOptions::new().create_if_missing(true).foreign_keys(true).busy_timeout(PATIENCE);
        match self {
            Self::File(path) => options
                .filename(path)
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Full),
            // A name that begins with a slash is shared by all connections of this process.
            Self::Memory(name) => options
                .vfs("memdb")
                .filename(format!("/cleat-{name}"))
                .journal_mode(SqliteJournalMode::Memory),
        }
    }
}
