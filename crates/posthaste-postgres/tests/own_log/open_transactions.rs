//! A backlog beside transactions that stay open: it goes on as fast as ever, and what they commit comes whole and in order.

use std::time::Duration;

use posthaste_core::lifecycle::{LeaseToken, Verdict};
use posthaste_core::{Message, OutboxOptions};
use sqlx::{Connection, PgConnection};
use tokio::sync::watch;

use crate::fixture::{Log, numbered, payloads};
use crate::read_ahead::Arrived;

const ROWS: usize = 40_000;

/// Numbers of second rows, which are above all others.
const SECOND: usize = 1_000_000;

impl Log {
    async fn enqueue_in(&self, transaction: &mut PgConnection, number: usize, key: &str) {
        let outbox = self.store.outbox(OutboxOptions::default());
        let message = Message::new("orders", number.to_string()).key(key);
        outbox.enqueue(transaction, message).await.unwrap();
    }

    async fn connect(&self) -> PgConnection {
        let mut connection = PgConnection::connect_with(&self.pool.connect_options()).await.unwrap();
        let schema = self.store.map().schema().unwrap().as_str();
        sqlx::query("select set_config('search_path', $1, false)")
            .bind(schema)
            .execute(&mut connection)
            .await
            .unwrap();
        sqlx::query("begin").execute(&mut connection).await.unwrap();
        connection
    }
}

/// Each transaction has a row near the beginning of the backlog and one far behind it, and is committed somewhere around the time at
/// which that is read: before that read, between it and the look at what is open, or after both. Proves C9 and pitfall 3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_that_end_while_a_backlog_is_read_come_whole_and_in_order() {
    const TRANSACTIONS: usize = 12;
    let log = Log::fresh().await;
    let (progress, _) = watch::channel(0_usize);
    let mut open = Vec::new();
    for n in 0..TRANSACTIONS {
        let mut transaction = log.connect().await;
        log.enqueue_in(&mut transaction, n, &format!("t{n}")).await;
        open.push(transaction);
        log.enqueue(numbered(100 + n..101 + n)).await;
    }
    let mut enqueued = 100 + TRANSACTIONS;
    let mut committers = Vec::new();
    for (n, mut transaction) in open.into_iter().enumerate() {
        let until = ROWS * (n + 1) / (TRANSACTIONS + 1);
        while enqueued < until {
            let next = until.min(enqueued + 5_000);
            log.enqueue(numbered(enqueued..next)).await;
            enqueued = next;
        }
        log.enqueue_in(&mut transaction, SECOND + n, &format!("t{n}")).await;
        // Rows are read up to 4,000 before they come.
        let commit_at = until.saturating_sub(500 * n);
        let mut progress = progress.subscribe();
        committers.push(tokio::spawn(async move {
            progress.wait_for(|arrived| *arrived >= commit_at).await.unwrap();
            sqlx::query("commit").execute(&mut transaction).await.unwrap();
        }));
    }
    log.enqueue(numbered(enqueued..ROWS)).await;
    let expected = ROWS - 100 + 2 * TRANSACTIONS;

    let mut arrived = Arrived::default();
    let mut most_ahead = 0;
    while arrived.all.len() < expected {
        let token = LeaseToken::new();
        let claimed = log.claim_as(token, 500).await;
        arrived.note(&claimed);
        log.settle_all(token, &claimed).await;
        progress.send_replace(arrived.all.len());
        most_ahead = most_ahead.max(log.ahead().await);
        if claimed.is_empty() {
            // The last of them are about to be committed.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    assert_eq!(most_ahead, 1, "a backlog is read ahead beside open transactions, too");
    for committer in committers {
        committer.await.unwrap();
    }
    assert!(log.claim(500).await.is_empty());
}

/// What it has not committed was in nobody's hands when the relay died: it is suspected of nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_is_read_ahead_beside_a_transaction_that_was_open_when_a_relay_died() {
    let log = Log::fresh().await;
    let mut open = log.connect().await;
    log.enqueue_in(&mut open, 500_000, "open").await;
    log.enqueue_backlog_from(0, 100).await;
    assert_eq!(log.claim(50).await.len(), 50);
    let log = log.after_a_crash();
    let mut arrived = Arrived::default();
    while arrived.all.len() < 100 {
        let token = LeaseToken::new();
        let claimed = log.claim_as(token, 100).await;
        arrived.note(&claimed);
        log.settle_all(token, &claimed).await;
    }
    log.enqueue_backlog_from(100, 40_000).await;
    let mut most_ahead = 0;
    while arrived.all.len() < 40_000 {
        let token = LeaseToken::new();
        let claimed = log.claim_as(token, 500).await;
        arrived.note(&claimed);
        log.settle_all(token, &claimed).await;
        most_ahead = most_ahead.max(log.ahead().await);
    }
    assert_eq!(most_ahead, 1);
    sqlx::query("commit").execute(&mut open).await.unwrap();
    let mut late = Vec::new();
    while late.is_empty() {
        late = log.claim(500).await;
    }
    assert_eq!(payloads(&late), ["500000"]);
}

