//! Clients that go on asking, and note what they asked and were told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use cleat_testing::history::{Action, Answer, Entity, History, Operation, Seen};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::gateway::Gateway;

const CLIENTS: u32 = 6;
const LISTS: u64 = 24;

/// How often one client asks at most. It leaves the machine some time for others.
const PACE: Duration = Duration::from_millis(30);

/// A client that gets no answer tries so long, always with the same key, before it gives up.
const PATIENCE: Duration = Duration::from_secs(120);

/// Every so many operations a client reads.
const READS: u64 = 5;

/// Clients at work on lists, see [`super::shop`].
pub struct Load {
    shared: Arc<Shared>,
    clients: JoinSet<Result<()>>,
}

struct Shared {
    gateway: Gateway,
    begun: Instant,
    messages: AtomicU64,
    done: AtomicUsize,
    noted: Mutex<Noted>,
    stop: CancellationToken,
}

#[derive(Default)]
struct Noted {
    operations: Vec<Operation>,
    failures: Vec<String>,
    slowest: Duration,
}

/// What came of it.
pub struct Report {
    pub calls: usize,
    /// What clients were told instead of an answer. They have asked again then.
    pub failures: Vec<String>,
    /// The longest that a client had to wait for its answer, with all attempts.
    pub slowest: Duration,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (calls, failed, slowest) = (self.calls, self.failures.len(), self.slowest.as_secs_f64());
        write!(
            f,
            "{calls} calls answered, {failed} attempts failed, the slowest answer took {slowest:.2} s"
        )?;
        self.failures.first().map_or(Ok(()), |failure| write!(f, "; the first failure: {failure}"))
    }
}

impl Load {
    pub fn start(gateway: &Gateway) -> Self {
        let shared = Arc::new(Shared {
            gateway: gateway.clone(),
            begun: Instant::now(),
            messages: AtomicU64::new(1),
            done: AtomicUsize::new(0),
            noted: Mutex::default(),
            stop: CancellationToken::new(),
        });
        let clients = (0..CLIENTS).map(|client| Arc::clone(&shared).work(client)).collect();
        Self { shared, clients }
    }

    /// Waits until `calls` more have been answered: whatever was disturbed works again.
    pub async fn answered(&self, calls: usize) -> Result<Duration> {
        let (begun, before) = (Instant::now(), self.shared.done.load(Ordering::Relaxed));
        e2e::within(PATIENCE, "calls are not answered", || async {
            Ok((self.shared.done.load(Ordering::Relaxed) >= before + calls).then_some(()))
        })
        .await?;
        Ok(begun.elapsed())
    }

    /// Stops the clients, reads all lists, and lets the history be judged.
    pub async fn finish(mut self) -> Result<Report> {
        self.shared.stop.cancel();
        while let Some(ended) = self.clients.join_next().await {
            ended.context("a client")??;
        }
        let mut entities = BTreeMap::new();
        for list in 0..LISTS {
            let (id, handled) = (format!("list-{list}"), self.shared.read(&format!("list-{list}")).await?);
            // Replies are not counted from outside.
            entities.insert(id, Entity { outcomes: handled.len(), handled, ..Entity::default() });
        }
        let noted = std::mem::take(&mut *self.shared.noted.lock().await);
        let calls = noted.operations.len();
        let history = History { operations: noted.operations, entities, ..History::default() };
        let violations = history.check();
        ensure!(violations.is_empty(), "{} violations, such as {:?}", violations.len(), violations.first());
        ensure!(calls > 0, "nobody asked anything");
        Ok(Report { calls, failures: noted.failures, slowest: noted.slowest })
    }
}

impl Report {
    /// Fails if an attempt failed.
    pub fn without_failures(&self) -> Result<()> {
        let first = self.failures.first();
        ensure!(self.failures.is_empty(), "{} attempts failed, such as {first:?}", self.failures.len());
        Ok(())
    }
}

impl Shared {
    async fn work(self: Arc<Self>, client: u32) -> Result<()> {
        for turn in 0_u64.. {
            if self.stop.is_cancelled() {
                break;
            }
            let entity = format!("list-{}", rand::random_range(0..LISTS));
            let from = self.now()?;
            let begun = Instant::now();
            let action = if turn % READS == READS - 1 {
                let handled = self.read(&entity).await?;
                Action::Read(Seen { length: handled.len(), last: handled.last().copied() })
            } else {
                let message = self.messages.fetch_add(1, Ordering::Relaxed);
                let key = format!("load-{message}");
                let reply = self.ask(&entity, "add", &json!({ "message": message }), Some(&key)).await?;
                let place = reply["place"].as_u64().with_context(|| format!("no place in {reply}"))?;
                Action::Send { message, answer: Answer::Handled(usize::try_from(place)?) }
            };
            let operation = Operation { client, entity, action, during: (from, self.now()?) };
            let mut noted = self.noted.lock().await;
            noted.operations.push(operation);
            noted.slowest = noted.slowest.max(begun.elapsed());
            drop(noted);
            self.done.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(PACE).await;
        }
        Ok(())
    }

    fn now(&self) -> Result<u64> {
        Ok(u64::try_from(self.begun.elapsed().as_micros())?)
    }

    async fn read(&self, entity: &str) -> Result<Vec<u64>> {
        let reply = self.ask(entity, "get", &json!({}), None).await?;
        serde_json::from_value(reply.clone()).with_context(|| format!("not a list of messages: {reply}"))
    }

    /// Asks until there is an answer, as a careful client does.
    async fn ask(&self, entity: &str, method: &str, input: &Value, key: Option<&str>) -> Result<Value> {
        let begun = Instant::now();
        loop {
            let failure = match self.gateway.call(&format!("list/{entity}"), method, input, key).await {
                Ok(reply) if reply.status.is_success() => return Ok(reply.body),
                Ok(reply) => format!("{} {}", reply.status, reply.body),
                Err(error) => format!("{error:#}"),
            };
            let at = self.begun.elapsed().as_secs_f64();
            let failure = format!("{at:.2} s, {entity} {method}: {failure}");
            ensure!(begun.elapsed() < PATIENCE, "given up: {failure}");
            self.noted.lock().await.failures.push(failure);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
