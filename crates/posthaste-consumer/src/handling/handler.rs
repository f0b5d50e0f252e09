//! What an application registers: functions that handle events.

use super::error::HandlerError;
use super::received::Received;

/// A function that handles events: an `async fn`, or an async closure whose captures can be cloned.
///
/// ```
/// # use posthaste_consumer::{HandlerError, Received};
/// # struct OrderPaid { amount: i64 }
/// async fn count_sale(tx: &mut sqlx::PgConnection, event: Received<OrderPaid>) -> Result<(), HandlerError> {
///     sqlx::query("update statistics set sold = sold + $1").bind(event.payload.amount).execute(tx).await?;
///     Ok(())
/// }
/// ```
///
/// A closure is cloned for every event, so let it capture handles (an `Arc`, a pool, a client) and not data. Name the
/// types of both its arguments. There is nothing to implement: every function that fits is a handler.
pub trait Handler<'tx, C: 'tx, T>: FnOnce(&'tx mut C, Received<T>) -> Self::Handling {
    /// The running handler.
    type Handling: Future<Output = Result<(), HandlerError>> + Send + 'tx;
}

impl<'tx, C, T, F, H> Handler<'tx, C, T> for F
where
    C: 'tx,
    F: FnOnce(&'tx mut C, Received<T>) -> H,
    H: Future<Output = Result<(), HandlerError>> + Send + 'tx,
{
    type Handling = H;
}
