//! What a publisher answers.

use std::fmt;
use std::sync::Arc;

use super::batch::Place;
use super::error::PublishError;

/// What became of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The broker acknowledged it.
    Delivered(Receipt),
    /// It was tried and failed.
    Failed(PublishError),
    /// It was not handed over at all.
    NotAttempted,
    /// Its stored bytes do not match their hash; it must never be sent. Reported by the engine, not by publishers.
    Corrupt {
        /// What was found.
        error: String,
    },
}

impl Outcome {
    /// A delivery of which nothing more is known.
    pub const DELIVERED: Self = Self::Delivered(Receipt {
        location: None,
        duplicate: false,
    });

    /// Whether the broker acknowledged it.
    pub fn is_delivered(&self) -> bool {
        matches!(self, Self::Delivered(_))
    }
}

/// What the broker said of a message that it took.
///
/// # Examples
///
/// ```
/// use posthaste_core::publisher::Receipt;
///
/// let receipt = Receipt::at("orders/3@1024");
/// assert!(!receipt.duplicate);
/// assert_eq!(receipt.location.as_deref(), Some("orders/3@1024"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// Where the message is, in the broker's own words: topic, partition and offset, or a sequence number.
    pub location: Option<Box<str>>,
    /// The broker had the message already and dropped this one.
    pub duplicate: bool,
}

impl Receipt {
    /// That of a message which the broker can be asked for.
    pub fn at(location: impl Into<Box<str>>) -> Self {
        Self {
            location: Some(location.into()),
            duplicate: false,
        }
    }

    /// The same, of a message that the broker had already.
    #[must_use]
    pub fn duplicate(mut self) -> Self {
        self.duplicate = true;
        self
    }
}

/// Nothing more is known.
impl From<()> for Receipt {
    fn from((): ()) -> Self {
        Self::default()
    }
}

/// Takes outcomes.
pub trait OutcomeSink: Send + Sync {
    /// What became of the message at this place.
    fn outcome(&self, place: Place, outcome: Outcome);

    /// The broker acknowledged the messages at these places, and nothing more is known of them.
    fn delivered_all(&self, places: &[Place]) {
        for place in places {
            self.outcome(*place, Outcome::DELIVERED);
        }
    }
}

/// Where outcomes go. Cheap to clone, callable from any thread, such as a client library's delivery callback.
///
/// # Examples
///
/// ```
/// use posthaste_core::publisher::{Batch, Report};
///
/// fn publish(batch: &Batch, report: &Report) {
///     for delivery in &batch.deliveries {
///         report.delivered(delivery.place);
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Report(Arc<dyn OutcomeSink>);

impl Report {
    /// A report that calls `sink` for every outcome.
    pub fn new(sink: impl Fn(Place, Outcome) + Send + Sync + 'static) -> Self {
        Self::to(Arc::new(Called(sink)))
    }

    /// A report to this sink.
    pub fn to(sink: Arc<dyn OutcomeSink>) -> Self {
        Self(sink)
    }

    /// Reports one outcome.
    pub fn outcome(&self, place: Place, outcome: Outcome) {
        self.0.outcome(place, outcome);
    }

    /// Reports a delivery.
    pub fn delivered(&self, place: Place) {
        self.outcome(place, Outcome::DELIVERED);
    }

    /// Reports deliveries that became known together, which costs the relay less than one by one.
    pub fn delivered_all(&self, places: &[Place]) {
        self.0.delivered_all(places);
    }

    /// Reports a delivery with what the broker said of it.
    pub fn acknowledged(&self, place: Place, receipt: Receipt) {
        self.outcome(place, Outcome::Delivered(receipt));
    }

    /// Reports a failure.
    pub fn failed(&self, place: Place, error: PublishError) {
        self.outcome(place, Outcome::Failed(error));
    }
}

/// A function as a sink.
struct Called<F>(F);

impl<F: Fn(Place, Outcome) + Send + Sync> OutcomeSink for Called<F> {
    fn outcome(&self, place: Place, outcome: Outcome) {
        (self.0)(place, outcome);
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Report")
    }
}
