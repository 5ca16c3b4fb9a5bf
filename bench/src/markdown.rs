//! Results as a page of Markdown: the machine, what was missed, and a table for each scenario.

use std::fmt::Write as _;

use crate::report::{Measurement, digits};

/// What a run was done with.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Processors, memory, kernel and database.
    pub machine: String,
    /// How many others wanted to work when the run began.
    pub load: String,
    /// How long each load was measured.
    pub seconds: f64,
}

impl Setting {
    /// Looks at this machine.
    pub fn look(database: &str, set: &[(String, String)], seconds: f64) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map(|rest| rest.trim_start_matches([' ', '\t', ':']).trim_end().to_owned())
        };
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let model = field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown".to_owned());
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let kilobytes: f64 = memory.trim_end_matches("kB").trim().parse().unwrap_or_default();
        let kernel = read("/proc/sys/kernel/osrelease");
        let gibibytes = kilobytes / 1024.0 / 1024.0;
        let machine = format!(
            "{cores} cores ({model}) and {gibibytes:.0} GiB of memory for clients, runners and database together; Linux {}; \
             PostgreSQL {database} with fsync on and {}",
            kernel.trim(),
            settings(set)
        );
        let load = read("/proc/loadavg").split_whitespace().next().unwrap_or("unknown").to_owned();
        Self { machine, load, seconds }
    }
}

/// What is set otherwise than PostgreSQL has it.
pub fn settings(set: &[(String, String)]) -> String {
    let set: Vec<_> = set.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    if set.is_empty() { "its defaults".to_owned() } else { format!("{}, else its defaults", set.join(", ")) }
}

/// The whole page.
pub fn page(setting: &Setting, measurements: &[Measurement], remarks: &[String]) -> String {
    let mut text = format!(
        "# Results\n\nMachine: {}. The load was {} when the run began. Each load was measured for {} s, after a quarter of that to \
         warm up. Only ratios travel to another machine; docs/performance.md says how everything is measured.\n\n",
        setting.machine, setting.load, setting.seconds
    );
    text += &verdicts(measurements);
    text += "\n![ratios](ratios.svg)\n";
    let mut last = "";
    for m in measurements {
        if m.scenario != last {
            last = m.scenario;
            text += &format!("\n## {last}\n\n| metric | value | unit | beside | value | ratio | target |\n");
            text += "| --- | ---: | --- | --- | ---: | ---: | --- |\n";
        }
        text += &row(m);
    }
    if !remarks.is_empty() {
        text += "\n## Notes of the run\n\n";
        for remark in remarks {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "- {remark}");
        }
    }
    text
}

/// How many targets are met, and which are not.
fn verdicts(measurements: &[Measurement]) -> String {
    let met = measurements.iter().filter(|m| m.met == Some(true)).count();
    let unknown = measurements.iter().filter(|m| m.target.is_some() && m.met.is_none()).count();
    let missed: Vec<&Measurement> = measurements.iter().filter(|m| m.met == Some(false)).collect();
    let mut text = format!(
        "{met} targets met, {} missed, {unknown} not known because a peer is missing.\n",
        missed.len()
    );
    if !missed.is_empty() {
        text += "\n| missed | | value | ratio | target |\n| --- | --- | ---: | ---: | --- |\n";
    }
    for m in missed {
        let ratio = m.ratio.map_or(String::new(), digits);
        let target = m.target.map_or(String::new(), |target| target.words());
        let _ = writeln!(
            text,
            "| {} | {} | {} {} | {ratio} | {target} |",
            m.scenario,
            m.metric,
            digits(m.value),
            m.unit
        );
    }
    text
}

fn row(m: &Measurement) -> String {
    let number = |value: Option<f64>| value.map_or(String::new(), digits);
    let verdict = match m.met {
        Some(true) => ": met",
        Some(false) => ": **missed**",
        None => "",
    };
    let target = m.target.map_or(String::new(), |target| target.words() + verdict);
    let peer = m.peer.as_deref().unwrap_or_default();
    let (value, theirs, ratio) = (digits(m.value), number(m.peer_value), number(m.ratio));
    format!("| {} | {value} | {} | {peer} | {theirs} | {ratio} | {target} |\n", m.metric, m.unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Report, Target};

    #[test]
    fn a_page_tells_what_was_missed_before_everything_else() {
        let mut report = Report::default();
        report.add(
            Measurement::new("hot", "slow", 10.0, "1/s")
                .beside("peer", 10.0)
                .wants(Target::RatioAtLeast(2.0)),
        );
        report.add(
            Measurement::new("hot", "fast", 30.0, "1/s")
                .beside("peer", 10.0)
                .wants(Target::RatioAtLeast(2.0)),
        );
        report.fail("idle", &anyhow::anyhow!("a | b").context("no database"));
        let setting = Setting::look("15", &[], 2.0);
        let page = page(&setting, report.measurements(), &["a note".to_owned()]);
        assert!(page.contains("1 targets met, 2 missed, 0 not known"), "{page}");
        let (head, tables) = page.split_once("## hot").unwrap();
        assert!(
            head.contains("| hot | slow | 10 1/s | 1 | ratio >= 2 |") && !head.contains("fast"),
            "{page}"
        );
        assert!(tables.contains("| fast | 30 | 1/s | peer | 10 | 3 | ratio >= 2: met |"), "{page}");
        assert!(tables.contains("| failed: no database: a   b | - |"), "{page}");
        assert!(tables.ends_with("## Notes of the run\n\n- a note\n"), "{page}");
    }
}
