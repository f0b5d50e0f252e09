//! What a publisher is given.

use std::fmt;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::message::Message;

/// Where a message stands within the batch that the relay made, by which it is asked about and reported. A batch of some of
/// these messages, see [`Batch::of`], has the same places with gaps.
///
/// # Examples
///
/// ```
/// use posthaste_core::publisher::Place;
///
/// let (place, mut delivered) = (Place::new(2), [false; 5]);
/// delivered[place.index()] = true;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub u32);

impl Place {
    /// The place with this number, from 0.
    ///
    /// # Panics
    ///
    /// Above 4,294,967,295; no batch has as many messages.
    pub fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("a batch of less than four thousand million messages"))
    }

    /// The number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A claimed message on its way to the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// Where it stands within its batch; given by [`Batch::new`].
    pub place: Place,
    /// What to send.
    pub message: Message,
    /// When it was enqueued, by the database's clock.
    pub created_at: DateTime<Utc>,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// The row's number in the order of inserts, where the table has one. Within a lane it only ever grows.
    pub sequence: Option<i64>,
}

impl Delivery {
    /// The first attempt at a message that was enqueued at `created_at`.
    pub fn new(message: Message, created_at: DateTime<Utc>) -> Self {
        Self {
            place: Place::default(),
            message,
            created_at,
            attempt: 1,
            sequence: None,
        }
    }

    /// The same, as this attempt.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// The same, of a row with this number.
    #[must_use]
    pub fn sequence(mut self, sequence: Option<i64>) -> Self {
        self.sequence = sequence;
        self
    }
}

/// Messages claimed together, in order.
#[derive(Clone)]
pub struct Batch {
    /// What to send.
    pub deliveries: Vec<Delivery>,
    lease: Arc<dyn LeaseCheck>,
}

/// Answers whether a claim still holds, by the worker's own monotonic clock.
pub trait LeaseCheck: Send + Sync {
    /// Whether the message may still be handed to the broker.
    fn may_send(&self, place: Place) -> bool;
}

impl Batch {
    /// A batch under a lease. Its deliveries get their places, from 0.
    pub fn new(mut deliveries: Vec<Delivery>, lease: Arc<dyn LeaseCheck>) -> Self {
        for (index, delivery) in deliveries.iter_mut().enumerate() {
            delivery.place = Place::new(index);
        }
        Self { deliveries, lease }
    }

    /// A batch of some of these deliveries under the same lease. They keep their places.
    #[must_use]
    pub fn of(&self, deliveries: Vec<Delivery>) -> Self {
        Self {
            deliveries,
            lease: Arc::clone(&self.lease),
        }
    }

    /// Whether the message may still be handed to the broker: its lease has time left, the circuit to the broker lets it
    /// through and nobody asked to stop.
    pub fn may_send(&self, place: Place) -> bool {
        self.lease.may_send(place)
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("deliveries", &self.deliveries)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Second;

    impl LeaseCheck for Second {
        fn may_send(&self, place: Place) -> bool {
            place == Place(1)
        }
    }

    #[test]
    fn some_messages_of_a_batch_keep_their_places() {
        let deliveries = (0..3).map(|_| Delivery::new(Message::new("t", "x"), DateTime::UNIX_EPOCH));
        let batch = Batch::new(deliveries.collect(), Arc::new(Second));
        let places = |batch: &Batch| -> Vec<u32> { batch.deliveries.iter().map(|delivery| delivery.place.0).collect() };
        assert_eq!(places(&batch), [0, 1, 2]);
        let some = batch.of(batch.deliveries[1..].to_vec());
        assert_eq!(places(&some), [1, 2]);
        assert!(some.may_send(some.deliveries[0].place) && !some.may_send(some.deliveries[1].place));
    }
}
