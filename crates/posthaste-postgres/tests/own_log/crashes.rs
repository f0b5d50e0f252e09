//! Relays that die with messages in flight: the message that kills them is given up, alone, and no other is.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use posthaste_core::lifecycle::{LeaseToken, Settlement, Verdict};
use posthaste_core::store::{Claim, ClaimedMessage, Scope};
use posthaste_core::{Message, RelayStore};

use crate::fixture::{Log, numbered, payloads, request};

/// How long something may take on a machine with other work.
const DEADLINE: Duration = Duration::from_mins(1);

/// As many attempts as the fixture's claims allow.
const MAX_ATTEMPTS: u32 = 5;

async fn claim(log: &Log, token: LeaseToken, limit: u32) -> Claim {
    log.store.claim(&request(token, limit)).await.unwrap()
}

/// What a relay claims as soon as the server has ended the connections of the one before.
async fn claim_once_free(log: &Log, limit: u32) -> (LeaseToken, Claim) {
    let begun = Instant::now();
    loop {
        let token = LeaseToken::new();
        let claimed = claim(log, token, limit).await;
        if !claimed.messages.is_empty() {
            return (token, claimed);
        }
        assert!(begun.elapsed() < DEADLINE, "nothing comes");
        tokio::task::yield_now().await;
    }
}

async fn deliver(log: &Log, token: LeaseToken, claimed: &[ClaimedMessage]) {
    let delivered = claimed.iter().map(|one| Settlement::delivered(one.message.id, token));
    let settled = log.store.settle(&delivered.collect::<Vec<_>>()).await.unwrap();
    assert!(settled.lost.is_empty(), "{settled:?}");
}

async fn dead(log: &Log) -> Vec<(String, i32)> {
    sqlx::query_as(
        "select convert_from(payload, 'UTF8'), attempts from log_failed where died_at is not null order by 1",
    )
    .fetch_all(&log.pool)
    .await
    .unwrap()
}

/// What came of a log whose relays die when they send one of these messages.
#[derive(Debug, Default)]
struct Run {
    delivered: Vec<String>,
    crashes: u32,
    /// How many messages were delivered before each crash.
    before_crash: Vec<usize>,
    /// The attempts with which the killers were sent alone.
    alone: Vec<u32>,
}

impl Run {
    /// Lets relays read one after another until nothing is left.
    async fn until_all_is_settled(mut log: Log, killers: &[&str], messages: usize) -> (Log, Self) {
        let mut run = Self::default();
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < DEADLINE, "{run:?}");
            let token = LeaseToken::new();
            let claimed = claim(&log, token, 100).await;
            let sent = payloads(&claimed.messages);
            if killers.iter().any(|killer| sent.iter().any(|sent| sent == killer)) {
                if let [alone] = claimed.messages.as_slice() {
                    run.alone.push(alone.attempts);
                }
                run.crashes += 1;
                run.before_crash.push(run.distinct().len());
                log = log.after_a_crash();
                continue;
            }
            if !sent.is_empty() {
                deliver(&log, token, &claimed.messages).await;
                run.delivered.extend(sent);
            } else if run.distinct().len() + dead(&log).await.len() == messages {
                return (log, run);
            }
        }
    }

    fn distinct(&self) -> Vec<String> {
        let mut distinct = Vec::new();
        for one in &self.delivered {
            if !distinct.contains(one) {
                distinct.push(one.clone());
            }
        }
        distinct
    }

    fn assert_order_per_key(&self) {
        let mut last: BTreeMap<usize, usize> = BTreeMap::new();
        for one in self.distinct() {
            let number: usize = one.parse().unwrap();
            let before = last.insert(number % 7, number);
            assert!(before < Some(number), "{number} came after {before:?}");
        }
    }
}

/// Proves B8 and pitfall 33.
#[tokio::test]
async fn a_message_that_kills_every_relay_dies_alone_with_its_attempts_counted() {
    let log = Log::fresh().await;
    log.enqueue(numbered(0..200)).await;
    let (log, run) = Run::until_all_is_settled(log, &["57"], 200).await;
    assert_eq!(dead(&log).await, [("57".to_owned(), 5)]);
    assert_eq!(run.distinct().len(), 199);
    run.assert_order_per_key();
    assert_eq!(run.alone, [1, 2, 3, 4, 5], "attempts are counted ahead of a crash");
    assert!(run.crashes <= MAX_ATTEMPTS + 3, "{} relays died of it", run.crashes);
    // It is all over: what comes now goes as ever.
    log.enqueue(numbered(200..300)).await;
    let (_, claimed) = claim_once_free(&log, 100).await;
    assert_eq!((claimed.messages.len(), claimed.reclaimed), (100, false));
}

