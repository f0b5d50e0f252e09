//! The life cycle of an outbox row, as one pure state machine.
//!
//! ```text
//!            claim                    delivered
//! Pending ──────────► Processing ──────────────► Delivered
//!    ▲ ▲                │  │  ▲
//!    │ └─ retry/release ┘  │  └─ claim after the lease ran out
//!    │                     │ dead, or swept when exhausted
//!    └─── replay ──────── Dead ──► discarded (the row is removed)
//! ```
//!
//! The in-memory store of the test kit runs this code. SQL stores write what a verdict means for the columns of a table
//! (`posthaste_sql::RowChange`), which a property test holds to it; the conformance suite holds all stores together.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use crate::message::MessageId;
use crate::publisher::{ErrorKind, Outcome};
use crate::retry::{MAX_DURATION, RetryPolicy};

/// Where a row stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Waits to be claimed.
    Pending,
    /// Claimed under a lease.
    Processing,
    /// The broker has it. Terminal.
    Delivered,
    /// Given up; an operator may replay or discard it.
    Dead,
}

impl State {
    /// All states in the order of a row's life cycle.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Processing, Self::Delivered, Self::Dead];

    /// Its label in Posthaste's own tables, and its name in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }
}

/// Proof of one claim. Made anew for every claim, so it never repeats: neither a worker's name nor an attempt count
/// could tell a worker's present lease from its own earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseToken(Uuid);

impl LeaseToken {
    /// A token that no claim has had.
    #[expect(
        clippy::new_without_default,
        reason = "a default would suggest that two of them are equal"
    )]
    pub fn new() -> Self {
        Self(Uuid::new_v4())
    }

    /// The token as a UUID.
    pub fn as_uuid(self) -> Uuid {
        self.0
    }
}

impl From<Uuid> for LeaseToken {
    fn from(token: Uuid) -> Self {
        Self(token)
    }
}

/// What becomes of a claimed row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The broker acknowledged it.
    Delivered,
    /// Try again after the delay.
    Retry {
        /// Counted from the settling on the database's clock.
        delay: Duration,
        /// Why the attempt failed.
        error: String,
    },
    /// Give it up.
    Dead {
        /// Why.
        error: String,
    },
    /// It failed because the broker is unavailable or throttles, which is not its fault: pending again after the delay,
    /// and the attempt does not count.
    Postponed {
        /// Counted from the settling on the database's clock.
        delay: Duration,
        /// Why the attempt failed.
        error: String,
    },
    /// It was never handed to the publisher: pending again, and the attempt does not count.
    Released,
}

/// A verdict on one row, valid only while its lease is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The row.
    pub id: MessageId,
    /// The lease under which it was claimed.
    pub token: LeaseToken,
    /// What becomes of it.
    pub verdict: Verdict,
    /// The row's version when it was claimed, where its table keeps one: a row that was changed since is lost.
    pub version: Option<i64>,
    /// Of a death: its letter is kept elsewhere, so that a dead-letter table beside the outbox gets none. The row is dead
    /// all the same.
    pub without_letter: bool,
}

impl Settlement {
    /// The broker has it.
    pub fn delivered(id: MessageId, token: LeaseToken) -> Self {
        Self {
            id,
            token,
            verdict: Verdict::Delivered,
            version: None,
            without_letter: false,
        }
    }

    /// To be tried again after `delay`.
    pub fn retry(id: MessageId, token: LeaseToken, delay: Duration, error: impl Into<String>) -> Self {
        Self {
            id,
            token,
            verdict: Verdict::Retry {
                delay,
                error: error.into(),
            },
            version: None,
            without_letter: false,
        }
    }

    /// Given up.
    pub fn dead(id: MessageId, token: LeaseToken, error: impl Into<String>) -> Self {
        Self {
            id,
            token,
            verdict: Verdict::Dead { error: error.into() },
            version: None,
            without_letter: false,
        }
    }

