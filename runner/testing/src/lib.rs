//! What tests need from the machine they run on, and a judge of what they saw.
//!
//! - [`history`] says whether what clients and database saw of a cluster may happen.
//! - [`postgres`] starts private, throwaway PostgreSQL servers from the binaries that are installed.
//! - [`folder`] makes folders that are removed, with what works in them, when the test process is gone.
//! - [`process`] runs copies of the test binary as child processes that can be stopped and killed.
//!
//! # Guarantees
//! Nothing outlives the test process, however it ends: each server and each child has a [watchdog], a small
//! shell that waits for the test process to be gone and then clears up.
//!
//! [watchdog]: postgres#removal

pub mod folder;
pub mod history;
mod os;
pub mod postgres;
pub mod process;
mod watchdog;