/// Proves B8.
#[tokio::test]
async fn two_messages_that_kill_their_relays_both_die_and_nothing_else_does() {
    let log = Log::fresh().await;
    log.enqueue(numbered(0..60)).await;
    let (log, run) = Run::until_all_is_settled(log, &["3", "10"], 60).await;
    assert_eq!(dead(&log).await, [("10".to_owned(), 5), ("3".to_owned(), 5)]);
    run.assert_order_per_key();
}

/// Another shard of the same relay has its first message in flight whenever it dies.
#[tokio::test]
async fn a_killer_in_one_shard_costs_no_message_of_another() {
    let log = Log::fresh().await;
    log.store.tables().unwrap().raise_shards(4).await.unwrap();
    log.enqueue(numbered(0..100)).await;
    let (log, run) = Run::until_all_is_settled(log, &["31"], 100).await;
    assert_eq!(dead(&log).await, [("31".to_owned(), 5)]);
    assert_eq!(run.distinct().len(), 99);
    run.assert_order_per_key();
}

/// Relays are killed for reasons of their own, again and again, as by a deployment that goes wrong: each of them gets
/// something done, and has more in flight when it dies.
#[tokio::test]
async fn messages_that_were_merely_in_flight_survive_many_kills() {
    let mut log = Log::fresh().await;
    log.enqueue(numbered(0..300)).await;
    let mut delivered = Vec::new();
    for _ in 0..4 * MAX_ATTEMPTS {
        let (token, claimed) = claim_once_free(&log, 50).await;
        deliver(&log, token, &claimed.messages).await;
        delivered.extend(payloads(&claimed.messages));
        claim_once_free(&log, 50).await;
        log = log.after_a_crash();
    }
    assert_eq!(dead(&log).await, []);
    let (log, rest) = Run::until_all_is_settled_after(log, delivered, 300).await;
    assert_eq!((dead(&log).await, rest.distinct().len()), (Vec::new(), 300));
}

impl Run {
    /// The same where nothing kills a relay, and some were delivered before.
    async fn until_all_is_settled_after(log: Log, delivered: Vec<String>, messages: usize) -> (Log, Self) {
        let mut run = Self {
            delivered,
            ..Self::default()
        };
        while run.distinct().len() < messages {
            let (token, claimed) = claim_once_free(&log, 100).await;
            deliver(&log, token, &claimed.messages).await;
            run.delivered.extend(payloads(&claimed.messages));
        }
        (log, run)
    }
}

/// Proves B3.
#[tokio::test]
async fn who_stops_with_messages_in_flight_has_not_crashed() {
    let mut log = Log::fresh().await;
    log.enqueue(numbered(0..50)).await;
    for _ in 0..4 * MAX_ATTEMPTS {
        let (_, claimed) = claim_once_free(&log, 100).await;
        assert_eq!((claimed.messages.len(), claimed.reclaimed), (50, false));
        assert!(claimed.messages.iter().all(|one| one.attempts == 1));
        // It answers for nothing, but says that it goes.
        log.store.close().await.unwrap();
        log = log.after_a_crash();
    }
}

/// Proves B3.
#[tokio::test]
async fn a_relay_that_loses_its_connections_has_not_crashed() {
    let log = Log::fresh().await;
    log.enqueue(numbered(0..50)).await;
    let (token, claimed) = claim_once_free(&log, 40).await;
    for _ in 0..2 * MAX_ATTEMPTS {
        log.run(
            "select pg_terminate_backend(l.pid) from pg_locks l
             where l.locktype = 'advisory' and l.granted and ((l.classid::bigint << 32) | l.objid::bigint)
                = hashtextextended('posthaste:log:' || 'log_shards'::regclass::oid::text || ':0', 0)",
        )
        .await;
        let begun = Instant::now();
        while let Err(error) = log.store.keep_alive().await {
            assert!(begun.elapsed() < DEADLINE, "{error}");
        }
    }
    deliver(&log, token, &claimed.messages).await;
    let (_, rest) = claim_once_free(&log, 100).await;
    assert_eq!((rest.messages.len(), rest.reclaimed), (10, false));
}

