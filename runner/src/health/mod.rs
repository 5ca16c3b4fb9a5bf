//! Registry of health findings: conditions of this runner that its operators must see.
//!
//! A component reports a finding when it detects a condition and clears it when the condition is over. Every finding reaches the log (once
//! when an episode starts and once when it ends), the gauge `cleat_runner_findings`, the body of `/readyz`, the admin port, from there the
//! conditions of the Cluster with an Event, and `cleat doctor`. A finding whose [reason](Reason::makes_unready) says so makes the runner
//! not ready.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use prometheus::{IntGaugeVec, Opts, Registry};

use crate::supervisor::{self, Supervisor};

/// Why a finding was reported. Its name is the type of the Cluster's condition and the label of the metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The wall clock of this runner differs from that of the database.
    ClockSkew,
    /// No request id can be issued.
    NoIds,
    /// Synchronous replication was configured and is not in effect.
    ReplicationDegraded,
    /// The database lacks something that correctness depends on.
    DatabaseUnsupported,
    /// The database behind the URL is not the one that this runner has used: failover or restore.
    DatabaseReplaced,
    /// PostgreSQL is on its way to refuse writes because transaction ids run out.
    TransactionIdsRunningOut,
    /// A snapshot or slot prevents PostgreSQL from removing dead rows.
    XminHorizonHeld,
    /// Retention deletes less than is written.
    RetentionBacklog,
    /// A handler has been running for longer than its limit.
    HandlerStuck,
    /// The database accepts no further connection, or too few for this cluster.
    ConnectionsExhausted,
    /// A backend of the database could not be terminated because its role does not permit it.
    DatabasePrivileges,
    /// A task that this runner cannot work without has ended.
    TaskFailed,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::ClockSkew,
        Self::NoIds,
        Self::ReplicationDegraded,
        Self::DatabaseUnsupported,
        Self::DatabaseReplaced,
        Self::TransactionIdsRunningOut,
        Self::XminHorizonHeld,
        Self::RetentionBacklog,
        Self::HandlerStuck,
        Self::ConnectionsExhausted,
        Self::DatabasePrivileges,
        Self::TaskFailed,
    ];

    /// One CamelCase word.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::ClockSkew => "ClockSkew",
            Self::NoIds => "NoIds",
            Self::ReplicationDegraded => "ReplicationDegraded",
            Self::DatabaseUnsupported => "DatabaseUnsupported",
            Self::DatabaseReplaced => "DatabaseReplaced",
            Self::TransactionIdsRunningOut => "TransactionIdsRunningOut",
            Self::XminHorizonHeld => "XminHorizonHeld",
            Self::RetentionBacklog => "RetentionBacklog",
            Self::HandlerStuck => "HandlerStuck",
            Self::ConnectionsExhausted => "ConnectionsExhausted",
            Self::DatabasePrivileges => "DatabasePrivileges",
            Self::TaskFailed => "TaskFailed",
        }
    }

    /// Whether the runner is not ready while this is reported. Only for conditions under which another runner serves better: one that all
    /// runners share would take the whole Service away.
    pub const fn makes_unready(&self) -> bool {
        matches!(self, Self::NoIds | Self::DatabaseUnsupported | Self::DatabaseReplaced | Self::TaskFailed)
    }
}

/// A condition that was reported and has not been cleared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Why it was reported.
    pub reason: Reason,
    /// What is wrong, what happens next, and what to do.
    pub message: String,
    /// When the episode started.
    pub since: SystemTime,
}

/// Handle to the registry of one runner. Cheap to clone; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    findings: Mutex<Findings>,
    tasks: supervisor::State,
}

#[derive(Debug, Default)]
struct Findings {
    open: BTreeMap<Reason, Finding>,
    gauge: Option<IntGaugeVec>,
    /// What the database's monitor last saw, by name.
    database: BTreeMap<String, String>,
}

impl Health {
    /// A registry without findings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reports a condition. While it is already reported only its message is replaced: it starts no new episode and is not logged again.
    ///
    /// The message says what is wrong, what happens next and what to do. It should not contain numbers that change all the time: each
    /// change is written to the Cluster's status.
    pub fn report(&self, reason: Reason, message: impl Into<String>) {
        let message = message.into();
        let mut findings = self.lock();
        if let Some(finding) = findings.open.get_mut(&reason) {
            finding.message = message;
            return;
        }
        tracing::warn!(event = "finding_reported", reason = reason.reason(), "{message}");
        findings.open.insert(reason, Finding { reason, message, since: SystemTime::now() });
        findings.show(reason);
    }

