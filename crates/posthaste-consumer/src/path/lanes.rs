//! The lanes that this consumer owns, and what it commits for them.
//!
//! All of it runs on the polling thread. Commits are made only for lanes in this table, and a revoked lane leaves the table
//! before it is given up: no position is committed after its revocation.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::committer::{Committed, Committer};
use super::lane::LaneState;
use super::progress::Progress;
use super::signal::Signal;
use crate::config::ConsumerConfig;
use crate::guard::RetryLogger;
use crate::source::{CommitError, Lane, Positions, RebalanceListener, Record, Source, SourceError};
use crate::upkeep::instrument;

/// How long an abandoned handler gets to be dropped. It takes longer only if it blocks its thread.
const ABANDON_TIMEOUT: Duration = Duration::from_secs(1);

/// Starts the worker of a lane.
pub(super) type StartWorker<R> = Box<dyn Fn(Arc<LaneState>, mpsc::Receiver<R>) + Send + Sync>;

/// A lane that this consumer owns.
struct Assigned<R> {
    state: Arc<LaneState>,
    sender: mpsc::Sender<R>,
    /// The queue has no room, so the lane is not read.
    paused: AtomicBool,
    progress: Mutex<Progress>,
}

impl<R> Assigned<R> {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_room(&self, queue_bytes: usize) -> bool {
        self.sender.capacity() > 0 && self.state.queued_bytes() < queue_bytes
    }
}

type Table<R> = HashMap<Lane, Arc<Assigned<R>>>;

/// The lanes that this consumer owns.
pub(super) struct Lanes<R> {
    assigned: Mutex<Table<R>>,
    committer: Committer,
    start_worker: StartWorker<R>,
    signal: Arc<Signal>,
    queue_size: usize,
    queue_bytes: usize,
    revoke_grace: Duration,
    commits: RetryLogger,
    closing: AtomicBool,
}