/// Messages in the table of failures that are due: each was enqueued with a time of its own, which has come.
async fn schedule(log: &Log, range: std::ops::Range<usize>) {
    let later = chrono::Utc::now() + chrono::Duration::hours(1);
    let message = |n: usize| {
        Message::new("orders", n.to_string())
            .key(format!("s{n}"))
            .not_before(later)
    };
    log.enqueue(range.map(message).collect()).await;
    log.run("update log_failed set next_attempt_at = now()").await;
}

/// Proves B8 and pitfall 33.
#[tokio::test]
async fn a_scheduled_message_that_kills_every_relay_dies_alone_and_others_do_not_wait_for_that() {
    let log = Log::fresh().await;
    // More than a claim takes.
    schedule(&log, 0..120).await;
    log.enqueue(numbered(200..300)).await;
    let (log, run) = Run::until_all_is_settled(log, &["7"], 220).await;
    assert_eq!(dead(&log).await, [("7".to_owned(), 5)]);
    assert_eq!(run.distinct().len(), 219);
    assert_eq!(run.alone, [1, 2, 3, 4, 5], "attempts are counted ahead of a crash");
    assert!(run.crashes <= MAX_ATTEMPTS + 3, "{} relays died of it", run.crashes);
    // What had not been in flight with it is delivered by the relay that follows the first crash.
    assert!(run.before_crash[1] >= 120, "{:?}", run.before_crash);
    // It is all over: what comes now goes as ever.
    schedule(&log, 300..350).await;
    let (_, claimed) = claim_once_free(&log, 100).await;
    assert_eq!((claimed.messages.len(), claimed.reclaimed), (50, false));
}

/// Proves B8 and pitfall 33.
#[tokio::test]
async fn a_message_whose_retries_kill_every_relay_dies_with_all_of_its_attempts_counted() {
    let log = Log::fresh().await;
    log.enqueue(numbered(0..20)).await;
    let (token, claimed) = claim_once_free(&log, 100).await;
    for one in &claimed.messages {
        let (delay, error) = (Duration::ZERO, "no".to_owned());
        log.settle(token, one.message.id, Verdict::Retry { delay, error }).await;
    }
    let (log, run) = Run::until_all_is_settled(log, &["3"], 20).await;
    assert_eq!(dead(&log).await, [("3".to_owned(), 5)]);
    assert_eq!(run.alone, [2, 3, 4, 5], "the first one failed without a crash");
    run.assert_order_per_key();
}

/// Another shard of the same relay has rows in flight whenever it dies.
#[tokio::test]
async fn a_scheduled_killer_in_one_shard_costs_no_message_of_another() {
    let log = Log::fresh().await;
    log.store.tables().unwrap().raise_shards(4).await.unwrap();
    schedule(&log, 0..30).await;
    log.enqueue(numbered(100..130)).await;
    let (log, run) = Run::until_all_is_settled(log, &["7", "21"], 60).await;
    assert_eq!(dead(&log).await, [("21".to_owned(), 5), ("7".to_owned(), 5)]);
    assert_eq!(run.distinct().len(), 58);
}

#[tokio::test]
async fn scheduled_messages_that_were_merely_in_flight_survive_many_kills() {
    let mut log = Log::fresh().await;
    schedule(&log, 0..150).await;
    let mut delivered = Vec::new();
    for _ in 0..4 * MAX_ATTEMPTS {
        let (token, claimed) = claim_once_free(&log, 10).await;
        deliver(&log, token, &claimed.messages).await;
        delivered.extend(payloads(&claimed.messages));
        claim_once_free(&log, 10).await;
        log = log.after_a_crash();
    }
    assert_eq!(dead(&log).await, []);
    let (log, rest) = Run::until_all_is_settled_after(log, delivered, 150).await;
    assert_eq!((dead(&log).await, rest.distinct().len()), (Vec::new(), 150));
}

