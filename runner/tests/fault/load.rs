//! Clients that ask, and note what they asked and were told.
//!
//! - *set*: many senders of each list, who wait for the reply; one in four sends to a second list, too, and one to a list whose handler
//!   writes a row of its own in the same transaction.
//! - *counter with order*: one sender per list, who waits only until each message is in good hands.
//! - *register*: readers of what is in memory, of all lists.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cleat_runner::client::Error;
use cleat_runner::prelude::Never;
use cleat_testing::history::{Action, Answer, History, Operation, Seen};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::audit;
use crate::cluster::{Cluster, PATIENCE, millis};
use crate::list::{ListClient, ledger, mirror};

const LISTS: usize = 24;
const SETTERS: u32 = 8;
const COUNTERS: u32 = 4;
const READERS: u32 = 4;

/// How often one client asks at most. It leaves the machine some time for others.
const PACE: Duration = Duration::from_millis(15);

/// Clients at work.
pub struct Load {
    shared: Arc<Shared>,
    clients: JoinSet<()>,
}

struct Shared {
    client: ListClient,
    clock: AtomicU64,
    messages: AtomicU64,
    noted: Mutex<Noted>,
    /// How many operations of each client have succeeded.
    done: watch::Sender<Vec<u64>>,
    /// Somebody had no answer.
    failed: Notify,
    stop: CancellationToken,
}

#[derive(Default)]
struct Noted {
    operations: Vec<Operation>,
    failures: Vec<String>,
}

/// What clients noted.
pub struct Notes {
    pub operations: Vec<Operation>,
    /// What they were told when they had no answer.
    pub failures: Vec<String>,
}

impl Load {
    /// Starts all clients.
    pub fn start(cluster: &Cluster, seed: u64) -> Self {
        let shared = Arc::new(Shared {
            client: cluster.client.clone(),
            clock: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            noted: Mutex::default(),
            done: watch::Sender::new(vec![0; usize::try_from(SETTERS + COUNTERS + READERS).unwrap()]),
            failed: Notify::new(),
            stop: CancellationToken::new(),
        });
        let mut clients = JoinSet::new();
        for number in 0..SETTERS + COUNTERS + READERS {
            let random = SmallRng::seed_from_u64(seed ^ u64::from(number));
            clients.spawn(Client { number, random, shared: Arc::clone(&shared) }.work());
        }
        Self { shared, clients }
    }

    /// Waits until every client has had so many more answers.
    pub async fn goes_on(&self, more: u64) {
        let mut done = self.shared.done.subscribe();
        let wanted: Vec<u64> = done.borrow().iter().map(|done| done + more).collect();
        let enough = done.wait_for(|done| done.iter().zip(&wanted).all(|(done, wanted)| done >= wanted));
        let waited = tokio::time::timeout(PATIENCE, enough).await.is_ok();
        assert!(waited, "some clients have no answers any more: {:?}", self.shared.done.borrow());
    }

    /// Waits until somebody has had no answer.
    pub async fn fails(&self) {
        let waited = tokio::time::timeout(PATIENCE, self.shared.failed.notified()).await;
        assert!(waited.is_ok(), "everybody has an answer to everything");
    }

    /// Stops the clients: each has the answer to its last question then.
    pub async fn stop(self) -> Notes {
        self.shared.stop.cancel();
        let ended = tokio::time::timeout(2 * PATIENCE, self.clients.join_all()).await;
        ended.expect("every question has an answer, if only that it has none");
        let Noted { operations, failures } = std::mem::take(&mut *self.shared.noted.lock().unwrap());
        Notes { operations, failures }
    }
}

