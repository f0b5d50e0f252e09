//! The consumer's side: handling each delivery once.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::ops::DerefMut;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::store::{StoreError, StoreErrorKind};

/// Whether a delivery was handled now or had been before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled<T = ()> {
    /// The handler ran; commit the transaction to keep both its effect and the record.
    Applied(T),
    /// An earlier transaction handled it; the handler did not run.
    Duplicate,
}

/// Why a delivery could not be handled. Either way the transaction must be rolled back.
#[derive(Debug, Error)]
pub enum InboxError<E> {
    /// The record could not be written, or not kept.
    #[error("the inbox could not record the delivery: {0}")]
    Store(#[from] StoreError),
    /// The handler failed.
    #[error("the handler failed: {0}")]
    Handler(E),
}

/// A running handler.
pub type Handling<'tx, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'tx>>;

/// The longest key that an inbox stores as it is, in bytes. The databases' indexes take little more.
const MAX_KEY_BYTES: usize = 2_000;

/// A key as an inbox stores it: what is too long for an index is stored as its SHA-256. It is never cut, which would make
/// two keys one and lose an event.
pub fn stored_key(key: &str) -> Cow<'_, str> {
    if key.len() <= MAX_KEY_BYTES {
        return Cow::Borrowed(key);
    }
    let hash = Sha256::digest(key);
    Cow::Owned(
        hash.iter()
            .fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}")),
    )
}

/// A savepoint that stands in a transaction from before a handler begins until after it has ended.
///
/// Whatever ends the transaction meanwhile takes the savepoint along: an error that the handler tolerates although the
/// server has given the whole transaction up for it, a deadlock, a rollback by hand. Without this proof the following
/// commit succeeds, and keeps nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u64);

impl Mark {
    /// The mark of a transaction that the inbox began itself; see [`InboxStore::begin`].
    pub const BEGIN: Self = Self(0);

    /// A mark like no other of this process, so that marks may be nested.
    pub fn unique() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The answer to a transaction that is no longer there when its work is to be kept. `source` is what the database
    /// said.
    pub fn lost(source: impl StdError + Send + Sync + 'static) -> StoreError {
        StoreError {
            kind: StoreErrorKind::Other,
            message: format!(
                "the handler succeeded, but its transaction was gone and nothing of it was kept: a statement failed, the \
                 handler tolerated it, and the database had given up the whole transaction for it ({source})"
            ),
            remedy: Some(
                "return errors of the database from the handler; run a statement that may fail in a savepoint of its own \
                 (`tx.begin()`), or write it so that it does not fail (`on conflict do nothing`)",
            ),
            source: Some(Box::new(source)),
        }
    }
}

/// The name of the savepoint.
impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "posthaste_{}", self.0)
    }
}

/// Remembers which deliveries a consumer has handled.
///
/// # Contract
/// - Keys may be of any length ([`stored_key`]) and are compared byte for byte.
/// - The record is written on the caller's connection, inside the caller's transaction, before the handler runs: record
///   and effect commit together or not at all.
/// - Of two transactions with the same key one waits for the other; if that one commits, the waiter sees
///   [`Handled::Duplicate`], if it rolls back, the waiter handles.
/// - **prove** fails unless the transaction in which the [`Mark`] was set is still open and can be committed, with
///   [`Mark::lost`] if it is gone. What is done between the proof and the commit is not covered by it.
/// - A record is kept at least as long as the broker may deliver the message again; see [`InboxStore::purge`].
///
/// # Examples
/// ```
/// use posthaste_core::{Handled, Inbox, InboxError};
///
/// async fn count_sale<I: Inbox>(
///     inbox: &I,
///     tx: &mut I::Connection,
///     order: u32,
/// ) -> Result<bool, InboxError<std::io::Error>> {
///     let handled = inbox.once(tx, format!("Order/{order}/SOLD"), async |_tx| {
///         // Your own statements, in the same transaction.
///         Ok(())
///     });
///     Ok(match handled.await? {
///         Handled::Applied(()) => true, // commit next
///         Handled::Duplicate => false,  // an earlier delivery was handled
///     })
/// }
/// ```
pub trait Inbox {
    /// The connection type of the database.
    type Connection: Send;

