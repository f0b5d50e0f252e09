//! A row whose claim the database refuses: it stops only those behind it in its key.

use posthaste_core::lifecycle::State;
use posthaste_core::{Message, MessageId};
use posthaste_relay::{Relay, RelayConfig};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::engine::{config, eventually, retrying_after};
use super::steps::{LEASE_AND_MORE, MINUTE, SECOND, Work, Worker, enqueue_new, keyed, plain, retry, settle, state};
use crate::RecordingPublisher;
use crate::backend::Backend;

/// Fifty messages, five of each key.
async fn fifty<B: Backend>(b: &B) -> Vec<MessageId> {
    enqueue_new(b, (0..50).map(|n| keyed(&(n % 10).to_string(), &n.to_string()))).await
}

fn refused(work: &Work) -> Vec<MessageId> {
    assert!(work.refused.iter().all(|row| !row.error.is_empty()), "it says why");
    work.refused.iter().map(|row| row.id).collect()
}

/// All but every tenth row, beginning with this one.
fn without_key(ids: &[MessageId], first: usize) -> Vec<MessageId> {
    let waits = |n: usize| n >= first && n % 10 == first % 10;
    ids.iter()
        .enumerate()
        .filter(|(n, _)| !waits(*n))
        .map(|(_, id)| *id)
        .collect()
}

/// Proves pitfalls 5 and 19.
pub async fn a_refused_claim_stops_nobody_but_its_key<B: Backend>(b: &B) {
    let ids = fifty(b).await;
    b.refuse_changes_to(&[ids[20]]).await;
    let work = Worker::new().claim(b, 100).await;
    assert_eq!(refused(&work), [ids[20]]);
    assert_eq!(work.ids(), without_key(&ids, 20));
    work.deliver(b).await;

    let later = enqueue_new(b, [keyed("0", "behind"), keyed("1", "beside")]).await;
    let work = Worker::new().leaving_out(&[ids[20]]).claim(b, 100).await;
    assert_eq!((refused(&work), work.ids()), (vec![], later[1..].to_vec()));
    work.deliver(b).await;

    b.refuse_changes_to(&[]).await;
    let work = Worker::new().claim(b, 100).await;
    assert_eq!(work.ids(), [ids[20], ids[30], ids[40], later[0]]);
    work.deliver(b).await;
}

/// Proves pitfall 19.
pub async fn a_refused_claim_stops_nobody_where_keys_are_ignored<B: Backend>(b: &B) {
    let ids = fifty(b).await;
    b.refuse_changes_to(&[ids[20], ids[33]]).await;
    // A claim looks for such rows as long as it may, which on a slow machine is not long enough for both.
    let (mut found, mut delivered) = (Vec::new(), 0);
    for _ in 0..2 {
        let work = Worker::new().unordered().leaving_out(&found).claim(b, 100).await;
        found.extend(refused(&work));
        delivered += work.messages.len();
        work.deliver(b).await;
    }
    assert_eq!((found, delivered), (vec![ids[20], ids[33]], 48));
    b.refuse_changes_to(&[]).await;
    assert_eq!(Worker::new().unordered().claim(b, 100).await.ids(), [ids[20], ids[33]]);
}

/// Proves pitfall 19.
pub async fn a_refused_retry_stops_nobody_but_its_key<B: Backend>(b: &B) {
    let ids = fifty(b).await;
    let work = Worker::new().claim(b, 100).await;
    settle(b, ids.iter().map(|id| work.verdict(*id, retry(SECOND))).collect()).await;
    b.pass_time(SECOND * 2).await;
    b.refuse_changes_to(&[ids[4]]).await;
    let worker = Worker::new();
    let first = worker.claim(b, 100).await;
    assert_eq!(refused(&first), [ids[4]]);
    first.deliver(b).await;
    let mut delivered = first.ids();
    loop {
        let work = worker.clone().leaving_out(&[ids[4]]).claim(b, 100).await;
        if work.messages.is_empty() {
            break;
        }
        delivered.extend(work.ids());
        work.deliver(b).await;
    }
    delivered.sort_unstable();
    let mut expected = without_key(&ids, 4);
    expected.sort_unstable();
    assert_eq!(delivered, expected);
}

