//! The order in which calls of the publisher begin.
//!
//! Where messages of one lane may be in flight in several batches, the batches have to reach the publisher in the order in
//! which they were claimed, though each is verified and published by a task of its own.

use tokio::sync::oneshot;

/// A place in the line of calls. The next call begins when this one has been polled once, or is not made at all.
#[derive(Debug)]
pub(crate) struct Turn {
    before: Option<oneshot::Receiver<()>>,
    /// Dropped when the next one may begin.
    _begun: oneshot::Sender<()>,
}

/// The end of the line.
#[derive(Debug, Default)]
pub(crate) struct Line(Option<oneshot::Receiver<()>>);

impl Line {
    /// Takes a place at its end.
    pub(crate) fn join(&mut self) -> Turn {
        let (begun, has_begun) = oneshot::channel();
        Turn {
            before: self.0.replace(has_begun),
            _begun: begun,
        }
    }
}

impl Turn {
    /// Waits until all calls before this one have begun.
    pub(crate) async fn come(&mut self) {
        if let Some(before) = &mut self.before {
            // Whatever it says: the one before is through, or is not coming.
            let _ = before.await;
        }
        self.before = None;
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    async fn has_come(turn: &mut Turn) -> bool {
        tokio::select! {
            biased;
            () = turn.come() => true,
            () = ready(()) => false,
        }
    }

    #[tokio::test]
    async fn calls_begin_in_the_order_in_which_they_joined_the_line() {
        let mut line = Line::default();
        let [mut first, mut second, mut third] = [(); 3].map(|()| line.join());
        assert!(!has_come(&mut third).await && !has_come(&mut second).await);
        assert!(has_come(&mut first).await);
        drop(first);
        assert!(!has_come(&mut third).await, "the second is before it");
        assert!(has_come(&mut second).await);
        drop(second);
        assert!(has_come(&mut third).await);
    }
}
