//! What a drain says of messages that are due and that it could not claim.

use chrono::Utc;
use posthaste_core::Message;
use posthaste_core::store::Scope;
use posthaste_relay::{RelayConfig, RelayReport};

use super::engine::{config, drain};
use super::steps::{HOUR, Worker, enqueue_new, keyed, plain, retry};
use crate::RecordingPublisher;
use crate::backend::Backend;

async fn drained<B: Backend>(b: &B) -> RelayReport {
    drain(b, RecordingPublisher::new(), config()).await
}

/// They are due themselves.
pub async fn a_drain_says_how_many_stand_behind_one_that_waits<B: Backend>(b: &B) {
    enqueue_new(b, [keyed("k", "1")]).await;
    let work = Worker::new().claim(b, 10).await;
    work.settle(b, retry(HOUR)).await;
    enqueue_new(b, [keyed("k", "2"), keyed("k", "3"), keyed("other", "4")]).await;
    let report = drained(b).await;
    assert_eq!((report.delivered, report.undelivered, report.remaining), (1, 0, 2));
    assert!(!report.is_complete());
}

/// It may deliver them, or not.
pub async fn a_drain_says_how_many_another_relay_has<B: Backend>(b: &B) {
    enqueue_new(b, [plain("1"), plain("2")]).await;
    let work = Worker::new().claim(b, 1).await;
    let report = drained(b).await;
    assert_eq!((report.delivered, report.undelivered, report.remaining), (1, 0, 1));
    assert!(!report.is_complete());
    work.deliver(b).await;
    assert!(drained(b).await.is_complete());
}

/// Those are not due.
pub async fn a_drain_is_complete_though_messages_wait_for_their_time<B: Backend>(b: &B) {
    enqueue_new(b, [plain("1").not_before(Utc::now() + HOUR)]).await;
    enqueue_new(b, [plain("2")]).await;
    let report = drained(b).await;
    assert_eq!((report.delivered, report.remaining), (1, 0));
    assert!(report.is_complete());
}

/// What it does not serve is not its to deliver.
pub async fn a_drain_of_some_topics_says_nothing_of_others<B: Backend>(b: &B) {
    enqueue_new(b, [plain("1"), Message::new("payments", "2")]).await;
    let payments = RelayConfig {
        scope: Scope {
            topics: vec!["payments".to_owned()],
            ..Scope::default()
        },
        ..config()
    };
    let report = drain(b, RecordingPublisher::new(), payments).await;
    assert_eq!((report.delivered, report.remaining), (1, 0));
    assert!(report.is_complete());
}
