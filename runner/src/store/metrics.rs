//! What the store tells Prometheus.

use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGauge, Opts, Registry};

/// Metrics of group commit.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Writes per commit.
    pub(super) batch: Histogram,
    /// Seconds from the begin of a batch to its commit.
    pub(super) commit: Histogram,
    /// Writes that wait for a batch.
    pub(super) queued: IntGauge,
    /// Writes that failed, by reason.
    pub(super) failed: IntCounterVec,
}

impl Metrics {
    /// Metrics that are shown through a registry.
    ///
    /// # Errors
    /// Those of the registry: most likely that the names are taken, by another store in this process.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let sizes = prometheus::exponential_buckets(1.0, 2.0, 12)?;
        let seconds = prometheus::exponential_buckets(0.000_25, 2.0, 16)?;
        let metrics = Self {
            batch: Histogram::with_opts(
                HistogramOpts::new("cleat_store_batch_size", "Writes per group commit.").buckets(sizes),
            )?,
            commit: Histogram::with_opts(
                HistogramOpts::new("cleat_store_commit_seconds", "Time of a group commit.").buckets(seconds),
            )?,
            queued: IntGauge::new("cleat_store_queued_writes", "Writes that wait for a group commit.")?,
            failed: IntCounterVec::new(
                Opts::new("cleat_store_failed_writes_total", "Writes that were not committed, by reason."),
                &["reason"],
            )?,
        };
        registry.register(Box::new(metrics.batch.clone()))?;
        registry.register(Box::new(metrics.commit.clone()))?;
        registry.register(Box::new(metrics.queued.clone()))?;
        registry.register(Box::new(metrics.failed.clone()))?;
        Ok(metrics)
    }
}

impl Metrics {
    pub(super) fn observe(
        &self,
        writes: usize,
        time: std::time::Duration,
        answers: &[Result<super::Committed, super::Error>],
    ) {
        let count = u32::try_from(writes).unwrap_or(u32::MAX);
        self.batch.observe(f64::from(count));
        self.commit.observe(time.as_secs_f64());
        self.queued.sub(i64::from(count));
        for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            self.failed.with_label_values(&[error.reason()]).inc();
        }
    }
}
