//! Results, for people and for machines.

use std::path::Path;

use anyhow::{Context, Result};
use bench_subject::protocol::Outcome;
use serde::Serialize;

use crate::world::Beside;

/// One measured number and what it is to be seen beside.
#[derive(Debug, Clone, Serialize)]
pub struct Measurement {
    /// The program's scenario.
    pub scenario: &'static str,
    /// What was measured.
    pub metric: String,
    /// How much it was; not a number, which is null in JSON, if it failed.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
    /// What it is compared with, measured in the same run.
    pub peer: Option<String>,
    /// How much that was; none if the peer is missing.
    pub peer_value: Option<f64>,
    /// Ours divided by theirs, where that says something.
    pub ratio: Option<f64>,
    /// What it should be.
    pub target: Option<Target>,
    /// Whether it is; none if the ratio is not known.
    pub met: Option<bool>,
}

/// What a value or its ratio should be.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Target {
    /// The ratio is as large as this, or larger.
    RatioAtLeast(f64),
    /// The ratio is as small as this, or smaller.
    RatioAtMost(f64),
    /// The value itself is as small as this, or smaller.
    AtMost(f64),
}

impl Target {
    fn met(self, value: f64, ratio: Option<f64>) -> Option<bool> {
        match self {
            Self::RatioAtLeast(least) => ratio.map(|ratio| ratio >= least),
            Self::RatioAtMost(most) => ratio.map(|ratio| ratio <= most),
            Self::AtMost(most) => Some(value <= most),
        }
    }

    /// In words, short enough for a table.
    pub fn words(self) -> String {
        match self {
            Self::RatioAtLeast(least) => format!("ratio >= {least}"),
            Self::RatioAtMost(most) => format!("ratio <= {most}"),
            Self::AtMost(most) => format!("<= {most}"),
        }
    }
}

impl Measurement {
    /// A number by itself.
    pub fn new(scenario: &'static str, metric: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            scenario,
            metric: metric.into(),
            value,
            unit,
            peer: None,
            peer_value: None,
            ratio: None,
            target: None,
            met: None,
        }
    }

    /// The same beside another number.
    pub fn beside(mut self, peer: impl Into<String>, value: f64) -> Self {
        self.peer = Some(peer.into());
        self.peer_value = Some(value);
        self.ratio = Some(self.value / value).filter(|ratio| ratio.is_finite());
        self
    }

    /// The same beside the peer's number, if there is a peer.
    pub fn beside_peer<T>(mut self, peer: &Beside<T>, value: impl FnOnce(&T) -> f64) -> Self {
        match peer {
            Beside::Unwanted => self,
            Beside::Measured(name, outcome) => self.beside(*name, value(outcome)),
            Beside::Missing(name) => {
                self.peer = Some(format!("{name}: missing"));
                self
            }
        }
    }

    /// What it should be.
    pub fn wants(mut self, target: Target) -> Self {
        self.target = Some(target);
        self.met = target.met(self.value, self.ratio);
        self
    }

    /// What it should be, if anything.
    pub fn may_want(self, target: Option<Target>) -> Self {
        match target {
            Some(target) => self.wants(target),
            None => self,
        }
    }
}

/// All that a run has measured.
#[derive(Debug, Default)]
pub struct Report {
    measurements: Vec<Measurement>,
    remarks: Vec<String>,
}

impl Report {
    /// Takes a measurement down and tells it at once, because a run takes a while.
    pub fn add(&mut self, measurement: Measurement) {
        eprintln!("  {}", line(&measurement));
        self.measurements.push(measurement);
    }

    /// Takes down that a scenario has failed, and why.
    pub fn fail(&mut self, scenario: &'static str, error: &anyhow::Error) {
        // One line, and nothing that would end a column of a table.
        let why = format!("{error:#}").replace(['\n', '|'], " ");
        let mut failure = Measurement::new(scenario, format!("failed: {why}"), f64::NAN, "");
        failure.met = Some(false);
        self.add(failure);
    }

    /// Takes down what a reader of the numbers has to know, once.
    pub fn remark(&mut self, remark: String) {
        if !self.remarks.contains(&remark) {
            eprintln!("  note: {remark}");
            self.remarks.push(remark);
        }
    }

