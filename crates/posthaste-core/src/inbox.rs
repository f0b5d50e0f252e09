//! The consumer's side: handling each delivery once.

use std::fmt;
use std::ops::DerefMut;
use std::time::Duration;

use thiserror::Error;

use crate::store::StoreError;

/// Whether a delivery was handled now or had been before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled<T = ()> {
    /// The handler ran; commit the transaction to keep both its effect and the record.
    Now(T),
    /// An earlier transaction handled it; the handler did not run.
    Before,
}

/// Why a delivery could not be handled. Either way the transaction must be rolled back.
#[derive(Debug, Error)]
pub enum InboxError<E> {
    /// The record could not be written.
    #[error("the inbox could not record the delivery: {0}")]
    Store(#[from] StoreError),
    /// The handler failed.
    #[error("the handler failed: {0}")]
    Handler(E),
}

/// Remembers which deliveries a consumer has handled.
///
/// # Contract
/// - The record is written on the caller's connection, inside the caller's transaction, before the handler runs: record
///   and effect commit together or not at all.
/// - Of two transactions with the same key one waits for the other; if that one commits, the waiter sees
///   [`Handled::Before`], if it rolls back, the waiter handles.
/// - A record is kept at least as long as the broker may deliver the message again; see [`InboxStore::purge`].
pub trait Inbox {
    /// The connection type of the database.
    type Connection: Send;

    /// Records the key; `false` if it was there before.
    fn record(&self, tx: &mut Self::Connection, key: &str) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Runs `handler` unless this consumer has handled `key` before.
    ///
    /// `key` is usually the event id; any string that names the effect will do, such as `Order/42/SALES_COUNTED`.
    fn once<T, E, H>(
        &self,
        tx: &mut Self::Connection,
        key: impl fmt::Display,
        handler: H,
    ) -> impl Future<Output = Result<Handled<T>, InboxError<E>>>
    where
        H: AsyncFnOnce(&mut Self::Connection) -> Result<T, E>,
    {
        async move {
            if !self.record(tx, &key.to_string()).await? {
                return Ok(Handled::Before);
            }
            handler(tx).await.map(Handled::Now).map_err(InboxError::Handler)
        }
    }
}

/// An inbox that begins and ends the handlers' transactions itself, for a consumer that runs handlers unattended.
///
/// # Contract
/// - **begin** opens a transaction that may write. Where the database has one writer at a time it waits for its turn here
///   and not in the middle, where it would have to give up.
/// - **commit** makes record and effect durable together. After an error it is open whether it did; handling the delivery
///   again is safe, because the record decides.
/// - A transaction that is dropped is rolled back, also when that happens in the middle of a statement.
/// - **purge** forgets what this consumer handled longer than `keep` ago, at most `limit` records, and returns how many.
///   Records of other consumers stay.
pub trait InboxStore: Inbox + Send + Sync + 'static {
    /// An open transaction.
    type Transaction: DerefMut<Target = Self::Connection> + Send;

    /// Begins a transaction for one delivery.
    fn begin(&self) -> impl Future<Output = Result<Self::Transaction, StoreError>> + Send;

    /// Commits it.
    fn commit(&self, tx: Self::Transaction) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Forgets old records.
    fn purge(&self, keep: Duration, limit: u32) -> impl Future<Output = Result<u64, StoreError>> + Send;
}