impl Notes {
    /// Waits until nothing is under way any more, and lets the checker decide.
    pub async fn check(self, cluster: &Cluster) -> History {
        let begun = Instant::now();
        while audit::waiting(&cluster.url).await.unwrap() > 0 && begun.elapsed() < PATIENCE {
            tokio::time::sleep(millis(50)).await;
        }
        let (claims, writes) = audit::log(&cluster.url).await;
        let entities = audit::entities(&cluster.url).await;
        let history = History { operations: self.operations, entities, claims, writes };
        let violations: Vec<String> = history.check().iter().map(ToString::to_string).collect();
        assert!(violations.is_empty(), "{violations:#?}\nfailures: {:#?}", self.failures);
        history
    }

    /// The same, when nobody may have been refused anything.
    pub async fn check_flawless(self, cluster: &Cluster) -> History {
        assert_eq!(self.failures, Vec::<String>::new());
        self.check(cluster).await
    }
}

struct Client {
    number: u32,
    random: SmallRng,
    shared: Arc<Shared>,
}

impl Client {
    async fn work(mut self) {
        while !self.shared.stop.is_cancelled() {
            let next = Instant::now() + PACE;
            if self.number < SETTERS {
                self.set().await;
            } else if self.number < SETTERS + COUNTERS {
                self.count().await;
            } else {
                self.read().await;
            }
            tokio::time::sleep_until(next).await;
        }
    }

    fn any_list(&mut self) -> String {
        format!("list-{}", self.random.random_range(0..LISTS))
    }

    async fn set(&mut self) {
        let (mut list, message, begun) = (self.any_list(), self.message(), self.now());
        if message % 4 == 3 {
            list = ledger(&list);
        }
        let client = &self.shared.client;
        let told = match message % 4 {
            0 => client.append_both(&list, &message).await,
            1 => client.append(&list, &message).await,
            2 => client.append_stored(&list, &message).await,
            _ => client.append_with_row(&list, &message).await,
        };
        let answer = self.answer(&list, told.map(Answer::Handled));
        if message % 4 == 0 {
            let answer = if matches!(answer, Answer::Handled(_)) { Answer::Accepted } else { answer };
            // Its sender is the other list, whose order is not that of this client.
            let client = u32::MAX - u32::try_from(message).unwrap();
            self.note(client, mirror(&list), Action::Send { message, answer }, begun);
        }
        self.note(self.number, list, Action::Send { message, answer }, begun);
    }

    async fn count(&mut self) {
        let list = format!("counter-{}", self.number);
        let (message, begun) = (self.message(), self.now());
        let told = self.shared.client.append(&list, &message).notify().await;
        let answer = self.answer(&list, told.map(|_| Answer::Accepted).map_err(Error::Entity));
        self.note(self.number, list, Action::Send { message, answer }, begun);
    }

    async fn read(&mut self) {
        let (list, begun) = (self.any_list(), self.now());
        match self.shared.client.read(&list).await {
            Ok((length, last)) => {
                self.answer(&list, Ok(Answer::Accepted));
                self.note(self.number, list, Action::Read(Seen { length, last }), begun);
            }
            Err(error) => drop(self.answer(&list, Err(error))),
        }
    }

    fn message(&self) -> u64 {
        self.shared.messages.fetch_add(1, Ordering::Relaxed)
    }

    fn now(&self) -> u64 {
        self.shared.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// What an answer or a failure says of the message.
    fn answer(&self, list: &str, told: Result<Answer, Error<Never>>) -> Answer {
        match told {
            Ok(answer) => {
                let place = usize::try_from(self.number).unwrap();
                self.shared.done.send_modify(|done| done[place] += 1);
                answer
            }
            Err(error) => {
                self.shared.noted.lock().unwrap().failures.push(format!("{list}: {error}"));
                self.shared.failed.notify_one();
                match error {
                    Error::Entity(error) if error.was_not_run() => Answer::NotRun,
                    _ => Answer::Unknown,
                }
            }
        }
    }

    fn note(&self, client: u32, entity: String, action: Action, begun: u64) {
        let during = (begun, self.now());
        self.shared.noted.lock().unwrap().operations.push(Operation { client, entity, action, during });
    }
}
