//! An inbox that must answer in time.

use std::time::Duration;

use posthaste_core::store::StoreErrorKind;
use posthaste_core::{Inbox, InboxStore, Mark, StoreError};
use tokio::time::timeout;

/// An inbox whose answers are waited for only so long. A database that does not answer in time counts as unavailable.
/// Whether a commit was made is open then, as after a lost connection; the record decides when the event comes again.
pub(crate) struct LimitedInbox<I> {
    inbox: I,
    limit: Duration,
}

impl<I> LimitedInbox<I> {
    pub(crate) fn new(inbox: I, limit: Duration) -> Self {
        Self { inbox, limit }
    }

    async fn within<T>(
        &self,
        what: &str,
        work: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        timeout(self.limit, work).await.unwrap_or_else(|_| {
            let limit = humantime::format_duration(self.limit);
            Err(StoreError {
                kind: StoreErrorKind::Unavailable,
                message: format!("the database did not {what} within {limit}"),
                remedy: Some(
                    "check that it runs and can be reached, and look for transactions that hold locks; raise inbox_timeout \
                     if it is only slow",
                ),
                source: None,
            })
        })
    }
}

impl<I: InboxStore> Inbox for LimitedInbox<I> {
    type Connection = I::Connection;

    async fn record(&self, tx: &mut I::Connection, key: &str) -> Result<bool, StoreError> {
        self.within("record an event in the inbox", self.inbox.record(tx, key))
            .await
    }

    async fn mark(&self, tx: &mut I::Connection, mark: Mark) -> Result<(), StoreError> {
        self.within("set a savepoint", self.inbox.mark(tx, mark)).await
    }

    async fn prove(&self, tx: &mut I::Connection, mark: Mark) -> Result<(), StoreError> {
        self.within("release a savepoint", self.inbox.prove(tx, mark)).await
    }
}

impl<I: InboxStore> InboxStore for LimitedInbox<I> {
    type Transaction = I::Transaction;

    async fn begin(&self) -> Result<I::Transaction, StoreError> {
        self.within("begin a transaction", self.inbox.begin()).await
    }

    async fn commit(&self, tx: I::Transaction) -> Result<(), StoreError> {
        self.within("commit", self.inbox.commit(tx)).await
    }

    async fn purge(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        self.within("clean up the inbox", self.inbox.purge(keep, limit)).await
    }
}
