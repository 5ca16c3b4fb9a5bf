//! These tests can fail: a database without the fence is found out.

use std::sync::Arc;

use cleat_runner::entity::{Host, Options};
use cleat_runner::message::snowflake::Generator;
use cleat_runner::shard::{Fence, GroupName, Instance};
use cleat_runner::store::Store;
use cleat_runner::store::postgres::{self, PostgresStore};
use cleat_testing::history::{Action, Answer, History, Operation, Violation};
use sqlx::{Connection, PgConnection};

use crate::audit;
use crate::list::{List, ListClient};
use crate::runner::SHARDS;

/// Lets everybody write.
const UNFENCE: &str = "
    CREATE OR REPLACE FUNCTION cleat.fence(lock bigint, instance text, grps smallint[], shards integer[], generations integer[], epochs bigint[])
    RETURNS boolean[] LANGUAGE sql AS $$ SELECT array_agg(true) FROM unnest(epochs) $$;
";

/// A process that owns all shards, without anybody who tells it when it does not any more.
struct Owner {
    host: Host,
    client: ListClient,
    store: Arc<dyn Store>,
}

impl Owner {
    async fn open(url: &str) -> Self {
        let options = postgres::Options {
            groups: vec![(GroupName::default(), SHARDS)],
            connections: 2,
            ..postgres::Options::new(url, Instance::random())
        };
        let store: Arc<dyn Store> = Arc::new(PostgresStore::open(options).await.unwrap());
        let ids = Arc::new(Generator::new(store.lease_machine().await.unwrap()));
        let host = Host::new(Arc::clone(&store), ids, Options::default());
        let client = List.register(&host).unwrap();
        Self { host, client, store }
    }

    async fn claim(&self) {
        let holdings = self.store.holdings(&GroupName::default()).await.unwrap().into_iter();
        let fences: Vec<_> =
            holdings.map(|held| Fence { shard: held.shard, epoch: held.epoch.next() }).collect();
        for claimed in self.store.claim(&fences).await.unwrap() {
            claimed.unwrap();
        }
        self.host.open(&fences).await.unwrap();
    }
}

/// Two owners after each other, and the first does not know. What they are told goes into the history.
async fn two_owners(fenced: bool) -> Vec<Violation> {
    let url = cleat_testing::postgres::shared().await.unwrap().database().await.unwrap().url;
    let (old, new) = (Owner::open(&url).await, Owner::open(&url).await);
    audit::install(&url).await;
    if !fenced {
        let mut connection = PgConnection::connect(&url).await.unwrap();
        sqlx::raw_sql(UNFENCE).execute(&mut connection).await.unwrap();
    }
    old.claim().await;
    let mut operations = Vec::new();
    let mut send = async |owner: &Owner, message: u64| {
        let told = owner.client.append("one", &message).await;
        let answer = told.map_or(Answer::Unknown, Answer::Handled);
        let action = Action::Send { message, answer };
        operations.push(Operation {
            client: 1,
            entity: "one".into(),
            action,
            during: (2 * message, 2 * message + 1),
        });
    };
    send(&old, 1).await;
    new.claim().await;
    send(&new, 2).await;
    send(&old, 3).await;
    send(&new, 4).await;
    let (claims, writes) = audit::log(&url).await;
    let entities = audit::entities(&url).await;
    History { operations, entities, claims, writes }.check()
}

#[tokio::test]
async fn with_the_fence_an_owner_that_does_not_know_writes_nothing() {
    assert_eq!(two_owners(true).await, []);
}

#[tokio::test]
async fn without_the_fence_an_owner_that_does_not_know_is_found_out() {
    let found = two_owners(false).await;
    let outdated =
        |violation: &Violation| matches!(violation, Violation::Outdated { epoch: 1, newer: 2, .. });
    assert!(found.iter().any(outdated), "{found:?}");
}
