//! Messages that were taken over: said as often as an operator can read it. After a crash there may be hundreds of small groups.

use std::time::{Duration, Instant};

const SAY_INTERVAL: Duration = Duration::from_secs(10);

/// What was taken over and not said yet.
#[derive(Debug, Default)]
pub(crate) struct ReclaimLogger {
    said_at: Option<Instant>,
    unsaid: usize,
}

impl ReclaimLogger {
    pub(crate) fn claimed(&mut self, messages: usize, reclaimed: bool) {
        let reclaimed = if reclaimed { messages } else { 0 };
        if let Some(messages) = self.take_due(reclaimed, Instant::now()) {
            tracing::warn!(
                messages,
                "took over messages of a worker that ended without a word, or whose lease expired; they are tried in groups, apart \
                 from others"
            );
        }
    }

    fn take_due(&mut self, messages: usize, now: Instant) -> Option<usize> {
        self.unsaid += messages;
        if self.unsaid == 0 {
            return None;
        }
        let lately = self.said_at.is_some_and(|at| now.duration_since(at) < SAY_INTERVAL);
        if lately {
            return None;
        }
        self.said_at = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_groups_are_said_together_and_the_first_at_once() {
        let (mut logger, begun) = (ReclaimLogger::default(), Instant::now());
        assert_eq!(logger.take_due(5, begun), Some(5));
        for second in 1..10 {
            assert_eq!(logger.take_due(5, begun + Duration::from_secs(second)), None);
        }
        assert_eq!(logger.take_due(5, begun + SAY_INTERVAL), Some(50));
    }

    #[test]
    fn the_last_groups_are_said_by_a_claim_that_takes_nothing_over() {
        let (mut logger, begun) = (ReclaimLogger::default(), Instant::now());
        assert_eq!(logger.take_due(0, begun), None);
        assert_eq!(logger.take_due(5, begun), Some(5));
        assert_eq!(logger.take_due(7, begun), None);
        assert_eq!(logger.take_due(0, begun + SAY_INTERVAL), Some(7));
        assert_eq!(logger.take_due(0, begun + SAY_INTERVAL * 3), None);
    }
}
