//! A host on a fresh database that serves all its shards, and can be started again on the same data.

use std::sync::Arc;
use std::time::Duration;

use cleat_runner::entity::{Host, Options};
use cleat_runner::message::snowflake::Generator;
use cleat_runner::shard::{Fence, GroupName, Instance};
use cleat_runner::store::Store;
use cleat_runner::store::postgres::{self, PostgresStore};
use cleat_runner::store::sqlite::{self, Location, SqliteStore};

/// No test takes so long, unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Few, so that claiming them is quick.
const SHARDS: u16 = 4;

pub enum Place {
    Sqlite(Location),
    Postgres(cleat_testing::postgres::Database),
}

pub struct World {
    place: Place,
    pub store: Arc<dyn Store>,
    pub host: Host,
    #[allow(dead_code, reason = "not every program of tests writes behind the host's back")]
    pub fences: Vec<Fence>,
}

impl Place {
    pub async fn sqlite() -> Self {
        Self::Sqlite(sqlite::Options::memory().location)
    }

    pub async fn postgres() -> Self {
        Self::Postgres(cleat_testing::postgres::shared().await.unwrap().database().await.unwrap())
    }

    async fn open(&self) -> Arc<dyn Store> {
        let groups = vec![(GroupName::default(), SHARDS), (GroupName::new("premium").unwrap(), 2)];
        match self {
            Self::Sqlite(location) => {
                let options = sqlite::Options { groups, ..sqlite::Options::at(location.clone()) };
                Arc::new(SqliteStore::open(options).await.unwrap())
            }
            Self::Postgres(database) => {
                let options = postgres::Options {
                    groups,
                    // Many tests share one server, so each is modest.
                    connections: 3,
                    ..postgres::Options::new(&database.url, Instance::random())
                };
                Arc::new(PostgresStore::open(options).await.unwrap())
            }
        }
    }
}

impl World {
    pub async fn new(place: Place) -> Self {
        Self::with(place, Options::default()).await
    }

    pub async fn with(place: Place, options: Options) -> Self {
        let store = place.open().await;
        let (host, fences) = serve(&store, options).await;
        Self { place, store, host, fences }
    }

    #[allow(dead_code, reason = "not every program of tests stops its host")]
    /// Another process on the same data, after this one has stopped.
    pub async fn restart(self, options: Options) -> Self {
        self.host.shutdown(Duration::from_secs(5)).await;
        // Opened before the other is closed, so that what is only in memory is not gone.
        let store = self.place.open().await;
        self.store.close().await;
        let (host, fences) = serve(&store, options).await;
        Self { place: self.place, store, host, fences }
    }
}

/// Claims all shards, each for its next epoch, and serves them.
async fn serve(store: &Arc<dyn Store>, options: Options) -> (Host, Vec<Fence>) {
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
    let host = Host::new(Arc::clone(store), ids, options);
    host.open(&fences).await.unwrap();
    (host, fences)
}

/// Runs each behaviour on both databases.
macro_rules! on_both_stores {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                let test = super::$name($crate::world::Place::sqlite().await);
                tokio::time::timeout($crate::world::PATIENCE, test).await.expect("it hangs");
            })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                let test = super::$name($crate::world::Place::postgres().await);
                tokio::time::timeout($crate::world::PATIENCE, test).await.expect("it hangs");
            })*
        }
    };
}
pub(crate) use on_both_stores;
