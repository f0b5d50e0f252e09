//! Signs of life of the loops that messages wait for: a loop that stands still is seen, though its task lives.
//!
//! A loop says each time round what it does next: it *works*, which has to end by itself; it *rests* for a known time; or it
//! *waits* for something that may be far away, such as the lead or a broker. Work and rest that last too long are a
//! standstill. Waiting is none.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use crate::guard::timed::{Limit, Limits};

/// What a loop may take beyond its time. A busy machine is no standstill.
pub(crate) const STALL_MARGIN: Duration = Duration::from_secs(5);

const CLAIMING: &str = "claiming";
const SETTLING: &str = "settling";
const RENEWING: &str = "renewing leases";
const ELECTING: &str = "asking for the lead";

/// What those loops are called.
pub(crate) const TASKS: [&str; 4] = [CLAIMING, SETTLING, RENEWING, ELECTING];

/// The loops without which messages are not delivered.
#[derive(Debug)]
pub(crate) struct Pulses {
    pub(crate) claiming: Pulse,
    pub(crate) settling: Pulse,
    pub(crate) renewing: Pulse,
    pub(crate) electing: Pulse,
}

impl Pulses {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            claiming: Pulse::new(CLAIMING, &[&limits.claim, &limits.extend]),
            settling: Pulse::new(SETTLING, &[&limits.settle, &limits.extend]),
            renewing: Pulse::new(RENEWING, &[&limits.extend]),
            electing: Pulse::new(ELECTING, &[&limits.elect]),
        }
    }

    pub(crate) fn all(&self) -> [&Pulse; 4] {
        [&self.claiming, &self.settling, &self.renewing, &self.electing]
    }

    /// The loops that run, and what each of them is doing.
    pub(crate) fn report(&self) -> Vec<TaskReport> {
        self.all().into_iter().filter_map(Pulse::report).collect()
    }
}

/// The sign of life of one loop.
#[derive(Debug)]
pub(crate) struct Pulse {
    task: &'static str,
    /// Of the calls of the database that the loop makes.
    limits: Vec<Arc<Limit>>,
    /// `None` while the loop does not run.
    sign: Mutex<Option<Sign>>,
}

#[derive(Clone, Copy, Debug)]
struct Sign {
    at: Instant,
    doing: Doing,
}

#[derive(Clone, Copy, Debug)]
enum Doing {
    /// No longer than this: what the call was given when it began, which later calls do not change.
    Works(Duration),
    Rests(Duration),
    Waits(&'static str),
}

impl Pulse {
    fn new(task: &'static str, limits: &[&Arc<Limit>]) -> Self {
        Self {
            task,
            limits: limits.iter().map(|limit| Arc::clone(limit)).collect(),
            sign: Mutex::default(),
        }
    }

    pub(crate) fn task(&self) -> &'static str {
        self.task
    }

    /// The loop runs until the guard is dropped. What a loop does that did not begin so is not watched.
    pub(crate) fn begin(&self) -> Running<'_> {
        *self.sign() = Some(Sign {
            at: Instant::now(),
            doing: self.working(),
        });
        Running(self)
    }

    /// One call of the database at most follows, and what has to be done about its answer.
    pub(crate) fn works(&self) {
        self.does(self.working());
    }

    /// Goes on after so long by itself.
    pub(crate) fn rests(&self, wait: Duration) {
        self.does(Doing::Rests(wait));
    }

    /// Goes on when something has happened, however long that takes.
    pub(crate) fn waits(&self, what: &'static str) {
        self.does(Doing::Waits(what));
    }

    /// What the loop is doing; `None` if it does not run.
    pub(crate) fn report(&self) -> Option<TaskReport> {
        let Sign { at, doing } = (*self.sign())?;
        let lasts = at.elapsed();
        let (state, waits_for, allowed) = match doing {
            Doing::Works(limit) => (TaskState::Working, None, Some(limit)),
            Doing::Rests(wait) => (TaskState::Resting, None, Some(wait)),
            Doing::Waits(what) => (TaskState::Waiting, Some(what), None),
        };
        let stalled = allowed.is_some_and(|allowed| lasts > allowed.saturating_add(STALL_MARGIN));
        Some(TaskReport {
            task: self.task,
            state: if stalled { TaskState::Stalled } else { state },
            waits_for,
            seconds: lasts.as_secs_f64(),
        })
    }

    fn working(&self) -> Doing {
        let limits = self.limits.iter().map(|limit| limit.current());
        Doing::Works(limits.max().unwrap_or_default())
    }

    fn does(&self, doing: Doing) {
        if let Some(sign) = &mut *self.sign() {
            *sign = Sign {
                at: Instant::now(),
                doing,
            };
        }
    }

    fn sign(&self) -> MutexGuard<'_, Option<Sign>> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.sign.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A loop that runs.
pub(crate) struct Running<'a>(&'a Pulse);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *self.0.sign() = None;
    }
}

/// What one loop of a relay is doing.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TaskReport {
    /// The loop, in the words of the log.
    pub task: &'static str,
    /// What it is doing.
    pub state: TaskState,
    /// What it waits for, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<&'static str>,
    /// Since its last sign of life.
    pub seconds: f64,
}

/// What a loop of a relay is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TaskState {
    /// It works, and will be done in time.
    Working,
    /// It goes on after a known time.
    Resting,
    /// It goes on when something has happened.
    Waiting,
    /// It gave no sign of life for longer than it may.
    Stalled,
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pulse() -> Pulse {
        Pulse::new("testing", &[&Arc::new(Limit::new(SECOND * 10))])
    }

    fn state(pulse: &Pulse) -> Option<TaskState> {
        pulse.report().map(|report| report.state)
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_does_not_end_is_a_standstill_and_its_end_ends_it() {
        let pulse = pulse();
        assert_eq!(state(&pulse), None);
        let running = pulse.begin();
        advance(SECOND * 15).await;
        assert_eq!(state(&pulse), Some(TaskState::Working), "a call may take as long");
        advance(SECOND).await;
        assert_eq!(state(&pulse), Some(TaskState::Stalled));
        pulse.works();
        assert_eq!(state(&pulse), Some(TaskState::Working));
        drop(running);
        assert_eq!(state(&pulse), None);
        pulse.works();
        assert_eq!(state(&pulse), None, "what does not run gives no sign");
    }

    #[tokio::test(start_paused = true)]
    async fn a_rest_may_take_its_time_and_a_wait_any() {
        let pulse = pulse();
        let _running = pulse.begin();
        pulse.rests(SECOND * 60);
        advance(SECOND * 65).await;
        assert_eq!(state(&pulse), Some(TaskState::Resting));
        advance(SECOND).await;
        assert_eq!(state(&pulse), Some(TaskState::Stalled));
        pulse.waits("the lead");
        advance(SECOND * 100_000).await;
        let report = pulse.report().unwrap();
        assert_eq!((report.state, report.waits_for), (TaskState::Waiting, Some("the lead")));
    }
}
