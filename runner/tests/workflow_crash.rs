//! A workflow whose process is killed at every durable point, one after the other, and which comes to the same end each time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

#[path = "workflow/doomed.rs"]
mod doomed;
#[path = "store_postgres_rig/proxy.rs"]
#[allow(dead_code, reason = "not every program of tests needs all of it")]
mod proxy;
#[path = "workflow/world.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "not every program of tests needs all of it")]
mod world;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cleat_runner::prelude::*;
use cleat_runner::shard::{GroupName, Instance};
use cleat_runner::store::postgres::{self, PostgresStore};
use cleat_runner::store::{Phase, Store};
use cleat_runner::workflow::join_all;
use cleat_testing::process::{self, Process};
use doomed::{Death, Doomed, Points};
use proxy::Proxy;
use sqlx::{Connection, PgConnection, Row};
use world::PATIENCE;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<sqlx::Error> for Refused {
    fn from(error: sqlx::Error) -> Self {
        Self(error.to_string())
    }
}

/// Does one of everything, and then fails, so that it is undone.
#[workflow(name = "everything")]
struct Everything {
    points: Points,
}

#[workflow_impl(key = |input: &String| input.clone())]
impl Everything {
    async fn execute(&self, input: String) -> Result<String, Refused> {
        self.plain().await?;
        self.effect("reserve".to_owned()).await?;
        self.compensate(|me| me.effect("undo reserve".to_owned()));
        self.sleep(Duration::from_millis(20)).await;
        let word: String = self.signal("go").await;
        let child = self.child::<Child>(&format!("{input} child")).await?;
        let branches = join_all((0..3).map(|n| self.effect(format!("branch {n}")))).await;
        branches.into_iter().collect::<Result<Vec<_>, _>>()?;
        Err(Refused(format!("{word} {child}")))
    }

    #[activity]
    async fn plain(&self) -> Result<(), Refused> {
        Ok(())
    }

    #[activity(retries = 2)]
    async fn effect(&self, what: String) -> Result<(), Refused> {
        sqlx::query("INSERT INTO effects (what) VALUES ($1)").bind(what).execute(&self.tx).await?;
        // Between the statement and the commit is a point, too.
        if self.points.pass().await {
            match self.points.die().await {}
        }
        Ok(())
    }
}

#[workflow(name = "child")]
struct Child;

#[workflow_impl]
impl Child {
    async fn execute(&self, input: String) -> Result<String, Refused> {
        self.effect(input.clone()).await?;
        Ok(input)
    }

