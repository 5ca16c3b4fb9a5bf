//! What ownership tells Prometheus.

use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// Metrics of ownership.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Shards by phase.
    pub(super) shards: IntGaugeVec,
    /// Whether the lock is renewed and the watch current.
    pub(super) attached: IntGauge,
    /// Renewals of the lock by result: `renewed`, or the reason of the failure.
    pub(super) renewals: IntCounterVec,
    /// Seconds from a renewal's begin to its answer.
    pub(super) renewal_seconds: Histogram,
    /// Claims of shards by result: `won`, `lost`, or the reason of the failure.
    pub(super) claims: IntCounterVec,
    /// Seconds from the decision to claim to the raised epoch.
    pub(super) claim_seconds: Histogram,
    /// Shards that were let go, by how: `handed_over`, `overdue`, `discarded`, `detached`.
    pub(super) releases: IntCounterVec,
    /// Deaths of others by cause.
    pub(super) deaths: IntCounterVec,
    /// Shards that were found to be wedged.
    pub(super) wedged: IntCounter,
}

impl Metrics {
    /// Metrics that nobody sees.
    ///
    /// # Errors
    /// None in practice: the names are fixed and valid.
    pub fn hidden() -> Result<Self, prometheus::Error> {
        let counters =
            |name: &str, help: &str, label: &str| IntCounterVec::new(Opts::new(name, help), &[label]);
        let seconds = prometheus::exponential_buckets(0.001, 2.0, 16)?;
        let histogram = |name: &str, help: &str| {
            Histogram::with_opts(HistogramOpts::new(name, help).buckets(seconds.clone()))
        };
        Ok(Self {
            shards: IntGaugeVec::new(Opts::new("cleat_shards", "Shards by what they are here."), &["phase"])?,
            attached: IntGauge::new(
                "cleat_lease_attached",
                "Whether the lock is renewed and the watch current.",
            )?,
            renewals: counters(
                "cleat_lease_renewals_total",
                "Renewals of the runner lock by result.",
                "result",
            )?,
            claims: counters("cleat_shard_claims_total", "Claims of shards by result.", "result")?,
            renewal_seconds: histogram(
                "cleat_lease_renewal_seconds",
                "Time of a renewal of the runner lock, successful or not.",
            )?,
            claim_seconds: histogram("cleat_shard_claim_seconds", "Time of a claim, without loading.")?,
            releases: counters("cleat_shard_releases_total", "Shards that were let go, by how.", "how")?,
            deaths: counters("cleat_runner_deaths_total", "Deaths of other runners by cause.", "cause")?,
            wedged: IntCounter::new("cleat_shards_wedged_total", "Shards with work that did not move.")?,
        })
    }

    /// Metrics that are shown through a registry.
    ///
    /// # Errors
    /// Those of the registry: most likely that the names are taken, by another runner in this process.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self::hidden()?;
        registry.register(Box::new(metrics.shards.clone()))?;
        registry.register(Box::new(metrics.attached.clone()))?;
        registry.register(Box::new(metrics.renewals.clone()))?;
        registry.register(Box::new(metrics.renewal_seconds.clone()))?;
        registry.register(Box::new(metrics.claims.clone()))?;
        registry.register(Box::new(metrics.claim_seconds.clone()))?;
        registry.register(Box::new(metrics.releases.clone()))?;
        registry.register(Box::new(metrics.deaths.clone()))?;
        registry.register(Box::new(metrics.wedged.clone()))?;
        Ok(metrics)
    }
}
