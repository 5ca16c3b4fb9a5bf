//! Entities that ask each other across runners, over real sockets and PostgreSQL.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

mod nodes;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cleat_runner::cluster::Node;
use cleat_runner::message::EntityType;
use cleat_runner::prelude::*;
use tokio::sync::Semaphore;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Empty {
    SoldOut { wanted: i64 },
}

impl fmt::Display for Empty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::SoldOut { wanted } = self;
        write!(f, "{wanted} were wanted")
    }
}

/// Gives out what it has, once for each question.
#[entity(name = "shelf", state = i64)]
#[derive(Clone)]
struct Shelf {
    taken: Arc<AtomicUsize>,
}

#[entity_impl]
impl Shelf {
    #[rpc(persisted)]
    #[protected]
    async fn take(&self, given: &mut i64, count: i64) -> Result<i64, Empty> {
        if count > 100 {
            return Err(Empty::SoldOut { wanted: count });
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        *given += count;
        Ok(*given)
    }

    #[rpc]
    pub async fn given(&self, given: &i64) -> Result<i64, Never> {
        Ok(*given)
    }
}

/// Asks a shelf, or another cart.
#[entity(name = "cart", state = i64)]
#[derive(Clone)]
struct Cart {
    begun: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

#[derive(Serialize, Deserialize)]
struct Fetch {
    from: String,
    count: i64,
    hold: bool,
}

#[entity_impl]
impl Cart {
    #[rpc(persisted)]
    pub async fn fetch(
        &self,
        had: &mut i64,
        context: &mut Context,
        request: Fetch,
    ) -> Result<i64, OrRetry<Empty>> {
        let shelves = context.client::<Shelf>().map_err(OrRetry::retry)?;
        let got = context.call(shelves.inside().take(&request.from, &request.count)).await;
        let got = got.map_err(|error| match error {
            client::Error::Refused(empty) => OrRetry::Failed(empty),
            client::Error::Entity(error) => OrRetry::retry(error),
        })?;
        *had += request.count;
        if request.hold {
            self.begun.add_permits(1);
            self.open.acquire().await.map_err(OrRetry::retry)?.forget();
        }
        Ok(got)
    }

    /// Asks the first of these carts to ask the second, and so on.
    #[rpc]
    pub async fn round(&self, context: &mut Context, mut carts: Vec<String>) -> Result<String, String> {
        if carts.is_empty() {
            return Ok("done".to_owned());
        }
        let first = carts.remove(0);
        let others = context.client::<Self>().map_err(|error| error.to_string())?;
        context.call(others.round(first, &carts)).await.map_err(|error| match error {
            client::Error::Refused(text) => text,
            client::Error::Entity(error) => format!("{}! {error}", error.reason()),
        })
    }
}

struct World {
    nodes: nodes::World,
    shelf: Shelf,
    cart: Cart,
}

impl World {
    async fn new() -> Self {
        let cart = Cart { begun: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) };
        let nodes = nodes::World::new().await;
        Self { nodes, shelf: Shelf { taken: Arc::default() }, cart }
    }

    async fn node(&self, name: &str) -> (Node, CartClient, ShelfClient) {
        let node = self.nodes.start(name).await.node;
        let shelves = self.shelf.clone().register(&node).unwrap();
        let carts = self.cart.clone().register(&node).unwrap();
        (node, carts, shelves)
    }
}

/// The ids of entities that a node serves.
fn served<'a>(node: &'a Node, of: &'a str, prefix: &'a str) -> impl Iterator<Item = String> + 'a {
    let entity_type = EntityType::new(of).unwrap();
    (0..10_000).map(move |number| format!("{prefix}{number}")).filter(move |id| {
        node.host().shard_of(&entity_type, id).is_some_and(|shard| node.host().serves(&shard))
    })
}

fn fetch(from: &str, count: i64) -> Fetch {
    Fetch { from: from.to_owned(), count, hold: false }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entity_asks_another_one_wherever_it_lives() {
    let world = World::new().await;
    let (a, carts, shelves) = world.node("a").await;
    let (b, from_b, _) = world.node("b").await;
    nodes::spread(&[&a, &b]).await;
    let near = served(&a, "shelf", "s").next().unwrap();
    let far = served(&b, "shelf", "s").next().unwrap();
    let cart = served(&a, "cart", "c").next().unwrap();
    assert_eq!(carts.fetch(&cart, &fetch(&near, 2)).await.unwrap(), 2);
    assert_eq!(carts.fetch(&cart, &fetch(&far, 3)).await.unwrap(), 3);
    assert_eq!(from_b.fetch(&cart, &fetch(&far, 3)).await.unwrap(), 6);
    assert_eq!(shelves.given(&far).await.unwrap(), 6);
    // Its own error, too, and protected methods stay closed to everybody else.
    let refused = from_b.fetch(&cart, &fetch(&far, 101)).await.unwrap_err().refused();
    assert_eq!(refused, Some(Empty::SoldOut { wanted: 101 }));
    let outside: &EntityClient = shelves.as_ref();
    for shelf in [&near, &far] {
        let error = outside.call::<i64, Never>(shelf, "take", &1).await.unwrap_err();
        assert_eq!(error.reason(), Some("NotPermitted"));
    }
    for node in [a, b] {
        node.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_back_across_runners_fails_at_once() {
    let world = World::new().await;
    let (a, carts, _) = world.node("a").await;
    let (b, _, _) = world.node("b").await;
    nodes::spread(&[&a, &b]).await;
    let (one, other) = (served(&a, "cart", "c").next().unwrap(), served(&b, "cart", "c").next().unwrap());
    let round = vec![other.clone(), one.clone()];
    let error = carts.round(&one, &round).await.unwrap_err().refused().unwrap();
    assert!(error.starts_with("Deadlock! "), "{error}");
    assert!(error.contains(&format!("cart/{one} -> cart/{other} -> cart/{one}")), "{error}");
    let third = served(&a, "cart", "c").nth(1).unwrap();
    assert_eq!(carts.round(&one, &vec![other, third]).await.unwrap(), "done");
    for node in [a, b] {
        node.shutdown().await;
    }
}

/// The caller's runner goes away after the call; whoever runs the handler again gets the same answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_moves_while_it_runs_asks_once() {
    let world = World::new().await;
    let (a, _, _) = world.node("a").await;
    let (b, carts, shelves) = world.node("b").await;
    nodes::spread(&[&a, &b]).await;
    let cart = served(&a, "cart", "c").next().unwrap();
    let shelf = served(&b, "shelf", "s").next().unwrap();
    let asked = tokio::spawn({
        let (carts, cart) = (carts.clone(), cart.clone());
        let request = Fetch { hold: true, ..fetch(&shelf, 5) };
        async move { carts.fetch(&cart, &request).await }
    });
    world.cart.begun.acquire().await.unwrap().forget();
    assert_eq!(world.shelf.taken.load(Ordering::Relaxed), 1);
    let leaving = tokio::spawn(async move { a.shutdown().await });
    // The second run, on the other runner.
    tokio::time::timeout(nodes::PATIENCE, world.cart.begun.acquire()).await.unwrap().unwrap().forget();
    world.cart.open.add_permits(2);
    assert_eq!(asked.await.unwrap().unwrap(), 5);
    leaving.await.unwrap();
    assert_eq!(world.shelf.taken.load(Ordering::Relaxed), 1, "it was asked once");
    assert_eq!(shelves.given(&shelf).await.unwrap(), 5);
    b.shutdown().await;
}
