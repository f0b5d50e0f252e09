//! One attempt at one event: record, effect and commit as one.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use posthaste_core::store::StoreErrorKind;
use posthaste_core::{Handled, InboxStore, StoreError};

use crate::failpoint;
use crate::handler::HandlerError;
use crate::route::Prepared;

/// Why an attempt did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The database is away or not as it should be. That is not the event's fault: it waits, and uses up no attempt.
    Database(StoreError),
    /// The event could not be handled.
    Event(HandlerError),
}

/// Runs a handler in a transaction of its own, unless the inbox knows its effect.
pub(crate) async fn attempt<I: InboxStore>(inbox: &I, prepared: Prepared<I::Connection>) -> Result<Handled, Failure> {
    let mut tx = inbox.begin().await.map_err(Failure::Database)?;
    if let Some(effect) = &prepared.effect
        && !inbox.record(&mut tx, &effect.key).await.map_err(blame)?
    {
        return Ok(Handled::Before);
    }
    let call = async { (prepared.call)(&mut tx).await };
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(Failure::Event(error)),
        Err(panic) => return Err(Failure::Event(panicked(panic.as_ref()))),
    }
    inbox.commit(tx).await.map_err(blame)?;
    failpoint::pass("after_handler_commit");
    Ok(Handled::Now(()))
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
