//! Many callers that each do one thing after the other, for a fixed time.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;

/// How long after the end a call may still come back before it counts as hung.
const GRACE: Duration = Duration::from_secs(10);

/// What a load has shown.
pub struct Outcome {
    /// Operations of the measured time. One that only partly falls into it counts for that part: otherwise those that take long would count
    /// for less than they are, and a load in which all keep step for whole rounds only.
    pub per_second: f64,
    /// How long each took that ended in the measured time, in microseconds.
    pub latency: Histogram<u64>,
    /// How many failed.
    pub errors: u64,
    /// How many had not come back long after the end.
    pub hung: u64,
    /// What the first that failed said.
    pub first_error: Option<String>,
    /// How long was measured.
    pub measured: Duration,
}

impl Outcome {
    /// A percentile of the latency, in milliseconds.
    pub fn milliseconds(&self, percentile: f64) -> f64 {
        let micros = self.latency.value_at_percentile(percentile);
        Duration::from_micros(micros).as_secs_f64() * 1000.0
    }

    /// Itself if nothing failed.
    ///
    /// # Errors
    /// What the first operation that failed said.
    pub fn flawless(self) -> Result<Self> {
        let error = self.first_error.as_deref().unwrap_or("no answer");
        ensure!(self.errors + self.hung == 0, "{} operations failed: {error}", self.errors + self.hung);
        Ok(self)
    }
}

/// The measured time, as far as it is known by now.
#[derive(Default)]
struct Window {
    begun: OnceLock<Instant>,
    ended: OnceLock<Instant>,
}

impl Window {
    fn is_over(&self) -> bool {
        self.ended.get().is_some()
    }

    /// How much of an operation falls into it, and whether its end does.
    fn part_of(&self, begun: Instant, ended: Instant) -> (f64, bool) {
        let Some(from) = self.begun.get() else { return (0.0, false) };
        let until = self.ended.get().copied().unwrap_or(ended);
        let within = ended.min(until).saturating_duration_since(begun.max(*from));
        let whole = ended.saturating_duration_since(begun);
        let part = if whole.is_zero() { 1.0 } else { within.as_secs_f64() / whole.as_secs_f64() };
        (part, ended > *from && ended <= until)
    }
}

/// Lets every caller work for a while, warm-up first.
///
/// `caller` makes the operation of one caller: called over and over, it does one thing after the other. `edge` is called at the
/// beginning and at the end of what is measured.
///
/// # Errors
/// If a latency cannot be recorded, or a caller panics. An operation that fails is counted.
pub async fn run<F, O, Fut>(
    callers: usize,
    time: Duration,
    mut caller: F,
    mut edge: impl FnMut(),
) -> Result<Outcome>
where
    F: FnMut(usize) -> O,
    O: FnMut() -> Fut + Send + 'static,
    Fut: Future<Output = Result<()>> + Send + 'static,
{
    let window = Arc::new(Window::default());
    let mut tallies = Vec::new();
    let tasks: Vec<_> = (0..callers)
        .map(|number| {
            let tally = Arc::new(Mutex::new(Tally::new()));
            tallies.push(Arc::clone(&tally));
            let window = Arc::clone(&window);
            let mut operation = caller(number);
            tokio::spawn(async move {
                while !window.is_over() {
                    let begun = Instant::now();
                    let answer = operation().await;
                    let ended = Instant::now();
                    let failed = answer.is_err();
                    let (part, within) = window.part_of(begun, ended);
                    if failed || part > 0.0 {
                        lock(&tally).take(part, within.then_some(ended - begun), answer);
                    }
                    if failed {
                        // Whoever fails at once shall not keep the others from working.
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
            })
        })
        .collect();
    tokio::time::sleep(time / 4).await;
    edge();
    let begun = *window.begun.get_or_init(Instant::now);
    let idle = || tallies.iter().all(|tally| lock(tally).latency.is_empty());
    tokio::time::sleep(time).await;
    // On a machine with no time to spare a short load would otherwise see nothing at all.
    while idle() && begun.elapsed() < time + GRACE {
        tokio::time::sleep(time).await;
    }
    let measured = *window.ended.get_or_init(Instant::now) - begun;
    edge();
    let hung = gather(tasks).await?;
    let mut sum = Tally::new();
    for tally in tallies {
        sum.add(&lock(&tally));
    }
    Ok(Outcome {
        per_second: sum.done / measured.as_secs_f64(),
        latency: sum.latency,
        errors: sum.errors,
        hung,
        first_error: sum.first_error,
        measured,
    })
}

/// Waits for the callers' last operations, and says how many did not come back.
async fn gather(tasks: Vec<tokio::task::JoinHandle<()>>) -> Result<u64> {
    let deadline = tokio::time::Instant::now() + GRACE;
    let mut hung = 0;
    for task in tasks {
        let abort = task.abort_handle();
        match tokio::time::timeout_at(deadline, task).await {
            Ok(ended) => ended?,
            Err(_) => {
                abort.abort();
                hung += 1;
            }
        }
    }
    Ok(hung)
}

/// What one caller has seen.
struct Tally {
    done: f64,
    latency: Histogram<u64>,
    errors: u64,
    first_error: Option<String>,
}

impl Tally {
    /// A minute and more is all the same.
    const LONGEST: u64 = 60_000_000;

    fn new() -> Self {
        // The bounds are constants that the histogram takes.
        let latency = Histogram::new_with_max(Self::LONGEST, 3);
        Self { done: 0.0, latency: latency.unwrap_or_else(|_| unreachable!()), errors: 0, first_error: None }
    }

    fn take(&mut self, part: f64, time: Option<Duration>, answer: Result<()>) {
        match answer {
            Ok(()) => {
                self.done += part;
                if let Some(time) = time {
                    self.latency.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
                }
            }
            Err(error) => {
                self.errors += 1;
                self.first_error.get_or_insert_with(|| format!("{error:#}"));
            }
        }
    }

    fn add(&mut self, other: &Self) {
        // Both have the same bounds.
        let _ = self.latency.add(&other.latency);
        self.done += other.done;
        self.errors += other.errors;
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
    }
}

fn lock(tally: &Mutex<Tally>) -> std::sync::MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn failures_are_counted_and_not_measured() {
        let operation = |number: usize| {
            move || async move {
                tokio::time::sleep(Duration::from_millis(2)).await;
                ensure!(number != 0, "the first caller never succeeds");
                Ok(())
            }
        };
        let outcome = run(4, Duration::from_millis(200), operation, || {}).await.unwrap();
        assert!(outcome.errors > 0 && !outcome.latency.is_empty() && outcome.hung == 0);
        assert!(outcome.milliseconds(50.0) >= 2.0);
        let error = outcome.flawless().err().unwrap();
        assert!(error.to_string().contains("the first caller never succeeds"), "{error}");
    }

    #[tokio::test]
    async fn operations_that_take_long_and_keep_step_count_for_what_they_are() {
        let operation = |_| {
            || async {
                tokio::time::sleep(Duration::from_millis(150)).await;
                Ok(())
            }
        };
        let outcome = run(8, Duration::from_millis(400), operation, || {}).await.unwrap();
        // Callers who do nothing but wait for their operations: as many are under way at any time as there are callers.
        let under_way = outcome.per_second * outcome.latency.mean() / 1e6;
        assert!((7.0..9.0).contains(&under_way), "{under_way}");
    }
}
