//! Many callers that each do one thing after the other, for a fixed time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;

/// What a load has shown.
pub struct Outcome {
    /// Operations that ended in the measured time.
    pub per_second: f64,
    /// How long each took, in microseconds.
    pub latency: Histogram<u64>,
}

impl Outcome {
    /// A percentile of the latency, in milliseconds.
    pub fn milliseconds(&self, percentile: f64) -> f64 {
        let micros = self.latency.value_at_percentile(percentile);
        Duration::from_micros(micros).as_secs_f64() * 1000.0
    }
}

/// Lets every caller work for a while, warm-up first.
///
/// `caller` makes the operation of one caller: called over and over, it does one thing after the other.
pub async fn run<F, O, Fut>(callers: usize, time: Duration, mut caller: F) -> Result<Outcome>
where
    F: FnMut(usize) -> O,
    O: FnMut() -> Fut + Send + 'static,
    Fut: Future<Output = Result<()>> + Send + 'static,
{
    let measuring = Arc::new(AtomicBool::new(false));
    let stopping = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..callers)
        .map(|number| {
            let (measuring, stopping) = (Arc::clone(&measuring), Arc::clone(&stopping));
            let mut operation = caller(number);
            tokio::spawn(async move {
                let mut latency = Histogram::<u64>::new(3)?;
                while !stopping.load(Ordering::Relaxed) {
                    let counts = measuring.load(Ordering::Relaxed);
                    let begun = Instant::now();
                    operation().await?;
                    if counts && !stopping.load(Ordering::Relaxed) {
                        latency.record(u64::try_from(begun.elapsed().as_micros())?)?;
                    }
                }
                anyhow::Ok(latency)
            })
        })
        .collect();
    tokio::time::sleep(time / 4).await;
    measuring.store(true, Ordering::Relaxed);
    let begun = Instant::now();
    tokio::time::sleep(time).await;
    stopping.store(true, Ordering::Relaxed);
    let measured = begun.elapsed();
    let mut latency = Histogram::<u64>::new(3)?;
    for task in tasks {
        latency.add(task.await??)?;
    }
    let count = u32::try_from(latency.len())?;
    Ok(Outcome { per_second: f64::from(count) / measured.as_secs_f64(), latency })
}
