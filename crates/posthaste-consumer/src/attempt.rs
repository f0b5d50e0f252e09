//! One attempt at one event: record, effect and commit as one.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use posthaste_core::store::StoreErrorKind;
use posthaste_core::{Handled, InboxStore, StoreError};
use tokio::time::timeout;

use crate::config::ConsumerConfig;
use crate::failpoint;
use crate::handler::HandlerError;
use crate::once::EffectKey;
use crate::route::Prepared;

/// Why an attempt did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The database is away or not as it should be. That is not the event's fault: it waits, and uses up no attempt.
    Database(StoreError),
    /// The event could not be handled.
    Event(HandlerError),
    /// The handler succeeded, and the commit did not. Once, that is an outage; the next time it is the event's doing, such as
    /// a handler that leaves its transaction idle for longer than the server allows.
    Commit(StoreError),
    /// The handler ran out of time. The server may be busy with its last statement still, and hold its record.
    Overdue(HandlerError),
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) handler: Duration,
    pub(crate) inbox: Duration,
}

impl From<&ConsumerConfig> for Limits {
    fn from(config: &ConsumerConfig) -> Self {
        Self {
            handler: config.handler_timeout,
            inbox: config.inbox_timeout,
        }
    }
}

/// Runs a handler in a transaction of its own, unless the inbox knows its effect.
pub(crate) async fn attempt<I: InboxStore>(
    inbox: &I,
    prepared: Prepared<I::Connection>,
    limits: Limits,
) -> Result<Handled, Failure> {
    let begun = within(limits.inbox, "begin a transaction", inbox.begin()).await;
    let mut tx = begun.map_err(Failure::Database)?;
    if let Some(effect) = &prepared.effect {
        let recording = inbox.record(&mut tx, &effect.key);
        let recorded = within(limits.inbox, "record an event in the inbox", recording).await;
        if !recorded.map_err(blame)? {
            return Ok(Handled::Duplicate);
        }
    }
    let call = async { (prepared.call)(&mut tx).await };
    match timeout(limits.handler, AssertUnwindSafe(call).catch_unwind()).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => return Err(Failure::Event(error)),
        Ok(Err(panic)) => return Err(Failure::Event(panicked(panic.as_ref()))),
        Err(_) => return Err(Failure::Overdue(endless(limits.handler))),
    }
    let committed = within(limits.inbox, "commit", inbox.commit(tx)).await;
    committed.map_err(|error| match blame(error) {
        Failure::Database(error) => Failure::Commit(error),
        failure => failure,
    })?;
    failpoint::pass("after_handler_commit");
    Ok(Handled::Applied(()))
}

/// Whether the inbox knows an effect already.
pub(crate) async fn is_recorded<I: InboxStore>(
    inbox: &I,
    effect: &EffectKey,
    limits: Limits,
) -> Result<bool, StoreError> {
    let mut tx = within(limits.inbox, "begin a transaction", inbox.begin()).await?;
    let recording = inbox.record(&mut tx, &effect.key);
    let is_new = within(limits.inbox, "record an event in the inbox", recording).await?;
    Ok(!is_new)
}

/// A database that does not answer in time is as good as away. Whether a commit was made is open then, as after a lost
/// connection; the record decides when the event comes again.
pub(crate) async fn within<T>(
    limit: Duration,
    what: &str,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    timeout(limit, work).await.unwrap_or_else(|_| {
        Err(StoreError {
            kind: StoreErrorKind::Unavailable,
            message: format!("the database did not {what} within {}", words(limit)),
            remedy: Some(
                "check that it runs and can be reached, and look for transactions that hold locks; raise inbox_timeout if \
                 it is only slow",
            ),
            source: None,
        })
    })
}

fn endless(limit: Duration) -> HandlerError {
    HandlerError::retry(format!(
        "the handler did not come to an end within {}, and its transaction is rolled back; give what it waits for a time \
         limit, or raise handler_timeout",
        words(limit)
    ))
}

/// A commit that failed more than once, as the event's failure.
pub(crate) fn uncommitted(error: &StoreError) -> HandlerError {
    HandlerError::retry(format!(
        "the handler came to its end, but its transaction could not be committed: {error}"
    ))
}

fn words(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// What a panic leaves behind, as a failure that may be tried again.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> HandlerError {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let said = text.or_else(|| panic.downcast_ref::<&str>().copied());
    HandlerError::retry(format!("the handler panicked: {}", said.unwrap_or("no message")))
}

/// A statement may fail because of the event, such as a key that the database cannot store, or a constraint that is
/// checked at commit.
fn blame(error: StoreError) -> Failure {
    match error.kind {
        StoreErrorKind::Other => Failure::Event(HandlerError::retry(error)),
        _ => Failure::Database(error),
    }
}
