//! Relays that die with messages beside the log in flight: the message that kills them is given up, alone, and no other is.

use std::time::{Duration, Instant};

use posthaste_core::lifecycle::Verdict;
use posthaste_core::store::{Claim, ClaimRequest};
use posthaste_core::{Message, MessageId, RelayStore};
use posthaste_sqlite::SqliteLogStore;

use crate::log::{another, claim, enqueue, fresh, keyed, let_lease_run_out, request, settle};
use crate::log_delayed::enqueue_delayed;

/// How long something may take on a machine with other work.
const DEADLINE: Duration = Duration::from_mins(2);

const MAX_ATTEMPTS: u32 = 5;

fn work(limit: u32) -> ClaimRequest {
    ClaimRequest {
        max_attempts: MAX_ATTEMPTS,
        ..request(limit)
    }
}

/// The process is killed, and the next one begins when its lease is over.
async fn after_a_crash(store: SqliteLogStore) -> SqliteLogStore {
    let_lease_run_out(store.pool()).await;
    another(store.pool())
}

/// Suspects go now and then while there is other work.
async fn claim_some(store: &SqliteLogStore, work: &ClaimRequest) -> Claim {
    for _ in 0..10 {
        let claimed = store.claim(work).await.unwrap();
        if !claimed.messages.is_empty() {
            return claimed;
        }
        store.pass_time(Duration::from_millis(300));
    }
    panic!("nothing comes");
}

fn ids(claimed: &Claim) -> Vec<MessageId> {
    claimed.messages.iter().map(|claimed| claimed.message.id).collect()
}

async fn deliver(store: &SqliteLogStore, work: &ClaimRequest, ids: &[MessageId]) {
    assert_eq!(settle(store, work, ids, &Verdict::Delivered).await, []);
}

async fn dead(store: &SqliteLogStore) -> Vec<(String, i64)> {
    sqlx::query_as("select id, attempts from posthaste_log_failed where died_at is not null order by log_id, number")
        .fetch_all(store.pool())
        .await
        .unwrap()
}

/// What came of messages of which some kill their relays.
#[derive(Debug, Default)]
struct Run {
    delivered: Vec<MessageId>,
    crashes: u32,
    /// How many messages were delivered before each crash.
    before_crash: Vec<usize>,
    /// The attempts with which the killers were sent alone.
    alone: Vec<u32>,
}

impl Run {
    /// Lets relays read one after another until nothing is left.
    async fn until_all_is_settled(
        mut store: SqliteLogStore,
        killers: &[MessageId],
        messages: usize,
    ) -> (SqliteLogStore, Self) {
        let (mut run, begun) = (Self::default(), Instant::now());
        loop {
            assert!(begun.elapsed() < DEADLINE, "{run:?}");
            let work = work(100);
            let claimed = store.claim(&work).await.unwrap();
            let sent = ids(&claimed);
            if sent.iter().any(|id| killers.contains(id)) {
                if let [alone] = claimed.messages.as_slice() {
                    run.alone.push(alone.attempts);
                }
                run.crashes += 1;
                run.before_crash.push(run.delivered.len());
                store = after_a_crash(store).await;
            } else if !sent.is_empty() {
                deliver(&store, &work, &sent).await;
                run.delivered.extend(sent);
            } else if run.delivered.len() + dead(&store).await.len() == messages {
                return (store, run);
            }
            store.pass_time(Duration::from_millis(300));
        }
    }
}

fn many(range: std::ops::Range<usize>) -> impl Iterator<Item = Message> {
    range.map(|n| keyed(&n.to_string()))
}

/// Proves B8 and pitfall 33.
#[tokio::test]
async fn a_delayed_message_that_kills_every_relay_dies_alone_and_others_do_not_wait_for_that() {
    let (store, _directory) = fresh().await;
    // More than a claim takes.
    let delayed = enqueue_delayed(&store, many(0..120)).await;
    enqueue(&store, many(200..300)).await;
    let (store, run) = Run::until_all_is_settled(store, &delayed[7..8], 220).await;
    assert_eq!(dead(&store).await, [(delayed[7].to_string(), 5)]);
    assert_eq!(run.delivered.len(), 219, "each of them once");
    assert_eq!(run.alone, [1, 2, 3, 4, 5], "attempts are counted ahead of a crash");
    assert!(run.crashes <= MAX_ATTEMPTS + 3, "{} relays died of it", run.crashes);
    // What had not been in flight with it is delivered by the relay that follows the first crash.
    assert!(run.before_crash[1] >= 120, "{:?}", run.before_crash);
    // It is all over: what comes now goes as ever.
    enqueue_delayed(&store, many(300..350)).await;
    let claimed = claim_some(&store, &work(100)).await;
    assert_eq!((claimed.messages.len(), claimed.reclaimed), (50, false));
}

