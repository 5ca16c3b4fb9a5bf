//! What the store tells Prometheus.

use prometheus::{GaugeVec, Histogram, HistogramOpts, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::postgres::HOLDERS;

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
    /// Age of the oldest transaction ids of the server, by kind.
    pub(super) xid_age: IntGaugeVec,
    /// The same as a part of those that there are.
    pub(super) xid_ratio: GaugeVec,
    /// Seconds for which the xmin horizon has been held, by what holds it.
    pub(super) horizon: GaugeVec,
    /// Connections of the server, by kind.
    pub(super) connections: IntGaugeVec,
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
            xid_age: IntGaugeVec::new(
                Opts::new("cleat_database_xid_age", "Age of the oldest transaction ids, by kind."),
                &["kind"],
            )?,
            xid_ratio: GaugeVec::new(
                Opts::new("cleat_database_xid_age_ratio", "The same as a part of the wraparound limit."),
                &["kind"],
            )?,
            horizon: GaugeVec::new(
                Opts::new("cleat_database_horizon_seconds", "How long the xmin horizon has been held."),
                &["holder"],
            )?,
            connections: IntGaugeVec::new(
                Opts::new("cleat_database_connections", "Connections of the server, by kind."),
                &["kind"],
            )?,
        };
        for kind in ["xid", "multixact"] {
            metrics.xid_age.with_label_values(&[kind]).set(0);
            metrics.xid_ratio.with_label_values(&[kind]).set(0.0);
        }
        for holder in HOLDERS {
            metrics.horizon.with_label_values(&[holder]).set(0.0);
        }
        for kind in ["used", "limit", "runner"] {
            metrics.connections.with_label_values(&[kind]).set(0);
        }
        registry.register(Box::new(metrics.batch.clone()))?;
        registry.register(Box::new(metrics.commit.clone()))?;
        registry.register(Box::new(metrics.queued.clone()))?;
        registry.register(Box::new(metrics.failed.clone()))?;
        registry.register(Box::new(metrics.xid_age.clone()))?;
        registry.register(Box::new(metrics.xid_ratio.clone()))?;
        registry.register(Box::new(metrics.horizon.clone()))?;
        registry.register(Box::new(metrics.connections.clone()))?;
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
