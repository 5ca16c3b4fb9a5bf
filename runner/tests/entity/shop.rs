//! The entities that most tests ask.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex};

use cleat_runner::prelude::*;
use tokio::sync::{Notify, Semaphore};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stock {
    pub on_hand: i64,
    pub reserved: BTreeMap<String, i64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reserve {
    pub order: String,
    pub count: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutOfStock {
    pub left: i64,
}

impl fmt::Display for OutOfStock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "only {} left", self.left)
    }
}

/// An entity with a durable state.
#[entity(name = "inventory", state = Stock, concurrency = 1)]
pub struct Inventory;

#[entity_impl]
impl Inventory {
    #[rpc(persisted)]
    pub async fn restock(&self, stock: &mut Stock, count: i64) -> Result<i64, Never> {
        stock.on_hand += count;
        Ok(stock.on_hand)
    }

    /// Takes from what is on hand.
    #[rpc(persisted)]
    pub async fn reserve(&self, stock: &mut Stock, request: Reserve) -> Result<i64, OutOfStock> {
        // Changed before it is refused, to see that a refusal changes nothing.
        stock.on_hand -= request.count;
        if stock.on_hand < 0 {
            return Err(OutOfStock { left: stock.on_hand + request.count });
        }
        stock.reserved.insert(request.order, request.count);
        Ok(stock.on_hand)
    }

    #[rpc]
    pub async fn get(&self, stock: &Stock) -> Result<Stock, Never> {
        Ok(stock.clone())
    }
}

/// A stateless entity, which keeps what it knows in a database of its own.
#[entity]
#[derive(Clone, Default)]
pub struct Counter {
    pub database: Arc<Mutex<HashMap<String, i64>>>,
}

#[derive(Serialize, Deserialize)]
pub struct Increment {
    pub counter: String,
    pub amount: i64,
}

#[entity_impl]
impl Counter {
    #[rpc(persisted)]
    pub async fn increment(&self, request: Increment) -> Result<i64, Never> {
        let mut database = self.database.lock().unwrap();
        let value = database.entry(request.counter).or_default();
        *value += request.amount;
        Ok(*value)
    }

    #[rpc]
    pub async fn get(&self, counter: String) -> Result<i64, Never> {
        Ok(self.database.lock().unwrap().get(&counter).copied().unwrap_or_default())
    }
}

/// An entity whose methods begin when they are asked and end when they are let.
#[entity(concurrency = 0)]
#[derive(Clone)]
pub struct Gate {
    pub begun: Arc<Semaphore>,
    pub open: Arc<Semaphore>,
    pub heard: Arc<Notify>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { begun: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)), heard: Arc::default() }
    }
}

#[entity_impl]
impl Gate {
    #[rpc(persisted)]
    pub async fn pass(&self, name: String) -> Result<String, Never> {
        self.begun.add_permits(1);
        self.open.acquire().await.unwrap().forget();
        Ok(format!("{name} passed"))
    }

    /// Somebody else hears when this ends.
    #[rpc(persisted)]
    pub async fn delegate(&self, context: &mut Context) -> Result<(), Never> {
        let (handled, heard) = (context.cancellation(), Arc::clone(&self.heard));
        tokio::spawn(async move {
            handled.cancelled().await;
            heard.notify_one();
        });
        self.begun.add_permits(1);
        self.open.acquire().await.unwrap().forget();
        Ok(())
    }

    #[rpc(persisted, uninterruptible)]
    pub async fn insist(&self) -> Result<(), Never> {
        self.begun.add_permits(1);
        self.open.acquire().await.unwrap().forget();
        Ok(())
    }

    #[rpc]
    pub async fn hear(&self) -> Result<(), Never> {
        self.heard.notify_one();
        Ok(())
    }
}
