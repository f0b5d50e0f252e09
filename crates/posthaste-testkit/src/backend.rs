//! What the conformance suite needs to know about a store.

use std::time::Duration;

use posthaste_core::store::{ProducerStore, SchemaStore};
use posthaste_core::{
    AdminStore, EnqueueError, Enqueued, Mark, Message, MessageId, OutboxOptions, RelayStore, StoreError,
};

use posthaste_sql::table::Role;

use crate::table::Table;

/// What may happen to a transaction under a handler that goes on as if nothing had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A statement violates a constraint. Some databases undo the statement alone, some give up the transaction.
    RefusedStatement,
    /// The database rolls the transaction back on its own, as after a deadlock.
    Rollback,
}

/// Makes the outboxes that a suite runs on. Implement it in the store's `tests/conformance.rs` and add one line:
///
/// ```ignore
/// posthaste_testkit::conformance_suite!(MyFixture);
/// ```
///
/// Every case gets an outbox of its own and runs beside other cases, so outboxes must not see each other: a schema, a
/// table prefix or a file each. `tests/it/conformance.rs` of this crate is the smallest example.
///
/// It is apart from the [`Backend`], which a store with many kinds of tables has once: the cases are compiled for each
/// backend, which takes long, and not for each fixture.
pub trait Fixture {
    /// What it makes.
    type Backend: Backend;

    /// What the table has and what its database can do. A case that needs more is not for it; see
    /// [`suite::left_out`](crate::suite::left_out).
    fn table() -> Table {
        Table::complete()
    }

    /// A new outbox with its tables, empty.
    fn fresh() -> impl Future<Output = Self::Backend> + Send;
}

/// A store under test, with the few verbs that its traits do not have: transactions, a business table and the passing
/// of time. Verbs without a result panic when the database fails.
pub trait Backend: Sized + Send + Sync + 'static {
    /// The store.
    type Store: RelayStore + AdminStore + ProducerStore + SchemaStore + Clone;
    /// A transaction of the application. Dropping it rolls it back.
    type Tx: Send;

    /// The store.
    fn store(&self) -> &Self::Store;

    /// Begins a transaction. Where there is one writer at a time this waits for its turn.
    fn begin(&self) -> impl Future<Output = Self::Tx> + Send;

    /// Commits it.
    fn commit(&self, tx: Self::Tx) -> impl Future<Output = ()> + Send;

    /// Rolls it back.
    fn rollback(&self, tx: Self::Tx) -> impl Future<Output = ()> + Send;

    /// Enqueues all messages with one call of the store's own outbox.
    fn enqueue(
        &self,
        tx: &mut Self::Tx,
        messages: Vec<Message>,
        options: &OutboxOptions,
    ) -> impl Future<Output = Result<Vec<Enqueued>, EnqueueError>> + Send;

    /// Writes `key` to a table of the application's own: one text column, repetitions allowed.
    fn write_business_row(&self, tx: &mut Self::Tx, key: &str) -> impl Future<Output = ()> + Send;

    /// The keys committed to that table, in any order.
    fn business_rows(&self) -> impl Future<Output = Vec<String>> + Send;

    /// Calls [`Inbox::record`](posthaste_core::Inbox::record) of the inbox of `consumer`.
    fn record_handled(
        &self,
        tx: &mut Self::Tx,
        consumer: &str,
        key: &str,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Calls [`Inbox::mark`](posthaste_core::Inbox::mark) of an inbox.
    fn mark(&self, tx: &mut Self::Tx, mark: Mark) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Calls [`Inbox::prove`](posthaste_core::Inbox::prove) of an inbox.
    fn prove(&self, tx: &mut Self::Tx, mark: Mark) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Lets the transaction meet with trouble, and tolerates it as a careless handler would.
    fn meet(&self, tx: &mut Self::Tx, trouble: Trouble) -> impl Future<Output = ()> + Send;

    /// Removes the consumer's inbox records older than `keep`, at most `limit`; returns how many.
    fn purge_inbox(
        &self,
        consumer: &str,
        keep: Duration,
        limit: u32,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Lets time pass without waiting: every stored time of every row (creation, next attempt, lease, update, delivery,
    /// dedupe expiry, inbox record, relays, leaders) moves into the past by so much. A store with a clock of its own may
    /// advance that.
    fn pass_time(&self, by: Duration) -> impl Future<Output = ()> + Send;

    /// Changes the stored payload of a row behind the store's back, and nothing else.
    fn corrupt_payload(&self, id: MessageId) -> impl Future<Output = ()> + Send;

    /// From now on the database refuses every change to these rows, by a constraint or a trigger, and to no others.
    fn refuse_changes_to(&self, ids: &[MessageId]) -> impl Future<Output = ()> + Send;

    /// Locks a row of the outbox until the transaction ends, as an operator with `select … for update` does. Asked for only
    /// where the table has [`Need::RowLock`](crate::Need::RowLock).
    fn lock_row(&self, _tx: &mut Self::Tx, _id: MessageId) -> impl Future<Output = ()> + Send {
        async { unimplemented!("the database locks no rows") }
    }

    /// Locks the whole outbox against writes until the transaction is rolled back, as an operator does who makes an index.
    /// Asked for only where the table has [`Need::TableLock`](crate::Need::TableLock).
    fn lock_table(&self, _tx: &mut Self::Tx) -> impl Future<Output = ()> + Send {
        async { unimplemented!("the database locks no tables") }
    }

    /// Writes text, or nothing, into the column of a role behind the store's back, though the table's owner would not allow
    /// it. Asked for only where the table has [`Need::Mapped`](crate::Need::Mapped).
    fn write(&self, _id: MessageId, _role: Role, _text: Option<&str>) -> impl Future<Output = ()> + Send {
        async { unimplemented!("nobody else writes here") }
    }

    /// The text in the column of a role, as [`Self::write`] would write it.
    fn read(&self, _id: MessageId, _role: Role) -> impl Future<Output = Option<String>> + Send {
        async { unimplemented!("nobody else reads here") }
    }

    /// How many copies of dead messages there are. Asked for only where the table has
    /// [`Need::DeadLetters`](crate::Need::DeadLetters).
    fn letters(&self) -> impl Future<Output = i64> + Send {
        async { unimplemented!("there is no table for them") }
    }

    /// Cleans up after a case that passed. Does nothing unless overridden.
    fn dispose(self) -> impl Future<Output = ()> + Send {
        async {}
    }
}
