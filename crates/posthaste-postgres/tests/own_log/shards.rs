//! A log of several shards, which relays divide among themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use posthaste_core::lifecycle::{LeaseToken, Settlement, Verdict};
use posthaste_core::store::{AdminStore, ClaimRequest, ClaimedMessage, DeadHead, KeyOrdering, ShardStatus};
use posthaste_core::{Message, OutboxOptions, RelayStore};
use posthaste_publishers::Callback;
use posthaste_relay::Relay;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::fixture::{Log, numbered, payloads, request};

/// How long something may take on a machine with other work.
const PATIENCE: Duration = Duration::from_mins(1);

impl Log {
    async fn sharded(shards: u32) -> Self {
        let log = Self::fresh().await;
        log.raise(shards).await;
        log
    }

    pub(crate) async fn raise(&self, shards: u32) {
        self.store.tables().unwrap().raise_shards(shards).await.unwrap();
    }

    /// Another relay of the same log.
    fn beside(&self) -> Self {
        Self::over(self.pool.clone(), self.store.map().clone())
    }

    async fn shards(&self) -> Vec<ShardStatus> {
        self.store.shards().await.unwrap()
    }

    /// How many shards each relay reads, of those to which rows are written.
    async fn spread(&self) -> Vec<usize> {
        let mut spread: BTreeMap<Uuid, usize> = BTreeMap::new();
        for owner in self.shards().await.iter().skip(1).filter_map(|shard| shard.owner) {
            *spread.entry(owner).or_default() += 1;
        }
        let mut spread: Vec<usize> = spread.into_values().collect();
        spread.sort_unstable();
        spread
    }
}

