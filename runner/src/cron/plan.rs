//! Which ticks a cron owes: a pure function of where it is and what time it is.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::Schedule;

/// What becomes of ticks that nobody could see to in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Policy {
    /// They are left out. A tick is in time for a minute, so that nothing is lost to a failover.
    None,
    /// The last one is made up for, those before it are left out.
    #[default]
    Latest,
    /// All are made up for, in order.
    All,
}

/// What becomes of ticks that nobody could see to in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatchUp {
    /// Which of them are made up for.
    pub policy: Policy,
    /// Those that are older are left out, whatever the policy.
    pub window: Duration,
}

impl Default for CatchUp {
    /// The last tick of a day.
    fn default() -> Self {
        Self { policy: Policy::Latest, window: Duration::from_secs(24 * 3600) }
    }
}

impl CatchUp {
    fn window(self) -> TimeDelta {
        let window = match self.policy {
            Policy::None => PUNCTUAL,
            Policy::Latest | Policy::All => self.window,
        };
        TimeDelta::from_std(window).unwrap_or(TimeDelta::MAX)
    }
}

/// How late a tick may be and still count as in time.
const PUNCTUAL: Duration = Duration::from_secs(60);

/// The most ticks that are seen to in one commit.
const BATCH: usize = 100;

/// The most ticks that are counted when they are left out; beyond that nobody minds the number.
const COUNTED: usize = 10_000;

/// What is to be done now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// Ticks to be seen to, in order.
    pub(super) fire: Vec<DateTime<Utc>>,
    /// How many were left out.
    pub(super) skipped: u64,
    /// Everything up to here has been seen to or left out.
    pub(super) cursor: DateTime<Utc>,
    /// When to look again; it may have passed if there is more to make up for.
    pub(super) next: Option<DateTime<Utc>>,
}

/// What a cron owes that has seen to everything up to `cursor`.
///
/// # Guarantees
/// Ticks are seen to in order and none twice, whatever the clock does: the cursor never goes back.
pub(super) fn plan(
    schedule: &Schedule,
    cursor: DateTime<Utc>,
    now: DateTime<Utc>,
    catch_up: CatchUp,
) -> Plan {
    if now <= cursor {
        // The clock was put back, or somebody with another clock was here before.
        return Plan { fire: Vec::new(), skipped: 0, cursor, next: schedule.next(cursor) };
    }
    let oldest = now.checked_sub_signed(catch_up.window()).unwrap_or(DateTime::<Utc>::MIN_UTC);
    let first = match catch_up.policy {
        Policy::All => oldest,
        // `previous` looks before a moment, and a tick that is now counts.
        Policy::None | Policy::Latest => {
            schedule.previous(now + TimeDelta::nanoseconds(1)).unwrap_or(now).max(oldest)
        }
    };
    let owed = ticks(schedule, cursor, now);
    let skipped = owed.take(COUNTED).take_while(|tick| *tick < first).count();
    let from = cursor.max(first - TimeDelta::nanoseconds(1));
    let fire: Vec<_> = ticks(schedule, from, now).take(BATCH).collect();
    // Only a full batch leaves something for the next look.
    let cursor = if fire.len() < BATCH { now } else { fire.last().copied().unwrap_or(now) };
    Plan { skipped: u64::try_from(skipped).unwrap_or(u64::MAX), cursor, next: schedule.next(cursor), fire }
}

