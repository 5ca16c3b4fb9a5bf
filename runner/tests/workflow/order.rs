//! Workflows written with the macros.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use cleat_runner::prelude::*;
use cleat_runner::store::Phase;
use cleat_runner::workflow::{Either, join_all, select};

use crate::flow::Ledger;
use crate::world::{Place, World, on_both_stores, until};

#[derive(Default, Serialize, Deserialize)]
struct Stock {
    on_hand: i64,
    reserved: BTreeMap<String, i64>,
}

#[derive(Serialize, Deserialize)]
struct Reserve {
    order: String,
    count: i64,
}

#[entity(name = "inventory", state = Stock, concurrency = 1)]
struct Inventory;

#[entity_impl]
impl Inventory {
    #[rpc(persisted)]
    pub async fn restock(&self, stock: &mut Stock, count: i64) -> Result<i64, Never> {
        stock.on_hand += count;
        Ok(stock.on_hand)
    }

    #[rpc(persisted)]
    pub async fn reserve(&self, stock: &mut Stock, request: Reserve) -> Result<i64, OrderError> {
        if stock.on_hand < request.count {
            return Err(OrderError::OutOfStock);
        }
        stock.on_hand -= request.count;
        stock.reserved.insert(request.order, request.count);
        Ok(stock.on_hand)
    }

    #[rpc(persisted)]
    pub async fn release(&self, stock: &mut Stock, order: String) -> Result<(), Never> {
        stock.on_hand += stock.reserved.remove(&order).unwrap_or_default();
        Ok(())
    }

