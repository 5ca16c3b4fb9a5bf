//! How long calls take, counted by each thread for itself.
//!
//! A histogram that all threads share is a line of memory that each call on one core takes away from the other. Here every thread has
//! tallies of its own, and they are added up when Prometheus asks.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto;

use super::End;

const NAME: &str = "cleat_call_seconds";
const HELP: &str = "Time from a message in the mailbox to its answer, by type, method and outcome.";
const LABELS: [&str; 3] = ["type", "method", "outcome"];

/// The upper bounds of the buckets, each four times the one before: from 50 us to almost a minute.
const BOUNDS: [Duration; 11] = {
    let mut bounds = [Duration::ZERO; 11];
    let (mut place, mut micros) = (0, 50);
    while place < bounds.len() {
        bounds[place] = Duration::from_micros(micros);
        micros *= 4;
        place += 1;
    }
    bounds
};

/// More threads than these share.
const MOST: usize = 16;

thread_local! {
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The number of this thread, counted from the first that asks.
fn number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NUMBER.with(|number| {
        number.get().unwrap_or_else(|| {
            let next = NEXT.fetch_add(1, Ordering::Relaxed);
            number.set(Some(next));
            next
        })
    })
}

/// What some threads have seen of one method. Apart from those of others by more than a processor fetches at once.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Tallies([Tally; End::ALL.len()]);

#[derive(Debug, Default)]
struct Tally {
    /// The last is for what is longer than all bounds.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

impl Tallies {
    pub(super) fn count(&self, end: End, time: Duration) {
        let Some(tally) = self.0.get(end as usize) else { return };
        let place = BOUNDS.iter().position(|bound| time <= *bound).unwrap_or(BOUNDS.len());
        if let Some(bucket) = tally.buckets.get(place) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        tally.nanos.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// The tallies of one method, for each thread or for some together.
#[derive(Debug, Clone)]
pub(super) struct OfMethod(Arc<[Arc<Tallies>]>);

impl OfMethod {
    fn new() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST);
        Self((0..threads).map(|_| Arc::default()).collect())
    }

    /// Those of this thread.
    pub(super) fn here(&self) -> Option<&Arc<Tallies>> {
        self.0.get(number() % self.0.len())
    }

    /// All of them, for one end; none if nothing ended so.
    fn histogram(&self, end: End) -> Option<proto::Histogram> {
        let all = || self.0.iter().filter_map(|tallies| tallies.0.get(end as usize));
        let mut count = 0;
        let mut through = |place: usize| -> u64 {
            let bucket = |tally: &Tally| tally.buckets.get(place).map_or(0, |it| it.load(Ordering::Relaxed));
            count += all().map(bucket).sum::<u64>();
            count
        };
        let mut buckets = Vec::with_capacity(BOUNDS.len());
        for (place, bound) in BOUNDS.iter().enumerate() {
            let mut bucket = proto::Bucket::default();
            bucket.set_upper_bound(bound.as_secs_f64());
            bucket.set_cumulative_count(through(place));
            buckets.push(bucket);
        }
        let count = through(BOUNDS.len());
        let nanos = all().map(|tally| tally.nanos.load(Ordering::Relaxed)).fold(0, u64::wrapping_add);
        let mut histogram = proto::Histogram::default();
        histogram.set_bucket(buckets);
        histogram.set_sample_count(count);
        histogram.set_sample_sum(Duration::from_nanos(nanos).as_secs_f64());
        (count > 0).then_some(histogram)
    }
}

/// All methods that were ever registered, by type and name: what was counted stays when a type is registered anew.
type Methods = BTreeMap<(String, String), OfMethod>;

/// How long calls take, as Prometheus gets it.
#[derive(Debug, Clone)]
pub(super) struct Calls {
    desc: Desc,
    methods: Arc<Mutex<Methods>>,
}

impl Calls {
    pub(super) fn new() -> Result<Self, prometheus::Error> {
        let labels = LABELS.map(str::to_owned).to_vec();
        let desc = Desc::new(NAME.to_owned(), HELP.to_owned(), labels, Default::default())?;
        Ok(Self { desc, methods: Arc::default() })
    }