    /// Given back untouched.
    pub fn released(id: MessageId, token: LeaseToken) -> Self {
        Self {
            id,
            token,
            verdict: Verdict::Released,
            version: None,
            without_letter: false,
        }
    }
}

/// The one place where an outcome becomes a verdict. `random` is uniform in `[0, 1]`.
///
/// `least_wait` is what the circuit breaker asks for when it has found the broker to be unavailable. Then a
/// broker that could not be reached costs no attempt: an outage of any length must not use up messages. While most
/// deliveries succeed it does cost one, because then it may be this message that breaks the connection. A broker that
/// throttles costs no attempt either: there is nothing wrong with the message. No wait is longer than
/// [`MAX_DURATION`], and none that a broker asks for longer than [`RetryPolicy::throttle_wait`] allows.
pub fn decide(
    outcome: Outcome,
    attempts: u32,
    policy: &RetryPolicy,
    least_wait: Option<Duration>,
    random: f64,
) -> Verdict {
    let error = match outcome {
        Outcome::Delivered(_) => return Verdict::Delivered,
        Outcome::NotAttempted => return Verdict::Released,
        Outcome::Corrupt { error } => return Verdict::Dead { error },
        Outcome::Failed(error) => error,
    };
    let delay = policy.backoff.delay(attempts, random);
    let least = match error.kind {
        ErrorKind::Permanent => return Verdict::Dead { error: error.message },
        ErrorKind::Transport => least_wait,
        ErrorKind::Throttled { retry_after } => {
            Some(policy.throttle_wait(retry_after).max(least_wait.unwrap_or_default()))
        }
        ErrorKind::Transient | ErrorKind::Unknown => None,
    };
    if let Some(least) = least {
        return Verdict::Postponed {
            delay: delay.max(least.min(MAX_DURATION)),
            error: error.message,
        };
    }
    if attempts >= policy.max_attempts {
        let error = format!("gave up after {attempts} attempts: {}", error.message);
        Verdict::Dead { error }
    } else {
        Verdict::Retry {
            delay,
            error: error.message,
        }
    }
}

/// The model of a row: what the state machine remembers of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowModel {
    /// Where it stands.
    pub state: State,
    /// How often it was claimed, less the claims that were released.
    pub attempts: u32,
    /// Not to be claimed earlier.
    pub next_attempt_at: DateTime<Utc>,
    /// Who has it, while processing.
    pub lease: Option<Lease>,
    /// The last failure.
    pub last_error: Option<String>,
    /// When it was enqueued.
    pub created_at: DateTime<Utc>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

/// A claim in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its proof.
    pub token: LeaseToken,
    /// When it runs out.
    pub until: DateTime<Utc>,
}

/// A step that the row's state does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a {from:?} row does not allow this step")]
pub struct Refused {
    /// The state in which it was tried.
    pub from: State,
}

impl RowModel {
    /// A new row; `not_before` delays its first attempt.
    pub fn begin(now: DateTime<Utc>, not_before: Option<DateTime<Utc>>) -> Self {
        Self {
            state: State::Pending,
            attempts: 0,
            next_attempt_at: not_before.map_or(now, |time| time.max(now)),
            lease: None,
            last_error: None,
            created_at: now,
            updated_at: now,
        }
    }

    /// Whether the row waits for a time of its own: a retry or a scheduled start.
    pub fn is_waiting(&self) -> bool {
        self.state == State::Pending && self.next_attempt_at > self.created_at
    }

    /// Whether its worker let the lease run out.
    pub fn is_expired(&self, now: DateTime<Utc>) -> bool {
        self.state == State::Processing && self.lease.is_some_and(|lease| lease.until < now)
    }

    /// Whether it may be claimed now.
    pub fn is_claimable(&self, now: DateTime<Utc>, max_attempts: u32) -> bool {
        let due = self.state == State::Pending && self.next_attempt_at <= now;
        (due || self.is_expired(now)) && self.attempts < max_attempts
    }

    /// Whether it has used up its attempts without a verdict.
    pub fn is_exhausted(&self, now: DateTime<Utc>, max_attempts: u32) -> bool {
        (self.state == State::Pending || self.is_expired(now)) && self.attempts >= max_attempts
    }

