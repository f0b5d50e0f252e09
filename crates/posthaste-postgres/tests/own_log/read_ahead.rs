//! A backlog is read ahead on another connection, which changes nothing about what comes, nor about its order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use posthaste_core::Message;
use posthaste_core::lifecycle::{LeaseToken, Settlement, Verdict};
use posthaste_core::store::{ClaimRequest, ClaimedMessage};
use posthaste_core::{MessageId, RelayStore};

use crate::fixture::{Log, numbered, payloads, request};

const PATIENCE: Duration = Duration::from_mins(2);
const ROWS: usize = 20_000;

/// Most shards of one relay that are read ahead.
const MOST: i64 = 4;

impl Log {
    async fn settle_all(&self, token: LeaseToken, claimed: &[ClaimedMessage]) {
        let settlement = |id: MessageId| Settlement {
            id,
            token,
            verdict: Verdict::Delivered,
            version: None,
            without_letter: false,
        };
        let settlements: Vec<_> = claimed.iter().map(|claimed| settlement(claimed.message.id)).collect();
        let settled = self.store.settle(&settlements).await.unwrap();
        assert!(settled.lost.is_empty() && settled.refused.is_empty(), "{settled:?}");
    }

    /// Connections that read ahead: those that have no reader's lock.
    async fn ahead(&self) -> i64 {
        let schema = self.store.map().schema().unwrap().as_str();
        sqlx::query_scalar(
            "select count(*) from pg_stat_activity a
             where a.application_name = $1 and a.query like '-- Reads on beyond%'
                 and a.pid not in (select pid from pg_locks where locktype = 'advisory' and pid is not null)",
        )
        .bind(schema)
        .fetch_one(&self.pool)
        .await
        .unwrap()
    }

    async fn eventually_ahead(&self, connections: i64) {
        let begun = Instant::now();
        while self.ahead().await != connections {
            assert!(
                begun.elapsed() < PATIENCE,
                "not {connections} connections that read ahead"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The number of a message.
fn number(claimed: &ClaimedMessage) -> usize {
    payloads(std::slice::from_ref(claimed))[0].parse().unwrap()
}

/// Each key in order, and nothing twice; nothing that is left out.
#[derive(Default)]
struct Arrived {
    all: BTreeSet<usize>,
    last: BTreeMap<String, usize>,
}

impl Arrived {
    fn note(&mut self, claimed: &[ClaimedMessage]) {
        for claimed in claimed {
            let (number, key) = (number(claimed), claimed.message.ordering_key.as_deref().unwrap());
            assert!(self.all.insert(number), "{number} comes twice");
            let before = self.last.insert(key.to_owned(), number);
            assert!(
                before.is_none_or(|before| before < number),
                "{number} after {before:?} of {key}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_is_read_ahead_on_another_connection_until_it_is_over() {
    let log = Log::fresh().await;
    for first in (0..ROWS).step_by(5_000) {
        log.enqueue(numbered(first..first + 5_000)).await;
    }
    let mut arrived = Arrived::default();
    let mut most = 0;
    loop {
        let token = LeaseToken::new();
        let claimed = log.claim_as(token, 1_000).await;
        if claimed.is_empty() {
            break;
        }
        arrived.note(&claimed);
        log.settle_all(token, &claimed).await;
        most = most.max(log.ahead().await);
    }
    assert_eq!(arrived.all.len(), ROWS);
    assert_eq!(most, 1);
    log.eventually_ahead(0).await;
}

/// Also what was read before the failure. Proves P5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_read_ahead_of_a_failure_waits_behind_it() {
    let log = Log::fresh().await;
    log.enqueue(numbered(0..5_000)).await;
    // All that the first reads have taken, so that what comes next was read ahead, by now.
    let (first, second) = (LeaseToken::new(), LeaseToken::new());
    let mut claimed = log.claim_as(first, 1_000).await;
    log.eventually_ahead(1).await;
    // Beside those in flight, as from a publisher that keeps the order of a key by itself.
    let pipelined = ClaimRequest {
        pipelined: true,
        ..request(second, 920)
    };
    let more = log.store.claim(&pipelined).await.unwrap().messages;
    assert_eq!((claimed.len(), more.len()), (1_000, 920));
    log.settle_all(second, &more).await;
    // Nothing behind it was handed out before.
    let of_other_keys = claimed.split_off(1);
    log.settle_all(first, &of_other_keys).await;
    let failed = claimed[0].message.id;
    let (delay, error) = (Duration::from_hours(1), "refused".to_owned());
    log.settle(first, failed, Verdict::Retry { delay, error }).await;
    let begun = Instant::now();
    let mut rest = BTreeSet::new();
    while rest.len() < (1_920..5_000).filter(|number| number % 7 != 0).count() {
        let token = LeaseToken::new();
        let claimed = log.claim_as(token, 1_000).await;
        log.settle_all(token, &claimed).await;
        rest.extend(claimed.iter().map(number));
        assert!(begun.elapsed() < PATIENCE, "{} came", rest.len());
    }
    assert!(
        rest.iter().all(|number| number % 7 != 0),
        "the key of the failure waits"
    );
}

/// Another relay has the lock, and what this one read ahead goes out there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_lost_the_lock_hands_out_nothing_that_was_read_ahead() {
    let log = Log::fresh().await;
    let other = Log::over(log.pool.clone(), log.store.map().clone());
    log.enqueue(numbered(0..10_000)).await;
    let token = LeaseToken::new();
    let claimed = log.claim_as(token, 1_920).await;
    log.settle_all(token, &claimed).await;
    log.eventually_ahead(1).await;
    log.run(
        "select pg_terminate_backend(l.pid) from pg_locks l
         where l.locktype = 'advisory' and l.granted
             and ((l.classid::bigint << 32) | l.objid::bigint) in (
                 select hashtextextended('posthaste:log:' || 'log_shards'::regclass::oid::text || ':' || s.shard::text, 0)
                 from log_shards s)",
    )
    .await;
    // Its seat, too, is another's.
    log.run("update log_shards set epoch = epoch + 1, owner = null, leased_until = null")
        .await;
    let begun = Instant::now();
    let mut found = Vec::new();
    while found.is_empty() {
        found = other.claim(1_000).await;
        assert!(begun.elapsed() < PATIENCE, "the other relay gets nothing");
    }
    let late = log.store.claim(&request(LeaseToken::new(), 1_000)).await;
    assert!(
        late.is_ok_and(|claim| claim.messages.is_empty()),
        "it reads no more, whatever it has in memory"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_shards_only_some_are_read_ahead() {
    let log = Log::fresh().await;
    log.raise(8).await;
    let message = |n: usize| Message::new("orders", n.to_string()).key(format!("k{}", n % 997));
    for first in (0..40_000).step_by(10_000) {
        log.enqueue((first..first + 10_000).map(message).collect()).await;
    }
    let begun = Instant::now();
    let mut arrived = Arrived::default();
    let mut most = 0;
    while arrived.all.len() < 40_000 {
        let token = LeaseToken::new();
        let claimed = log.claim_as(token, 1_000).await;
        arrived.note(&claimed);
        log.settle_all(token, &claimed).await;
        most = most.max(log.ahead().await);
        assert!(begun.elapsed() < PATIENCE, "{} came", arrived.all.len());
    }
    assert!((1..=MOST).contains(&most), "{most} connections");
}
