//! What the gateway tells Prometheus.

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry};

/// Metrics of the gateway.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Requests by what was asked and what was answered: a status of HTTP, or a code of gRPC.
    pub(super) requests: IntCounterVec,
    /// Seconds until the head of the answer, by what was asked.
    pub(super) seconds: HistogramVec,
    /// Requests that are being answered.
    pub(super) running: IntGauge,
}

impl Metrics {
    /// Metrics that nobody sees.
    ///
    /// # Errors
    /// None in practice: the names are fixed and valid.
    pub fn hidden() -> Result<Self, prometheus::Error> {
        let buckets = prometheus::exponential_buckets(0.001, 2.0, 16)?;
        Ok(Self {
            requests: IntCounterVec::new(
                Opts::new("cleat_gateway_requests_total", "Requests by what was asked and answered."),
                &["route", "status"],
            )?,
            seconds: HistogramVec::new(
                HistogramOpts::new("cleat_gateway_request_seconds", "Time until the answer began.")
                    .buckets(buckets),
                &["route"],
            )?,
            running: IntGauge::new("cleat_gateway_requests_running", "Requests that are being answered.")?,
        })
    }

    /// Metrics that are shown through a registry.
    ///
    /// # Errors
    /// Those of the registry: most likely that the names are taken, by another runner in this process.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self::hidden()?;
        registry.register(Box::new(metrics.requests.clone()))?;
        registry.register(Box::new(metrics.seconds.clone()))?;
        registry.register(Box::new(metrics.running.clone()))?;
        Ok(metrics)
    }
}
