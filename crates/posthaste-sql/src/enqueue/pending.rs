//! Validated messages on their way into somebody's transaction.

use std::fmt;

use posthaste_core::enqueue::Prepared;
use posthaste_core::store::StoreErrorKind;
use posthaste_core::{EnqueueError, Enqueued, StoreError};

use super::{AnswerRow, Query};

/// How a database enqueues, statement by statement. Stores implement it, and run their own statements by it; applications use
/// [`PendingEnqueue`].
pub trait EnqueueSteps {
    /// What its statements take.
    type Argument<'a>;

    /// How far the statements of one call are run.
    type Progress: fmt::Debug + Send;

    /// The statement to run next.
    fn query<'a>(&self, progress: &Self::Progress, messages: &'a Prepared) -> Option<Query<'a, Self::Argument<'a>>>;

    /// Takes the rows that it returned.
    fn answer(&self, progress: &mut Self::Progress, messages: &Prepared, rows: Vec<AnswerRow>);

    /// What became of each row.
    ///
    /// # Errors
    /// If there is a statement left, or a row was in the way that is not to be found.
    fn finish(&self, progress: Self::Progress) -> Result<Vec<Enqueued>, StoreError>;
}

/// A database whose inserts fail where a row is in the way.
pub trait RefusableSteps: EnqueueSteps {
    /// Takes that the last statement was refused because of a unique key, and undone alone.
    fn refused(&self, progress: &mut Self::Progress, messages: &Prepared);
}

/// Validated messages on their way into a transaction: run each [`query`](Self::query) and give its rows to
/// [`answer`](Self::answer), until there is none.
#[derive(Debug)]
#[must_use = "nothing is enqueued unless its statements are run"]
pub struct PendingEnqueue<S: EnqueueSteps> {
    steps: S,
    prepared: Prepared,
    progress: S::Progress,
}

impl<S: EnqueueSteps> PendingEnqueue<S> {
    /// Validated messages of which nothing is written yet. For stores.
    pub fn new(steps: S, prepared: Prepared, progress: S::Progress) -> Self {
        Self {
            steps,
            prepared,
            progress,
        }
    }

    /// The statement to run next, in the transaction of the business write.
    pub fn query(&self) -> Option<Query<'_, S::Argument<'_>>> {
        self.steps.query(&self.progress, &self.prepared)
    }

    /// Takes all rows that the last [`query`](Self::query) returned; none if it is one that returns none.
    pub fn answer(&mut self, rows: Vec<AnswerRow>) {
        self.steps.answer(&mut self.progress, &self.prepared, rows);
    }

    /// What became of each message of the call: whether it was written, or was there before under which id.
    ///
    /// # Errors
    /// [`EnqueueError::Store`] if a statement was left out, or a row was in the way that is not to be found: roll back.
    pub fn finish(self) -> Result<Vec<Enqueued>, EnqueueError> {
        let stored = self.steps.finish(self.progress)?;
        Ok(self.prepared.outcomes(&stored))
    }
}

impl<S: RefusableSteps> PendingEnqueue<S> {
    /// Takes that the last [`query`](Self::query) failed because of a unique key (on MySQL and MariaDB error 1062), instead of
    /// [`answer`](Self::answer). The database undid that statement alone; the next one finds out what is in the way.
    pub fn refused(&mut self) {
        self.steps.refused(&mut self.progress, &self.prepared);
    }
}

/// One outcome for each row, or why there is none.
///
/// # Errors
/// If not all statements were run, or a row that was in the way was not found.
pub fn outcomes(
    is_done: bool,
    outcomes: impl IntoIterator<Item = Option<Enqueued>>,
) -> Result<Vec<Enqueued>, StoreError> {
    if !is_done {
        return Err(unfinished());
    }
    let outcomes: Option<Vec<_>> = outcomes.into_iter().collect();
    outcomes.ok_or_else(vanished)
}

fn unfinished() -> StoreError {
    StoreError {
        kind: StoreErrorKind::Other,
        message: "messages were not enqueued: there are statements left to run".to_owned(),
        remedy: Some("run every query until there is none, and give its rows to `answer`"),
        source: None,
    }
}

fn vanished() -> StoreError {
    StoreError {
        kind: StoreErrorKind::Contention,
        message: "a row was in the way of another one and is not to be found".to_owned(),
        remedy: Some("retry the transaction; if it stays so, look at the table's unique indexes"),
        source: None,
    }
}