    /// Withdraws a condition, if it is reported.
    pub fn clear(&self, reason: Reason) {
        let mut findings = self.lock();
        let Some(finding) = findings.open.remove(&reason) else { return };
        findings.show(reason);
        let seconds = finding.since.elapsed().unwrap_or_default().as_secs();
        tracing::info!(event = "finding_cleared", reason = reason.reason(), seconds, "the condition is over");
    }

    /// Reports a condition if there is a message, otherwise clears it: for components that check periodically.
    pub fn set(&self, reason: Reason, message: Option<String>) {
        match message {
            Some(message) => self.report(reason, message),
            None => self.clear(reason),
        }
    }

    /// The conditions that are reported, ordered by reason.
    pub fn findings(&self) -> Vec<Finding> {
        self.lock().open.values().cloned().collect()
    }

    /// Those that make this runner not ready.
    pub fn blockers(&self) -> Vec<Finding> {
        self.lock().open.values().filter(|finding| finding.reason.makes_unready()).cloned().collect()
    }

    /// Whether no condition is reported that makes this runner not ready.
    pub fn is_ready(&self) -> bool {
        !self.lock().open.keys().any(Reason::makes_unready)
    }

    /// Replaces what is known of the database: settings and numbers that people look at, by name.
    pub fn describe_database(&self, facts: BTreeMap<String, String>) {
        self.lock().database = facts;
    }

    /// What is known of the database.
    pub fn database(&self) -> BTreeMap<String, String> {
        self.lock().database.clone()
    }

    /// Exports the gauge `cleat_runner_findings` through a registry.
    ///
    /// # Errors
    /// Those of the registry: most likely that the name is taken.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        let opts = Opts::new("cleat_runner_findings", "1 while a health finding is reported, by reason.");
        let gauge = IntGaugeVec::new(opts, &["reason"])?;
        registry.register(Box::new(gauge.clone()))?;
        let mut findings = self.lock();
        findings.gauge = Some(gauge);
        Reason::ALL.into_iter().for_each(|reason| findings.show(reason));
        Ok(())
    }

    /// The supervisor of the tasks of the same runner.
    pub fn supervisor(&self) -> Supervisor {
        Supervisor::of(self.clone())
    }

    pub(crate) fn tasks(&self) -> &supervisor::State {
        &self.0.tasks
    }

    fn lock(&self) -> MutexGuard<'_, Findings> {
        self.0.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Findings {
    fn show(&self, reason: Reason) {
        if let Some(gauge) = &self.gauge {
            let open = i64::from(self.open.contains_key(&reason));
            gauge.with_label_values(&[reason.reason()]).set(open);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge(registry: &Registry, reason: &str) -> f64 {
        let families = registry.gather();
        let metrics = families.iter().flat_map(|family| family.get_metric());
        let found = metrics.filter(|metric| metric.get_label()[0].value() == reason);
        found.map(|metric| metric.get_gauge().get_value()).sum()
    }

    #[test]
    fn a_finding_is_exported_from_its_report_until_it_is_cleared() {
        let (health, registry) = (Health::new(), Registry::new());
        health.report(Reason::ClockSkew, "before the gauge exists");
        health.register(&registry).unwrap();
        assert_eq!((gauge(&registry, "ClockSkew"), gauge(&registry, "NoIds")), (1.0, 0.0));
        health.clone().report(Reason::NoIds, "none left");
        assert_eq!(gauge(&registry, "NoIds"), 1.0);
        health.clear(Reason::NoIds);
        assert_eq!(gauge(&registry, "NoIds"), 0.0);
    }

    #[test]
    fn a_repeated_report_replaces_the_message_and_keeps_the_start_of_the_episode() {
        let health = Health::new();
        health.report(Reason::ClockSkew, "2 s");
        let first = health.findings();
        health.report(Reason::ClockSkew, "3 s");
        let [finding] = &health.findings()[..] else { panic!("one finding") };
        assert_eq!((finding.message.as_str(), finding.since), ("3 s", first[0].since));
        health.set(Reason::ClockSkew, None);
        assert!(health.findings().is_empty());
    }

    #[test]
    fn only_some_reasons_make_a_runner_not_ready() {
        let health = Health::new();
        health.report(Reason::ClockSkew, "");
        assert!(health.is_ready() && health.blockers().is_empty());
        health.report(Reason::NoIds, "");
        assert!(!health.is_ready());
        assert_eq!(health.blockers()[0].reason, Reason::NoIds);
    }
}
