//! What the operator tells Prometheus.

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// What is measured.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Reconciliations, by kind and result.
    pub reconciles: IntCounterVec,
    /// Seconds of a reconciliation, by kind.
    pub seconds: HistogramVec,
    /// Statuses that were written, by kind.
    pub statuses: IntCounterVec,
    /// Whether this replica works.
    pub leader: IntGauge,
    /// Runners that the operator is connected to, by namespace and Cluster.
    pub runners: IntGaugeVec,
}

impl Metrics {
    /// Measurements that are shown through a registry.
    ///
    /// # Errors
    /// Those of the registry.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let buckets = prometheus::exponential_buckets(0.001, 2.0, 16)?;
        let metrics = Self {
            reconciles: IntCounterVec::new(
                Opts::new("cleat_operator_reconciles_total", "Reconciliations, by kind and result."),
                &["kind", "result"],
            )?,
            seconds: HistogramVec::new(
                HistogramOpts::new("cleat_operator_reconcile_seconds", "Time of a reconciliation.")
                    .buckets(buckets),
                &["kind"],
            )?,
            statuses: IntCounterVec::new(
                Opts::new("cleat_operator_status_writes_total", "Statuses that were written, by kind."),
                &["kind"],
            )?,
            leader: IntGauge::new("cleat_operator_leader", "1 on the replica that works.")?,
            runners: IntGaugeVec::new(
                Opts::new("cleat_operator_runners", "Runners that the operator is connected to."),
                &["namespace", "cluster"],
            )?,
        };
        registry.register(Box::new(metrics.reconciles.clone()))?;
        registry.register(Box::new(metrics.seconds.clone()))?;
        registry.register(Box::new(metrics.statuses.clone()))?;
        registry.register(Box::new(metrics.leader.clone()))?;
        registry.register(Box::new(metrics.runners.clone()))?;
        Ok(metrics)
    }
}
