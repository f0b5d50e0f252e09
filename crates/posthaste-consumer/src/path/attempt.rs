//! One attempt at one event: record, effect and commit as one.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use posthaste_core::store::StoreErrorKind;
use posthaste_core::{Handled, InboxError, InboxStore, StoreError};
use tokio::time::timeout;

use crate::guard::failpoint;
use crate::handling::{Call, EffectKey, HandlerError, Prepared};

/// Why an attempt did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The database is unavailable or not as it should be. That is not the event's fault: it waits, and uses up no attempt.
    Database(StoreError),
    /// The event could not be handled.
    Event(HandlerError),
    /// The handler succeeded, and the commit did not. Once, that is an outage; the next time it is the event's doing, such as
    /// a handler that leaves its transaction idle for longer than the server allows.
    Commit(StoreError),
    /// The handler ran out of time. The server may be busy with its last statement still, and hold its record.
    Overdue(HandlerError),
}

/// Runs a handler in a transaction of its own, unless the inbox knows its effect. The inbox limits its own answers.
pub(crate) async fn attempt<I: InboxStore>(
    inbox: &I,
    prepared: Prepared<I::Connection>,
    handler_timeout: Duration,
) -> Result<Handled, Failure> {
    let mut tx = inbox.begin().await.map_err(Failure::Database)?;
    let Prepared { effect, call } = prepared;
    let handled = if let Some(effect) = &effect {
        let once = inbox.once_in(&mut tx, &effect.key, |tx| handle(call, tx, handler_timeout).boxed());
        once.await
    } else {
        let handled = handle(call, &mut *tx, handler_timeout).await;
        handled.map(Handled::Applied).map_err(InboxError::Handler)
    };
    match handled {
        Ok(Handled::Applied(())) => {}
        Ok(Handled::Duplicate) => return Ok(Handled::Duplicate),
        Err(InboxError::Store(error)) => return Err(classify(error)),
        Err(InboxError::Handler(failure)) => return Err(failure),
    }
    inbox.commit(tx).await.map_err(|error| match classify(error) {
        Failure::Database(error) => Failure::Commit(error),
        failure => failure,
    })?;
    failpoint::pass("after_handler_commit");
    Ok(Handled::Applied(()))
}

async fn handle<C: Send>(call: Call<C>, tx: &mut C, limit: Duration) -> Result<(), Failure> {
    let call = AssertUnwindSafe(async { call(tx).await }).catch_unwind();
    match timeout(limit, call).await {
        Ok(Ok(done)) => done.map_err(Failure::Event),
        Ok(Err(panic)) => Err(Failure::Event(panicked(panic.as_ref()))),
        Err(_) => Err(Failure::Overdue(timed_out(limit))),
    }
}

/// Whether the inbox knows an effect already.
pub(crate) async fn is_recorded<I: InboxStore>(inbox: &I, effect: &EffectKey) -> Result<bool, StoreError> {
    let mut tx = inbox.begin().await?;
    let is_new = inbox.record(&mut tx, &effect.key).await?;
    Ok(!is_new)
}

fn timed_out(limit: Duration) -> HandlerError {
    HandlerError::retry(format!(
        "the handler did not come to an end within {}, and its transaction is rolled back; give what it waits for a time \
         limit, or raise handler_timeout",
        humantime::format_duration(limit)
    ))
}

/// A commit that failed more than once, as the event's failure.
pub(crate) fn uncommitted(error: &StoreError) -> HandlerError {
    HandlerError::retry(format!(
        "the handler came to its end, but its transaction could not be committed: {error}"
    ))
}

/// What a panic leaves behind, as a failure that may be tried again.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> HandlerError {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let said = text.or_else(|| panic.downcast_ref::<&str>().copied());
    HandlerError::retry(format!("the handler panicked: {}", said.unwrap_or("no message")))
}

/// A statement may fail because of the event, such as a key that the database cannot store, or a constraint that is
/// checked at commit.
fn classify(error: StoreError) -> Failure {
    match error.kind {
        StoreErrorKind::Other => Failure::Event(HandlerError::retry(error)),
        _ => Failure::Database(error),
    }
}
