//! Types that are registered after the shards of their executions were opened.

use std::sync::Arc;
use std::time::Duration;

use cleat_runner::shard::{GroupName, Instance};
use cleat_runner::store::Store;
use cleat_runner::store::postgres::{self, PostgresStore};
use cleat_testing::postgres::{Options, Server, Shutdown};

use crate::PATIENCE;
use crate::flow::{Ledger, act, flow};
use crate::world::{options, serve, until};

async fn open(url: &str) -> Arc<dyn Store> {
    let options = postgres::Options {
        groups: vec![(GroupName::default(), 4)],
        connections: 3,
        patience: Duration::from_secs(1),
        ..postgres::Options::new(url, Instance::random())
    };
    Arc::new(PostgresStore::open(options).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn executions_resume_although_the_database_is_down_when_their_type_is_registered() {
    let test = async {
        let mut server = Server::start(Options::default()).await.unwrap();
        let database = server.database().await.unwrap();
        let store = open(&database.url).await;
        let host = serve(&store, options()).await;
        let begun = Ledger::default();
        let noted = begun.clone();
        let client = flow(&host, move |context, _| {
            let ledger = noted.clone();
            async move {
                act(&context, &ledger, "first").await;
                ledger.note("waits");
                std::future::pending().await
            }
        });
        client.start(&"a".into()).await.unwrap();
        until("the first activity is done", || async { begun.count("waits") > 0 }).await;
        host.abandon();
        host.entities().shutdown(Duration::ZERO).await;
        store.close().await;

        // Another process, which learns of the type while the database is down.
        let store = open(&database.url).await;
        let host = serve(&store, options()).await;
        server.stop(Shutdown::Immediate).await.unwrap();
        let resumed = Ledger::default();
        let noted = resumed.clone();
        flow(&host, move |context, _| {
            let ledger = noted.clone();
            async move {
                act(&context, &ledger, "first").await;
                ledger.note("resumed");
                Ok(String::new())
            }
        });
        // A read that began after the registration has failed, so those of the registration have, too.
        store.execution_types(&GroupName::default()).await.unwrap_err();
        store.execution_types(&GroupName::default()).await.unwrap_err();
        server.start_again().await.unwrap();
        until("the execution goes on", || async { resumed.count("resumed") > 0 }).await;
        assert_eq!(resumed.count("first"), 0, "what was done before is not done again");
    };
    tokio::time::timeout(PATIENCE, test).await.expect("it hangs");
}
