//! Existing tables, which others write as well.

use chrono::Utc;
use posthaste_core::RelayStore;
use posthaste_core::lifecycle::{State, Verdict};

use posthaste_relay::{Relay, RelayConfig};
use posthaste_sql::table::Role;

use super::steps::{MINUTE, SECOND, Worker, enqueue_new, plain, record, records, retry};
use crate::RecordingPublisher;
use crate::backend::Backend;

/// A row whose label no state has is none of ours: it is neither shown nor claimed, and hides nothing.
pub async fn a_row_with_a_label_that_the_map_does_not_know_is_left_out<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..3).map(|n| plain(&n.to_string()))).await;
    b.write(ids[1], Role::Status, Some("theirs")).await;
    let listed: Vec<_> = records(b).await.into_iter().map(|row| row.message.id).collect();
    assert_eq!(listed, [ids[0], ids[2]]);
    let shown = posthaste_core::AdminStore::show(b.store(), ids[1]).await;
    assert_eq!(shown.expect("show works"), None);
    assert_eq!(Worker::new().claim(b, 10).await.ids(), [ids[0], ids[2]]);
}

/// Its age is not known, so it counts as new, and not as half a century old.
pub async fn a_row_that_does_not_say_when_it_was_made_is_new<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    b.write(ids[0], Role::CreatedAt, None).await;
    let claimed = Worker::new().claim(b, 10).await.messages[0].created_at;
    for time in [record(b, ids[0]).await.created_at, claimed] {
        assert!((Utc::now() - time).abs() < chrono::TimeDelta::minutes(1), "{time}");
    }
}

/// Its claim wrote nothing, so what is given back is as it was, with the table's own labels too.
///
/// Proves B9.
pub async fn a_row_that_was_locked_and_is_given_back_keeps_its_label<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    Worker::new().claim(b, 10).await.settle(b, retry(SECOND)).await;
    b.pass_time(MINUTE).await;
    let waiting = b.read(ids[0], Role::Status).await;
    Worker::new().claim(b, 10).await.settle(b, Verdict::Released).await;
    assert_eq!(b.read(ids[0], Role::Status).await, waiting);
    assert_eq!(record(b, ids[0]).await.state, State::Pending);
}

/// A reader of the table sees what waits, whether the message or its broker was the reason.
///
/// Proves B9.
pub async fn a_postponed_row_has_the_label_of_one_that_waits<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1"), plain("2")]).await;
    Worker::new().claim(b, 1).await.settle(b, retry(MINUTE)).await;
    let postponed = Verdict::Postponed {
        delay: MINUTE,
        error: "nobody answers".into(),
    };
    Worker::new().claim(b, 1).await.settle(b, postponed).await;
    let labels = (b.read(ids[0], Role::Status).await, b.read(ids[1], Role::Status).await);
    assert_eq!(labels.0, labels.1);
}

/// Proves B8.
pub async fn only_what_died_has_a_letter<B: Backend>(b: &B) {
    enqueue_new(b, (0..5).map(|n| plain(&n.to_string()))).await;
    let postponed = Verdict::Postponed {
        delay: MINUTE,
        error: "nobody answers".into(),
    };
    for verdict in [Verdict::Delivered, retry(MINUTE), postponed, Verdict::Released] {
        Worker::new().claim(b, 1).await.settle(b, verdict).await;
    }
    assert_eq!(b.letters().await, 0);
    let dead = Verdict::Dead {
        error: "refused".into(),
    };
    Worker::new().claim(b, 1).await.settle(b, dead).await;
    assert_eq!(b.letters().await, 1);
}

/// All stores refuse in the same words.
pub async fn relays_cannot_agree_on_a_leader_where_there_is_no_table_for_it<B: Backend>(b: &B) {
    assert!(b.store().registry().is_none(), "there is no table");
    let relay = Relay::new(b.store().clone(), RecordingPublisher::new()).config(RelayConfig {
        exclusive: true,
        ..RelayConfig::default()
    });
    let error = relay.drain().await.expect_err("there is no table").to_string();
    assert!(error.contains("exclusive"), "{error}");
    assert!(error.contains("leave it out, or use Posthaste's own tables"), "{error}");
}