/// Lets relays look after their seats until they have them so.
async fn settle_down(relays: &[&Log], expected: &[usize]) {
    let begun = Instant::now();
    loop {
        for relay in relays {
            assert!(relay.claim(1).await.is_empty(), "there is nothing to claim");
        }
        let spread = relays[0].spread().await;
        if spread == expected {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{spread:?} instead of {expected:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Proves B14.
#[tokio::test]
async fn shards_are_spread_evenly_over_those_who_are_there() {
    let first = Log::sharded(8).await;
    settle_down(&[&first], &[8]).await;
    let second = first.beside();
    settle_down(&[&first, &second], &[4, 4]).await;
    let third = first.beside();
    settle_down(&[&first, &second, &third], &[2, 3, 3]).await;
    let epochs: Vec<i64> = first.shards().await.iter().map(|shard| shard.epoch).collect();
    settle_down(&[&first, &second, &third], &[2, 3, 3]).await;
    let later: Vec<i64> = first.shards().await.iter().map(|shard| shard.epoch).collect();
    assert_eq!(epochs, later, "and then they stay");
    // One that stops hands over at once; one that is gone without a word is missed as soon as the server has.
    second.store.close().await.unwrap();
    settle_down(&[&first, &third], &[4, 4]).await;
    drop(third);
    settle_down(&[&first], &[8]).await;
}

/// As while its circuit is open. Alone it keeps them, since nobody else would read them.
///
/// Proves B14.
#[tokio::test]
async fn one_that_claims_nothing_for_a_lease_leaves_its_shards_to_others() {
    const LEASE: Duration = Duration::from_secs(6);
    let first = Log::sharded(4).await;
    let short = || ClaimRequest {
        lease: LEASE,
        ..request(LeaseToken::new(), 10)
    };
    let begun = Instant::now();
    assert!(first.store.claim(&short()).await.unwrap().messages.is_empty());
    while begun.elapsed() < 2 * LEASE {
        first.store.keep_alive().await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(first.spread().await, [4], "nobody else is there");
    let second = first.beside();
    first.enqueue(numbered(0..40)).await;
    let (token, mut found) = (LeaseToken::new(), 0);
    while found < 40 {
        first.store.keep_alive().await.unwrap();
        for claimed in second.claim_as(token, 100).await {
            second.settle(token, claimed.message.id, Verdict::Delivered).await;
            found += 1;
        }
        assert!(begun.elapsed() < PATIENCE, "{found} of 40");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // And it comes back when it claims again.
    settle_down(&[&first, &second], &[2, 2]).await;
}

/// What is in flight is answered before its shard goes to another relay.
///
/// Proves B14.
#[tokio::test]
async fn a_shard_in_flight_is_handed_over_when_it_is_answered() {
    let first = Log::sharded(2).await;
    first.enqueue(numbered(0..40)).await;
    let token = LeaseToken::new();
    let claimed = first.claim_as(token, 100).await;
    assert_eq!(claimed.len(), 40);
    let second = first.beside();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        assert!(first.claim(10).await.is_empty());
        assert!(second.claim(10).await.is_empty(), "it is all in flight");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for one in &claimed {
        first.settle(token, one.message.id, Verdict::Delivered).await;
    }
    settle_down(&[&first, &second], &[1, 1]).await;
    assert!(second.claim(100).await.is_empty(), "nothing of it comes twice");
}

/// Two drains side by side: one that ends leaves its shards to the other, which must not end before it has looked.
#[tokio::test]
async fn a_drain_takes_over_what_another_relay_leaves_at_its_end() {
    let first = Log::sharded(4).await;
    let delivered = Arc::new(AtomicUsize::new(0));
    let second = first.beside();
    settle_down(&[&first, &second], &[2, 2]).await;
    first.enqueue(numbered(0..400)).await;
    let noted = Arc::clone(&delivered);
    let publisher = Callback::new(move |_| {
        noted.fetch_add(1, Ordering::SeqCst);
        ready(Ok(()))
    });
    let begun = Instant::now();
    let drain = tokio::spawn(Relay::new(first.store.clone(), publisher).drain());
    while delivered.load(Ordering::SeqCst) == 0 {
        assert!(begun.elapsed() < PATIENCE, "nothing was delivered");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // It is through with its own and finds nothing more, as long as the other one is there.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(
        delivered.load(Ordering::SeqCst) < 400 && !drain.is_finished(),
        "{} of 400",
        delivered.load(Ordering::SeqCst)
    );
    second.store.close().await.unwrap();
    let report = drain.await.unwrap().unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(delivered.load(Ordering::SeqCst), 400);
}

/// And ends all the same if the other one keeps them.
#[tokio::test]
async fn a_drain_ends_beside_a_relay_that_keeps_its_shards() {
    let first = Log::sharded(4).await;
    let second = first.beside();
    settle_down(&[&first, &second], &[2, 2]).await;
    first.enqueue(numbered(0..400)).await;
    let publisher = Callback::new(|_| ready(Ok(())));
    let drain = Relay::new(first.store.clone(), publisher).drain();
    let report = tokio::time::timeout(PATIENCE, drain).await.unwrap().unwrap();
    assert!(report.delivered > 0 && report.remaining > 0, "{report:?}");
    assert_eq!(report.delivered + report.remaining, 400);
}

/// A shard that was to be handed over, when the database did not take that, goes on being read.
///
/// Proves B14.
#[tokio::test]
async fn a_hand_over_that_fails_leaves_no_shard_unread() {
    let first = Log::sharded(4).await;
    settle_down(&[&first], &[4]).await;
    first
        .run(
            "create function refuse() returns trigger language plpgsql as $$ begin raise 'not now'; end $$;
             create trigger refuse before update on log_shards for each row
             when (new.owner is null and old.owner is not null) execute function refuse()",
        )
        .await;
    let second = first.beside();
    assert!(second.claim(1).await.is_empty(), "it is there, and waits");
    let begun = Instant::now();
    while first.store.claim(&request(LeaseToken::new(), 1)).await.is_ok() {
        assert!(begun.elapsed() < PATIENCE, "it tries to hand over");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    first.run("drop trigger refuse on log_shards").await;
    settle_down(&[&first, &second], &[2, 2]).await;
    first.enqueue(numbered(0..70)).await;
    let mut delivered = BTreeSet::new();
    while delivered.len() < 70 {
        for relay in [&first, &second] {
            let token = LeaseToken::new();
            let claimed = relay.claim_as(token, 100).await;
            for one in &claimed {
                relay.settle(token, one.message.id, Verdict::Delivered).await;
            }
            delivered.extend(payloads(&claimed));
        }
        assert!(begun.elapsed() < PATIENCE, "{} of 70", delivered.len());
    }
}

#[tokio::test]
async fn what_waits_in_an_earlier_generation_goes_before_what_follows_in_a_later_one() {
    let log = Log::fresh().await;
    let message = |payload: &'static str| Message::new("orders", payload).key("k");
    log.enqueue(vec![message("failed")]).await;
    let token = LeaseToken::new();
    let failed = log.claim_as(token, 10).await.remove(0).message.id;
    let again = Verdict::Retry {
        delay: Duration::ZERO,
        error: "not now".to_owned(),
    };
    log.settle(token, failed, again).await;
    log.raise(4).await;
    log.enqueue(vec![message("second")]).await;
    log.raise(5).await;
    log.enqueue(vec![message("third")]).await;
    for expected in ["failed", "second", "third"] {
        let token = LeaseToken::new();
        let claimed = once_free(&log, token).await;
        assert_eq!(payloads(&claimed), [expected]);
        // All generations are read meanwhile, and what follows has been met there.
        log.passes_nothing(|| request(LeaseToken::new(), 10)).await;
        log.settle(token, claimed[0].message.id, Verdict::Delivered).await;
    }
}

impl Log {
    /// Claims until every shard has its reader, and each of them has read, which brings nothing.
    async fn passes_nothing(&self, request: impl Fn() -> ClaimRequest) {
        let begun = Instant::now();
        let mut looks = 0;
        while looks < 5 {
            let claim = self.store.claim(&request()).await.unwrap();
            assert!(claim.messages.is_empty(), "one after the other");
            looks += u32::from(self.shards().await.iter().all(|shard| shard.owner.is_some()));
            assert!(begun.elapsed() < PATIENCE, "{:?}", self.shards().await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn once_free(log: &Log, token: LeaseToken) -> Vec<ClaimedMessage> {
    let begun = Instant::now();
    loop {
        let claimed = log.claim_as(token, 10).await;
        if !claimed.is_empty() || begun.elapsed() > PATIENCE {
            return claimed;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Proves pitfall 17.
/// While a broker is slow, every other row may be open, of thousands.
#[tokio::test]
async fn the_status_of_a_shard_takes_no_longer_for_what_is_open_in_it() {
    let log = Log::fresh().await;
    log.run(
        "update log_shards set position = 1,
             state = '8001;' || (select string_agg((2 * n)::text, ',') from generate_series(1, 4000) n)",
    )
    .await;
    let begun = Instant::now();
    assert_eq!(log.shards().await[0].lag, 4_000);
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "it took {:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn one_that_was_given_up_in_an_earlier_generation_blocks_a_later_one() {
    let log = Log::fresh().await;
    let message = |payload: &'static str| Message::new("orders", payload).key("k");
    log.enqueue(vec![message("dead")]).await;
    let token = LeaseToken::new();
    let dead = log.claim_as(token, 10).await.remove(0).message.id;
    let died = Verdict::Dead {
        error: "never".to_owned(),
    };
    log.settle(token, dead, died).await;
    log.raise(4).await;
    log.enqueue(vec![message("behind")]).await;
    let blocking = |token| ClaimRequest {
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Block,
            except: Vec::new(),
        },
        ..request(token, 10)
    };
    log.passes_nothing(|| blocking(LeaseToken::new())).await;
    let skipping = once_free(&log, LeaseToken::new()).await;
    assert_eq!(payloads(&skipping), ["behind"], "unless those are skipped");
}

/// A relay whose seat was given to another one, because the connection by which it is known to be there was lost, settles
/// nothing, and does not undo what the other one did.
///
/// Proves B9 and pitfall 6.
#[tokio::test]
async fn whoever_has_lost_its_seat_writes_nothing() {
    let first = Log::fresh().await;
    first.enqueue(numbered(0..10)).await;
    let token = LeaseToken::new();
    let claimed = first.claim_as(token, 100).await;
    assert_eq!(claimed.len(), 10);
    let epoch = first.shards().await[0].epoch;
    let second = first.beside();
    assert!(second.claim(10).await.is_empty(), "it is there, and waits");
    let seats = "select count(pg_terminate_backend(l.pid)) from pg_locks l \
                 where l.locktype = 'advisory' and l.objsubid = 2 \
                   and lpad(to_hex(l.objid::bigint), 8, '0') = (select right(owner::text, 8) from log_shards where shard = 0)";
    assert_eq!(first.count(seats).await, 1, "the connection of the first is ended");
    let begun = Instant::now();
    while first.shards().await[0].epoch == epoch {
        assert!(second.claim(10).await.is_empty(), "the first one's lock stands");
        assert!(begun.elapsed() < PATIENCE);
    }
    // It has not heard of it; its lock is there, and its verdict comes to nothing.
    first.store.pass_time(Duration::from_secs(1));
    let settlement = |n: usize| Settlement {
        id: claimed[n].message.id,
        token,
        verdict: Verdict::Delivered,
        version: None,
        without_letter: false,
    };
    first.store.settle(&[settlement(0)]).await.unwrap();
    let settled = first.store.settle(&[settlement(1)]).await.unwrap();
    assert_eq!(settled.lost, [claimed[1].message.id]);
    let token = LeaseToken::new();
    let again = second.claim_until_there(token).await;
    assert_eq!(payloads(&again), payloads(&claimed), "all of it is the second one's");
    for one in &again {
        second.settle(token, one.message.id, Verdict::Delivered).await;
    }
    assert!(first.claim(10).await.is_empty());
    second.store.close().await.unwrap();
}

impl Log {
    async fn claim_until_there(&self, token: LeaseToken) -> Vec<ClaimedMessage> {
        let begun = Instant::now();
        loop {
            let claimed = self.claim_as(token, 100).await;
            if !claimed.is_empty() || begun.elapsed() > PATIENCE {
                return claimed;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// What was delivered, in order: key and number.
type Deliveries = Arc<Mutex<Vec<(String, usize)>>>;

const WRITERS: usize = 6;
const KEYS_OF_A_WRITER: usize = 4;

/// Writes ever higher numbers to its keys, in transactions of every kind; says which of them were committed.
async fn write(log: Log, writer: usize, stop: Arc<AtomicBool>) -> BTreeSet<(String, usize)> {
    let outbox = log.store.outbox(OutboxOptions::default());
    let mut committed = BTreeSet::new();
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let mut tx = log.pool.begin().await.unwrap();
        let mut written = Vec::new();
        for key in 0..KEYS_OF_A_WRITER {
            let key = format!("w{writer}-{key}");
            if (round + writer).is_multiple_of(3) {
                let sql = "select log_enqueue(topic => 't', payload => $1, key => $2)";
                let query = sqlx::query(sql).bind(round.to_string()).bind(&key);
                query.execute(&mut *tx).await.unwrap();
            } else {
                let message = Message::new("t", round.to_string()).key(&key);
                outbox.enqueue(&mut tx, message).await.unwrap();
            }
            written.push((key, round));
        }
        if round % 40 == 7 {
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        if round % 11 == 5 {
            tx.rollback().await.unwrap();
        } else {
            tx.commit().await.unwrap();
            committed.extend(written);
        }
    }
    committed
}

/// A relay that dies again and again, between delivering and settling.
async fn relay(log: Log, deliveries: Deliveries, stop: Arc<AtomicBool>) -> usize {
    let mut log = log;
    let (mut since, mut deaths) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let token = LeaseToken::new();
        let claimed = log.claim_as(token, 50).await;
        if claimed.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        since += claimed.len();
        let numbers = payloads(&claimed);
        let keys = claimed.iter().filter_map(|one| one.message.ordering_key.as_deref());
        let delivered = keys.zip(&numbers).map(|(key, n)| (key.to_owned(), n.parse().unwrap()));
        deliveries.lock().unwrap().extend(delivered);
        // By what it has delivered, which is as much on a slow machine.
        if since >= 100 {
            (since, deaths) = (0, deaths + 1);
            log = log.after_a_crash();
            continue;
        }
        let settlement = |claimed: &ClaimedMessage| Settlement {
            id: claimed.message.id,
            token,
            verdict: Verdict::Delivered,
            version: None,
            without_letter: false,
        };
        let settlements: Vec<Settlement> = claimed.iter().map(settlement).collect();
        log.store.settle(&settlements).await.unwrap();
    }
    log.store.close().await.unwrap();
    deaths
}

/// Proves A2, B7 and pitfalls 4, 31.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_are_added_and_relays_die_and_nothing_is_lost_or_out_of_order() {
    let log = Log::fresh().await;
    let (written, delivered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        writers.spawn(write(log.beside(), writer, Arc::clone(&written)));
    }
    let deliveries = Deliveries::default();
    let mut relays = JoinSet::new();
    for _ in 0..3 {
        relays.spawn(relay(log.beside(), Arc::clone(&deliveries), Arc::clone(&delivered)));
    }
    for shards in [2, 3, 6] {
        tokio::time::sleep(Duration::from_secs(3)).await;
        log.raise(shards).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    written.store(true, Ordering::Relaxed);
    let mut committed = BTreeSet::new();
    while let Some(some) = writers.join_next().await {
        committed.extend(some.unwrap());
    }
    let begun = Instant::now();
    let lost = loop {
        let seen: BTreeSet<_> = deliveries.lock().unwrap().iter().cloned().collect();
        let lost = committed.difference(&seen).count();
        // What was in flight in the last crash is sent again before it is settled.
        let is_settled = log.shards().await.iter().all(|shard| shard.lag == 0);
        if (lost == 0 && is_settled) || begun.elapsed() > 3 * PATIENCE {
            break lost;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    delivered.store(true, Ordering::Relaxed);
    let mut deaths = 0;
    while let Some(some) = relays.join_next().await {
        deaths += some.unwrap();
    }
    assert_eq!(lost, 0, "of {}", committed.len());
    assert!(
        deaths > 5 && committed.len() > 1_000,
        "{deaths} deaths, {} events",
        committed.len()
    );
    let mut highest: BTreeMap<String, usize> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (key, n) in deliveries.lock().unwrap().iter() {
        assert!(committed.contains(&(key.clone(), *n)), "{key} {n} was never committed");
        if seen.insert((key.clone(), *n)) {
            let before = highest.insert(key.clone(), *n);
            assert!(
                before.is_none_or(|before| before < *n),
                "{key}: {n} came after {before:?}"
            );
        }
    }
    let shards = log.shards().await;
    assert_eq!(shards.len(), 1 + 2 + 3 + 6);
    assert!(shards.iter().all(|shard| shard.lag == 0), "{shards:?}");
}
