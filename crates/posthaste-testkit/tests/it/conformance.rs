//! The in-memory store passes the conformance suite. Also the smallest example of a [`Backend`].

use std::time::Duration;

use posthaste_core::{EnqueueError, Enqueued, Inbox, Mark, Message, MessageId, OutboxOptions, StoreError};
use posthaste_testkit::{Backend, Fixture, MemoryStore, MemoryTx, Need, Table, TestClock, Trouble};

struct Memory(MemoryStore);

impl Fixture for Memory {
    type Backend = Self;

    fn table() -> Table {
        Table::complete().without(&[Need::TableLock])
    }

    async fn fresh() -> Self {
        Self(MemoryStore::with_clock(TestClock::ticking()))
    }
}

impl Backend for Memory {
    type Store = MemoryStore;
    type Tx = MemoryTx;

    fn store(&self) -> &MemoryStore {
        &self.0
    }

    async fn begin(&self) -> MemoryTx {
        self.0.begin()
    }

    async fn commit(&self, tx: MemoryTx) {
        tx.commit();
    }

    async fn rollback(&self, tx: MemoryTx) {
        tx.rollback();
    }

    async fn enqueue(
        &self,
        tx: &mut MemoryTx,
        messages: Vec<Message>,
        options: &OutboxOptions,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        tx.enqueue(messages, options).await
    }

    async fn write_business_row(&self, tx: &mut MemoryTx, key: &str) {
        tx.write_business_row(key);
    }

    async fn business_rows(&self) -> Vec<String> {
        self.0.business_rows()
    }

    async fn record_handled(&self, tx: &mut MemoryTx, consumer: &str, key: &str) -> Result<bool, StoreError> {
        self.0.inbox(consumer).record(tx, key).await
    }

    async fn mark(&self, tx: &mut Self::Tx, mark: Mark) -> Result<(), StoreError> {
        self.0.inbox("any").mark(tx, mark).await
    }

    async fn prove(&self, tx: &mut Self::Tx, mark: Mark) -> Result<(), StoreError> {
        self.0.inbox("any").prove(tx, mark).await
    }

    async fn meet(&self, tx: &mut Self::Tx, trouble: Trouble) {
        match trouble {
            Trouble::RefusedStatement => {} // this store refuses none
            Trouble::Rollback => tx.lose(),
        }
    }

    async fn purge_inbox(&self, consumer: &str, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        Ok(self.0.purge_inbox(consumer, keep, limit))
    }

    async fn pass_time(&self, by: Duration) {
        self.0.clock().advance(by);
    }

    async fn corrupt_payload(&self, id: MessageId) {
        self.0.corrupt_payload(id);
    }

    async fn refuse_changes_to(&self, ids: &[MessageId]) {
        self.0.refuse_claims_of(ids.iter().copied());
    }

    async fn lock_row(&self, tx: &mut MemoryTx, id: MessageId) {
        tx.lock(id);
    }
}

posthaste_testkit::conformance_suite!(Memory);

#[test]
fn some_cases_are_not_for_it() {
    insta::assert_snapshot!(posthaste_testkit::suite::left_out::<Memory>());
}