/// The ticks after a moment, up to now.
fn ticks(
    schedule: &Schedule,
    after: DateTime<Utc>,
    now: DateTime<Utc>,
) -> impl Iterator<Item = DateTime<Utc>> {
    std::iter::successors(schedule.next(after), |tick| schedule.next(*tick))
        .take_while(move |tick| *tick <= now)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(text).unwrap().to_utc()
    }

    fn hourly() -> Schedule {
        Schedule::new("@hourly").unwrap()
    }

    fn fired(plan: &Plan) -> Vec<String> {
        plan.fire.iter().map(|tick| tick.format("%H:%M").to_string()).collect()
    }

    fn with(policy: Policy, hours: u64) -> CatchUp {
        CatchUp { policy, window: Duration::from_secs(hours * 3600) }
    }

    #[test]
    fn each_policy_makes_up_for_what_it_says() {
        let (cursor, now) = (at("2026-01-01T00:00:00Z"), at("2026-01-01T05:30:00Z"));
        let plan = |policy| super::plan(&hourly(), cursor, now, with(policy, 3));
        let all = plan(Policy::All);
        assert_eq!((fired(&all), all.skipped), (vec!["03:00".into(), "04:00".into(), "05:00".into()], 2));
        let latest = plan(Policy::Latest);
        assert_eq!((fired(&latest), latest.skipped), (vec!["05:00".into()], 4));
        let none = plan(Policy::None);
        assert_eq!((fired(&none), none.skipped), (vec![], 5));
        for plan in [all, latest, none] {
            assert_eq!((plan.cursor, plan.next), (now, Some(at("2026-01-01T06:00:00Z"))));
        }
    }

    #[test]
    fn a_tick_that_is_a_little_late_is_in_time() {
        let plan = super::plan(
            &hourly(),
            at("2026-01-01T00:30:00Z"),
            at("2026-01-01T01:00:20Z"),
            with(Policy::None, 0),
        );
        assert_eq!((fired(&plan), plan.skipped), (vec!["01:00".into()], 0));
    }

    #[test]
    fn ticks_older_than_the_window_are_left_out_whatever_the_policy() {
        for policy in [Policy::Latest, Policy::All] {
            let plan = super::plan(
                &Schedule::new("@daily").unwrap(),
                at("2026-01-01T00:00:00Z"),
                at("2026-01-03T05:00:00Z"),
                with(policy, 4),
            );
            assert_eq!((plan.fire.len(), plan.skipped), (0, 2));
        }
    }

    #[test]
    fn a_clock_that_is_put_back_makes_no_tick_come_twice() {
        let (late, early) = (at("2026-01-01T05:00:00Z"), at("2026-01-01T03:00:00Z"));
        let plan = super::plan(&hourly(), late, early, with(Policy::All, 24));
        assert_eq!((plan.fire.len(), plan.cursor), (0, late));
        assert_eq!(plan.next, Some(at("2026-01-01T06:00:00Z")));
    }

    #[test]
    fn a_long_outage_is_made_up_for_in_portions() {
        let every_second = Schedule::new("* * * * * *").unwrap();
        let (mut cursor, now) = (at("2026-01-01T00:00:00Z"), at("2026-01-01T00:05:00Z"));
        let mut all = Vec::new();
        loop {
            let plan = super::plan(&every_second, cursor, now, with(Policy::All, 1));
            assert!(plan.fire.len() <= BATCH);
            all.extend(plan.fire);
            cursor = plan.cursor;
            if plan.next.is_none_or(|next| next > now) {
                break;
            }
        }
        assert_eq!(all.len(), 300);
        assert!(all.is_sorted());
    }

    #[test]
    fn a_year_of_seconds_takes_no_time_to_leave_out() {
        let every_second = Schedule::new("* * * * * *").unwrap();
        let began = std::time::Instant::now();
        let plan = super::plan(
            &every_second,
            at("2025-01-01T00:00:00Z"),
            at("2026-01-01T00:00:00Z"),
            CatchUp { policy: Policy::All, window: Duration::from_secs(2) },
        );
        assert_eq!(plan.fire.len(), 3);
        assert_eq!(plan.skipped, u64::try_from(COUNTED).unwrap());
        assert!(began.elapsed() < Duration::from_secs(5));
    }

    proptest! {
        /// However the clock runs and jumps and however often it is looked at: in order, none twice, and with `All` none is lost that the
        /// window allows.
        #[test]
        fn ticks_come_in_order_and_once(steps in proptest::collection::vec(-4000..9000_i64, 1..40), policy in 0..3usize) {
            let schedule = Schedule::new("*/10 * * * *").unwrap();
            let policy = [Policy::None, Policy::Latest, Policy::All][policy];
            let start = at("2026-01-01T00:00:00Z");
            let (mut cursor, mut now, mut fired) = (start, start, Vec::new());
            let mut latest = now;
            for step in steps {
                now += TimeDelta::seconds(step);
                latest = latest.max(now);
                loop {
                    let plan = super::plan(&schedule, cursor, now, with(policy, 24 * 365));
                    prop_assert!(plan.cursor >= cursor);
                    prop_assert!(plan.fire.iter().all(|tick| *tick > cursor && *tick <= now));
                    cursor = plan.cursor;
                    fired.extend(plan.fire);
                    if plan.next.is_none_or(|next| next > now) { break }
                }
            }
            prop_assert!(fired.windows(2).all(|pair| pair[0] < pair[1]));
            if policy == Policy::All {
                let owed: Vec<_> = ticks(&schedule, start, latest).collect();
                prop_assert_eq!(fired, owed);
            }
        }
    }
}
