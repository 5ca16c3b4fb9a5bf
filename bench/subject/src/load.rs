//! Many callers that each do one thing after the other, for a fixed time.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;

/// How long after the end a call may still come back before it counts as hung.
const GRACE: Duration = Duration::from_secs(10);

/// What a load has shown.
pub struct Outcome {
    /// Operations that ended in the measured time.
    pub per_second: f64,
    /// How long each took, in microseconds.
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

/// How far a load is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    WarmingUp,
    Measuring,
    Stopping,
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
    let phase = Arc::new(AtomicU8::new(Phase::WarmingUp as u8));
    let mut tallies = Vec::new();
    let tasks: Vec<_> = (0..callers)
        .map(|number| {
            let tally = Arc::new(Mutex::new(Tally::new()));
            tallies.push(Arc::clone(&tally));
            let phase = Arc::clone(&phase);
            let mut operation = caller(number);
            tokio::spawn(async move {
                let is = |wanted: Phase| phase.load(Ordering::Relaxed) == wanted as u8;
                while !is(Phase::Stopping) {
                    let counts = is(Phase::Measuring);
                    let begun = Instant::now();
                    let ended = operation().await;
                    let failed = ended.is_err();
                    // What ends after the end was not done in the measured time, unless it failed.
                    if failed || (counts && is(Phase::Measuring)) {
                        lock(&tally).take(begun.elapsed(), ended);
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
    phase.store(Phase::Measuring as u8, Ordering::Relaxed);
    edge();
    let begun = Instant::now();
    let idle = || tallies.iter().all(|tally| lock(tally).latency.is_empty());
    tokio::time::sleep(time).await;
    // On a machine with no time to spare a short load would otherwise see nothing at all.
    while idle() && begun.elapsed() < time + GRACE {
        tokio::time::sleep(time).await;
    }
    phase.store(Phase::Stopping as u8, Ordering::Relaxed);
    let measured = begun.elapsed();
    edge();
    let hung = gather(tasks).await?;
    let mut sum = Tally::new();
    for tally in tallies {
        sum.add(&lock(&tally));
    }
    let count = u32::try_from(sum.latency.len())?;
    Ok(Outcome {
        per_second: f64::from(count) / measured.as_secs_f64(),
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
        Self { latency: latency.unwrap_or_else(|_| unreachable!()), errors: 0, first_error: None }
    }

    fn take(&mut self, time: Duration, ended: Result<()>) {
        match ended {
            Ok(()) => self.latency.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
            Err(error) => {
                self.errors += 1;
                self.first_error.get_or_insert_with(|| format!("{error:#}"));
            }
        }
    }

    fn add(&mut self, other: &Self) {
        // Both have the same bounds.
        let _ = self.latency.add(&other.latency);
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
}