    /// Records the key; `false` if it was there before.
    ///
    /// # Errors
    /// - [`StoreErrorKind::SchemaMissing`], [`StoreErrorKind::Unsupported`]: there is no inbox.
    /// - [`StoreErrorKind::Unavailable`], [`StoreErrorKind::Contention`]: may pass; roll back and handle the delivery again.
    fn record(&self, tx: &mut Self::Connection, key: &str) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Sets a mark in the transaction.
    ///
    /// # Errors
    /// If there is no transaction that can be written in.
    fn mark(&self, tx: &mut Self::Connection, mark: Mark) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Proves that the transaction with the mark is still there, and removes the mark.
    ///
    /// # Errors
    /// [`Mark::lost`] if it is gone, and then nothing of it is kept.
    fn prove(&self, tx: &mut Self::Connection, mark: Mark) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Runs `handler` unless this consumer has handled `key` before.
    ///
    /// `key` names the effect: the event's source and id together, for an id alone is unique only within its source, or
    /// something like `Order/42/SALES_COUNTED`.
    ///
    /// A handler that tolerates an error of the database for which this has given up the transaction is an error, not a
    /// success: `commit` would say that all is well and keep nothing. That is proved when the handler returns, so commit
    /// next. Who does more in the transaction before that sets a [`Mark`] of their own, and proves it last.
    ///
    /// # Errors
    /// - [`InboxError::Handler`]: the handler's own.
    /// - [`InboxError::Store`]: the record could not be written, or the transaction is gone.
    ///
    /// Roll back after either: the delivery counts as not handled.
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
                return Ok(Handled::Duplicate);
            }
            let mark = Mark::unique();
            self.mark(tx, mark).await?;
            let done = handler(tx).await.map_err(InboxError::Handler)?;
            self.prove(tx, mark).await?;
            Ok(Handled::Applied(done))
        }
    }
}

/// An inbox that begins and ends the handlers' transactions itself, for a consumer that runs handlers unattended.
///
/// # Contract
/// - **begin** opens a transaction that may write, and sets [`Mark::BEGIN`] in it. Where the database has one writer at a
///   time it waits for its turn here and not in the middle, where it would have to give up.
/// - **commit** proves that mark and makes record and effect durable together. A transaction that is gone is an error
///   ([`Mark::lost`]), also where the database itself answers the commit of such a one with success. After another error
///   it is open whether it did; handling the delivery again is safe, because the record decides.
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

    /// [`Inbox::once`] in a transaction that [`begin`](Self::begin) opened: the mark that stands in it already is proved by
    /// [`commit`](Self::commit), so no other is needed. It may move between threads, as a consumer's workers do.
    ///
    /// # Errors
    /// [`InboxError::Store`] if the key could not be recorded, [`InboxError::Handler`] if the handler failed.
    fn once_in<T, E, H>(
        &self,
        tx: &mut Self::Transaction,
        key: &str,
        handler: H,
    ) -> impl Future<Output = Result<Handled<T>, InboxError<E>>> + Send
    where
        H: for<'tx> FnOnce(&'tx mut Self::Connection) -> Handling<'tx, T, E> + Send,
    {
        async move {
            if !self.record(tx, key).await? {
                return Ok(Handled::Duplicate);
            }
            handler(tx).await.map(Handled::Applied).map_err(InboxError::Handler)
        }
    }

    /// Forgets old records.
    fn purge(&self, keep: Duration, limit: u32) -> impl Future<Output = Result<u64, StoreError>> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_key_is_hashed_as_a_whole_and_a_short_one_left_alone() {
        let longest = "k".repeat(MAX_KEY_BYTES);
        assert_eq!(stored_key(&longest), longest);
        let (one, other) = (format!("{longest}1"), format!("{longest}2"));
        assert_ne!(stored_key(&one), stored_key(&other));
        assert_eq!(stored_key(&one).len(), "sha256:".len() + 64);
        assert_eq!(stored_key(&one), stored_key(&one.clone()));
    }
}
