//! How far a claim may look past keys in flight.
//!
//! When most keys of a large backlog are in flight, an ordered claim has to walk past their rows to find others, at worst
//! past all of them. Looking ahead a little is cheap and mostly enough; but only a deep look finds the rows behind a hot
//! key. So deep looks are taken as often as they are cheap: at most a tenth of the time goes into them.

use std::time::Duration;

use tokio::time::Instant;

/// Rows that a shallow look may see, for each row that is asked for.
const SHALLOW: u32 = 8;

/// A deep look is followed by shallow ones for so many times its own duration.
const REST: u32 = 10;

#[derive(Debug)]
pub(crate) struct Depth {
    next_deep_look: Instant,
    was_deep: bool,
}

impl Depth {
    pub(crate) fn new() -> Self {
        Self {
            next_deep_look: Instant::now(),
            was_deep: false,
        }
    }

    /// How many rows the next claim may look at to find `limit`; `None` for as many as it takes.
    pub(crate) fn look_ahead(&self, limit: u32) -> Option<u32> {
        (Instant::now() < self.next_deep_look).then(|| limit.saturating_mul(SHALLOW))
    }

    /// Whether the last look saw everything; if not, the next one will.
    pub(crate) fn saw_everything(&mut self) -> bool {
        if !self.was_deep {
            self.next_deep_look = Instant::now();
        }
        self.was_deep
    }

    /// Takes note of what a look cost.
    pub(crate) fn looked(&mut self, look_ahead: Option<u32>, cost: Duration) {
        self.was_deep = look_ahead.is_none();
        if self.was_deep {
            self.next_deep_look = Instant::now() + cost * REST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves pitfall 18.
    #[tokio::test(start_paused = true)]
    async fn deep_looks_come_again_but_take_no_more_than_a_tenth_of_the_time() {
        let mut depth = Depth::new();
        let cost = Duration::from_millis(400);
        assert_eq!(depth.look_ahead(500), None, "the first look is deep");
        depth.looked(None, cost);
        assert_eq!(depth.look_ahead(500), Some(4_000));
        assert!(depth.saw_everything());
        tokio::time::advance(cost * 9).await;
        assert!(depth.look_ahead(500).is_some(), "not yet");
        tokio::time::advance(cost).await;
        assert_eq!(depth.look_ahead(500), None);
        depth.looked(Some(4_000), cost);
        assert!(!depth.saw_everything());
        assert_eq!(depth.look_ahead(500), None, "who needs to see everything may");
    }
}