/// Proves B3.
#[tokio::test]
async fn who_stops_with_scheduled_messages_in_flight_has_not_crashed() {
    let mut log = Log::fresh().await;
    schedule(&log, 0..20).await;
    for _ in 0..4 * MAX_ATTEMPTS {
        let (_, claimed) = claim_once_free(&log, 100).await;
        assert_eq!((claimed.messages.len(), claimed.reclaimed), (20, false));
        assert!(claimed.messages.iter().all(|one| one.attempts == 1));
        log.store.close().await.unwrap();
        log = log.after_a_crash();
    }
}

/// What was not handed to the broker used no attempt; what was, is suspected no more.
#[tokio::test]
async fn a_suspect_that_was_not_tried_keeps_its_attempts_and_one_that_was_is_as_any_other() {
    let mut log = Log::fresh().await;
    schedule(&log, 0..1).await;
    for _ in 0..4 {
        claim_once_free(&log, 100).await;
        log = log.after_a_crash();
    }
    for n in 0..2 * MAX_ATTEMPTS {
        let (token, claimed) = claim_once_free(&log, 100).await;
        let [one] = claimed.messages.as_slice() else {
            panic!("{claimed:?}");
        };
        assert_eq!((one.attempts, claimed.reclaimed), (2, true));
        let (delay, error) = (Duration::ZERO, "the circuit is open".to_owned());
        let not_tried = [Verdict::Released, Verdict::Postponed { delay, error }];
        log.settle(token, one.message.id, not_tried[n as usize % 2].clone())
            .await;
    }
    let (token, claimed) = claim_once_free(&log, 100).await;
    let (delay, error) = (Duration::ZERO, "no".to_owned());
    log.settle(token, claimed.messages[0].message.id, Verdict::Retry { delay, error })
        .await;
    let (_, claimed) = claim_once_free(&log, 100).await;
    assert_eq!((claimed.messages[0].attempts, claimed.reclaimed), (3, false));
    assert_eq!(log.count("select attempts::bigint from log_failed").await, 2);
}

/// It used all of its attempts under a limit that is lower by now.
#[tokio::test]
async fn what_stands_behind_a_suspect_that_is_given_up_goes() {
    let log = Log::fresh().await;
    let message = |payload: &'static str, key: &'static str| Message::new("orders", payload).key(key);
    log.enqueue(vec![message("killer", "k"), message("next", "k")]).await;
    let (token, claimed) = claim_once_free(&log, 1).await;
    assert_eq!(payloads(&claimed.messages), ["killer"]);
    let (delay, error) = (Duration::ZERO, "no".to_owned());
    log.settle(token, claimed.messages[0].message.id, Verdict::Retry { delay, error })
        .await;
    let (_, claimed) = claim_once_free(&log, 1).await;
    assert_eq!(payloads(&claimed.messages), ["killer"]);
    let log = log.after_a_crash();
    log.enqueue(vec![message("other", "o")]).await;
    let (token, claimed) = claim_once_free(&log, 100).await;
    assert_eq!(payloads(&claimed.messages), ["other"], "suspects go later, and alone");
    let given_up = log.store.sweep(&Scope::default(), 1).await.unwrap();
    assert_eq!((given_up.len(), dead(&log).await), (1, vec![("killer".to_owned(), 1)]));
    deliver(&log, token, &claimed.messages).await;
    let (_, claimed) = claim_once_free(&log, 100).await;
    assert_eq!(payloads(&claimed.messages), ["next"]);
}

/// The reach covers many rows, so most claims write nothing.
#[tokio::test]
async fn counting_crashes_costs_a_message_next_to_nothing() {
    const MESSAGES: usize = 20_000;
    let log = Log::fresh().await;
    for first in (0..MESSAGES).step_by(5_000) {
        log.enqueue(numbered(first..first + 5_000)).await;
    }
    let begun = Instant::now();
    let mut left = MESSAGES;
    let mut writes = std::collections::BTreeSet::new();
    while left > 0 {
        let (token, claimed) = claim_once_free(&log, 1_000).await;
        deliver(&log, token, &claimed.messages).await;
        left -= claimed.messages.len();
        writes.insert(
            log.count("select xmin::text::bigint from log_shards where shard = 0")
                .await,
        );
    }
    // Two for the reach, one for each quarter of a second, and those of the beginning and the end.
    let allowed = 4 + begun.elapsed().as_millis() / 250;
    assert!((writes.len() as u128) <= allowed, "{} writes", writes.len());
}