impl<R: Record> Lanes<R> {
    pub(super) fn new(
        start_worker: StartWorker<R>,
        committer: Committer,
        signal: Arc<Signal>,
        config: &ConsumerConfig,
    ) -> Self {
        Self {
            assigned: Mutex::new(HashMap::new()),
            committer,
            start_worker,
            signal,
            queue_size: config.queue_size as usize,
            queue_bytes: usize::try_from(config.prefetch_bytes).unwrap_or(usize::MAX),
            revoke_grace: config.revoke_grace,
            commits: RetryLogger::new("committing offsets"),
            closing: AtomicBool::new(false),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table<R>> {
        self.assigned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lanes as they are now, so that nothing is locked while others are asked.
    fn all(&self) -> Vec<Arc<Assigned<R>>> {
        self.table().values().cloned().collect()
    }

    fn take(&self, lanes: &[Lane]) -> Vec<Arc<Assigned<R>>> {
        let mut table = self.table();
        lanes.iter().filter_map(|lane| table.remove(lane)).collect()
    }

    fn take_all(&self) -> Vec<Arc<Assigned<R>>> {
        std::mem::take(&mut *self.table()).into_values().collect()
    }

    pub(super) fn wait(&self, longest: Duration) {
        self.signal.wait(longest);
    }

    /// Stops workers, at last by dropping what they do.
    fn stop(&self, assigned: &[Arc<Assigned<R>>], grace: Duration) {
        for lane in assigned {
            lane.state.stop.cancel();
        }
        if !self.wait_for(assigned, grace) {
            for lane in assigned {
                lane.state.abandon.cancel();
            }
            self.wait_for(assigned, ABANDON_TIMEOUT);
        }
        for lane in assigned {
            instrument::in_hand(&lane.state.lane, Duration::ZERO);
        }
    }

    /// Shows how long each lane has been working on one record.
    pub(super) fn show_in_hand(&self) {
        for lane in self.all() {
            instrument::in_hand(&lane.state.lane, lane.state.in_hand_for().unwrap_or_default());
        }
    }

    /// Whether all of them finished in time.
    fn wait_for(&self, assigned: &[Arc<Assigned<R>>], longest: Duration) -> bool {
        let deadline = Instant::now() + longest;
        loop {
            if assigned.iter().all(|lane| lane.state.is_finished()) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.signal.wait(left);
        }
    }

    /// Hands over what has come, as far as the workers' queues have room. Whether there was anything.
    pub(super) fn fill(&self, source: &mut impl Source<Record = R>) -> Result<bool, SourceError> {
        let (mut some, mut paused, mut queued) = (false, 0, 0);
        for assigned in self.all() {
            let lane = &assigned.state.lane;
            while assigned.has_room(self.queue_bytes) {
                let Some(record) = source.receive(lane)? else { break };
                some = true;
                assigned.state.add_queued_bytes(record.size());
                if assigned.sender.try_send(record).is_err() {
                    return Err(SourceError(format!(
                        "the worker of {lane} has died; start the consumer again"
                    )));
                }
            }
            let is_full = !assigned.has_room(self.queue_bytes);
            if is_full != assigned.paused.swap(is_full, Ordering::Relaxed) {
                tracing::debug!(
                    topic = lane.topic,
                    partition = lane.partition,
                    is_full,
                    "the partition's queue"
                );
            }
            paused += usize::from(is_full);
            queued += assigned.sender.max_capacity() - assigned.sender.capacity();
        }
        instrument::waiting(queued, paused);
        Ok(some)
    }

    /// Commits the batches that are over, without waiting for the answer.
    pub(super) fn commit_batches(&self) {
        if let Some(last) = self.take_answer() {
            match &last.result {
                Ok(()) => self.commits.recovered(),
                Err(error) if error.is_rebalance => tracing::debug!(%error, "the group moved on before a commit"),
                Err(error) => drop(self.commits.failed(error)),
            }
        }
        if self.committer.is_busy() {
            return;
        }
        let due = |assigned: &Arc<Assigned<R>>| {
            let state = &assigned.state;
            let next = assigned.progress().take(state.take_batch_over(), state.next())?;
            Some((state.lane.clone(), next))
        };
        let positions: Positions = self.all().iter().filter_map(due).collect();
        if !positions.is_empty() {
            self.committer.send(positions);
        }
    }

    /// Makes the last commit of lanes, after the commit under way has been answered, so that none comes later.
    fn commit_last(&self, assigned: &[Arc<Assigned<R>>]) {
        while self.committer.is_waiting() {
            self.signal.wait(Duration::from_millis(100));
        }
        if let Some(last) = self.take_answer() {
            let answered: HashMap<&Lane, i64> = last
                .positions
                .iter()
                .map(|(lane, position)| (lane, *position))
                .collect();
            for lane in assigned {
                if let Some(position) = answered.get(&lane.state.lane) {
                    lane.progress().answered(*position, last.result.is_ok());
                }
            }
            if last.is_hopeless() {
                // No broker answers: the next one would only wait as long.
                report_loss(&last.result);
                return;
            }
        }
        let open = assigned.iter().filter_map(|lane| {
            let next = lane.progress().last(lane.state.next())?;
            Some((lane.state.lane.clone(), next))
        });
        let open: Positions = open.collect();
        if !open.is_empty() {
            report_loss(&self.committer.commit_now(&open));
        }
    }

    /// What the last commit came to, once, with note taken of it. It may be about lanes that stay, too.
    fn take_answer(&self) -> Option<Committed> {
        let last = self.committer.answer()?;
        let table = self.table();
        for (lane, position) in &last.positions {
            if let Some(assigned) = table.get(lane) {
                assigned.progress().answered(*position, last.result.is_ok());
            }
        }
        Some(last)
    }

    /// Asks all workers to finish what they have in hand, and takes no more lanes.
    pub(super) fn begin_closing(&self) {
        self.closing.store(true, Ordering::Release);
        for assigned in self.table().values() {
            assigned.state.stop.cancel();
        }
    }

    pub(super) fn all_finished(&self) -> bool {
        self.table().values().all(|assigned| assigned.state.is_finished())
    }

    /// Abandons what is not finished, commits what is, and lets go of all lanes.
    pub(super) fn close(&self) {
        let assigned = self.take_all();
        let open = assigned.iter().filter(|lane| !lane.state.is_finished()).count();
        if open > 0 {
            tracing::warn!(
                open,
                "stopped in the middle of events; their transactions are rolled back and they come again"
            );
        }
        self.stop(&assigned, Duration::ZERO);
        self.commit_last(&assigned);
    }

    /// Lets go of all lanes at once, without a commit.
    pub(super) fn clear(&self) {
        self.begin_closing();
        self.stop(&self.take_all(), Duration::ZERO);
        self.committer.end();
    }

    fn gave_up(assigned: &[Arc<Assigned<R>>]) {
        for lane in assigned {
            instrument::lag(&lane.state.lane, 0);
        }
    }
}

impl<R: Record> RebalanceListener for Lanes<R> {
    fn assigned(&self, lane: &Lane) {
        if self.is_closing() {
            return;
        }
        let state = Arc::new(LaneState::new(lane.clone(), Arc::clone(&self.signal)));
        let (sender, receiver) = mpsc::channel(self.queue_size);
        (self.start_worker)(Arc::clone(&state), receiver);
        tracing::debug!(topic = lane.topic, partition = lane.partition, "assigned");
        let assigned = Assigned {
            state,
            sender,
            paused: AtomicBool::new(false),
            progress: Mutex::default(),
        };
        let before = self.table().insert(lane.clone(), Arc::new(assigned));
        // Its revocation was not announced; two workers of one lane would run side by side.
        self.stop(before.as_slice(), Duration::ZERO);
        self.signal.notify();
    }

    fn revoked(&self, lanes: &[Lane]) {
        let revoked = self.take(lanes);
        tracing::debug!(partitions = revoked.len(), lost = false, "giving up partitions");
        self.stop(&revoked, self.revoke_grace);
        self.commit_last(&revoked);
        Self::gave_up(&revoked);
    }

    fn lost(&self, lanes: &[Lane]) {
        let lost = self.take(lanes);
        tracing::debug!(partitions = lost.len(), lost = true, "giving up partitions");
        self.stop(&lost, Duration::ZERO);
        tracing::debug!("the partitions are lost; what was not committed comes again, to their new owners");
        Self::gave_up(&lost);
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn wake(&self) {
        self.signal.notify();
    }
}

/// Says what it means that a last commit failed.
fn report_loss(result: &Result<(), CommitError>) {
    match result {
        Ok(()) => {}
        Err(error) if error.is_rebalance => {
            tracing::debug!(%error, "the group has moved on; what was not committed comes again");
        }
        Err(error) => tracing::warn!(
            %error,
            "offsets could not be committed; events since the last commit come again, and the inbox skips them"
        ),
    }
}
