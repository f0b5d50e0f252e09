//! What a publisher can do and what it asks for.

/// What a publisher can do and what it asks for. The defaults ask for nothing.
///
/// # Examples
///
/// ```
/// use posthaste_core::publisher::{Capabilities, LaneOrder};
///
/// let webhook = Capabilities::new(LaneOrder::OneAtATime).max_batch(100);
/// assert_eq!(webhook.max_batch, Some(100));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// How the order of a lane is kept.
    pub order: LaneOrder,
    /// The most messages that it wants at once; the relay claims no more at a time.
    pub max_batch: Option<usize>,
    /// The most bytes of payload that may be with the publisher at a time; a single larger message goes alone.
    pub max_bytes: Option<u64>,
    /// The most messages that may be with the publisher at a time, in all calls together.
    pub max_in_flight: Option<u32>,
    /// Whether the broker drops a message that it has already, so that a repetition reaches no consumer.
    pub dedupes: bool,
}

/// How a publisher keeps the order of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaneOrder {
    /// A message is sent when its predecessor was acknowledged: a lane is as fast as the round trip.
    #[default]
    OneAtATime,
    /// Several are under way at a time, and the transport guarantees that none overtakes.
    Pipelined,
}

impl Capabilities {
    /// Those of a publisher that keeps order in this way and asks for nothing.
    pub fn new(order: LaneOrder) -> Self {
        Self {
            order,
            ..Self::default()
        }
    }

    /// Asks for at most so many messages at once; 0 counts as 1.
    #[must_use]
    pub fn max_batch(mut self, messages: usize) -> Self {
        self.max_batch = Some(messages.max(1));
        self
    }

    /// Asks for at most so many bytes of payload at a time.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Asks for at most so many messages at a time; 0 counts as 1.
    #[must_use]
    pub fn max_in_flight(mut self, messages: u32) -> Self {
        self.max_in_flight = Some(messages.max(1));
        self
    }

    /// Says that the broker drops what it has already.
    #[must_use]
    pub fn dedupes(mut self) -> Self {
        self.dedupes = true;
        self
    }

    /// Those of two publishers together: what both can do, and all that either asks for.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            order: match (self.order, other.order) {
                (LaneOrder::Pipelined, LaneOrder::Pipelined) => LaneOrder::Pipelined,
                _ => LaneOrder::OneAtATime,
            },
            max_batch: least(self.max_batch, other.max_batch),
            max_bytes: least(self.max_bytes, other.max_bytes),
            max_in_flight: least(self.max_in_flight, other.max_in_flight),
            dedupes: self.dedupes && other.dedupes,
        }
    }
}

fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
