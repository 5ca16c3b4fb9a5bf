//! Crons that are there because somebody declares them.
//!
//! A declaration can go while no runner looks. Then nobody is told, and the cron that is stored would tick for ever. So before it ticks, it
//! looks whether it is still declared, as far as its runner knows what is.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a cron waits for its declaration before it is taken for gone. A runner may be cut off from where declarations come from, and
/// another one may know more; what is owed meanwhile is made up for as the cron says.
const GONE: Duration = Duration::from_secs(600);

/// What this runner knows of declarations.
#[derive(Default)]
pub(super) struct Declarations(Mutex<Option<Known>>);

#[derive(Default)]
struct Known {
    names: HashSet<String>,
    /// Crons that are not declared, and since when that is noticed.
    missing: HashMap<String, Instant>,
}

/// Whether a cron is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is, or this runner knows nothing of declarations.
    Declared,
    /// It is not, as far as this runner knows.
    Missing,
    /// It has not been for long enough.
    Gone,
}

impl Declarations {
    /// These are declared, and no others.
    pub(super) fn set(&self, names: HashSet<String>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        known.missing.retain(|name, _| !names.contains(name));
        known.names = names;
    }

    /// Whether a cron is declared.
    pub(super) fn standing(&self, name: &str, now: Instant) -> Standing {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = known.as_mut().filter(|known| !known.names.contains(name)) else {
            return Standing::Declared;
        };
        let since = *known.missing.entry(name.to_owned()).or_insert(now);
        if now.duration_since(since) < GONE {
            return Standing::Missing;
        }
        known.missing.remove(name);
        Standing::Gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cron_is_gone_only_if_it_is_missing_for_long() {
        let (declared, now) = (Declarations::default(), Instant::now());
        assert_eq!(declared.standing("a", now), Standing::Declared, "nothing is known");
        declared.set(HashSet::from(["a".to_owned()]));
        assert_eq!(declared.standing("a", now), Standing::Declared);
        assert_eq!(declared.standing("b", now), Standing::Missing);
        declared.set(HashSet::from(["b".to_owned()]));
        assert_eq!(declared.standing("b", now + GONE), Standing::Declared, "it was only late");
        assert_eq!(declared.standing("a", now), Standing::Missing);
        assert_eq!(declared.standing("a", now + GONE / 2), Standing::Missing);
        assert_eq!(declared.standing("a", now + GONE), Standing::Gone);
    }
}