/// What comes into a gap stands behind a failure of its key, though that was not there when rows above it were read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_into_a_gap_waits_behind_a_failure_of_its_key_and_holds_up_no_others() {
    let log = Log::fresh().await;
    log.enqueue_backlog_from(0, 1_000).await;
    let mut open = log.connect().await;
    log.enqueue_in(&mut open, 500_000, "late").await;
    log.enqueue_backlog_from(1_000, 21_000).await;
    let first = LeaseToken::new();
    let claimed = log.claim_as(first, 1_000).await;
    let failed = &claimed[0].message;
    let (delay, error) = (Duration::from_hours(1), "refused".to_owned());
    log.settle(first, failed.id, Verdict::Retry { delay, error }).await;
    log.settle_all(first, &claimed[1..]).await;
    // Of the key that waits now, and of one of its own.
    log.enqueue_in(&mut open, 500_001, failed.ordering_key.as_deref().unwrap())
        .await;
    let mut arrived = Arrived::default();
    let mut committed = false;
    let is_waiting = |number: usize| number.is_multiple_of(7);
    let waiting = (1_000..21_000).filter(|number| is_waiting(*number)).count();
    let expected = 20_000 - waiting + 1;
    while arrived.all.len() < expected {
        let token = LeaseToken::new();
        let claimed = log.claim_as(token, 500).await;
        arrived.note(&claimed);
        log.settle_all(token, &claimed).await;
        if arrived.all.len() > 5_000 && !committed {
            sqlx::query("commit").execute(&mut open).await.unwrap();
            committed = true;
        }
    }
    assert!(arrived.all.contains(&500_000));
    assert!(log.claim(500).await.is_empty());
    assert!(!arrived.all.contains(&500_001), "the key of the failure waits");
    assert_eq!(
        log.count("select count(*) from log_failed").await,
        i64::try_from(waiting).unwrap() + 2,
        "the failure, rows of the backlog behind it, and the one that came late"
    );
}

/// More than a claim takes come into gaps at once: what stands behind them waits for all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_transaction_that_ends_while_a_backlog_is_read_comes_whole_and_in_order() {
    const LARGE: usize = 3_000;
    let log = Log::fresh().await;
    let mut open = log.connect().await;
    for first in (0..LARGE).step_by(500) {
        let rows = (first..first + 500).map(|n| Message::new("orders", n.to_string()).key(format!("t{}", n % 50)));
        let outbox = log.store.outbox(OutboxOptions::default());
        outbox.enqueue_all(&mut open, rows.collect::<Vec<_>>()).await.unwrap();
        log.enqueue_backlog_from(10_000 + first, 10_500 + first).await;
    }
    log.enqueue_backlog_from(10_000 + LARGE, 30_000).await;
    for key in 0..50 {
        log.enqueue_in(&mut open, SECOND + key, &format!("t{key}")).await;
    }
    log.enqueue_backlog_from(30_000, 35_000).await;
    let mut arrived = Arrived::default();
    let mut committed = false;
    while arrived.all.len() < 25_000 + LARGE + 50 {
        let token = LeaseToken::new();
        let claimed = log.claim_as(token, 500).await;
        arrived.note(&claimed);
        log.settle_all(token, &claimed).await;
        if arrived.all.len() > 15_000 && !committed {
            sqlx::query("commit").execute(&mut open).await.unwrap();
            committed = true;
        }
    }
    assert!(log.claim(500).await.is_empty());
}
