//! A host of workflows on a fresh database that serves all its shards, and can be started again on the same data.

use std::sync::Arc;
use std::time::Duration;

use cleat_runner::message::snowflake::Generator;
use cleat_runner::shard::{Fence, GroupName, Instance};
use cleat_runner::store::Store;
use cleat_runner::store::postgres::{self, PostgresStore};
use cleat_runner::store::sqlite::{self, Location, SqliteStore};
use cleat_runner::{entity, workflow};

/// No test takes so long, unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(120);

const SHARDS: u16 = 4;

pub enum Place {
    Sqlite(Location),
    Postgres(cleat_testing::postgres::Database),
}

impl Place {
    pub async fn sqlite() -> Self {
        Self::Sqlite(sqlite::Options::memory().location)
    }

    pub async fn postgres() -> Self {
        Self::Postgres(cleat_testing::postgres::shared().await.unwrap().database().await.unwrap())
    }

    pub async fn open(&self) -> Arc<dyn Store> {
        let groups = vec![(GroupName::default(), SHARDS)];
        match self {
            Self::Sqlite(location) => {
                let options = sqlite::Options { groups, ..sqlite::Options::at(location.clone()) };
                Arc::new(SqliteStore::open(options).await.unwrap())
            }
            Self::Postgres(database) => {
                let options = postgres::Options {
                    groups,
                    connections: 3,
                    ..postgres::Options::new(&database.url, Instance::random())
                };
                Arc::new(PostgresStore::open(options).await.unwrap())
            }
        }
    }
}

pub struct World {
    pub place: Place,
    pub store: Arc<dyn Store>,
    pub host: workflow::Host,
}

impl World {
    pub async fn new(place: Place) -> Self {
        Self::with(place, options()).await
    }

    pub async fn with(place: Place, options: workflow::Options) -> Self {
        let store = place.open().await;
        let host = serve(&store, options).await;
        Self { place, store, host }
    }

    /// Another process on the same data, after this one has died.
    pub async fn restart(self) -> Self {
        // As a process dies: nobody says goodbye.
        self.host.abandon();
        self.host.entities().shutdown(Duration::ZERO).await;
        // Opened before the other is closed, so that what is only in memory is not gone.
        let store = self.place.open().await;
        self.store.close().await;
        let host = serve(&store, options()).await;
        Self { place: self.place, store, host }
    }
}

/// Impatient, so that tests need not be patient.
pub fn options() -> workflow::Options {
    workflow::Options {
        grace: Duration::from_millis(200),
        panic_backoff: Duration::from_millis(50),
        ..workflow::Options::default()
    }
}

/// Claims all shards, each for its next epoch, and serves them.
pub async fn serve(store: &Arc<dyn Store>, options: workflow::Options) -> workflow::Host {
    let mut fences = Vec::new();
    for map in store.maps() {
        for holding in store.holdings(map.group()).await.unwrap() {
            let (shard, epoch) = (holding.shard, holding.epoch.next());
            fences.push(Fence { shard, epoch });
        }
    }
    for claimed in store.claim(&fences).await.unwrap() {
        claimed.unwrap();
    }
    let ids = Arc::new(Generator::new(store.lease_machine().await.unwrap()));
    let entities = entity::Host::new(Arc::clone(store), ids, entity::Options::default());
    let host = workflow::Host::new(Arc::clone(store), entities.clone(), options);
    entities.open(&fences).await.unwrap();
    host.serve(&fences).await.unwrap();
    host
}

/// Waits until something is so.
pub async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Runs each behaviour on both databases.
macro_rules! on_both_stores {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let test = super::$name($crate::world::Place::sqlite().await);
                tokio::time::timeout($crate::world::PATIENCE, test).await.expect("it hangs");
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let test = super::$name($crate::world::Place::postgres().await);
                tokio::time::timeout($crate::world::PATIENCE, test).await.expect("it hangs");
            })*
        }
    };
}
pub(crate) use on_both_stores;
