//! One runner that serves what is declared, on either database.
#![allow(dead_code, reason = "not every program of tests needs all of it")]

use std::sync::Arc;
use std::time::Duration;

use cleat_crds::entity_type::EntityTypeSpec;
use cleat_runner::client::{EntityClient, Error, Runtime};
use cleat_runner::cluster::{Node, Options, Parts};
use cleat_runner::definitions::{Declared, Keeper, Set, Written};
use cleat_runner::egress::{Addresses, Egress, Fixed, Limits};
use cleat_runner::lease::{Boot, Memory, Name, Timing};
use cleat_runner::message::EntityType;
use cleat_runner::shard::{GroupName, Instance, ownership};
use cleat_runner::store::Store;
use cleat_runner::store::postgres::{self, PostgresStore};
use cleat_runner::store::sqlite::{self, Location, SqliteStore};
use cleat_runner::transport::{Address, SharedToken};
use serde_json::Value as Json;
use tokio::net::TcpListener;

/// No test waits so long, unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(120);

const SHARDS: u16 = 3;

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

    async fn open(&self) -> Arc<dyn Store> {
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
    place: Place,
    /// Kept open, so that what is only in memory is not gone when a runner stops.
    _anchor: Arc<dyn Store>,
    leases: Memory,
    pub node: Node,
    pub keeper: Keeper,
}

impl World {
    pub async fn new(place: Place) -> Self {
        Self::with(place, |_| ()).await
    }

    /// With types that are compiled in.
    pub async fn with(place: Place, register: impl FnOnce(&Node)) -> Self {
        let anchor = place.open().await;
        let leases = Memory::new();
        let node = start(&place, &leases, "a").await;
        register(&node);
        let keeper = keeper(&node);
        Self { place, _anchor: anchor, leases, node, keeper }
    }

    /// Another runner on the same data, after this one has stopped.
    pub async fn restart(self) -> Self {
        self.node.shutdown().await;
        let node = start(&self.place, &self.leases, "b").await;
        let keeper = keeper(&node);
        Self { node, keeper, ..self }
    }

    /// Serves these types, and nothing else, without any problem.
    pub async fn serve(&self, types: &[(&str, &str)]) {
        self.keeper.apply(&set(types)).await;
        assert_eq!(self.keeper.serving().borrow().problems, []);
    }

    pub fn client(&self, entity_type: &str) -> EntityClient {
        EntityClient::new(self.node.router(), EntityType::new(entity_type).unwrap())
    }

    /// Asks, and gives the reply or the reason and the words of a no.
    pub async fn ask(&self, entity: &str, method: &str, input: Json) -> Result<Json, (String, String)> {
        let (entity_type, id) = entity.split_once('/').unwrap();
        self.client(entity_type).call::<Json, Json>(id, method, &input).await.map_err(|error| match error {
            Error::Refused(details) => ("Refused".to_owned(), details.to_string()),
            Error::Entity(error) => (error.reason().to_owned(), error.to_string()),
        })
    }
}

fn keeper(node: &Node) -> Keeper {
    let written = Written::new(node, egress()).unwrap();
    Keeper::new(node.clone(), egress()).with_workflows(Arc::new(written))
}

/// A way out that reaches this machine, with a key.
pub fn egress() -> Egress {
    let options = cleat_runner::egress::Options {
        addresses: Addresses { loopback: true, refused: Vec::new() },
        answer_limit: 64 << 10,
        breaker: Limits { failures: 1000, pause: Duration::from_secs(600) },
        ..Default::default()
    };
    Egress::new(options, Arc::new(Fixed::default().with("handler", "key", "s3cret")))
}

async fn start(place: &Place, leases: &Memory, name: &str) -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::new(&listener.local_addr().unwrap().to_string()).unwrap();
    let ownership = ownership::Options {
        timing: Timing::new(Duration::from_secs(10), Duration::from_secs(2)).unwrap(),
        settle: Duration::from_millis(50),
        ..ownership::Options::new(Name::new(name).unwrap(), address)
    };
    let mut options = Options { patience: PATIENCE, ..Options::new(ownership, "cluster") };
    options.upkeep = None;
    options.entities.registration = Duration::from_millis(500);
    let token = Arc::new(SharedToken::new("secret"));
    let parts = Parts {
        store: place.open().await,
        leases: Arc::new(leases.connect()),
        clock: Arc::new(Boot),
        listener,
        credential: Arc::<SharedToken>::clone(&token),
        verify: token,
        metrics: prometheus::Registry::new(),
    };
    let node = Node::start(options, parts).await.unwrap();
    until("all shards are served", || node.ownership().status().borrow().serving == usize::from(SHARDS))
        .await;
    node
}

/// YAML as an API server takes it: first as JSON, and then as what it is.
pub fn parse<T: serde::de::DeserializeOwned>(yaml: &str) -> T {
    let json: Json = serde_yaml::from_str(yaml).unwrap_or_else(|error| panic!("{error}: {yaml}"));
    serde_json::from_value(json).unwrap_or_else(|error| panic!("{error}: {yaml}"))
}

/// A spec as users write it.
pub fn spec(yaml: &str) -> EntityTypeSpec {
    parse(yaml)
}

pub fn set(types: &[(&str, &str)]) -> Set {
    let entities = types.iter().map(|(name, yaml)| ((*name).to_owned(), Declared::first(spec(yaml))));
    Set { entities: entities.collect(), ..Set::default() }
}

/// Waits until something holds.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "it never happened: {what}");
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