/// Proves B8 and pitfall 33.
#[tokio::test]
async fn a_message_whose_retries_kill_every_relay_dies_with_all_of_its_attempts_counted() {
    let (store, _directory) = fresh().await;
    let messages = enqueue(&store, many(0..20)).await;
    let first = work(100);
    assert_eq!(claim(&store, &first).await, messages);
    let (delay, error) = (Duration::ZERO, "no".to_owned());
    let failed = Verdict::Retry { delay, error };
    assert_eq!(settle(&store, &first, &messages, &failed).await, []);
    let (store, run) = Run::until_all_is_settled(store, &messages[3..4], 20).await;
    assert_eq!(dead(&store).await, [(messages[3].to_string(), 5)]);
    assert_eq!(run.alone, [2, 3, 4, 5], "the first one failed without a crash");
}

/// Proves B8.
#[tokio::test]
async fn two_delayed_messages_of_a_key_that_kill_their_relays_both_die_and_the_key_stays_in_order() {
    let (store, _directory) = fresh().await;
    let of_key = enqueue_delayed(&store, (0..60).map(|_| keyed("k"))).await;
    let (store, run) = Run::until_all_is_settled(store, &[of_key[3], of_key[10]], 60).await;
    assert_eq!(
        dead(&store).await,
        [3, 10].map(|n: usize| (of_key[n].to_string(), 5_i64))
    );
    let left = of_key.iter().enumerate().filter(|(n, _)| ![3, 10].contains(n));
    assert_eq!(run.delivered, left.map(|(_, id)| *id).collect::<Vec<_>>());
}

/// Relays are killed for reasons of their own, again and again: each of them gets something done, and has more in flight when it dies.
#[tokio::test]
async fn delayed_messages_that_were_merely_in_flight_survive_many_kills() {
    let (mut store, _directory) = fresh().await;
    let messages = enqueue_delayed(&store, many(0..300)).await;
    let mut delivered = 0;
    for _ in 0..4 * MAX_ATTEMPTS {
        let some = work(10);
        let claimed = ids(&claim_some(&store, &some).await);
        deliver(&store, &some, &claimed).await;
        delivered += claimed.len();
        claim_some(&store, &work(10)).await;
        store = after_a_crash(store).await;
    }
    assert_eq!(dead(&store).await, []);
    let (store, rest) = Run::until_all_is_settled(store, &[], messages.len() - delivered).await;
    assert_eq!(
        (dead(&store).await, rest.delivered.len()),
        (vec![], messages.len() - delivered)
    );
}

/// Proves B3.
#[tokio::test]
async fn who_stops_with_delayed_messages_in_flight_has_not_crashed() {
    let (mut store, _directory) = fresh().await;
    enqueue_delayed(&store, many(0..20)).await;
    for _ in 0..4 * MAX_ATTEMPTS {
        let claimed = claim_some(&store, &work(100)).await;
        assert_eq!((claimed.messages.len(), claimed.reclaimed), (20, false));
        assert!(claimed.messages.iter().all(|one| one.attempts == 1));
        // It answers for nothing, but says that it goes.
        store.close().await.unwrap();
        store = after_a_crash(store).await;
    }
}

/// What was not handed to the broker used no attempt; what was, is suspected no more.
#[tokio::test]
async fn a_suspect_that_was_not_tried_keeps_its_attempts_and_one_that_was_is_as_any_other() {
    let (mut store, _directory) = fresh().await;
    enqueue_delayed(&store, many(0..1)).await;
    for _ in 0..4 {
        claim_some(&store, &work(100)).await;
        store = after_a_crash(store).await;
    }
    for n in 0..2 * MAX_ATTEMPTS {
        let work = work(100);
        let claimed = claim_some(&store, &work).await;
        assert_eq!((claimed.messages[0].attempts, claimed.reclaimed), (2, true));
        let (delay, error) = (Duration::ZERO, "the circuit is open".to_owned());
        let not_tried = [Verdict::Released, Verdict::Postponed { delay, error }];
        let verdict = &not_tried[n as usize % 2];
        assert_eq!(settle(&store, &work, &ids(&claimed), verdict).await, []);
    }
    let last = work(100);
    let claimed = claim_some(&store, &last).await;
    let (delay, error) = (Duration::ZERO, "no".to_owned());
    let failed = Verdict::Retry { delay, error };
    assert_eq!(settle(&store, &last, &ids(&claimed), &failed).await, []);
    let claimed = claim_some(&store, &work(100)).await;
    assert_eq!((claimed.messages[0].attempts, claimed.reclaimed), (3, false));
}

/// Proves pitfall 18.
#[tokio::test]
async fn what_was_in_flight_of_a_key_in_a_crash_does_not_go_one_by_one_after_it() {
    let (store, _directory) = fresh().await;
    let of_key = enqueue_delayed(&store, (0..300).map(|_| keyed("k"))).await;
    assert_eq!(claim(&store, &work(100)).await, of_key[..100]);
    let store = after_a_crash(store).await;
    let (mut arrived, mut claims) = (Vec::new(), 0);
    while arrived.len() < of_key.len() {
        let some = work(100);
        let claimed = ids(&claim_some(&store, &some).await);
        deliver(&store, &some, &claimed).await;
        arrived.extend(claimed);
        claims += 1;
    }
    assert_eq!(arrived, of_key);
    assert!(claims <= 20, "{claims} claims");
}
