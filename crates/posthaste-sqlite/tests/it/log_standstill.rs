//! Thousands of messages that wait are no reason for those behind them to wait.

use std::time::{Duration, Instant};

use posthaste_core::lifecycle::Verdict;
use posthaste_core::store::ClaimRequest;
use posthaste_core::{Message, MessageId};
use posthaste_sqlite::SqliteLogStore;

use crate::log::{claim, enqueue, fresh, keyed, request, settle};

/// More than a reader keeps in memory.
const MANY: usize = 12_000;

/// What is claimed before others go.
const IN_FLIGHT: usize = 100;

/// What of that is delivered then; the rest fails.
const DELIVERED: usize = 95;

/// Waits for one message, while whatever else comes is dealt with by another.
async fn wait_for(
    store: &SqliteLogStore,
    wanted: MessageId,
    deal_with_others: impl AsyncFn(&ClaimRequest, &[MessageId]),
) {
    let begun = Instant::now();
    loop {
        let work = request(1_000);
        let mut claimed = claim(store, &work).await;
        let found = claimed.contains(&wanted);
        claimed.retain(|id| *id != wanted);
        deal_with_others(&work, &claimed).await;
        if found {
            assert_eq!(settle(store, &work, &[wanted], &Verdict::Delivered).await, []);
            return;
        }
        store.pass_time(Duration::from_secs(2));
        assert!(
            begun.elapsed() < Duration::from_mins(1),
            "what waits holds up all others"
        );
    }
}

/// Proves pitfall 18.
#[tokio::test]
async fn a_key_whose_receiver_is_slow_does_not_keep_others_waiting_and_stays_in_order() {
    let (store, _directory) = fresh().await;
    let slow = enqueue(&store, (0..MANY).map(|_| keyed("one"))).await;
    let first = request(u32::try_from(IN_FLIGHT).unwrap());
    assert_eq!(claim(&store, &first).await, slow[..IN_FLIGHT]);
    let quick = enqueue(&store, [keyed("another")]).await[0];
    wait_for(&store, quick, async |_, others| {
        assert_eq!(others, [], "they wait for those in flight");
    })
    .await;
    // Some of those in flight fail after all; the others of its key have not passed it.
    assert_eq!(
        settle(&store, &first, &slow[..DELIVERED], &Verdict::Delivered).await,
        []
    );
    let (delay, error) = (Duration::ZERO, "no".to_owned());
    let failed = Verdict::Retry { delay, error };
    assert_eq!(settle(&store, &first, &slow[DELIVERED..IN_FLIGHT], &failed).await, []);
    let (mut arrived, begun) = (slow[..DELIVERED].to_vec(), Instant::now());
    while arrived.len() < 2_000 {
        let work = request(1_000);
        let claimed = claim(&store, &work).await;
        assert_eq!(settle(&store, &work, &claimed, &Verdict::Delivered).await, []);
        arrived.extend(claimed);
        assert!(begun.elapsed() < Duration::from_mins(2), "{} came", arrived.len());
    }
    assert_eq!(arrived, slow[..arrived.len()], "in order");
}

/// Each of them is put off again and again, as while one of several publishers is unavailable.
#[tokio::test]
async fn messages_of_an_unavailable_receiver_do_not_keep_others_waiting() {
    let (store, _directory) = fresh().await;
    enqueue(&store, (0..MANY).map(|n| keyed(&n.to_string()))).await;
    let available = enqueue(&store, [Message::new("available", "{}")]).await[0];
    let (delay, error) = (Duration::from_secs(30), "unavailable".to_owned());
    let put_off = Verdict::Postponed { delay, error };
    wait_for(&store, available, async |work, others| {
        assert_eq!(settle(&store, work, others, &put_off).await, []);
    })
    .await;
    let attempts: i64 = sqlx::query_scalar("select coalesce(max(attempts), 0) from posthaste_log_failed")
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert_eq!(attempts, 0, "nothing was tried");
}
