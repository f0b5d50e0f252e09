//! Moving the queue of a file to its log.

use posthaste_core::{Message, Outbox as _, OutboxOptions};
use posthaste_sqlite::SqliteStore;

use crate::log::{enqueue, fresh, keyed};
use crate::log_delayed::{deliver_all, enqueue_delayed};

async fn enqueue_in_queue(queue: &SqliteStore, messages: Vec<Message>) {
    let outbox = queue.outbox(OutboxOptions::default());
    let mut tx = outbox.begin().await.unwrap();
    outbox.enqueue_all(&mut tx, messages).await.unwrap();
    outbox.commit(tx).await.unwrap();
}

#[tokio::test]
async fn what_the_log_has_already_by_its_id_is_not_delivered_once_more_and_holds_up_no_other() {
    let (log, _directory) = fresh().await;
    let messages: Vec<Message> = (0..6).map(|_| keyed("k")).collect();
    let ids: Vec<_> = messages.iter().map(|message| message.id).collect();
    enqueue(&log, messages[..1].to_vec()).await;
    enqueue_delayed(&log, messages[1..2].to_vec()).await;
    let later = chrono::Utc::now() + chrono::Duration::hours(1);
    let queued = messages.iter().enumerate().map(|(n, message)| match n {
        0 | 3 => message.clone().not_before(later),
        _ => message.clone(),
    });
    enqueue_in_queue(&SqliteStore::new(log.pool().clone()), queued.collect()).await;

    assert_eq!(log.move_queue().await.unwrap(), Some(6));
    assert_eq!(log.move_plan().await.unwrap().messages(), 0);
    let due = sqlx::query("update posthaste_log_failed set next_attempt_at = 0");
    due.execute(log.pool()).await.unwrap();
    assert_eq!(deliver_all(&log).await, ids, "each of them once, in order");
}
