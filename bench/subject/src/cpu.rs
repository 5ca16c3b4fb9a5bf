//! CPU time of processes, from `/proc`.

use std::path::Path;

use anyhow::{Context, Result};

/// Ticks in a second, which Linux fixes for what it shows in `/proc`.
const TICKS: f64 = 100.0;

/// Seconds of CPU time that a process has used, those of children that it has waited for included.
pub fn of(pid: u32) -> Result<f64> {
    let stat = Stat::read(format!("/proc/{pid}/stat"))?;
    Ok(stat.seconds)
}

/// The same for a process and all its children.
pub fn of_family(pid: u32) -> Result<f64> {
    let mut seconds = of(pid)?;
    for entry in std::fs::read_dir("/proc").context("cannot list /proc")? {
        let path = entry?.path().join("stat");
        // A process that has just ended is in its parent's account.
        let Ok(stat) = Stat::read(&path) else { continue };
        if stat.parent == pid {
            seconds += stat.seconds;
        }
    }
    Ok(seconds)
}

struct Stat {
    parent: u32,
    seconds: f64,
}

impl Stat {
    fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("cannot make sense of {}", path.display()))
    }

    /// Reads `pid (name) state parent ...`; the name may hold blanks and brackets of its own.
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = words.get(11..15)?.iter().map(|word| word.parse::<u32>().ok().map(f64::from));
        Some(Self { parent: words.get(1)?.parse().ok()?, seconds: ticks.sum::<Option<f64>>()? / TICKS })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_a_process_and_its_children_are_added() {
        let stat = Stat::parse("7 (a) b) S 3 7 7 0 -1 0 1 2 3 4 100 50 20 30 20 0 1").unwrap();
        assert_eq!((stat.parent, stat.seconds), (3, 2.0));
    }

    #[test]
    fn this_process_has_used_some_time_by_the_end() {
        let begun = of(std::process::id()).unwrap();
        while of(std::process::id()).unwrap() <= begun {
            std::hint::spin_loop();
        }
        assert!(of_family(std::process::id()).unwrap() > begun);
    }
}
