//! What tests need from the machine they run on.
//!
//! - [`postgres`] starts private, throwaway PostgreSQL servers from the binaries that are installed.
//!
//! # Guarantees
//! Nothing outlives the test process, however it ends: each server has a [watchdog], a small
//! shell that waits for the test process to be gone and then clears up.
//!
//! [watchdog]: postgres#removal

mod os;
pub mod postgres;
mod watchdog;
