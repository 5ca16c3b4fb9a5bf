//! Results, for people and for machines.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

/// One measured number and what it is to be seen beside.
#[derive(Debug, Clone, Serialize)]
pub struct Measurement {
    /// The program's scenario.
    pub scenario: &'static str,
    /// What was measured.
    pub metric: String,
    /// How much it was.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
    /// What it is compared with, measured in the same run.
    pub peer: Option<String>,
    /// How much that was.
    pub peer_value: Option<f64>,
    /// Ours divided by theirs.
    pub ratio: Option<f64>,
    /// What the ratio should be.
    pub target: Option<Target>,
    /// Whether it is.
    pub met: Option<bool>,
}

/// What a ratio should be.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Target {
    /// As large as this, or larger.
    AtLeast(f64),
    /// As small as this, or smaller.
    AtMost(f64),
}

impl Target {
    fn met(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(least) => ratio >= least,
            Self::AtMost(most) => ratio <= most,
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

    /// The same beside a peer's number.
    pub fn beside(mut self, peer: impl Into<String>, value: f64) -> Self {
        self.peer = Some(peer.into());
        self.peer_value = Some(value);
        self.ratio = Some(self.value / value);
        self
    }

    /// What the ratio should be.
    pub fn wants(mut self, target: Target) -> Self {
        self.target = Some(target);
        self.met = self.ratio.map(|ratio| target.met(ratio));
        self
    }
}

/// All that a run has measured.
#[derive(Debug, Default)]
pub struct Report(Vec<Measurement>);

impl Report {
    /// Takes a measurement down and tells it at once, because a run takes a while.
    pub fn add(&mut self, measurement: Measurement) {
        eprintln!("  {}", line(&measurement));
        self.0.push(measurement);
    }

    /// The whole as a table.
    pub fn print(&self) {
        println!("{}", header());
        for measurement in &self.0 {
            println!("{}", line(measurement));
        }
    }

    /// The whole as JSON.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(&self.0)?;
        std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
    }
}

fn header() -> String {
    format!(
        "{:<10} {:<46} {:>12} {:<9} {:<28} {:>12} {:>7}  target",
        "scenario", "metric", "value", "unit", "beside", "value", "ratio"
    )
}

fn line(m: &Measurement) -> String {
    let number = |value: Option<f64>| value.map_or(String::new(), digits);
    let target = match (m.target, m.met) {
        (Some(Target::AtLeast(least)), Some(met)) => format!(">= {least} {}", verdict(met)),
        (Some(Target::AtMost(most)), Some(met)) => format!("<= {most} {}", verdict(met)),
        _ => String::new(),
    };
    let peer = m.peer.as_deref().unwrap_or_default();
    format!(
        "{:<10} {:<46} {:>12} {:<9} {:<28} {:>12} {:>7}  {target}",
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
fn digits(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_says_whether_its_target_is_met() {
        let faster = Measurement::new("store", "commits", 30.0, "1/s").beside("plain", 10.0);
        assert_eq!(faster.clone().wants(Target::AtLeast(3.0)).met, Some(true));
        assert_eq!(faster.clone().wants(Target::AtMost(2.9)).met, Some(false));
        let json = serde_json::to_value(faster.wants(Target::AtLeast(3.0))).unwrap();
        for field in ["scenario", "metric", "value", "unit", "peer", "peer_value", "ratio", "target", "met"] {
            assert!(json.get(field).is_some(), "{field} is missing");
        }
    }
}
