//! Private, throwaway PostgreSQL servers from the binaries that are installed.
//!
//! Most tests want a database of their own on the [`shared`] server of their process:
//!
//! ```no_run
//! # async fn example() -> Result<(), cleat_testing::postgres::Error> {
//! let database = cleat_testing::postgres::shared().await?.database().await?;
//! # let _ = database.url;
//! # Ok(())
//! # }
//! ```
//!
//! A test that restarts, kills or pauses the server starts one for itself with [`Server::start`]; the shared one
//! cannot be harmed, because that takes a `&mut Server`.
//!
//! [`Replication::start`] starts a primary with a synchronous and an asynchronous standby.
//!
//! # Guarantees
//! - Commits are durable as in production: fsync and everything else that matters is at its default.
//! - Servers of different processes, and several of one process, do not meet: each has a folder, a port and a
//!   socket of its own.
//! - Without PostgreSQL's binaries a test fails with an [error](Error::Missing) that says what to install.
//!
//! # Removal
//! A server and its folder are removed when it is dropped, and when its process ends, be it by SIGKILL: a small
//! shell watches over each and acts when the process is gone. Where that shell is killed as well, the next process
//! that starts a server finds the folder without an owner and removes it.

mod account;
mod binaries;
mod error;
mod home;
mod postmaster;
mod replication;
mod server;

pub use error::Error;
pub use postmaster::Shutdown;
pub use replication::{Backup, Replication};
pub use server::{Database, Options, Server, Target};

/// The server that all tests of this process share; the first call starts it.
///
/// It serves every async runtime of the process and ends with the process.
///
/// # Errors
/// When it cannot be started. The next call tries again.
pub async fn shared() -> Result<&'static Server, Error> {
    static SHARED: tokio::sync::OnceCell<Server> = tokio::sync::OnceCell::const_new();
    SHARED.get_or_try_init(|| Server::start(Options::default())).await
}
