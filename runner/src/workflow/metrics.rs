//! What executions tell Prometheus.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use super::definition::name_of;
use crate::entity::lag_buckets;
use crate::message::EntityType;
use crate::store::Phase;

/// Metrics of executions. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Measured>);

#[derive(Debug)]
struct Measured {
    started: IntCounterVec,
    phases: IntCounterVec,
    activities: HistogramVec,
    lag: Histogram,
}

impl Metrics {
    /// Metrics that are shown through a registry.
    ///
    /// # Errors
    /// Those of the registry: most likely that the names are taken, by another runner in this process.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Measured {
            started: IntCounterVec::new(
                Opts::new("cleat_executions_started_total", "Executions that were started here, by type."),
                &["type"],
            )?,
            phases: IntCounterVec::new(
                Opts::new(
                    "cleat_execution_phases_total",
                    "How often executions came into another phase here, by type and phase.",
                ),
                &["type", "phase"],
            )?,
            activities: HistogramVec::new(
                HistogramOpts::new(
                    "cleat_activity_seconds",
                    "Time of an attempt of an activity, by the type of its workflow and outcome.",
                )
                .buckets(prometheus::exponential_buckets(0.001, 4.0, 11)?),
                &["type", "outcome"],
            )?,
            lag: Histogram::with_opts(
                HistogramOpts::new(
                    "cleat_timer_lag_seconds",
                    "How much later than its time a sleep ended or an activity was tried again.",
                )
                .buckets(lag_buckets()?),
            )?,
        };
        registry.register(Box::new(metrics.started.clone()))?;
        registry.register(Box::new(metrics.phases.clone()))?;
        registry.register(Box::new(metrics.activities.clone()))?;
        registry.register(Box::new(metrics.lag.clone()))?;
        Ok(Self(Arc::new(metrics)))
    }

    pub(super) fn started(&self, entity_type: &EntityType) {
        self.0.started.with_label_values(&[name_of(entity_type)]).inc();
    }

    pub(super) fn became(&self, entity_type: &EntityType, phase: Phase) {
        self.0.phases.with_label_values(&[name_of(entity_type), phase.as_str()]).inc();
    }

    pub(super) fn tried(&self, entity_type: &EntityType, succeeded: bool, took: Duration) {
        let outcome = if succeeded { "ok" } else { "failed" };
        self.0.activities.with_label_values(&[name_of(entity_type), outcome]).observe(took.as_secs_f64());
    }

    pub(super) fn fired(&self, due: SystemTime) {
        self.0.lag.observe(SystemTime::now().duration_since(due).unwrap_or_default().as_secs_f64());
    }
}
