//! The process, under the names that every dashboard knows.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, IntGauge, IntGaugeVec, Opts, Registry};

/// Shows this process through a registry: its memory, its time on processors, when it began, and its release. What the system does
/// not tell is left at zero.
///
/// # Errors
/// Those of the registry: most likely that it is shown already.
pub fn measure_process(registry: &Registry, version: &str) -> Result<(), prometheus::Error> {
    let build = IntGaugeVec::new(Opts::new("cleat_build_info", "The release, as a label."), &["version"])?;
    build.with_label_values(&[version]).set(1);
    registry.register(Box::new(build))?;
    let process = Process {
        cpu: Counter::new("process_cpu_seconds_total", "Time on processors, in user and system mode.")?,
        memory: IntGauge::new("process_resident_memory_bytes", "Memory that is resident.")?,
        threads: IntGauge::new("process_threads", "Threads.")?,
        files: IntGauge::new("process_open_fds", "Open files and sockets.")?,
        started: Gauge::new("process_start_time_seconds", "When the process began, in Unix time.")?,
    };
    // Near enough: a runner comes to this as soon as it starts.
    process.started.set(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
    registry.register(Box::new(process))
}

struct Process {
    cpu: Counter,
    memory: IntGauge,
    threads: IntGauge,
    files: IntGauge,
    started: Gauge,
}

/// What the system tells of a process.
#[derive(Debug, PartialEq)]
struct Stat {
    /// In ticks of the clock.
    ticks: u32,
    threads: i64,
    /// In pages.
    resident: i64,
}

impl Stat {
    /// Reads `/proc/PID/stat`, whose second field is a name in parentheses that may hold anything.
    fn read(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(") ")?;
        let fields: Vec<_> = fields.split_ascii_whitespace().collect();
        // The first of these is the third of all.
        let field = |number: usize| fields.get(number - 3).copied();
        let (user, system): (u32, u32) = (field(14)?.parse().ok()?, field(15)?.parse().ok()?);
        Some(Self {
            ticks: user.saturating_add(system),
            threads: field(20)?.parse().ok()?,
            resident: field(24)?.parse().ok()?,
        })
    }
}

impl Process {
    fn look(&self) {
        let Some(stat) = std::fs::read_to_string("/proc/self/stat").ok().and_then(|text| Stat::read(&text))
        else {
            return;
        };
        let second = u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100);
        let page = i64::try_from(rustix::param::page_size()).unwrap_or(4096);
        self.cpu.inc_by((f64::from(stat.ticks) / f64::from(second) - self.cpu.get()).max(0.0));
        self.memory.set(stat.resident.saturating_mul(page));
        self.threads.set(stat.threads);
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            self.files.set(i64::try_from(files.count()).unwrap_or(i64::MAX));
        }
    }

    fn all(&self) -> [&dyn Collector; 5] {
        [&self.cpu, &self.memory, &self.threads, &self.files, &self.started]
    }
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        self.all().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.look();
        self.all().into_iter().flat_map(Collector::collect).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_confuses_nobody() {
        let text =
            "42 (a) b) (c) S 1 42 42 0 -1 4194560 100 0 0 0 700 50 0 0 20 0 9 0 1234 5000000 321 1844674407";
        assert_eq!(Stat::read(text), Some(Stat { ticks: 750, threads: 9, resident: 321 }));
        assert_eq!(Stat::read(""), None);
    }

    #[test]
    fn this_process_has_memory_and_threads() {
        let registry = Registry::new();
        measure_process(&registry, "1").unwrap();
        let value = |name: &str| {
            let families = registry.gather();
            let family = families.iter().find(|family| family.name() == name).unwrap();
            family.get_metric()[0].get_gauge().get_value()
        };
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_threads") >= 1.0);
        assert!(value("process_open_fds") >= 1.0);
        assert!(value("process_start_time_seconds") > 1.6e9);
    }
}
