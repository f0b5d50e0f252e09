//! A message with a time of its own does not pass earlier ones of its key that were not read yet.

use std::time::{Duration, Instant};

use chrono::Utc;
use posthaste_core::lifecycle::{LeaseToken, Verdict};
use posthaste_core::{Message, OutboxOptions, RelayStore};

use crate::fixture::{Log, payloads};

/// How long something may take on a machine with other work.
const PATIENCE: Duration = Duration::from_mins(1);

fn message(payload: &'static str) -> Message {
    Message::new("orders", payload).key("k")
}

fn soon(message: Message) -> Message {
    message.not_before(Utc::now() + Duration::from_millis(50))
}

impl Log {
    /// Lets every message that was enqueued with a time of its own become due.
    async fn wait_until_due(&self) {
        let due = "select count(*) from log_failed where next_attempt_at > clock_timestamp()";
        while self.count(due).await > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// What one claim brings, delivered.
    async fn deliver(&self) -> Vec<String> {
        let token = LeaseToken::new();
        let claimed = self.claim_as(token, 10).await;
        for one in &claimed {
            self.settle(token, one.message.id, Verdict::Delivered).await;
        }
        payloads(&claimed)
    }

    async fn deliver_until(&self, count: usize) -> Vec<String> {
        let begun = Instant::now();
        let mut delivered = Vec::new();
        while delivered.len() < count && begun.elapsed() < PATIENCE {
            delivered.extend(self.deliver().await);
        }
        delivered
    }

    /// Three of a key are in flight, which is written down, and two are enqueued with a time of their own: behind these, and of
    /// another key.
    async fn with_three_in_flight(&self) {
        self.enqueue(vec![message("1"), message("2"), message("3")]).await;
        assert_eq!(payloads(&self.claim(10).await), ["1", "2", "3"]);
        self.store.pass_time(Duration::from_secs(1));
        assert!(self.claim(10).await.is_empty());
        let other = Message::new("orders", "free").key("other");
        self.enqueue(vec![soon(message("4")), soon(other)]).await;
    }
}

fn of_the_key(mut delivered: Vec<String>) -> Vec<String> {
    delivered.retain(|payload| payload != "free");
    delivered
}

/// Proves pitfall 5.
#[tokio::test]
async fn what_was_in_flight_in_a_crash_comes_before_a_delayed_message_of_its_key() {
    let log = Log::fresh().await;
    log.with_three_in_flight().await;
    log.wait_until_due().await;
    let successor = log.after_a_crash();
    let delivered = successor.deliver_until(5).await;
    assert_eq!(of_the_key(delivered), ["1", "2", "3", "4"]);
}

/// Proves pitfall 5.
#[tokio::test]
async fn what_was_put_back_at_the_end_comes_before_a_delayed_message_of_its_key_and_holds_back_no_other() {
    let log = Log::fresh().await;
    log.with_three_in_flight().await;
    log.store.close().await.unwrap();
    log.wait_until_due().await;
    let successor = log.after_a_crash();
    let delivered = successor.deliver_until(5).await;
    assert_eq!(delivered, ["free", "1", "2", "3", "4"]);
}

/// Proves pitfall 5.
#[tokio::test]
async fn a_late_commit_comes_before_a_delayed_message_that_was_enqueued_after_it() {
    let log = Log::fresh().await;
    let outbox = log.store.outbox(OutboxOptions::default());
    let mut late = log.pool.begin().await.unwrap();
    outbox.enqueue(&mut late, message("late")).await.unwrap();
    log.enqueue(vec![Message::new("orders", "passes")]).await;
    assert_eq!(log.deliver().await, ["passes"]);
    late.commit().await.unwrap();
    log.enqueue(vec![soon(message("delayed"))]).await;
    log.wait_until_due().await;
    assert_eq!(log.deliver().await, ["late"]);
    assert_eq!(log.deliver().await, ["delayed"]);
}

/// A batch that is moved from a queue commits as a whole, and the numbers of its rows may have been passed over.
#[tokio::test]
async fn what_a_queue_had_tried_comes_behind_what_stood_before_it() {
    let log = Log::fresh().await;
    log.run("select log_fence_queue()").await;
    let mut batch = log.pool.begin().await.unwrap();
    let fill = "insert into outbox (id, namespace, topic, ordering_key, payload, attempts)
        select gen_random_uuid(), 'default', 'orders', 'k', payload::bytea, attempts
        from (values (1, 'fresh', 0), (2, 'tried', 1)) m (place, payload, attempts) order by place";
    sqlx::query(fill).execute(&mut *batch).await.unwrap();
    sqlx::query("select log_move_batch(10)")
        .execute(&mut *batch)
        .await
        .unwrap();
    log.enqueue(vec![Message::new("orders", "passes")]).await;
    assert_eq!(log.deliver().await, ["passes"]);
    batch.commit().await.unwrap();
    assert_eq!(log.deliver().await, ["fresh"]);
    assert_eq!(log.deliver().await, ["tried"]);
}
