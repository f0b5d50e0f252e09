//! The batches that are on their way: by the tag that a record carries through librdkafka, and by lane.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::batch::Ongoing;

/// A record's tag: the batch's slot, the record's position in it, and whether its lane is to be remembered.
const POSITION_BITS: u32 = usize::BITS / 2;

/// While no more messages are on their way, to wait for company would cost more time than it saves work.
const MAX_LIGHT: usize = 32;

/// Most messages of a batch that do not wait. Of more the first would go alone, and the rest a round trip later.
const MAX_LIGHT_BATCH: usize = 8;

/// How long lanes are taken to be pipelined after two batches had messages of the same one.
const PIPELINED_TTL: Duration = Duration::from_mins(1);

#[derive(Default)]
pub(super) struct InFlight {
    slots: RwLock<Slots>,
    lanes: Mutex<Lanes>,
    /// Of all batches that have a slot.
    messages: AtomicUsize,
}

#[derive(Default)]
struct Slots {
    used: Vec<Option<Arc<Ongoing>>>,
    free: Vec<usize>,
}

#[derive(Default)]
struct Lanes {
    /// The latest batch with messages of each lane, and the lane's number there.
    latest: ByLane<(Arc<Ongoing>, u32)>,
    /// When two batches had messages of the same lane.
    shared: Option<Instant>,
}

/// What is hashed already.
#[derive(Default)]
pub(super) struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("names of lanes are numbers");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// A map by the names of lanes.
pub(super) type ByLane<T> = HashMap<u64, T, BuildHasherDefault<Hashed>>;

/// The record at a position of the batch in a slot; nothing if a batch has more than can be told.
pub(super) fn tag(slot: usize, position: u32, remembered: bool) -> Option<usize> {
    let position = (position as usize).checked_mul(2)?;
    if position >> POSITION_BITS != 0 || slot >> (usize::BITS - POSITION_BITS) != 0 {
        return None;
    }
    Some(slot << POSITION_BITS | position | usize::from(remembered))
}

/// The slot of a tag.
pub(super) fn slot_of(tag: usize) -> usize {
    tag >> POSITION_BITS
}

impl InFlight {
    /// Gives a batch its slot.
    pub(super) fn enter(&self, batch: &Arc<Ongoing>) -> usize {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.free.pop().unwrap_or(slots.used.len());
        if slot == slots.used.len() {
            slots.used.push(None);
        }
        slots.used[slot] = Some(Arc::clone(batch));
        self.messages.fetch_add(batch.size(), Ordering::Relaxed);
        slot
    }

    /// Whether little is on its way, with this batch that has its slot.
    pub(super) fn is_light(&self, batch: &Ongoing) -> bool {
        batch.size() <= MAX_LIGHT_BATCH && self.messages.load(Ordering::Relaxed) <= MAX_LIGHT
    }

    /// The batch of a tag, the position there, and whether its lane is to be remembered.
    pub(super) fn find(&self, tag: usize) -> Option<(Arc<Ongoing>, u32, bool)> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let batch = slots.used.get(slot_of(tag))?.as_ref().map(Arc::clone)?;
        let position = (tag & ((1 << POSITION_BITS) - 1)) >> 1;
        Some((batch, u32::try_from(position).ok()?, tag & 1 == 1))
    }

    /// Puts each lane of a batch behind the part of it that an earlier batch has, if that is still on its way; says whether
    /// there is one.
    pub(super) fn line_up(&self, batch: &Arc<Ongoing>) -> bool {
        let mut lanes = self.lanes();
        let mut shared = false;
        for (number, name) in (0..).zip(&batch.names) {
            let Some(name) = name else { continue };
            if let Some((earlier, lane)) = lanes.latest.insert(*name, (Arc::clone(batch), number)) {
                shared |= Ongoing::follow((&earlier, lane), (batch, number));
            }
        }
        if shared {
            lanes.shared = Some(Instant::now());
        }
        shared
    }

    /// Whether batches share lanes these days.
    pub(super) fn is_pipelined(&self) -> bool {
        self.lanes().shared.is_some_and(|at| at.elapsed() < PIPELINED_TTL)
    }

    /// Everything of the batch in this slot was answered.
    pub(super) fn leave(&self, slot: usize) {
        let batch = {
            let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
            let Some(batch) = slots.used[slot].take() else {
                return;
            };
            slots.free.push(slot);
            batch
        };
        self.messages.fetch_sub(batch.size(), Ordering::Relaxed);
        let mut lanes = self.lanes();
        for name in batch.names.iter().flatten() {
            if lanes
                .latest
                .get(name)
                .is_some_and(|(latest, _)| Arc::ptr_eq(latest, &batch))
            {
                lanes.latest.remove(name);
            }
        }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_little_until_many_messages_are_on_their_way() {
        let in_flight = InFlight::default();
        let batch = |messages| Ongoing::of_lanes(&[messages], posthaste_core::Report::new(|_, _| {}));
        let small = batch(4);
        let first = in_flight.enter(&small);
        assert!(in_flight.is_light(&small));
        let large = batch(30);
        let second = in_flight.enter(&large);
        assert!(!in_flight.is_light(&small), "beside a large one");
        in_flight.leave(first);
        assert!(!in_flight.is_light(&large), "it is large itself");
        in_flight.leave(second);
        assert!(in_flight.is_light(&small));
        in_flight.leave(second);
        assert_eq!(in_flight.messages.load(Ordering::Relaxed), 0, "left once");
        let slots = [in_flight.enter(&small), in_flight.enter(&large)];
        assert_ne!(slots[0], slots[1]);
    }

    #[test]
    fn a_tag_tells_slot_and_position() {
        let in_flight = InFlight::default();
        let batch = Ongoing::of_lanes(&[3], posthaste_core::Report::new(|_, _| {}));
        assert_eq!(in_flight.enter(&batch), 0);
        let slot = in_flight.enter(&batch);
        let (found, position, remembered) = in_flight.find(tag(slot, 2, true).unwrap()).unwrap();
        assert!(Arc::ptr_eq(&found, &batch) && remembered);
        assert_eq!(position, 2);
        in_flight.leave(slot);
        assert!(in_flight.find(tag(slot, 2, false).unwrap()).is_none());
        assert_eq!(in_flight.enter(&batch), slot, "used again");
        assert_eq!(tag(usize::MAX, 0, false), None);
    }
}
