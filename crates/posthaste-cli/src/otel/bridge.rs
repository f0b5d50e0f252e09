//! What the `metrics` crate records, as instruments of OpenTelemetry.
//!
//! Counters and gauges are numbers in memory that are read when they are exported, so that counting costs no more than
//! without. Histograms are recorded at once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use metrics::{Counter, Gauge, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Histogram, Meter};
use posthaste_core::metric::MetricKind;
use posthaste_relay::METRICS;

/// A recorder whose figures a meter exports.
pub(super) struct Bridge {
    meter: Meter,
    described: Mutex<HashMap<String, Description>>,
    counters: Numbers,
    gauges: Numbers,
    histograms: RwLock<HashMap<Key, Arc<Series>>>,
}

#[derive(Clone, Default)]
struct Description {
    unit: Option<Unit>,
    text: SharedString,
}

/// The numbers of all instruments of a kind.
#[derive(Default)]
struct Numbers {
    by_key: RwLock<HashMap<Key, Arc<AtomicU64>>>,
    by_name: Mutex<HashMap<String, Instrument>>,
}

/// The numbers of one instrument, each with its attributes.
type Instrument = Arc<Mutex<Vec<(Vec<KeyValue>, Arc<AtomicU64>)>>>;

struct Series {
    histogram: Histogram<f64>,
    attributes: Vec<KeyValue>,
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.histogram.record(value, &self.attributes);
    }
}

impl Numbers {
    /// The number of a key. If it is the first of its instrument, that is returned as well, to be registered.
    fn of(&self, key: &Key) -> (Arc<AtomicU64>, Option<Instrument>) {
        if let Some(number) = self.by_key.read().unwrap_or_else(PoisonError::into_inner).get(key) {
            return (Arc::clone(number), None);
        }
        let mut numbers = self.by_key.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = numbers.get(key) {
            return (Arc::clone(number), None);
        }
        let number = Arc::new(AtomicU64::new(0));
        numbers.insert(key.clone(), Arc::clone(&number));
        let mut instruments = lock(&self.by_name);
        let known = instruments.get(key.name()).cloned();
        let is_new = known.is_none();
        let instrument = known.unwrap_or_default();
        lock(&instrument).push((attributes(key), Arc::clone(&number)));
        if is_new {
            instruments.insert(key.name().to_owned(), Arc::clone(&instrument));
        }
        (number, is_new.then_some(instrument))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while holding a lock, and the data would be sound if it did.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn attributes(key: &Key) -> Vec<KeyValue> {
    key.labels()
        .map(|label| KeyValue::new(label.key().to_owned(), label.value().to_owned()))
        .collect()
}

/// The same buckets as at `/metrics`.
fn buckets(name: &str) -> Option<&'static [f64]> {
    match METRICS.iter().find(|metric| metric.name == name)?.kind {
        MetricKind::Histogram { buckets } => Some(buckets),
        _ => None,
    }
}

impl Bridge {
    pub(super) fn new(meter: Meter) -> Self {
        Self {
            meter,
            described: Mutex::default(),
            counters: Numbers::default(),
            gauges: Numbers::default(),
            histograms: RwLock::default(),
        }
    }

    fn describe(&self, name: &KeyName, unit: Option<Unit>, text: SharedString) {
        lock(&self.described).insert(name.as_str().to_owned(), Description { unit, text });
    }

    /// What an instrument is told of itself.
    fn description(&self, key: &Key) -> (&'static str, String) {
        let found = lock(&self.described).get(key.name()).cloned().unwrap_or_default();
        let unit = match found.unit {
            Some(Unit::Seconds) => "s",
            Some(Unit::Bytes) => "By",
            Some(unit) => unit.as_canonical_label(),
            None => "",
        };
        (unit, found.text.into_owned())
    }
}

impl Recorder for Bridge {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&name, unit, text);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&name, unit, text);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&name, unit, text);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let (number, new) = self.counters.of(key);
        if let Some(instrument) = new {
            let (unit, text) = self.description(key);
            let counter = self.meter.u64_observable_counter(key.name().to_owned());
            let counter = counter.with_unit(unit).with_description(text);
            let observed = counter.with_callback(move |observer| {
                for (attributes, number) in &*lock(&instrument) {
                    observer.observe(number.load(Ordering::Relaxed), attributes);
                }
            });
            // The meter keeps the callback.
            let _ = observed.build();
        }
        Counter::from_arc(number)
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let (number, new) = self.gauges.of(key);
        if let Some(instrument) = new {
            let (unit, text) = self.description(key);
            let gauge = self.meter.f64_observable_gauge(key.name().to_owned());
            let gauge = gauge.with_unit(unit).with_description(text);
            let observed = gauge.with_callback(move |observer| {
                for (attributes, number) in &*lock(&instrument) {
                    observer.observe(f64::from_bits(number.load(Ordering::Relaxed)), attributes);
                }
            });
            let _ = observed.build();
        }
        Gauge::from_arc(number)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        if let Some(series) = self.histograms.read().unwrap_or_else(PoisonError::into_inner).get(key) {
            return metrics::Histogram::from_arc(Arc::clone(series));
        }
        let (unit, text) = self.description(key);
        let histogram = self.meter.f64_histogram(key.name().to_owned());
        let histogram = histogram.with_unit(unit).with_description(text);
        let histogram = match buckets(key.name()) {
            Some(buckets) => histogram.with_boundaries(buckets.to_vec()),
            None => histogram,
        };
        let new = Arc::new(Series {
            histogram: histogram.build(),
            attributes: attributes(key),
        });
        let mut known = self.histograms.write().unwrap_or_else(PoisonError::into_inner);
        metrics::Histogram::from_arc(Arc::clone(known.entry(key.clone()).or_insert(new)))
    }
}
