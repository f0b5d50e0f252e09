//! The polling thread: reads, hands over, commits, and takes part in rebalances.
//!
//! A thread of its own, because rebalances are answered from within [`Source::serve`] and may wait there for handlers to
//! finish. It never waits for a handler otherwise, so a slow one does not cost the group's membership.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::lanes::Lanes;
use crate::source::{Record, Source, SourceError};

/// Longest wait without a look at the source. Everything of interest gives a signal; this is for what does not.
const MAX_IDLE_WAIT: Duration = Duration::from_millis(100);

/// How often it is shown how long records have been in hand.
const SHOW_INTERVAL: Duration = Duration::from_secs(1);

/// Reads until it is asked to stop. Returns why it could not go on, if that is what happened.
pub(super) fn run<S: Source>(
    mut source: S,
    lanes: Arc<Lanes<S::Record>>,
    stop: &CancellationToken,
    grace: Duration,
) -> Result<(), SourceError> {
    // Before the source is dropped, and also if this thread panics.
    let lanes = ClearLanes(lanes);
    let listener = Arc::clone(&lanes.0);
    let result = source
        .subscribe(listener)
        .and_then(|()| read(&mut source, &lanes.0, stop));
    finish(&mut source, &lanes.0, grace);
    result
}

fn read<S: Source>(source: &mut S, lanes: &Lanes<S::Record>, stop: &CancellationToken) -> Result<(), SourceError> {
    let mut next_show = Instant::now();
    while !stop.is_cancelled() {
        source.serve()?;
        let some = lanes.fill(source)?;
        lanes.commit_batches();
        if Instant::now() >= next_show {
            lanes.show_in_hand();
            next_show = Instant::now() + SHOW_INTERVAL;
        }
        if !some {
            lanes.wait(MAX_IDLE_WAIT);
        }
    }
    Ok(())
}

/// Lets the workers finish, and commits.
fn finish<S: Source>(source: &mut S, lanes: &Lanes<S::Record>, grace: Duration) {
    lanes.begin_closing();
    let deadline = Instant::now() + grace;
    while !lanes.all_finished() && Instant::now() < deadline {
        // Others may join or leave the group meanwhile.
        if let Err(error) = source.serve() {
            tracing::debug!(%error, "while stopping");
        }
        lanes.wait(MAX_IDLE_WAIT.min(grace));
    }
    lanes.close();
}

struct ClearLanes<R: Record>(Arc<Lanes<R>>);

impl<R: Record> Drop for ClearLanes<R> {
    fn drop(&mut self) {
        self.0.clear();
    }
}
