//! The entities whose replies are read item by item.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cleat_runner::prelude::*;
use tokio::sync::{Semaphore, watch};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TooMany {
    pub most: u32,
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "only {} are left", self.most)
    }
}

/// Says how many numbers to give, and where to wait until the test lets it go on.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct List {
    pub to: u32,
    pub wait_before: Option<u32>,
}

/// Counts.
#[entity(concurrency = 0)]
#[derive(Clone)]
pub struct Numbers {
    /// How many items were given by all handlers.
    pub given: Arc<watch::Sender<u32>>,
    /// How many handlers have ended, by themselves or not.
    pub ended: Arc<watch::Sender<u32>>,
    /// Those who wait for the test.
    pub waiting: Arc<Semaphore>,
    pub gate: Arc<Semaphore>,
    /// What each attempt was told of those before it.
    pub told: Arc<Mutex<Vec<u64>>>,
    pub attempts: Arc<AtomicUsize>,
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            given: Arc::default(),
            ended: Arc::default(),
            waiting: Arc::new(Semaphore::new(0)),
            gate: Arc::new(Semaphore::new(0)),
            told: Arc::default(),
            attempts: Arc::default(),
        }
    }
}

struct Ending(Arc<watch::Sender<u32>>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.send_modify(|ended| *ended += 1);
    }
}

impl Numbers {
    async fn give(&self, out: &mut Emitter<u32>, number: u32) {
        out.emit(number).await;
        self.given.send_modify(|given| *given += 1);
    }
}

#[entity_impl]
impl Numbers {
    #[rpc(stream)]
    pub async fn count(&self, to: u32, out: &mut Emitter<u32>) -> Result<(), Never> {
        let _ending = Ending(self.ended.clone());
        for number in 0..to {
            self.give(out, number).await;
        }
        Ok(())
    }

    /// Gives all that it has, and says so if that is too few.
    #[rpc(stream)]
    pub fn have(&self, wanted: u32) -> impl Stream<Item = Result<u32, TooMany>> {
        let numbers = (0..wanted.min(5)).map(Ok);
        futures::stream::iter(numbers.chain((wanted > 5).then_some(Err(TooMany { most: 5 }))))
    }

    #[rpc(stream)]
    pub async fn sized(&self, sizes: Vec<usize>, out: &mut Emitter<String>) -> Result<(), Never> {
        for size in sizes {
            out.emit("x".repeat(size)).await;
        }
        Ok(())
    }

    #[rpc(persisted, stream)]
    pub async fn list(&self, list: List, out: &mut Emitter<u32>) -> Result<(), Never> {
        let _ending = Ending(self.ended.clone());
        for number in 0..list.to {
            if list.wait_before == Some(number) {
                self.waiting.add_permits(1);
                self.gate.acquire().await.unwrap().forget();
            }
            self.give(out, number).await;
        }
        Ok(())
    }

    /// Begins where the attempts before it ended.
    #[rpc(persisted, stream)]
    pub async fn resume(&self, list: List, out: &mut Emitter<u32>) -> Result<(), Never> {
        let first = out.resume();
        self.told.lock().unwrap().push(first);
        for number in u32::try_from(first).unwrap()..list.to {
            if list.wait_before == Some(number) {
                self.waiting.add_permits(1);
                self.gate.acquire().await.unwrap().forget();
            }
            self.give(out, number).await;
        }
        Ok(())
    }

    /// Fails after each tenth item, in two ways, and gives all of them again.
    #[rpc(persisted, stream, attempts = 20, backoff = "1ms")]
    pub async fn stumble(&self, to: u32, out: &mut Emitter<u32>) -> Result<(), OrRetry<Never>> {
        let attempt = self.attempts.fetch_add(1, Ordering::SeqCst);
        let fails_at = u32::try_from(attempt + 1).unwrap() * 10;
        for number in 0..to {
            if number == fails_at && attempt.is_multiple_of(2) {
                return Err(OrRetry::retry("stumbled"));
            }
            assert!(number != fails_at, "stumbled badly");
            out.emit(number).await;
        }
        Ok(())
    }

    /// A stream that asks its context how far it has come.
    #[rpc(persisted, stream)]
    pub fn rest(&self, context: &mut Context, to: u32) -> impl Stream<Item = Result<u32, Never>> {
        let first = u32::try_from(context.resume()).unwrap();
        futures::stream::iter((first..to).map(Ok))
    }

    #[rpc]
    pub async fn echo(&self, number: u32) -> Result<u32, Never> {
        Ok(number)
    }
}

/// Waits until a number is at least so large.
pub async fn at_least(number: &watch::Sender<u32>, least: u32) {
    number.subscribe().wait_for(|number| *number >= least).await.unwrap();
}