/// Proves pitfall 19.
pub async fn a_row_of_a_vanished_worker_whose_claim_is_refused_stops_nobody_but_its_key<B: Backend>(b: &B) {
    for worker in [Worker::new(), Worker::new().unordered()] {
        let ids = fifty(b).await;
        assert_eq!(worker.claim(b, 100).await.messages.len(), 50);
        b.pass_time(LEASE_AND_MORE).await;
        b.refuse_changes_to(&[ids[4]]).await;
        let mut reclaimed = Vec::new();
        let mut left_out = Vec::new();
        loop {
            let work = worker.clone().leaving_out(&left_out).claim(b, 100).await;
            left_out.extend(refused(&work));
            if work.messages.is_empty() && work.refused.is_empty() {
                break;
            }
            assert!(work.reclaimed || work.messages.is_empty());
            reclaimed.extend(work.ids());
            work.deliver(b).await;
        }
        assert_eq!(left_out, [ids[4]]);
        let ordered = reclaimed.len() == 45;
        assert!(ordered || reclaimed.len() == 49, "{}", reclaimed.len());
        assert!(!ordered || !reclaimed.contains(&ids[14]), "its key waits");
        b.refuse_changes_to(&[]).await;
        super::steps::deliver_all(b, &worker).await;
    }
}

/// However many stand behind it, and however many there are.
pub async fn what_is_left_out_hides_nothing<B: Backend>(b: &B) {
    let hot = enqueue_new(b, (0..600).map(|n| keyed("hot", &n.to_string()))).await;
    let plain_ones = enqueue_new(b, (0..300).map(|n| plain(&n.to_string()))).await;
    let others = enqueue_new(b, [keyed("other", "1"), plain("2")]).await;
    let left_out: Vec<_> = hot[..1].iter().chain(&plain_ones).copied().collect();
    let work = Worker::new().leaving_out(&left_out).claim(b, 10).await;
    assert_eq!(work.ids(), others);
    work.deliver(b).await;
    let unordered = Worker::new().unordered().leaving_out(&left_out).claim(b, 1_000).await;
    assert_eq!(unordered.ids(), hot[1..], "keys are ignored");
}

/// More rows than a claim takes, one after the other.
pub async fn rows_that_are_all_refused_stop_nobody_behind_them<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..150).map(|n| plain(&n.to_string()))).await;
    b.refuse_changes_to(&ids[..120]).await;
    let mut left_out = Vec::new();
    let mut claimed = Vec::new();
    // Each claim finds one of them at least.
    for _ in 0..=120 {
        let work = Worker::new().leaving_out(&left_out).claim(b, 20).await;
        left_out.extend(refused(&work));
        claimed.extend(work.ids());
        if left_out.len() == 120 && work.messages.is_empty() {
            break;
        }
    }
    assert_eq!((left_out.len(), claimed.as_slice()), (120, &ids[120..]));
}

fn quick() -> RelayConfig {
    RelayConfig {
        poll_interval: SECOND / 20,
        max_poll_interval: SECOND / 20,
        ..retrying_after(SECOND)
    }
}

async fn until_delivered<B: Backend>(b: &B, ids: &[MessageId]) {
    eventually("the deliveries", async || {
        for id in ids {
            if state(b, *id).await != State::Delivered {
                return false;
            }
        }
        true
    })
    .await;
}

/// Proves pitfalls 5 and 19.
pub async fn a_relay_delivers_all_but_a_refused_row_and_that_when_it_is_taken<B: Backend>(b: &B) {
    let messages: Vec<Message> = (0..50).map(|n| keyed(&(n % 10).to_string(), &n.to_string())).collect();
    let ids = enqueue_new(b, messages.clone()).await;
    // A relay that starts meets it when it tries verdicts.
    b.refuse_changes_to(&[ids[3]]).await;
    let broker = RecordingPublisher::new();
    let shutdown = CancellationToken::new();
    let running = Relay::new(b.store().clone(), broker.clone())
        .config(quick())
        .run_until(shutdown.clone());
    let relay = tokio::spawn(running);
    until_delivered(b, &without_key(&ids, 3)).await;
    let later = enqueue_new(b, [plain("later")]).await;
    until_delivered(b, &later).await;
    sleep(SECOND).await;
    assert_eq!(state(b, ids[13]).await, State::Pending, "it does not overtake");
    b.refuse_changes_to(&[]).await;
    until_delivered(b, &ids).await;
    shutdown.cancel();
    relay.await.expect("the relay does not panic").expect("the relay runs");
    broker.assert_order_per_key(&messages);
}

/// Proves pitfall 19.
pub async fn a_drain_delivers_all_but_a_refused_row_and_says_so<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..50).map(|n| plain(&n.to_string()))).await;
    b.refuse_changes_to(&ids[..5]).await;
    let few = RelayConfig {
        batch_size: 10,
        ..config()
    };
    // The second time there are only such rows.
    for delivered in [45, 0] {
        let relay = Relay::new(b.store().clone(), RecordingPublisher::new()).config(few.clone());
        let drained = timeout(MINUTE, relay.drain()).await.expect("the drain ends");
        let report = drained.expect("the relay runs");
        assert_eq!((report.delivered, report.undelivered), (delivered, 5));
    }
}