    /// The tallies of a method.
    pub(super) fn of(&self, entity_type: &str, method: &str) -> OfMethod {
        let mut methods = self.methods.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (entity_type.to_owned(), method.to_owned());
        methods.entry(key).or_insert_with(OfMethod::new).clone()
    }
}

impl Collector for Calls {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let methods = self.methods.lock().unwrap_or_else(PoisonError::into_inner);
        let mut metrics = Vec::new();
        for ((entity_type, method), tallies) in &*methods {
            for end in End::ALL {
                let Some(histogram) = tallies.histogram(end) else { continue };
                // By name, as everything that Prometheus gets.
                let labels =
                    [(LABELS[1], method.as_str()), (LABELS[2], end.as_str()), (LABELS[0], entity_type)];
                let mut metric = proto::Metric::from_label(labels.map(label).to_vec());
                metric.set_histogram(histogram);
                metrics.push(metric);
            }
        }
        if metrics.is_empty() {
            // The registry takes a family without any metrics for a mistake.
            return Vec::new();
        }
        let mut family = proto::MetricFamily::default();
        family.set_name(NAME.to_owned());
        family.set_help(HELP.to_owned());
        family.set_field_type(proto::MetricType::HISTOGRAM);
        family.set_metric(metrics);
        vec![family]
    }
}

fn label((name, value): (&str, &str)) -> proto::LabelPair {
    let mut label = proto::LabelPair::default();
    label.set_name(name.to_owned());
    label.set_value(value.to_owned());
    label
}

#[cfg(test)]
mod tests {
    use prometheus::{Encoder, Registry, TextEncoder};

    use super::*;

    fn text(registry: &Registry) -> String {
        let mut text = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn what_many_threads_have_counted_is_added_up() {
        let registry = Registry::new();
        let calls = Calls::new().unwrap();
        registry.register(Box::new(calls.clone())).unwrap();
        assert_eq!(text(&registry), "");
        let method = calls.of("inventory", "reserve");
        let count = |end: End, micros: u64| method.here().unwrap().count(end, Duration::from_micros(micros));
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    count(End::Ok, 50);
                    count(End::Ok, 51);
                    count(End::Failed, 3_600_000_000);
                });
            }
        });
        let text = text(&registry);
        let labels = |outcome: &str| format!(r#"method="reserve",outcome="{outcome}",type="inventory""#);
        for line in [
            format!(r#"cleat_call_seconds_bucket{{{},le="0.00005"}} 40"#, labels("ok")),
            format!(r#"cleat_call_seconds_bucket{{{},le="0.0002"}} 80"#, labels("ok")),
            format!(r#"cleat_call_seconds_bucket{{{},le="+Inf"}} 80"#, labels("ok")),
            format!("cleat_call_seconds_count{{{}}} 80", labels("ok")),
            format!("cleat_call_seconds_sum{{{}}} 0.00404", labels("ok")),
            format!(r#"cleat_call_seconds_bucket{{{},le="52.4288"}} 0"#, labels("failed")),
            format!(r#"cleat_call_seconds_bucket{{{},le="+Inf"}} 40"#, labels("failed")),
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in:\n{text}");
        }
        assert!(!text.contains("defect"), "what never happened is not shown: {text}");
    }

    #[test]
    fn what_was_counted_stays_when_a_type_is_registered_anew() {
        let calls = Calls::new().unwrap();
        calls.of("inventory", "reserve").here().unwrap().count(End::Ok, Duration::ZERO);
        let again = calls.of("inventory", "reserve");
        assert_eq!(again.histogram(End::Ok).unwrap().get_sample_count(), 1);
    }
}
