//! The folder of one server, which never outlives the process that made it.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::account::Account;
use super::error::{Context, Error};
use crate::watchdog::{self, Watchdog};

/// Stops whatever server works in a folder, and removes the folder.
const REMOVE: &str = include_str!("remove.sh");

/// The file in each folder that its owner holds locked as long as it lives.
const OWNER: &str = "owner";

/// A folder with a watchdog. Dropping it stops the server that works in it and removes it.
#[derive(Debug)]
pub(super) struct Home {
    path: PathBuf,
    watchdog: Watchdog,
    /// Locked as long as this process lives; the kernel unlocks it whatever ends the process.
    _owner: File,
}

impl Home {
    /// Makes a folder that `account` may write to, and removes the folders of processes that are gone.
    ///
    /// Such folders are rare: only when its watchdog was killed too does a process leave one.
    pub(super) fn create(account: Account) -> Result<Self, Error> {
        let root = root()?;
        // The lock keeps the sweep of one process from taking a folder that another has made but not yet locked.
        let gate = File::create(root.join("lock")).to("open the lock of the servers' folder")?;
        gate.lock().to("lock the servers' folder")?;
        let stale = stale(&root)?;
        let path = new_folder(&root)?;
        let owner = File::create(path.join(OWNER)).to("create a server's owner file")?;
        owner.lock().to("lock a server's owner file")?;
        let watchdog = Watchdog::spawn(REMOVE, &[path.as_os_str()]).to("start a watchdog")?;
        let home = Self { path, watchdog, _owner: owner };
        drop(gate);

        for (path, _owner) in stale {
            remove(&path)?;
        }
        account.take(&home.path)?;
        Ok(home)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path.join("log")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.watchdog.act();
        if self.path.exists() {
            // The watchdog was killed. What fails here is left to the sweep of the next process.
            let _ = remove(&self.path);
        }
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    watchdog::run(REMOVE, &[path.as_os_str()]).to("remove a server's folder")
}

/// The folder that holds all servers of this user, which others may pass through but not write to.
fn root() -> Result<PathBuf, Error> {
    let uid = rustix::process::geteuid().as_raw();
    let path = std::env::temp_dir().join(format!("cleat-postgres-{uid}"));
    match DirBuilder::new().mode(0o711).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(error).to("create the servers' folder")?
        }
        _ => {}
    }
    let found = path.symlink_metadata().to("look at the servers' folder")?;
    if found.is_dir() && found.uid() == uid { Ok(path) } else { Err(Error::ForeignFolder { path }) }
}

fn new_folder(root: &Path) -> Result<PathBuf, Error> {
    let mut number = 1_u64;
    loop {
        let path = root.join(format!("{}-{number}", std::process::id()));
        match DirBuilder::new().mode(0o711).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            made => return made.map(|()| path).to("create a server's folder"),
        }
    }
}

/// The folders whose owners are gone, each with its lock, so that no other process removes it too.
fn stale(root: &Path) -> Result<Vec<(PathBuf, Option<File>)>, Error> {
    let mut stale = Vec::new();
    for entry in root.read_dir().to("list the servers' folder")?.flatten() {
        let path = entry.path();
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        match File::open(path.join(OWNER)) {
            // Made by a process that ended before it could say so, or half removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => stale.push((path, None)),
            Err(error) => Err(error).to("open a server's owner file")?,
            Ok(owner) => match owner.try_lock() {
                Ok(()) => stale.push((path, Some(owner))),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => Err(error).to("lock a server's owner file")?,
            },
        }
    }
    Ok(stale)
}
