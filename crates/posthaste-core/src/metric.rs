//! What a metric is called, what it says and by which labels it is told apart: an entry of a catalogue.
//!
//! Each crate that counts has one such catalogue, from which its metrics are described to a recorder, shown before anything
//! has happened, and held against the documentation.

/// A metric, with exactly one set of labels.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Metric {
    /// What it is called, also by Prometheus.
    pub name: &'static str,
    /// How it changes.
    pub kind: MetricKind,
    /// What its values are counted in.
    pub unit: MetricUnit,
    /// What its values are told apart by. Each value has all of these labels.
    pub labels: &'static [MetricLabel],
    /// What it says, in a sentence.
    pub description: &'static str,
}

/// How a metric changes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum MetricKind {
    /// It only grows, and begins with 0.
    Counter,
    /// It goes up and down.
    Gauge {
        /// Its value before anything has happened; nothing if that is not known before somebody has looked.
        initial: Option<f64>,
    },
    /// It says how often which values were seen.
    Histogram {
        /// The upper bounds of its buckets, for exporters that need them.
        buckets: &'static [f64],
    },
}

/// What the values of a metric are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricUnit {
    /// Things.
    Count,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

/// What the values of a metric are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetricLabel {
    /// Its name.
    pub name: &'static str,
    /// Its values, if there are no others.
    pub values: &'static [&'static str],
}

impl MetricLabel {
    /// A label whose values are known at run time only. What sets them bounds their number.
    pub const fn open(name: &'static str) -> Self {
        Self { name, values: &[] }
    }

    /// A label that has these values and no others.
    pub const fn one_of(name: &'static str, values: &'static [&'static str]) -> Self {
        Self { name, values }
    }
}

impl Metric {
    /// A counter.
    pub const fn counter(name: &'static str, labels: &'static [MetricLabel], description: &'static str) -> Self {
        Self::new(name, MetricKind::Counter, labels, description)
    }

    /// A gauge that says nothing before somebody has looked.
    pub const fn gauge(name: &'static str, labels: &'static [MetricLabel], description: &'static str) -> Self {
        Self::new(name, MetricKind::Gauge { initial: None }, labels, description)
    }

    /// A histogram with these upper bounds of its buckets.
    pub const fn histogram(
        name: &'static str,
        labels: &'static [MetricLabel],
        buckets: &'static [f64],
        description: &'static str,
    ) -> Self {
        Self::new(name, MetricKind::Histogram { buckets }, labels, description)
    }

    const fn new(
        name: &'static str,
        kind: MetricKind,
        labels: &'static [MetricLabel],
        description: &'static str,
    ) -> Self {
        Self {
            name,
            kind,
            unit: MetricUnit::Count,
            labels,
            description,
        }
    }

    /// As a gauge that begins with this value.
    #[must_use]
    pub const fn initially(mut self, value: f64) -> Self {
        self.kind = MetricKind::Gauge { initial: Some(value) };
        self
    }

    /// Counted in seconds.
    #[must_use]
    pub const fn in_seconds(mut self) -> Self {
        self.unit = MetricUnit::Seconds;
        self
    }

    /// Counted in bytes.
    #[must_use]
    pub const fn in_bytes(mut self) -> Self {
        self.unit = MetricUnit::Bytes;
        self
    }

    /// Whether its values are told apart by this label.
    pub fn has_label(&self, name: &str) -> bool {
        self.labels.iter().any(|label| label.name == name)
    }
}
