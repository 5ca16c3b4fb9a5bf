//! The entity that users ask.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cleat_runner::prelude::*;
use tokio::sync::Semaphore;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutOfStock {
    pub left: i64,
}

impl fmt::Display for OutOfStock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "only {} left", self.left)
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stock {
    pub stock: i64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Count {
    pub count: i64,
}

#[entity(name = "shelf", state = i64, concurrency = 0)]
#[derive(Clone)]
pub struct Shelf {
    /// Those who wait for the test, and what lets them go on.
    pub waiting: Arc<Semaphore>,
    pub gate: Arc<Semaphore>,
    /// How often `hold` began.
    pub held: Arc<AtomicUsize>,
    /// Whether `fragile` works.
    pub whole: Arc<AtomicBool>,
}

impl Default for Shelf {
    fn default() -> Self {
        Self {
            waiting: Arc::new(Semaphore::new(0)),
            gate: Arc::new(Semaphore::new(0)),
            held: Arc::default(),
            whole: Arc::default(),
        }
    }
}

impl Shelf {
    async fn pass(&self) {
        self.waiting.add_permits(1);
        self.gate.acquire().await.unwrap().forget();
    }
}

/// One message at a time, and two may wait.
#[entity(name = "counter", concurrency = 1, mailbox_capacity = 2)]
#[derive(Clone)]
pub struct Counter(pub Shelf);

#[entity_impl]
impl Counter {
    /// Waits for the test.
    #[rpc(persisted)]
    pub async fn hold(&self, number: i64) -> Result<i64, Never> {
        self.0.pass().await;
        Ok(number)
    }

    #[rpc]
    pub async fn look(&self) -> Result<(), Never> {
        Ok(())
    }
}

#[entity_impl]
impl Shelf {
    #[rpc(persisted)]
    pub async fn restock(&self, stock: &mut i64, request: Count) -> Result<Stock, Never> {
        *stock += request.count;
        Ok(Stock { stock: *stock })
    }

    #[rpc(persisted)]
    pub async fn reserve(&self, stock: &mut i64, request: Count) -> Result<Stock, OutOfStock> {
        if request.count > *stock {
            return Err(OutOfStock { left: *stock });
        }
        *stock -= request.count;
        Ok(Stock { stock: *stock })
    }

    #[rpc]
    pub async fn get(&self, stock: &i64) -> Result<Stock, Never> {
        Ok(Stock { stock: *stock })
    }

    /// What it was given.
    #[rpc]
    pub async fn echo(&self, value: serde_json::Value) -> Result<serde_json::Value, Never> {
        Ok(value)
    }

    /// Who asked, and in which trace.
    #[rpc]
    pub async fn who(&self, context: &mut Context) -> Result<Option<String>, Never> {
        Ok(context.headers().get("cleat-user").cloned())
    }

    /// Waits for the test.
    #[rpc(persisted)]
    pub async fn hold(&self, number: i64) -> Result<i64, Never> {
        self.held.fetch_add(1, Ordering::SeqCst);
        self.pass().await;
        Ok(number)
    }

    #[rpc]
    pub async fn wait(&self) -> Result<(), Never> {
        self.pass().await;
        Ok(())
    }

    /// Fails until the test mends it.
    #[rpc(persisted, attempts = 1)]
    pub async fn fragile(&self, number: i64) -> Result<i64, OrRetry<Never>> {
        if self.whole.load(Ordering::SeqCst) { Ok(number) } else { Err(OrRetry::retry("it broke")) }
    }

    #[rpc(stream)]
    pub async fn count(&self, to: u32, out: &mut Emitter<u32>) -> Result<(), Never> {
        for number in 0..to {
            out.emit(number).await;
        }
        Ok(())
    }

    /// Gives all that there is, and says so if that is too few.
    #[rpc(stream)]
    pub async fn take(&self, to: i64, out: &mut Emitter<i64>) -> Result<(), OutOfStock> {
        for number in 0..to.min(2) {
            out.emit(number).await;
        }
        if to > 2 { Err(OutOfStock { left: 0 }) } else { Ok(()) }
    }

    /// The same, stored; it waits for the test after the first three.
    #[rpc(persisted, stream)]
    pub async fn list(&self, to: u32, out: &mut Emitter<u32>) -> Result<(), Never> {
        for number in 0..to {
            if number == 3 {
                self.pass().await;
            }
            out.emit(number).await;
        }
        Ok(())
    }

    #[rpc(persisted)]
    #[protected]
    async fn hidden(&self, number: i64) -> Result<i64, Never> {
        Ok(number)
    }
}