    #[rpc]
    pub async fn get(&self, stock: &Stock) -> Result<i64, Never> {
        Ok(stock.on_hand)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct OrderRequest {
    id: String,
    item: String,
    count: i64,
    amount: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Receipt {
    order: String,
    amount: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum OrderError {
    OutOfStock,
    CardRefused,
    Elsewhere(String),
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl<E: fmt::Display> From<client::Error<E>> for OrderError
where
    E: Into<OrderError>,
{
    fn from(error: client::Error<E>) -> Self {
        match error {
            client::Error::Refused(error) => error.into(),
            client::Error::Entity(error) => Self::Elsewhere(error.to_string()),
        }
    }
}

impl From<Never> for OrderError {
    fn from(never: Never) -> Self {
        match never {}
    }
}

#[workflow]
struct Order {
    inventory: InventoryClient,
}

#[workflow_impl(key = |order: &OrderRequest| order.id.clone())]
impl Order {
    async fn execute(&self, request: OrderRequest) -> Result<Receipt, OrderError> {
        self.show("status", "reserving");
        self.reserve(request.clone()).await?;
        let id = request.id.clone();
        let item = request.item.clone();
        self.compensate(move |order| order.release(item, id));
        self.show("status", "packing");
        self.sleep(Duration::from_millis(50)).await;
        self.show("status", "charging");
        self.charge(request).await
    }

    #[activity]
    async fn reserve(&self, request: OrderRequest) -> Result<i64, OrderError> {
        let reserve = Reserve { order: request.id, count: request.count };
        Ok(self.inventory.reserve(&request.item, &reserve).key(self.key()).await?)
    }

    #[activity]
    async fn release(&self, item: String, order: String) -> Result<(), OrderError> {
        Ok(self.inventory.release(&item, &order).key(self.key()).await?)
    }

    #[activity(retries = 3, interval = "10ms", no_retry = |error: &OrderError| *error == OrderError::CardRefused)]
    async fn charge(&self, request: OrderRequest) -> Result<Receipt, OrderError> {
        if self.is_too_much(request.amount) {
            return Err(OrderError::CardRefused);
        }
        if self.attempt() < 2 {
            return Err(OrderError::Elsewhere("the terminal is busy".into()));
        }
        Ok(Receipt { order: request.id, amount: request.amount })
    }

    fn is_too_much(&self, amount: i64) -> bool {
        amount > 1000
    }
}

on_both_stores!(
    an_order_is_reserved_and_charged,
    a_refused_order_is_undone,
    a_group_is_part_of_several_workflows,
    signals_are_buffered_and_ordered,
    a_promise_is_kept_once,
    cancellation_undoes_what_was_done,
    a_child_gives_its_result_to_its_parent,
    a_cancelled_parent_cancels_its_child,
    a_run_begins_anew_and_keeps_unread_signals,
    the_loser_of_a_race_is_told_to_stop,
    parallel_branches_are_all_done,
    a_suspended_execution_rests_until_it_is_resumed,
    a_failed_execution_is_retried_from_the_step_that_failed,
    an_execution_is_reset_to_a_step,
    children_of_one_parent_are_told_apart,
    what_was_recorded_is_not_made_again,
);

fn request(id: &str, amount: i64) -> OrderRequest {
    OrderRequest { id: id.into(), item: "apples".into(), count: 3, amount }
}

async fn an_order_is_reserved_and_charged(place: Place) {
    let world = World::new(place).await;
    let inventory = Inventory.register(&world.host).unwrap();
    inventory.restock("apples", &10).await.unwrap();
    let client = Order { inventory: inventory.clone() }.register(&world.host).unwrap();
    let receipt = client.execute(&request("o-1", 900)).await.unwrap();
    assert_eq!(receipt, Receipt { order: "o-1".into(), amount: 900 });
    assert_eq!(inventory.get("apples").await.unwrap(), 7);
    let again: String = client.query("o-1", "status").await.unwrap();
    assert_eq!(again, "charging", "a finished execution is replayed for a query");
    let error = client.query::<String>("o-1", "weather").await.unwrap_err();
    assert_eq!(error.reason(), "NoSuchQuery");
}

async fn a_refused_order_is_undone(place: Place) {
    let world = World::new(place).await;
    let inventory = Inventory.register(&world.host).unwrap();
    inventory.restock("apples", &10).await.unwrap();
    let client = Order { inventory: inventory.clone() }.register(&world.host).unwrap();
    let error = client.execute(&request("o-1", 2000)).await.unwrap_err();
    assert_eq!(error.refused(), Some(OrderError::CardRefused));
    assert_eq!(inventory.get("apples").await.unwrap(), 10, "what was reserved is released");
    assert_eq!(client.describe("o-1").await.unwrap().phase, Phase::Failed);
    let many = OrderRequest { count: 50, ..request("o-2", 1) };
    assert_eq!(client.execute(&many).await.unwrap_err().refused(), Some(OrderError::OutOfStock));
}

#[activity_group]
#[derive(Clone)]
struct Notes {
    ledger: Ledger,
}

#[activity_group_impl]
impl Notes {
    #[activity]
    async fn note(&self, what: String) -> Result<usize, Never> {
        self.ledger.note(what);
        Ok(self.ledger.all().len())
    }
}

#[workflow]
struct First;

#[workflow_impl(key = |input: &String| input.clone(), activity_groups(Notes))]
impl First {
    async fn execute(&self, input: String) -> Result<usize, Never> {
        self.note(format!("first {input}")).await
    }
}

#[workflow(name = "second")]
struct Another;

#[workflow_impl(activity_groups(Notes))]
impl Another {
    async fn execute(&self, input: String) -> Result<usize, Never> {
        self.note(format!("second {input}")).await
    }
}

async fn a_group_is_part_of_several_workflows(place: Place) {
    let world = World::new(place).await;
    let notes = Notes { ledger: Ledger::default() };
    let first = First.register(&world.host, notes.clone()).unwrap();
    let second = Another.register(&world.host, notes.clone()).unwrap();
    assert_eq!(first.execute(&"a".into()).await.unwrap(), 1);
    assert_eq!(second.execute(&"a".into()).await.unwrap(), 2);
    // Without a key the input is one.
    assert_eq!(second.execute(&"a".into()).await.unwrap(), 2);
    assert_eq!(notes.ledger.all(), ["first a", "second a"]);
}

/// A workflow that does what its input says.
#[workflow]
struct Many {
    ledger: Ledger,
}

#[workflow_impl(key = |input: &String| input.split(':').next().unwrap_or_default().to_owned())]
impl Many {
    async fn execute(&self, input: String) -> Result<String, String> {
        let (_, what) = input.split_once(':').unwrap_or(("", &input));
        match what {
            "signals" => {
                let mut heard = Vec::new();
                for _ in 0..5 {
                    heard.push(self.signal::<u32>("number").await.to_string());
                }
                Ok(heard.join(","))
            }
            "promise" => {
                let (a, b) =
                    workflow::join(self.promise::<String>("answer"), self.promise::<String>("answer")).await;
                Ok(format!("{a} {b}"))
            }
            "undo" => {
                for name in ["a", "b", "c"] {
                    self.note(name.to_owned()).await?;
                    self.compensate(move |me| me.note(format!("undo {name}")));
                }
                self.signal::<()>("never").await;
                Ok(String::new())
            }
            "child" => {
                let given = self.child::<Many>(&"child-of:echo".to_owned()).await?;
                Ok(format!("my child says {given}"))
            }
            "echo" => Ok(self.note("echo".to_owned()).await?),
            "parent" => {
                let child = self.child::<Many>(&"x:undo".to_owned()).id("the-child");
                Ok(child.await?)
            }
            "race" => match select(self.forever(), self.sleep(Duration::from_millis(50))).await {
                Either::First(forever) => forever,
                Either::Second(()) => Ok(self.note("time is up".to_owned()).await?),
            },
            "all" => {
                let all = join_all((0..50).map(|n| self.note(n.to_string()))).await;
                Ok(all.into_iter().collect::<Result<Vec<_>, _>>()?.join(","))
            }
            "children" => {
                let children: Vec<_> = (0..5).map(|n| self.child::<Many>(&format!("{n}:echo"))).collect();
                let children = join_all(children).await;
                Ok(children.into_iter().collect::<Result<Vec<_>, _>>()?.join(","))
            }
            "recorded" => {
                let ledger = self.ledger.clone();
                let drawn: u64 = self
                    .record("draw", move || {
                        ledger.note("drawn");
                        7
                    })
                    .await;
                let path = if self.patched("better") { "new" } else { "old" };
                self.signal::<()>("go").await;
                let again = if self.patched("better") { "new" } else { "old" };
                Ok(format!("{drawn} {path} {again}"))
            }
            "fail" => {
                self.note("before".to_owned()).await?;
                self.mend().await
            }
            _ => match what.strip_prefix("count ").and_then(|n| n.parse::<u32>().ok()) {
                Some(n) if n < 3 => {
                    let heard: u32 = self.signal("number").await;
                    self.note(format!("run {n} heard {heard}")).await?;
                    let id = self.id();
                    match self.continue_as_new(&format!("{id}:count {}", n + 1)).await {}
                }
                _ => Ok(what.to_owned()),
            },
        }
    }

    #[activity]
    async fn note(&self, what: String) -> Result<String, String> {
        self.ledger.note(what.clone());
        Ok(what)
    }

    #[activity]
    async fn forever(&self) -> Result<String, String> {
        self.abandoned().await;
        self.ledger.note("told to stop");
        Ok(String::new())
    }

    #[activity]
    async fn mend(&self) -> Result<String, String> {
        if self.ledger.count("mended") == 0 { Err("broken".to_owned()) } else { Ok("works".to_owned()) }
    }
}

async fn many(place: Place) -> (World, ManyClient, Ledger) {
    let world = World::new(place).await;
    let ledger = Ledger::default();
    let client = Many { ledger: ledger.clone() }.register(&world.host).unwrap();
    (world, client, ledger)
}

async fn signals_are_buffered_and_ordered(place: Place) {
    let (world, client, _) = many(place).await;
    client.start(&"a:signals".into()).await.unwrap();
    for n in 0..3u32 {
        client.signal("a", "number", &n).await.unwrap();
    }
    until("it left memory", async || world.host.resident_executions() == 0).await;
    for n in 3..5u32 {
        client.signal("a", "number", &n).await.unwrap();
    }
    assert_eq!(client.join("a").await.unwrap(), "0,1,2,3,4");
}

async fn a_promise_is_kept_once(place: Place) {
    let (_world, client, _) = many(place).await;
    client.start(&"a:promise".into()).await.unwrap();
    client.resolve("a", "answer", "42").await.unwrap();
    let _ = client.resolve("a", "answer", "43").await;
    assert_eq!(client.join("a").await.unwrap(), "42 42");
}

async fn cancellation_undoes_what_was_done(place: Place) {
    let (_world, client, ledger) = many(place).await;
    client.start(&"a:undo".into()).await.unwrap();
    until("all is done", async || ledger.count("c") == 1).await;
    client.cancel("a").await.unwrap();
    assert_eq!(client.join("a").await.unwrap_err().reason(), Some("Cancelled"));
    assert_eq!(ledger.all(), ["a", "b", "c", "undo c", "undo b", "undo a"]);
    assert_eq!(client.describe("a").await.unwrap().phase, Phase::Cancelled);
}

async fn a_child_gives_its_result_to_its_parent(place: Place) {
    let (_world, client, ledger) = many(place).await;
    assert_eq!(client.execute(&"a:child".into()).await.unwrap(), "my child says echo");
    assert_eq!(ledger.all(), ["echo"]);
}

async fn a_cancelled_parent_cancels_its_child(place: Place) {
    let (_world, client, ledger) = many(place).await;
    client.start(&"a:parent".into()).await.unwrap();
    until("the child runs", async || ledger.count("c") == 1).await;
    client.cancel("a").await.unwrap();
    assert_eq!(client.join("a").await.unwrap_err().reason(), Some("Cancelled"));
    assert_eq!(client.join("the-child").await.unwrap_err().reason(), Some("Cancelled"));
    assert_eq!(ledger.all(), ["a", "b", "c", "undo c", "undo b", "undo a"]);
}

async fn a_run_begins_anew_and_keeps_unread_signals(place: Place) {
    let (_world, client, ledger) = many(place).await;
    let (_, started) = client.begin(&"a:count 0".into()).await.unwrap();
    for n in [7u32, 8, 9] {
        client.signal("a", "number", &n).await.unwrap();
    }
    assert_eq!(client.join("a").await.unwrap(), "count 3");
    assert_eq!(ledger.all(), ["run 0 heard 7", "run 1 heard 8", "run 2 heard 9"]);
    assert_ne!(client.describe("a").await.unwrap().run, started.run);
}

async fn the_loser_of_a_race_is_told_to_stop(place: Place) {
    let (_world, client, ledger) = many(place).await;
    assert_eq!(client.execute(&"a:race".into()).await.unwrap(), "time is up");
    until("it was told", async || ledger.count("told to stop") == 1).await;
    let history = client.history("a").await.unwrap();
    let dropped = history.iter().any(|entry| matches!(entry.event, workflow::journal::Event::Dropped { .. }));
    assert!(dropped, "{history:?}");
}

async fn parallel_branches_are_all_done(place: Place) {
    let (_world, client, ledger) = many(place).await;
    let given = client.execute(&"a:all".into()).await.unwrap();
    let expected: Vec<_> = (0..50).map(|n| n.to_string()).collect();
    assert_eq!(given, expected.join(","));
    assert_eq!(ledger.all().len(), 50);
}

async fn a_suspended_execution_rests_until_it_is_resumed(place: Place) {
    let (world, client, ledger) = many(place).await;
    client.start(&"a:signals".into()).await.unwrap();
    client.suspend("a").await.unwrap();
    assert_eq!(client.describe("a").await.unwrap().phase, Phase::Suspended);
    for n in 0..5u32 {
        client.signal("a", "number", &n).await.unwrap();
    }
    until("it left memory", async || world.host.resident_executions() == 0).await;
    assert_eq!(client.describe("a").await.unwrap().phase, Phase::Suspended);
    let world = world.restart().await;
    let client = Many { ledger }.register(&world.host).unwrap();
    client.resume("a").await.unwrap();
    assert_eq!(client.join("a").await.unwrap(), "0,1,2,3,4");
}

async fn a_failed_execution_is_retried_from_the_step_that_failed(place: Place) {
    let (_world, client, ledger) = many(place).await;
    assert_eq!(client.execute(&"a:fail".into()).await.unwrap_err().refused().unwrap(), "broken");
    ledger.note("mended");
    client.retry("a").await.unwrap();
    assert_eq!(client.join("a").await.unwrap(), "works");
    assert_eq!(ledger.count("before"), 1);
    assert_eq!(client.retry("a").await.unwrap_err().reason(), "NotFailed");
}

async fn an_execution_is_reset_to_a_step(place: Place) {
    let (_world, client, ledger) = many(place).await;
    client.execute(&"a:fail".into()).await.unwrap_err();
    ledger.note("mended");
    client.reset("a", 0).await.unwrap();
    assert_eq!(client.join("a").await.unwrap(), "works");
    assert_eq!(ledger.count("before"), 2, "it went back to the beginning");
    assert_eq!(client.reset("a", 100).await.unwrap_err().reason(), "NoSuchStep");
}

async fn children_of_one_parent_are_told_apart(place: Place) {
    let (_world, client, ledger) = many(place).await;
    assert_eq!(client.execute(&"a:children".into()).await.unwrap(), "echo,echo,echo,echo,echo");
    assert_eq!(ledger.count("echo"), 5);
}

async fn what_was_recorded_is_not_made_again(place: Place) {
    let (world, client, ledger) = many(place).await;
    client.start(&"a:recorded".into()).await.unwrap();
    until("it left memory", async || ledger.count("drawn") == 1 && world.host.resident_executions() == 0)
        .await;
    let world = world.restart().await;
    let client = Many { ledger: ledger.clone() }.register(&world.host).unwrap();
    client.signal("a", "go", &()).await.unwrap();
    assert_eq!(client.join("a").await.unwrap(), "7 new new");
    assert_eq!(ledger.count("drawn"), 1);
}
