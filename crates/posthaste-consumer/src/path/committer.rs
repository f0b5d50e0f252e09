//! A thread that waits for the answers to commits, so that the polling thread need not.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::signal::Signal;
use crate::source::{Commit, CommitError, Positions};

/// What a commit came to.
pub(super) struct Committed {
    pub(super) positions: Positions,
    pub(super) result: Result<(), CommitError>,
}

impl Committed {
    /// Whether it failed for a reason that the next one would fail for, too.
    pub(super) fn is_hopeless(&self) -> bool {
        self.result.as_ref().is_err_and(|error| !error.is_rebalance)
    }
}

/// Makes one commit at a time.
pub(super) struct Committer {
    requests: Mutex<Option<Sender<Positions>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    state: Arc<Mutex<State>>,
    commit: Arc<dyn Commit>,
}

#[derive(Default)]
enum State {
    #[default]
    Idle,
    Busy,
    Answered(Committed),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Committer {
    /// Starts the thread. Without one there would be no commits, so a failure is the caller's to report.
    pub(super) fn start(commit: Arc<dyn Commit>, signal: Arc<Signal>) -> std::io::Result<Self> {
        let (requests, queue) = mpsc::channel();
        let state = Arc::<Mutex<State>>::default();
        let answers = Arc::clone(&state);
        let own = Arc::clone(&commit);
        let thread = std::thread::Builder::new().name("posthaste-commits".to_owned());
        let thread = thread.spawn(move || run(&queue, &*own, &answers, &signal))?;
        Ok(Self {
            requests: Mutex::new(Some(requests)),
            thread: Mutex::new(Some(thread)),
            state,
            commit,
        })
    }

    pub(super) fn is_busy(&self) -> bool {
        !matches!(*lock(&self.state), State::Idle)
    }

    /// Whether an answer is still to come.
    pub(super) fn is_waiting(&self) -> bool {
        let runs = lock(&self.thread).as_ref().is_some_and(|thread| !thread.is_finished());
        runs && matches!(*lock(&self.state), State::Busy)
    }

    pub(super) fn send(&self, positions: Positions) {
        *lock(&self.state) = State::Busy;
        if let Some(requests) = &*lock(&self.requests) {
            drop(requests.send(positions));
        }
    }

    /// The answer to the last commit, once.
    pub(super) fn answer(&self) -> Option<Committed> {
        let mut state = lock(&self.state);
        match std::mem::take(&mut *state) {
            State::Answered(committed) => Some(committed),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Commits on the caller's thread, and waits for the answer.
    pub(super) fn commit_now(&self, positions: &Positions) -> Result<(), CommitError> {
        self.commit.commit(positions)
    }

    /// Ends the thread, once the commit under way is answered.
    pub(super) fn end(&self) {
        drop(lock(&self.requests).take());
        if let Some(thread) = lock(&self.thread).take() {
            drop(thread.join());
        }
    }
}

fn run(queue: &Receiver<Positions>, commit: &dyn Commit, state: &Mutex<State>, signal: &Signal) {
    while let Ok(positions) = queue.recv() {
        let result = commit.commit(&positions);
        *lock(state) = State::Answered(Committed { positions, result });
        signal.notify();
    }
}
