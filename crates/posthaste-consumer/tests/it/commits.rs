//! Transactions that are gone, or seem to be, when their handler is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use posthaste_consumer::{Consumer, Once, Received};
use posthaste_core::store::StoreErrorKind;
use posthaste_core::{Inbox, InboxStore, Mark, RetryPolicy, StoreError};
use posthaste_kafka::dead_letter::DeadLetter;
use posthaste_postgres::PostgresInbox;
use rdkafka::Message as _;
use sqlx::{PgConnection, Postgres, Transaction};

use crate::support::{Running, SOLD, Sale, World, logs};

/// A server that ends sessions which are idle in their transaction takes the transaction from a handler that does other
/// things for too long, every time. That is the event's failure, and ends like any other.
///
/// Proves C17.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_transaction_is_ended_every_time_goes_to_the_dead_letter_topic() {
    let Some(world) = World::new(1).await else { return };
    world
        .send_all(&[(world.sale("a", -1), 0), (world.sale("a", 1), 0)])
        .await;
    let calls = Arc::new(AtomicU32::new(0));
    let (effects, count) = (world.clone(), Arc::clone(&calls));
    let running = Running::start(world.consumer().on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            effects.effect(tx, "a", event.payload.n).await?;
            if event.payload.n < 0 {
                count.fetch_add(1, Ordering::Relaxed);
                let limit = sqlx::query("set local idle_in_transaction_session_timeout = '50ms'");
                limit.execute(tx).await?;
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            Ok(())
        },
    ));
    world.until_committed(0, 2).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.retried, report.dead_letters), (1, 2, 1));
    assert_eq!(
        calls.load(Ordering::Relaxed),
        4,
        "the first may be an outage's, three are the event's"
    );
    let dead = world.read(&world.dead_letter_topic(), 1).await.remove(0);
    let letter = DeadLetter::read(dead.headers().unwrap()).unwrap();
    assert_eq!(letter.attempts, 3);
    assert!(letter.error.contains("could not be committed"), "{}", letter.error);
    assert_eq!(world.effects().await, [("a".to_owned(), 1)]);
    let told = logs::with(&["ERROR", "idle_in_transaction_session_timeout", &world.group]);
    assert_eq!(told.len(), 1, "{told:#?}");
}

/// An inbox whose first commit is rolled back and whose second is made, but whose answers to both are lost.
struct Unheard {
    inbox: PostgresInbox,
    commits: AtomicU32,
}

impl Inbox for Unheard {
    type Connection = PgConnection;

    async fn record(&self, tx: &mut PgConnection, key: &str) -> Result<bool, StoreError> {
        self.inbox.record(tx, key).await
    }

    async fn mark(&self, tx: &mut PgConnection, mark: Mark) -> Result<(), StoreError> {
        self.inbox.mark(tx, mark).await
    }

    async fn prove(&self, tx: &mut PgConnection, mark: Mark) -> Result<(), StoreError> {
        self.inbox.prove(tx, mark).await
    }
}

impl InboxStore for Unheard {
    type Transaction = Transaction<'static, Postgres>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        self.inbox.begin().await
    }

    async fn commit(&self, tx: Self::Transaction) -> Result<(), StoreError> {
        if self.commits.fetch_add(1, Ordering::Relaxed) == 0 {
            tx.rollback().await.unwrap();
        } else {
            self.inbox.commit(tx).await?;
        }
        Err(StoreError {
            kind: StoreErrorKind::Unavailable,
            message: "the connection was lost".to_owned(),
            remedy: None,
            source: None,
        })
    }

    async fn purge(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        self.inbox.purge(keep, limit).await
    }
}

/// A commit whose answer was lost may have been made. An event that was handled is no dead letter.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_not_dead_lettered_if_its_last_commit_was_made_after_all() {
    let Some(world) = World::new(1).await else { return };
    world.send(&world.sale("a", 1), Some(0)).await;
    let unheard = Unheard {
        inbox: world.inbox(),
        commits: AtomicU32::new(0),
    };
    let config = world.config().retry(RetryPolicy {
        max_attempts: 1,
        ..RetryPolicy::default()
    });
    let effects = world.clone();
    let running = Running::start(Consumer::new(config, unheard).on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| Ok(effects.effect(tx, "a", event.payload.n).await?),
    ));
    world.until_committed(0, 1).await;
    let report = running.stop().await;
    assert_eq!((report.dead_letters, report.duplicates), (0, 1));
    assert_eq!(world.effects().await.len(), 1);
}
