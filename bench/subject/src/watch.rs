//! Entities that are asked over and over, to see how long they are silent and whether they remember everything.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::Subject;
use crate::protocol::{Answered, Method, Watch, Watched};
use crate::serve::{choose, next_number};

/// How soon a client asks again after a failure.
const AGAIN: Duration = Duration::from_millis(10);

/// How long each entity may take for its first answer.
const FIRST: Duration = Duration::from_secs(60);

/// Clients at work, one for each entity.
pub(crate) struct Watching {
    mark: watch::Sender<Option<Instant>>,
    stop: watch::Sender<bool>,
    seen: Vec<watch::Receiver<Seen>>,
    clients: Vec<JoinHandle<()>>,
    first_error: Arc<Mutex<Option<String>>>,
}

/// What one client has seen so far.
#[derive(Debug, Clone, Default)]
struct Seen {
    calls: u64,
    errors: u64,
    total: i64,
    longest: Duration,
    /// When it first had an answer to what it asked after the mark.
    after_mark: Option<Duration>,
}

impl Watching {
    pub(crate) async fn begin<S: Subject>(node: &Arc<S>, options: Watch) -> Result<Self> {
        let (mark, marked) = watch::channel(None);
        let (stop, stopped) = watch::channel(false);
        let first_error = Arc::new(Mutex::new(None));
        let (mut seen, mut clients) = (Vec::new(), Vec::new());
        for entity in choose(node.as_ref(), Method::Add, options.place, options.entities)? {
            let (sender, receiver) = watch::channel(Seen::default());
            seen.push(receiver);
            let client = Client {
                node: Arc::clone(node),
                entity,
                rest: Duration::from_secs_f64(options.rest_seconds),
                patience: Duration::from_secs_f64(options.patience_seconds),
                marked: marked.clone(),
                stopped: stopped.clone(),
                first_error: Arc::clone(&first_error),
                seen: sender,
            };
            clients.push(tokio::spawn(client.run()));
        }
        for receiver in &mut seen {
            tokio::time::timeout(FIRST, receiver.wait_for(|seen| seen.calls > 0))
                .await
                .context("a watched entity does not answer")??;
        }
        Ok(Self { mark, stop, seen, clients, first_error })
    }

    pub(crate) fn mark(&mut self) {
        self.mark.send_replace(Some(Instant::now()));
    }

    pub(crate) async fn answered(&mut self, within: Duration) -> Answered {
        let deadline = tokio::time::Instant::now() + within;
        let mut answered = Answered { millis: Vec::new(), missing: 0 };
        for receiver in &mut self.seen {
            let answer = receiver.wait_for(|seen| seen.after_mark.is_some());
            let after = match tokio::time::timeout_at(deadline, answer).await {
                Ok(Ok(seen)) => seen.after_mark,
                _ => None,
            };
            match after {
                Some(time) => answered.millis.push(time.as_secs_f64() * 1000.0),
                None => answered.missing += 1,
            }
        }
        answered.millis.sort_by(f64::total_cmp);
        answered
    }

    pub(crate) async fn end(self) -> Result<Watched> {
        self.stop.send_replace(true);
        for client in self.clients {
            client.await?;
        }
        let first_error = self.first_error.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut watched = Watched { calls: 0, errors: 0, first_error, lost: 0, twice: 0, pauses: Vec::new() };
        for receiver in &self.seen {
            let seen = receiver.borrow().clone();
            let total = u64::try_from(seen.total)?;
            watched.calls += seen.calls;
            watched.errors += seen.errors;
            watched.lost += u64::from(total < seen.calls);
            // A call that failed may have been handled all the same.
            watched.twice += u64::from(total > seen.calls + seen.errors);
            watched.pauses.push(seen.longest.as_secs_f64() * 1000.0);
        }
        ensure!(watched.calls > 0, "nothing was watched");
        watched.pauses.sort_by(f64::total_cmp);
        Ok(watched)
    }
}

struct Client<S> {
    node: Arc<S>,
    entity: String,
    rest: Duration,
    patience: Duration,
    marked: watch::Receiver<Option<Instant>>,
    stopped: watch::Receiver<bool>,
    first_error: Arc<Mutex<Option<String>>>,
    seen: watch::Sender<Seen>,
}

impl<S: Subject> Client<S> {
    async fn run(mut self) {
        while !*self.stopped.borrow() {
            let mark = *self.marked.borrow_and_update();
            let begun = Instant::now();
            if self.ask(begun, mark).await {
                // A mark ends the rest: then the question is when the next answer comes.
                tokio::select! {
                    () = tokio::time::sleep(self.rest) => {}
                    _ = self.marked.changed() => {}
                    _ = self.stopped.changed() => {}
                }
            }
        }
    }

    /// Asks until there is an answer; false if the end came first.
    async fn ask(&mut self, begun: Instant, mark: Option<Instant>) -> bool {
        let mut asked = begun;
        let mut mark = mark;
        loop {
            let call = self.node.call(Method::Add, &self.entity, next_number());
            let error = match tokio::time::timeout(self.patience, call).await {
                Ok(Ok(total)) => {
                    self.note(begun, asked, mark, total);
                    return true;
                }
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => format!("no answer within {:?}", self.patience),
            };
            self.seen.send_modify(|seen| seen.errors += 1);
            self.first_error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            if *self.stopped.borrow() {
                return false;
            }
            tokio::time::sleep(AGAIN).await;
            mark = *self.marked.borrow_and_update();
            asked = Instant::now();
        }
    }

    /// `begun` is when the client first wanted this answer, `asked` when it last asked for it.
    fn note(&self, begun: Instant, asked: Instant, mark: Option<Instant>, total: i64) {
        self.seen.send_modify(|seen| {
            seen.calls += 1;
            seen.total = total;
            seen.longest = seen.longest.max(begun.elapsed());
            if let Some(mark) = mark
                && asked >= mark
            {
                seen.after_mark.get_or_insert(mark.elapsed());
            }
        });
    }
}
