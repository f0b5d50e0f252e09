//! A thread that waits for the answers to commits, so that the polling thread need not. (The client library has commits
//! without a wait, but never says what they came to.)

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use rdkafka::consumer::BaseConsumer;
use rdkafka::error::KafkaError;

use super::commit::{commit, of_a_rebalance};
use crate::context::Context;
use crate::signal::Signal;

/// Offsets by topic and partition.
pub(super) type Offsets = Vec<((String, i32), i64)>;

/// What a commit came to.
pub(super) struct Committed {
    pub(super) offsets: Offsets,
    pub(super) result: Result<(), KafkaError>,
}

impl Committed {
    /// Whether it failed for a reason that the next one would fail for, too.
    pub(super) fn is_in_vain(&self) -> bool {
        self.result.as_ref().is_err_and(|error| !of_a_rebalance(error))
    }
}

/// Makes one commit at a time.
pub(super) struct Committer {
    requests: Mutex<Option<Sender<Offsets>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    state: Arc<Mutex<State>>,
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
    pub(super) fn start(consumer: Weak<BaseConsumer<Context>>, signal: Arc<Signal>) -> std::io::Result<Self> {
        let (requests, queue) = mpsc::channel();
        let state = Arc::<Mutex<State>>::default();
        let answers = Arc::clone(&state);
        let thread = std::thread::Builder::new().name("posthaste-commits".to_owned());
        let thread = thread.spawn(move || run(&queue, &consumer, &answers, &signal))?;
        Ok(Self {
            requests: Mutex::new(Some(requests)),
            thread: Mutex::new(Some(thread)),
            state,
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

    pub(super) fn send(&self, offsets: Offsets) {
        *lock(&self.state) = State::Busy;
        if let Some(requests) = &*lock(&self.requests) {
            drop(requests.send(offsets));
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

    /// Ends the thread, once the commit under way is answered.
    pub(super) fn end(&self) {
        drop(lock(&self.requests).take());
        if let Some(thread) = lock(&self.thread).take() {
            drop(thread.join());
        }
    }
}

fn run(queue: &Receiver<Offsets>, consumer: &Weak<BaseConsumer<Context>>, state: &Mutex<State>, signal: &Signal) {
    while let Ok(offsets) = queue.recv() {
        let Some(consumer) = consumer.upgrade() else { return };
        let result = commit(&consumer, &offsets);
        // Before the answer: whoever has that may drop the consumer, and must be the last to hold it.
        drop(consumer);
        *lock(state) = State::Answered(Committed { offsets, result });
        signal.give();
    }
}
