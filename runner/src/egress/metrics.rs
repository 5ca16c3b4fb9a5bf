//! What egress tells Prometheus.

use std::net::IpAddr;

use prometheus::{HistogramOpts, HistogramVec, IntGauge, Opts, Registry};

use super::{Answer, Endpoint, Error};

/// Metrics of what definitions ask of services.
#[derive(Debug, Clone)]
pub struct Metrics {
    seconds: HistogramVec,
    /// Endpoints that are left alone.
    pub(super) open: IntGauge,
}

impl Metrics {
    /// Metrics that nobody sees.
    ///
    /// # Errors
    /// None in practice: the names are fixed and valid.
    pub fn hidden() -> Result<Self, prometheus::Error> {
        let buckets = prometheus::exponential_buckets(0.001, 2.0, 16)?;
        let seconds = HistogramOpts::from(Opts::new(
            "cleat_egress_request_seconds",
            "Requests to services, by the kind of host and what came of them.",
        ));
        Ok(Self {
            seconds: HistogramVec::new(seconds.buckets(buckets), &["host", "outcome"])?,
            open: IntGauge::new("cleat_egress_circuits_open", "Endpoints that are left alone for a while.")?,
        })
    }

    /// Metrics that are shown through a registry.
    ///
    /// # Errors
    /// Those of the registry: most likely that the names are taken, by another runner in this process.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self::hidden()?;
        registry.register(Box::new(metrics.seconds.clone()))?;
        registry.register(Box::new(metrics.open.clone()))?;
        Ok(metrics)
    }

    pub(super) fn ended(&self, endpoint: &Endpoint, answer: &Result<Answer, Error>, seconds: f64) {
        let outcome = match answer {
            Ok(answer) => match answer.status.as_u16() {
                200..=299 => "2xx",
                300..=399 => "3xx",
                400..=499 => "4xx",
                _ => "5xx",
            },
            Err(error) => error.reason(),
        };
        self.seconds.with_label_values(&[class(&endpoint.host), outcome]).observe(seconds);
    }
}

/// What kind of host it is. There are few kinds, and any number of hosts.
fn class(host: &str) -> &'static str {
    let inside = |suffix: &str| host.ends_with(suffix);
    if host.parse::<IpAddr>().is_ok() {
        "address"
    } else if inside(".svc") || inside(".cluster.local") || !host.contains('.') {
        "cluster"
    } else {
        "outside"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_of_few_kinds() {
        for (host, kind) in [
            ("pricing", "cluster"),
            ("pricing.shop.svc", "cluster"),
            ("pricing.shop.svc.cluster.local", "cluster"),
            ("10.0.0.7", "address"),
            ("fd00::1", "address"),
            ("api.example.com", "outside"),
        ] {
            assert_eq!(class(host), kind, "{host}");
        }
    }
}