    /// Takes the row under a lease and counts the attempt.
    pub fn claim(&mut self, now: DateTime<Utc>, lease: Lease, max_attempts: u32) -> Result<(), Refused> {
        self.allow(self.is_claimable(now, max_attempts))?;
        self.attempts = self.attempts.saturating_add(1);
        self.lease = Some(lease);
        self.enter(State::Processing, now);
        Ok(())
    }

    /// Prolongs the lease of its holder.
    pub fn extend(&mut self, now: DateTime<Utc>, lease: Lease) -> Result<(), Refused> {
        self.allow(self.held_under(lease.token))?;
        self.lease = Some(lease);
        self.updated_at = now;
        Ok(())
    }

    /// Applies the holder's verdict.
    pub fn settle(&mut self, now: DateTime<Utc>, token: LeaseToken, verdict: &Verdict) -> Result<(), Refused> {
        self.allow(self.held_under(token))?;
        self.lease = None;
        match verdict {
            Verdict::Delivered => self.enter(State::Delivered, now),
            Verdict::Dead { error } => {
                self.last_error = Some(error.clone());
                self.enter(State::Dead, now);
            }
            Verdict::Retry { delay, error } => self.wait(now, *delay, error),
            Verdict::Postponed { delay, error } => {
                self.attempts = self.attempts.saturating_sub(1);
                self.wait(now, *delay, error);
            }
            Verdict::Released => {
                self.attempts = self.attempts.saturating_sub(1);
                self.enter(State::Pending, now);
            }
        }
        Ok(())
    }

    /// Gives up a row that used all its attempts, also by losing its worker on the last one.
    pub fn sweep(&mut self, now: DateTime<Utc>, max_attempts: u32) -> Result<(), Refused> {
        self.allow(self.is_exhausted(now, max_attempts))?;
        self.lease = None;
        self.last_error.get_or_insert_with(|| EXHAUSTED.to_owned());
        self.enter(State::Dead, now);
        Ok(())
    }

    /// Takes the row back from a worker that is held to have crashed, where no time says until when its claim holds. The
    /// attempt counts: this row may be what killed the worker.
    pub fn recover(&mut self, now: DateTime<Utc>, max_attempts: u32) -> Result<(), Refused> {
        self.allow(self.state == State::Processing)?;
        self.lease = None;
        if self.attempts >= max_attempts {
            self.last_error.get_or_insert_with(|| EXHAUSTED.to_owned());
            self.enter(State::Dead, now);
        } else {
            self.enter(State::Pending, now);
        }
        Ok(())
    }

    /// An operator's order to begin again.
    pub fn replay(&mut self, now: DateTime<Utc>) -> Result<(), Refused> {
        self.allow(self.state == State::Dead)?;
        self.attempts = 0;
        // Due at once, but waiting by kind: followers that wait already must not overtake it.
        self.next_attempt_at = now.max(self.created_at + Duration::from_micros(1));
        self.enter(State::Pending, now);
        Ok(())
    }

    fn wait(&mut self, now: DateTime<Utc>, delay: Duration, error: &str) {
        self.last_error = Some(error.to_owned());
        // Strictly after created_at: that is what marks a row as waiting.
        self.next_attempt_at = (now + delay).max(self.created_at + Duration::from_micros(1));
        self.enter(State::Pending, now);
    }

    fn held_under(&self, token: LeaseToken) -> bool {
        self.state == State::Processing && self.lease.is_some_and(|lease| lease.token == token)
    }

    fn allow(&self, condition: bool) -> Result<(), Refused> {
        if condition {
            Ok(())
        } else {
            Err(Refused { from: self.state })
        }
    }

    fn enter(&mut self, state: State, now: DateTime<Utc>) {
        self.state = state;
        self.updated_at = now;
    }
}

/// The error of a row whose every attempt ended without a word from its worker.
pub const EXHAUSTED: &str = "the worker vanished on the last attempt";
