//! Applying verdicts, fenced by the lease token.

use chrono::TimeDelta;
use posthaste_core::lifecycle::{LeaseToken, Settlement, State, Verdict};
use posthaste_core::{MessageId, RelayStore};

use super::steps::{
    HOUR, LEASE_AND_MORE, MINUTE, SECOND, Worker, enqueue_new, keyed, plain, record, records, retry, settle, state,
};
use crate::backend::Backend;

/// Proves B11, B15.
pub async fn a_delivered_row_is_done<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let work = Worker::new().claim(b, 10).await;
    b.pass_time(SECOND * 10).await;
    work.deliver(b).await;
    let row = record(b, ids[0]).await;
    assert_eq!((row.state, row.attempts), (State::Delivered, 1));
    assert_eq!((row.locked_by, row.locked_until), (None, None));
    assert_eq!(row.delivered_at, Some(row.updated_at));
    assert!(
        row.updated_at - row.created_at >= TimeDelta::seconds(10),
        "settling moved updated_at"
    );
    b.pass_time(HOUR).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), []);
}

/// Proves B11.
pub async fn a_delivered_row_takes_no_further_verdict<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let work = Worker::new().claim(b, 10).await;
    work.deliver(b).await;
    let before = records(b).await;
    for verdict in [retry(SECOND), Verdict::Released, Verdict::Delivered] {
        assert_eq!(work.settle(b, verdict).await, ids);
    }
    assert_eq!(work.settle(b, Verdict::Dead { error: "no".into() }).await, ids);
    assert_eq!(records(b).await, before);
}

/// Proves B10, B15.
pub async fn a_retry_keeps_the_error_and_waits_without_a_lease<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let work = Worker::new().claim(b, 10).await;
    b.pass_time(SECOND * 10).await;
    assert_eq!(work.settle(b, retry(MINUTE)).await, []);
    let row = record(b, ids[0]).await;
    assert_eq!((row.state, row.attempts), (State::Pending, 1));
    assert_eq!((row.locked_by, row.locked_until), (None, None));
    assert_eq!(row.last_error.as_deref(), Some("the broker is unavailable"));
    assert_eq!(row.delivered_at, None);
    assert_eq!(
        row.next_attempt_at,
        row.updated_at + MINUTE,
        "counted from the settling"
    );
    assert!(
        row.updated_at - row.created_at >= TimeDelta::seconds(10),
        "settling moved updated_at"
    );
}

/// Proves B10.
pub async fn the_last_error_outlives_a_later_delivery<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    Worker::new().claim(b, 10).await.settle(b, retry(SECOND)).await;
    b.pass_time(MINUTE).await;
    Worker::new().claim(b, 10).await.deliver(b).await;
    let row = record(b, ids[0]).await;
    assert_eq!(row.last_error.as_deref(), Some("the broker is unavailable"));
}

/// Proves B10 and pitfall 5.
pub async fn a_retry_without_delay_still_holds_back_its_key<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [keyed("k", "1"), keyed("k", "2")]).await;
    Worker::new()
        .claim(b, 1)
        .await
        .settle(b, retry(std::time::Duration::ZERO))
        .await;
    b.pass_time(SECOND).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), ids[..1], "a retry goes alone");
}

/// Proves B8, B10, B15.
pub async fn a_dead_row_keeps_its_error_and_is_not_claimed<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let work = Worker::new().claim(b, 10).await;
    b.pass_time(SECOND * 10).await;
    assert_eq!(
        work.settle(
            b,
            Verdict::Dead {
                error: "too large".into()
            }
        )
        .await,
        []
    );
    let row = record(b, ids[0]).await;
    assert_eq!((row.state, row.attempts), (State::Dead, 1));
    assert_eq!((row.locked_by, row.locked_until), (None, None));
    assert_eq!(row.last_error.as_deref(), Some("too large"));
    assert_eq!(row.delivered_at, None);
    assert!(
        row.updated_at - row.created_at >= TimeDelta::seconds(10),
        "settling moved updated_at"
    );
    b.pass_time(HOUR).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), []);
}

/// Proves B9.
pub async fn a_released_row_is_as_if_it_had_not_been_claimed<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let before = record(b, ids[0]).await;
    let work = Worker::new().claim(b, 10).await;
    assert_eq!(work.settle(b, Verdict::Released).await, []);
    let mut after = record(b, ids[0]).await;
    after.updated_at = before.updated_at;
    assert_eq!(after, before);
    assert_eq!(Worker::new().claim(b, 10).await.ids(), ids, "it is due at once");
}

/// Proves B9.
pub async fn a_released_retry_refunds_one_attempt_only<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    Worker::new().claim(b, 10).await.settle(b, retry(SECOND)).await;
    b.pass_time(MINUTE).await;
    Worker::new().claim(b, 10).await.settle(b, Verdict::Released).await;
    let row = record(b, ids[0]).await;
    assert_eq!((row.state, row.attempts), (State::Pending, 1));
    assert_eq!(row.last_error.as_deref(), Some("the broker is unavailable"));
}

/// Proves B9.
pub async fn a_postponed_row_waits_with_its_error_and_keeps_its_attempts<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    Worker::new().claim(b, 10).await.settle(b, retry(SECOND)).await;
    b.pass_time(MINUTE).await;
    let postponed = Verdict::Postponed {
        delay: MINUTE,
        error: "nobody answers".into(),
    };
    let work = Worker::new().claim(b, 10).await;
    assert_eq!(work.settle(b, postponed).await, []);
    let row = record(b, ids[0]).await;
    assert_eq!((row.state, row.attempts), (State::Pending, 1));
    assert_eq!(row.last_error.as_deref(), Some("nobody answers"));
    assert_eq!(row.delivered_at, None);
    assert_eq!(row.next_attempt_at, row.updated_at + MINUTE);
    assert_eq!(Worker::new().claim(b, 10).await.ids(), [], "it is not due");
    // A table may keep whole seconds, and round up.
    b.pass_time(MINUTE + SECOND).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), ids);
}

