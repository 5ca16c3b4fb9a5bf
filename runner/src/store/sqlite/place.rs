//! What the stores of one database share within this process.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{OwnedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, broadcast};

use super::Location;
use crate::store::Wake;

/// How many wakes a receiver may be behind before it has to read everything.
const WAKES: usize = 1024;

static PLACES: LazyLock<Mutex<HashMap<Location, Weak<Place>>>> = LazyLock::new(Mutex::default);

/// Opening is rare and sets things that SQLite does not wait for, such as the journal mode: one at a time.
pub(super) static OPENING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// One database as this process sees it.
pub(super) struct Place {
    pub(super) wakes: broadcast::Sender<Wake>,
    /// Whose turn it is. SQLite would let writers poll for theirs; here they queue. Readers of a file never wait, but those of
    /// a database in memory cannot read while somebody writes.
    turn: Arc<RwLock<()>>,
    memory: bool,
}

impl Place {
    /// The place of a database that exists.
    pub(super) fn of(location: &Location) -> std::io::Result<Arc<Self>> {
        let key = match location {
            Location::File(path) => Location::File(std::fs::canonicalize(path)?),
            Location::Memory(name) => Location::Memory(name.clone()),
        };
        let mut places = places();
        places.retain(|_, place| place.strong_count() > 0);
        if let Some(place) = places.get(&key).and_then(Weak::upgrade) {
            return Ok(place);
        }
        let place = Arc::new(Self {
            wakes: broadcast::Sender::new(WAKES),
            turn: Arc::default(),
            memory: matches!(location, Location::Memory(_)),
        });
        places.insert(key, Arc::downgrade(&place));
        Ok(place)
    }

    /// Waits until nobody else of this process writes.
    pub(super) async fn write(&self) -> RwLockWriteGuard<'_, ()> {
        self.turn.write().await
    }

    /// The same, for a turn that outlives the caller.
    pub(super) async fn write_owned(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.turn).write_owned().await
    }

    /// Waits until reading is possible.
    pub(super) async fn read(&self) -> Option<RwLockReadGuard<'_, ()>> {
        if self.memory { Some(self.turn.read().await) } else { None }
    }
}

fn places() -> MutexGuard<'static, HashMap<Location, Weak<Place>>> {
    // The map is whole after every step, whoever panicked.
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_by_two_names_is_one_place() {
        let folder = std::env::temp_dir().join(format!("cleat-place-{:016x}", rand::random::<u64>()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("a.db");
        std::fs::write(&path, b"").unwrap();
        let straight = Place::of(&Location::File(path)).unwrap();
        let detour = Place::of(&Location::File(folder.join(".").join("a.db"))).unwrap();
        let other = Place::of(&Location::Memory(folder.display().to_string())).unwrap();
        assert!(Arc::ptr_eq(&straight, &detour));
        assert!(!Arc::ptr_eq(&straight, &other));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
