use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;
use crate::lease::{Clock, Standing};

/// A clock that shows what it is told.
#[derive(Debug, Clone, Default)]
struct Hands(Arc<AtomicU64>);

impl Clock for Hands {
    fn now(&self) -> Moment {
        Moment::new(Duration::from_millis(self.0.load(Ordering::Relaxed)))
    }
}

/// What goes wrong for a while, in steps of a tenth of a second.
#[derive(Debug, Clone)]
struct Weather {
    steps: u32,
    /// Whether the holder's process runs, and how long its calls take there and back; none if they do not arrive.
    holder_runs: bool,
    holder_calls: Option<(u64, u64)>,
    observer_calls: Option<(u64, u64)>,
    watch_lag: u64,
}

fn any_weather() -> impl Strategy<Value = Weather> {
    let calls = || prop::option::weighted(0.75, (0u64..12, 0u64..12));
    (1u32..150, prop::bool::weighted(0.8), calls(), calls(), prop_oneof![3 => 0u64..5, 1 => 0u64..80])
        .prop_map(|(steps, holder_runs, holder_calls, observer_calls, watch_lag)| Weather {
            steps,
            holder_runs,
            holder_calls,
            observer_calls,
            watch_lag,
        })
}

/// A renewal on its way.
struct Call {
    sent: u64,
    arrives: u64,
    returns: u64,
    revision: Option<Revision>,
}

const STEP: u64 = 100;
const INTERVAL: u64 = 3_000;

/// A runner that renews, one renewal at a time.
#[derive(Default)]
struct Renewals {
    call: Option<Call>,
    last: u64,
}

impl Renewals {
    fn send(&mut self, now: u64, calls: Option<(u64, u64)>) {
        if self.call.is_none() && now >= self.last + INTERVAL {
            self.last = now;
            let arrives = calls.map_or(u64::MAX, |(there, _)| now + there * STEP);
            // A call that does not arrive is given up after an interval.
            let returns = calls.map_or(now + INTERVAL, |(there, back)| now + (there + back) * STEP);
            self.call = Some(Call { sent: now, arrives, returns, revision: None });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever happens to the holder, the observer and the watch between them: from the moment at which the holder is taken for
    /// dead, so that its shards may be claimed, it does not stand until it has checked its epochs (which here it never does).
    #[test]
    fn whoever_was_taken_for_dead_does_not_stand(weathers in prop::collection::vec(any_weather(), 1..20)) {
        let hands = Hands::default();
        let standing = Standing::new(Arc::new(hands.clone()), Timing::default());
        let mut observer = Observer::new(instance(ME), Timing::default(), SETTLE);
        observer.apply(Event::Snapshot(Snapshot::default()), Moment::default());
        let (mut holder, mut own) = (Renewals::default(), Renewals::default());
        let mut told: VecDeque<(u64, RunnerRecord)> = VecDeque::new();
        let (mut now, mut revision, mut was_dead) = (INTERVAL, 0u64, false);
        for weather in weathers {
            for _ in 0..weather.steps {
                now += STEP;
                hands.0.store(now, Ordering::Relaxed);
                let moment = hands.now();
                if weather.holder_runs {
                    holder.send(now, weather.holder_calls);
                }
                own.send(now, weather.observer_calls);
                for (who, renewals) in [("holder", &mut holder), (ME, &mut own)] {
                    if let Some(call) = renewals.call.as_mut().filter(|call| call.arrives <= now && call.revision.is_none()) {
                        revision += 1;
                        let revision = Revision::new(revision.to_string());
                        call.revision = Some(revision.clone());
                        told.push_back((now, RunnerRecord { name: name(who), holder: Some(runner(who, State::Ready)), revision }));
                    }
                }
                while told.front().is_some_and(|(at, _)| at + weather.watch_lag * STEP <= now) {
                    let (_, record) = told.pop_front().unwrap();
                    observer.apply(Event::Runner(record), moment);
                }
                // A stopped process sees the answer when it goes on.
                if weather.holder_runs && holder.call.as_ref().is_some_and(|call| call.returns <= now) {
                    let call = holder.call.take().unwrap();
                    if call.revision.is_some() {
                        standing.renewed(Moment::new(Duration::from_millis(call.sent)));
                    }
                }
                if own.call.as_ref().is_some_and(|call| call.returns <= now) {
                    let call = own.call.take().unwrap();
                    match call.revision {
                        Some(revision) => {
                            let lock = Lock { name: name(ME), instance: instance(ME), revision };
                            observer.renewed(&lock, Moment::new(Duration::from_millis(call.sent)), moment);
                        }
                        None => observer.renewal_failed(moment),
                    }
                }
                observer.tick(moment);
                was_dead |= !observer.take_changes().deaths.is_empty();
                prop_assert!(!was_dead || !standing.stands(), "stands at {now} though it was taken for dead");
            }
        }
    }
}
