//! What lasts: the one trait that storage has to implement.

use async_trait::async_trait;
use bytes::Bytes;

/// Why storage could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database refused or could not be reached.
    #[error("the storage failed")]
    Database(#[from] sqlx::Error),
    /// A record is not JSON.
    #[error("the record {bucket} {key} is damaged")]
    Damaged {
        /// The bucket of the record.
        bucket: String,
        /// Its key.
        key: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The storage was written by a newer version of this program.
    #[error("the storage has layout {found}, and this version knows {known}")]
    Layout {
        /// The layout of the file.
        found: i64,
        /// The layout of this program.
        known: i64,
    },
    /// A revision does not fit the database's integers.
    #[error("the revision {0} is out of range")]
    Revision(i128),
}

/// One object as it lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Which kind of object: group and plural name.
    pub bucket: String,
    /// Namespace and name.
    pub key: String,
    /// The revision that wrote it.
    pub revision: u64,
    /// The object.
    pub body: Bytes,
}

/// One write, already decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Which kind of object: group and plural name.
    pub bucket: String,
    /// Namespace and name.
    pub key: String,
    /// The revision of this write.
    pub revision: u64,
    /// The object, or nothing if it is deleted.
    pub body: Option<Bytes>,
}

/// What a backend holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The newest revision ever committed, also if it was a deletion.
    pub revision: u64,
    /// All objects, in any order.
    pub records: Vec<Record>,
}

/// Keeps objects across restarts. Reads are served from memory; a backend is read once, when the server starts.
#[async_trait]
pub trait Backend: std::fmt::Debug + Send + Sync + 'static {
    /// Everything that was committed.
    ///
    /// # Errors
    /// Storage that cannot be read; the server does not start then.
    async fn load(&self) -> Result<Loaded, Error>;

    /// Commits writes in their order, all or none. Revisions grow from call to call, and calls do not overlap.
    ///
    /// # Errors
    /// Storage that cannot be written; none of the writes has happened then.
    async fn commit(&self, writes: &[Write]) -> Result<(), Error>;
}

/// Keeps nothing: the objects live as long as the server.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory;

#[async_trait]
impl Backend for Memory {
    async fn load(&self) -> Result<Loaded, Error> {
        Ok(Loaded::default())
    }

    async fn commit(&self, _: &[Write]) -> Result<(), Error> {
        Ok(())
    }
}