    #[activity]
    async fn effect(&self, what: String) -> Result<(), Refused> {
        sqlx::query("INSERT INTO effects (what) VALUES ($1)").bind(what).execute(&self.tx).await?;
        Ok(())
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    url: String,
    id: String,
    death: Death,
}

/// One process: starts the workflow, or finds it under way, and tells how it ended.
#[test]
fn runner() {
    process::role("runner", async |parent| {
        let order: Order = parent.receive().await.unwrap().unwrap();
        let options = postgres::Options {
            groups: vec![(GroupName::default(), 2)],
            connections: 3,
            ..postgres::Options::new(&order.url, Instance::random())
        };
        let store = PostgresStore::open(options).await.unwrap();
        let points = Points::new(order.death);
        let store: Arc<dyn Store> = Arc::new(Doomed { inner: Arc::new(store), points: points.clone() });
        let host = world::serve(&store, world::options()).await;
        Child.register(&host).unwrap();
        let client = Everything { points }.register(&host).unwrap();
        client.start(&order.id).await.unwrap();
        // It may have ended before this process began.
        let _ = client.signal(&order.id, "go", "gone").await;
        let refused = client.join(&order.id).await.unwrap_err().refused().unwrap();
        assert_eq!(client.describe(&order.id).await.unwrap().phase, Phase::Failed);
        parent.send(&refused.0).unwrap();
    });
}

/// Whether the process came to the end.
async fn run(url: &str, id: &str, death: Death) -> Option<String> {
    let mut child = Process::spawn("runner").unwrap();
    child.send(&Order { url: url.to_owned(), id: id.to_owned(), death }).await.unwrap();
    let told =
        tokio::time::timeout(Duration::from_secs(120), child.receive::<String>()).await.expect("it hangs");
    told.unwrap()
}

async fn effects(url: &str) -> BTreeMap<String, i64> {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let rows =
        sqlx::query("SELECT what, count(*) AS times FROM effects GROUP BY what").fetch_all(&mut connection);
    rows.await.unwrap().iter().map(|row| (row.get("what"), row.get("times"))).collect()
}

/// The same end and the same effects, whatever happened. The next one finds nothing of them.
async fn is_as_ever(url: &str, id: &str, end: &str) {
    assert_eq!(end, format!("gone {id} child"));
    let child = format!("{id} child");
    let names = ["reserve", "branch 0", "branch 1", "branch 2", "undo reserve", &child];
    let expected: BTreeMap<String, i64> = names.map(|name| (name.to_owned(), 1)).into();
    assert_eq!(effects(url).await, expected, "each effect is there once, killed {id}");
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::query("TRUNCATE effects").execute(&mut connection).await.unwrap();
}

/// A process that is killed while it waits for the answer to one of its COMMITs, which the server has seen or not.
async fn killed_at_commit(url: &str, id: &str, number: u32, seen: bool) -> Option<String> {
    // With the end of the statement, since the isolation level is called READ COMMITTED.
    let proxy = Proxy::holding(url, seen, b"COMMIT;").await;
    let mut child = Process::spawn("runner").unwrap();
    let order = Order { url: proxy.url.clone(), id: id.to_owned(), death: Death::Never };
    child.send(&order).await.unwrap();
    tokio::select! {
        told = child.receive::<String>() => return told.unwrap(),
        () = proxy.cut(number) => {}
    }
    child.kill().await.unwrap();
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_in_the_middle_of_any_commit_changes_nothing() {
    let database = cleat_testing::postgres::shared().await.unwrap().database().await.unwrap();
    let url = database.url.as_str();
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::query("CREATE TABLE effects (what text NOT NULL)").execute(&mut connection).await.unwrap();
    // Makes the schema, whose own commits are not meant.
    let first = run(url, "first", Death::Never).await.unwrap();
    is_as_ever(url, "first", &first).await;
    for seen in [false, true] {
        let mut killed = 0;
        for number in 1.. {
            let id = format!("commit {number} {seen}");
            let survived = killed_at_commit(url, &id, number, seen).await;
            let end = match &survived {
                Some(end) => end.clone(),
                None => run(url, &id, Death::Never).await.expect("the second process is not killed"),
            };
            is_as_ever(url, &id, &end).await;
            if survived.is_some() {
                break;
            }
            killed += 1;
        }
        // One for each transactional effect, at least.
        assert!(killed >= 6, "{killed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_at_any_durable_point_changes_nothing() {
    let database = cleat_testing::postgres::shared().await.unwrap().database().await.unwrap();
    let url = database.url.as_str();
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::query("CREATE TABLE effects (what text NOT NULL)").execute(&mut connection).await.unwrap();

    let mut killed = 0;
    for make in [Death::Before as fn(u32) -> Death, Death::After] {
        for point in 1.. {
            let id = format!("{:?}", make(point));
            let survived = run(url, &id, make(point)).await;
            let end = match &survived {
                Some(end) => end.clone(),
                None => {
                    killed += 1;
                    run(url, &id, Death::Never).await.expect("the second process is not killed")
                }
            };
            is_as_ever(url, &id, &end).await;
            if survived.is_some() {
                break;
            }
        }
    }
    // Start, signal, steps, messages, transactions and the end: fewer would mean that something was not counted.
    assert!(killed >= 36, "{killed}");
    println!("killed at {killed} points");
}