    /// Takes down all that a load has shown, beside what the peer's has; the target is about how much was done.
    pub fn add_load(
        &mut self,
        scenario: &'static str,
        what: &str,
        ours: &Outcome,
        peer: &Beside<Outcome>,
        target: Option<Target>,
    ) {
        let mut add = |name: &str, unit, value: fn(&Outcome) -> f64, target| {
            let metric = if name.is_empty() { what.to_owned() } else { format!("{what}: {name}") };
            let measurement = Measurement::new(scenario, metric, value(ours), unit);
            self.add(measurement.beside_peer(peer, value).may_want(target));
        };
        add("", "1/s", |outcome| outcome.per_second, target);
        add("p50", "ms", |outcome| outcome.p50, None);
        add("p99", "ms", |outcome| outcome.p99, None);
        add("p999", "ms", |outcome| outcome.p999, None);
        add("CPU of the runner", "us/op", |outcome| outcome.runner_micros, None);
        add("CPU of the database", "us/op", |outcome| outcome.database_micros, None);
        add("errors and hung calls", "", Outcome::failures, Some(Target::AtMost(0.0)));
        self.remark_failures(&format!("{scenario}, {what}, cleat"), ours);
        if let Beside::Measured(name, theirs) = peer {
            self.remark_failures(&format!("{scenario}, {what}, {name}"), theirs);
        }
    }

    fn remark_failures(&mut self, whose: &str, outcome: &Outcome) {
        if let Some(error) = &outcome.first_error {
            self.remark(format!("{whose}: {} calls failed, the first with: {error}", outcome.errors));
        }
        if outcome.hung > 0 {
            self.remark(format!("{whose}: {} calls had no answer 10 s after the end", outcome.hung));
        }
    }

    /// What has been measured so far.
    pub fn measurements(&self) -> &[Measurement] {
        &self.measurements
    }

    /// The whole as a table.
    pub fn print(&self) {
        println!("{}", header());
        for measurement in &self.measurements {
            println!("{}", line(measurement));
        }
        for remark in &self.remarks {
            println!("note: {remark}");
        }
    }

    /// The whole as JSON.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(&self.measurements)?;
        std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
    }

    /// What a reader has to know.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }
}

fn header() -> String {
    format!(
        "{:<10} {:<62} {:>12} {:<9} {:<22} {:>12} {:>8}  target",
        "scenario", "metric", "value", "unit", "beside", "value", "ratio"
    )
}

fn line(m: &Measurement) -> String {
    let number = |value: Option<f64>| value.map_or(String::new(), digits);
    let verdict = match m.met {
        Some(true) => " met",
        Some(false) => " MISSED",
        None => "",
    };
    let target = m.target.map_or(String::new(), |target| target.words() + verdict);
    let peer = m.peer.as_deref().unwrap_or_default();
    format!(
        "{:<10} {:<62} {:>12} {:<9} {:<22} {:>12} {:>8}  {target}",
        m.scenario,
        m.metric,
        digits(m.value),
        m.unit,
        peer,
        number(m.peer_value),
        number(m.ratio)
    )
    .trim_end()
    .to_owned()
}

/// As many digits as say something.
pub fn digits(value: f64) -> String {
    if value.is_nan() {
        return "-".to_owned();
    }
    if value >= 100.0 || value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_says_whether_its_target_is_met() {
        let faster = Measurement::new("store", "commits", 30.0, "1/s").beside("plain", 10.0);
        assert_eq!(faster.clone().wants(Target::RatioAtLeast(3.0)).met, Some(true));
        assert_eq!(faster.clone().wants(Target::RatioAtMost(2.9)).met, Some(false));
        assert_eq!(faster.clone().wants(Target::AtMost(29.0)).met, Some(false));
        let json = serde_json::to_value(faster.wants(Target::RatioAtLeast(3.0))).unwrap();
        for field in ["scenario", "metric", "value", "unit", "peer", "peer_value", "ratio", "target", "met"] {
            assert!(json.get(field).is_some(), "{field} is missing");
        }
    }

    #[test]
    fn a_failed_scenario_is_told_with_its_reason_and_without_a_number() {
        let mut report = Report::default();
        report.fail("hot", &anyhow::anyhow!("the disk").context("no database"));
        let json = serde_json::to_value(report.measurements()).unwrap();
        assert_eq!(json[0]["metric"], "failed: no database: the disk");
        assert!(json[0]["value"].is_null());
        assert_eq!(json[0]["met"], false);
    }

    #[test]
    fn a_missing_peer_is_never_a_zero() {
        let missing = Beside::<f64>::Missing("cruster");
        let measurement = Measurement::new("volatile", "local", 30.0, "1/s")
            .beside_peer(&missing, |value| *value)
            .wants(Target::RatioAtLeast(2.0));
        assert_eq!((measurement.peer_value, measurement.ratio, measurement.met), (None, None, None));
        assert_eq!(measurement.peer.as_deref(), Some("cruster: missing"));
    }
}