/// What a broker says may hold what no text column takes, and be of any length; that must not keep the verdict from being
/// written.
///
/// Proves B10.
pub async fn an_error_with_any_character_is_kept<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let error = "no\0answer: \u{1F4EE}'\"\\\n\u{1b}".to_owned();
    let verdict = Verdict::Retry { delay: SECOND, error };
    assert_eq!(Worker::new().claim(b, 10).await.settle(b, verdict).await, []);
    let kept = record(b, ids[0]).await.last_error;
    assert_eq!(kept.as_deref(), Some("no answer: \u{1F4EE}'\"\\\n\u{1b}"));
}

/// Proves B10.
pub async fn a_long_error_is_cut_to_its_column<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let error = "é".repeat(100_000);
    let verdict = Verdict::Dead { error: error.clone() };
    assert_eq!(Worker::new().claim(b, 10).await.settle(b, verdict).await, []);
    let row = record(b, ids[0]).await;
    let kept = row.last_error.expect("there was an error");
    assert_eq!(row.state, State::Dead);
    assert!(
        error.starts_with(&kept) && (100..error.len()).contains(&kept.len()),
        "{kept}"
    );
}

/// Proves B9 and pitfalls 6, 7.
pub async fn a_stale_token_changes_nothing_and_is_reported_lost<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    // The same worker leases the row twice, so neither its name nor a fresh attempt could tell the leases apart.
    let worker = Worker::new();
    let stale = worker.claim(b, 10).await;
    b.pass_time(LEASE_AND_MORE).await;
    let current = worker.claim(b, 10).await;
    assert_eq!(current.ids(), ids);
    let before = record(b, ids[0]).await;
    for verdict in [
        Verdict::Delivered,
        retry(SECOND),
        Verdict::Dead { error: "late".into() },
        Verdict::Released,
    ] {
        assert_eq!(stale.settle(b, verdict).await, ids);
        assert_eq!(record(b, ids[0]).await, before);
    }
    current.deliver(b).await;
}

/// Proves B9 and pitfall 7.
pub async fn a_token_does_not_come_back_with_the_attempt_count<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let worker = Worker::new();
    let first = worker.claim(b, 10).await;
    first.settle(b, Verdict::Released).await;
    let second = worker.claim(b, 10).await;
    assert_eq!(
        second.messages[0].attempts, first.messages[0].attempts,
        "the count repeats"
    );
    assert_eq!(first.settle(b, Verdict::Delivered).await, ids);
    assert_eq!(state(b, ids[0]).await, State::Processing);
}

/// Proves B9.
pub async fn unknown_rows_and_tokens_are_reported_lost<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let unknown = MessageId::new();
    let settlements = vec![
        Settlement::delivered(unknown, LeaseToken::new()),
        Settlement::delivered(ids[0], LeaseToken::new()),
    ];
    let mut lost = settle(b, settlements).await;
    lost.sort();
    let mut expected = vec![unknown, ids[0]];
    expected.sort();
    assert_eq!(lost, expected);
    assert_eq!(state(b, ids[0]).await, State::Pending);
}

/// Proves B9.
pub async fn a_late_verdict_counts_while_nobody_else_has_the_row<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let work = Worker::new().claim(b, 10).await;
    b.pass_time(LEASE_AND_MORE).await;
    work.deliver(b).await;
    assert_eq!(state(b, ids[0]).await, State::Delivered);
}

/// Proves B9, B10 and pitfall 19.
pub async fn each_message_of_a_batch_has_an_outcome_of_its_own<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..6).map(|n| plain(&n.to_string()))).await;
    let lost = Worker::new().claim(b, 1).await;
    b.pass_time(LEASE_AND_MORE).await;
    let again = Worker::new().claim(b, 1).await;
    assert_eq!(again.ids(), lost.ids());
    let work = Worker::new().claim(b, 10).await;
    let verdicts = [
        Verdict::Delivered,
        retry(MINUTE),
        Verdict::Dead {
            error: "refused".into(),
        },
        Verdict::Released,
        Verdict::Delivered,
    ];
    let mut settlements = vec![lost.verdict(ids[0], Verdict::Delivered)];
    settlements.extend(
        ids[1..]
            .iter()
            .zip(verdicts)
            .map(|(id, verdict)| work.verdict(*id, verdict)),
    );
    assert_eq!(
        settle(b, settlements).await,
        ids[..1],
        "one lost lease fails only itself"
    );

    let rows = records(b).await;
    let states: Vec<_> = rows.iter().map(|row| (row.state, row.attempts)).collect();
    let expected = [
        (State::Processing, 2),
        (State::Delivered, 1),
        (State::Pending, 1),
        (State::Dead, 1),
        (State::Pending, 0),
        (State::Delivered, 1),
    ];
    assert_eq!(states, expected);
    assert_eq!(rows[3].last_error.as_deref(), Some("refused"));
    assert_eq!(rows[4].last_error, None);
}

/// Proves B9.
pub async fn no_verdicts_are_no_work<B: Backend>(b: &B) {
    assert_eq!(b.store().settle(&[]).await.expect("settle works").lost, []);
}

/// Proves pitfall 25.
pub async fn a_very_long_delay_is_kept<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let year = HOUR * 24 * 365;
    Worker::new().claim(b, 10).await.settle(b, retry(year)).await;
    let row = record(b, ids[0]).await;
    assert_eq!(row.next_attempt_at, row.updated_at + year);
}
