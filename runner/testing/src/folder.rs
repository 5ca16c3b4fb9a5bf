//! Folders that never outlive the process that made them, nor does what works in them.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::watchdog::{self, Watchdog};

/// The file in each folder that its owner holds locked as long as it lives.
const OWNER: &str = "owner";

/// Why a folder could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder that holds all folders of a sort belongs to somebody else.
    #[error("{} is not a folder of this user: remove it, or set TMPDIR", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
    },
    /// The operating system refused something.
    #[error("cannot {action}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// A folder with a watchdog. Dropping it ends what works in it and removes it.
///
/// # Guarantees
/// The same happens when its process ends, be it by SIGKILL. Where the watchdog is killed as well, the next process that
/// creates a folder of this sort finds it without an owner and removes it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    script: &'static str,
    watchdog: Watchdog,
    /// Locked as long as this process lives; the kernel unlocks it whatever ends the process.
    _owner: File,
}

impl Folder {
    /// Makes a folder of the sort `sort`, and removes the folders of processes that are gone.
    ///
    /// `script` is run by a shell with the folder as `$1`. It must first read its input to the end, then end what works in
    /// the folder, and remove it.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn create(sort: &str, script: &'static str) -> Result<Self, Error> {
        let root = root(sort)?;
        // The lock keeps the sweep of one process from taking a folder that another has made but not yet locked.
        let gate = File::create(root.join("lock")).to("open the lock of the folders")?;
        gate.lock().to("lock the folders")?;
        let stale = stale(&root)?;
        let path = new_folder(&root)?;
        let owner = File::create(path.join(OWNER)).to("create a folder's owner file")?;
        owner.lock().to("lock a folder's owner file")?;
        let watchdog = Watchdog::spawn(script, &[path.as_os_str()]).to("start a watchdog")?;
        let folder = Self { path, script, watchdog, _owner: owner };
        drop(gate);

        for (path, _owner) in stale {
            remove(&path, script).to("remove a folder without an owner")?;
        }
        Ok(folder)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.watchdog.act();
        if self.path.exists() {
            // The watchdog was killed. What fails here is left to the sweep of the next process.
            let _ = remove(&self.path, self.script);
        }
    }
}

fn remove(path: &Path, script: &str) -> io::Result<()> {
    watchdog::run(script, &[path.as_os_str()])
}

/// The folder that holds all of this sort and user, which others may pass through but not write to.
fn root(sort: &str) -> Result<PathBuf, Error> {
    let uid = rustix::process::geteuid().as_raw();
    let path = std::env::temp_dir().join(format!("{sort}-{uid}"));
    match DirBuilder::new().mode(0o711).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(error).to("create the folder of folders")?
        }
        _ => {}
    }
    let found = path.symlink_metadata().to("look at the folder of folders")?;
    if found.is_dir() && found.uid() == uid { Ok(path) } else { Err(Error::Foreign { path }) }
}

fn new_folder(root: &Path) -> Result<PathBuf, Error> {
    let mut number = 1_u64;
    loop {
        let path = root.join(format!("{}-{number}", std::process::id()));
        match DirBuilder::new().mode(0o711).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            made => return made.map(|()| path).to("create a folder"),
        }
    }
}

/// The folders whose owners are gone, each with its lock, so that no other process removes it too.
fn stale(root: &Path) -> Result<Vec<(PathBuf, Option<File>)>, Error> {
    let mut stale = Vec::new();
    for entry in root.read_dir().to("list the folder of folders")?.flatten() {
        let path = entry.path();
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        match File::open(path.join(OWNER)) {
            // Made by a process that ended before it could say so, or half removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => stale.push((path, None)),
            Err(error) => Err(error).to("open a folder's owner file")?,
            Ok(owner) => match owner.try_lock() {
                Ok(()) => stale.push((path, Some(owner))),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => Err(error).to("lock a folder's owner file")?,
            },
        }
    }
    Ok(stale)
}

/// Names the action that an `io::Error` stopped.
trait Context<T> {
    fn to(self, action: &'static str) -> Result<T, Error>;
}

impl<T> Context<T> for io::Result<T> {
    fn to(self, action: &'static str) -> Result<T, Error> {
        self.map_err(|source| Error::Io { action, source })
    }
}
