//! The folder of one server, which never outlives the process that made it.

use std::path::{Path, PathBuf};

use super::account::Account;
use super::error::Error;
use crate::folder::Folder;

/// Stops whatever server works in a folder, and removes the folder.
const REMOVE: &str = include_str!("remove.sh");

/// A folder with a watchdog. Dropping it stops the server that works in it and removes it.
#[derive(Debug)]
pub(super) struct Home(Folder);

impl Home {
    /// Makes a folder that `account` may write to.
    pub(super) fn create(account: Account) -> Result<Self, Error> {
        let folder = Folder::create("cleat-postgres", REMOVE)?;
        account.take(folder.path())?;
        Ok(Self(folder))
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path().join("log")
    }
}
