//! A backlog is read ahead on another connection, which changes nothing about what comes, nor about its order.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{Duration, Instant};

use posthaste_core::Message;
use posthaste_core::lifecycle::{LeaseToken, Settlement, Verdict};
use posthaste_core::store::{ClaimRequest, ClaimedMessage};
use posthaste_core::{MessageId, RelayStore};

use crate::fixture::{Log, numbered, payloads, request};
use crate::support::{self, proxy::Proxy};

const PATIENCE: Duration = Duration::from_mins(2);
pub(crate) const ROWS: usize = 60_000;

/// Most shards of one relay that are read ahead.
const MOST: i64 = 4;

impl Log {
    pub(crate) async fn settle_all(&self, token: LeaseToken, claimed: &[ClaimedMessage]) {
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
    pub(crate) async fn ahead(&self) -> i64 {
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

    pub(crate) async fn enqueue_backlog(&self) {
        self.enqueue_backlog_from(0, ROWS).await;
    }

    pub(crate) async fn enqueue_backlog_from(&self, first: usize, end: usize) {
        for first in (first..end).step_by(5_000) {
            self.enqueue(numbered(first..end.min(first + 5_000))).await;
        }
    }

    /// Claims and settles until the next rows are read ahead; returns how many came.
    async fn settle_until_ahead(&self) -> usize {
        let mut count = 0;
        loop {
            let token = LeaseToken::new();
            let claimed = self.claim_as(token, 1_000).await;
            assert!(!claimed.is_empty(), "nothing was read ahead of {count} rows");
            self.settle_all(token, &claimed).await;
            count += claimed.len();
            if self.ahead().await == 1 {
                return count;
            }
            // It takes a moment to connect.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn pid_ahead(&self) -> i32 {
        let schema = self.store.map().schema().unwrap().as_str();
        sqlx::query_scalar(
            "select a.pid from pg_stat_activity a
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

/// Stops or continues a process of the server.
fn signal(pid: i32, signal: &str) {
    let sent = Command::new("kill").args([signal, &pid.to_string()]).status();
    assert!(sent.unwrap().success());
}

/// The number of a message.
fn number(claimed: &ClaimedMessage) -> usize {
    payloads(std::slice::from_ref(claimed))[0].parse().unwrap()
}

/// Each key in order, and nothing twice; nothing that is left out.
#[derive(Default)]
pub(crate) struct Arrived {
    pub(crate) all: BTreeSet<usize>,
    last: BTreeMap<String, usize>,
}

impl Arrived {
    pub(crate) fn note(&mut self, claimed: &[ClaimedMessage]) {
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
    log.enqueue_backlog().await;
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

/// Also what was read before the failure. Proves pitfall 5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_read_ahead_of_a_failure_waits_behind_it() {
    let log = Log::fresh().await;
    log.enqueue_backlog().await;
    let before = log.settle_until_ahead().await;
    let first = LeaseToken::new();
    let mut claimed = log.claim_as(first, 1_000).await;
    assert_eq!(claimed.len(), 1_000);
    // Nothing behind it was handed out before.
    let of_other_keys = claimed.split_off(1);
    log.settle_all(first, &of_other_keys).await;
    assert_eq!(number(&claimed[0]), before);
    let failed = claimed[0].message.id;
    let (delay, error) = (Duration::from_hours(1), "refused".to_owned());
    log.settle(first, failed, Verdict::Retry { delay, error }).await;
    let begun = Instant::now();
    let mut rest = BTreeSet::new();
    let is_of_another_key = |number: &usize| number % 7 != before % 7;
    while rest.len() < (before + 1_000..ROWS).filter(is_of_another_key).count() {
        let token = LeaseToken::new();
        let claimed = log.claim_as(token, 1_000).await;
        log.settle_all(token, &claimed).await;
        rest.extend(claimed.iter().map(number));
        assert!(begun.elapsed() < PATIENCE, "{} came", rest.len());
    }
    assert!(rest.iter().all(is_of_another_key), "the key of the failure waits");
}

/// Another relay has the lock, and what this one read ahead goes out there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_lost_the_lock_hands_out_nothing_that_was_read_ahead() {
    let log = Log::fresh().await;
    let other = Log::over(log.pool.clone(), log.store.map().clone());
    log.enqueue_backlog().await;
    log.settle_until_ahead().await;
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
    // Its connection has ended, as the first claim may say; none hands out anything.
    for _ in 0..3 {
        let late = log.store.claim(&request(LeaseToken::new(), 1_000)).await;
        let count = late.map_or(0, |claim| claim.messages.len());
        assert_eq!(count, 0, "it reads no more, whatever it has in memory");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_shards_only_some_are_read_ahead() {
    let log = Log::fresh().await;
    log.raise(8).await;
    let message = |n: usize| Message::new("orders", n.to_string()).key(format!("k{}", n % 997));
    for first in (0..80_000).step_by(10_000) {
        log.enqueue((first..first + 10_000).map(message).collect()).await;
    }
    let begun = Instant::now();
    let mut arrived = Arrived::default();
    let mut most = 0;
    while arrived.all.len() < 80_000 {
        let token = LeaseToken::new();
        let claimed = log.claim_as(token, 1_000).await;
        arrived.note(&claimed);
        log.settle_all(token, &claimed).await;
        most = most.max(log.ahead().await);
        assert!(begun.elapsed() < PATIENCE, "{} came", arrived.all.len());
    }
    assert!((1..=MOST).contains(&most), "{most} connections");
}

/// The server's process does not answer, as where the network swallows what is sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_hangs_delays_the_reader_for_less_than_its_lease() {
    const LEASE: Duration = Duration::from_secs(6);
    let log = Log::fresh().await;
    log.enqueue_backlog().await;
    let claim = |token| ClaimRequest {
        lease: LEASE,
        ..request(token, 1_000)
    };
    let mut arrived = Arrived::default();
    let pid = loop {
        let token = LeaseToken::new();
        let claimed = log.store.claim(&claim(token)).await.unwrap().messages;
        arrived.note(&claimed);
        log.settle_all(token, &claimed).await;
        if log.ahead().await == 1 {
            break log.pid_ahead().await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    signal(pid, "-STOP");
    let begun = Instant::now();
    let mut slowest = Duration::ZERO;
    while arrived.all.len() < ROWS {
        let (token, asked) = (LeaseToken::new(), Instant::now());
        let claimed = log.store.claim(&claim(token)).await.unwrap().messages;
        slowest = slowest.max(asked.elapsed());
        arrived.note(&claimed);
        log.settle_all(token, &claimed).await;
    }
    let took = begun.elapsed();
    signal(pid, "-CONT");
    assert!(slowest < LEASE / 2, "one claim took {slowest:?}");
    assert!(
        took < Duration::from_secs(30),
        "it was waited for again and again: {took:?}"
    );
}

/// The network swallows the first attempt to connect. The reader does without meanwhile, and the next attempt is not kept waiting
/// by the one that is never answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_not_answered_when_it_connects_is_given_up() {
    let (proxy, address) = Proxy::before(support::server_url().parse().unwrap());
    let log = Log::at(address, &support::fresh_schema()).await;
    log.enqueue_backlog().await;
    // The reader's own connections are made with this.
    let mut arrived = Arrived::default();
    let token = LeaseToken::new();
    let first = log.claim_as(token, 10).await;
    arrived.note(&first);
    log.settle_all(token, &first).await;
    proxy.be_deaf(true);
    let begun = Instant::now();
    while log.ahead().await == 0 {
        if proxy.unheard() > 0 {
            proxy.be_deaf(false);
        }
        let (token, asked) = (LeaseToken::new(), Instant::now());
        let claimed = log.claim_as(token, 500).await;
        assert!(asked.elapsed() < Duration::from_secs(4), "the reader waited for it");
        assert!(!claimed.is_empty(), "nothing was read ahead in {:?}", begun.elapsed());
        arrived.note(&claimed);
        log.settle_all(token, &claimed).await;
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    assert_eq!(proxy.unheard(), 1);
}

/// Rows become large while they are read ahead: the server is not left with the rest of its answer, and a snapshot open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_rows_are_read_ahead_and_no_server_is_left_sending() {
    let log = Log::fresh().await;
    let large = |n: usize| Message::new("orders", format!("{}{n}", "0".repeat(300_000))).key(format!("k{}", n % 7));
    log.enqueue_backlog().await;
    for first in (ROWS..ROWS + 200).step_by(40) {
        log.enqueue((first..first + 40).map(large).collect()).await;
    }
    let mut arrived = Arrived::default();
    let mut most = 0;
    while arrived.all.len() < ROWS + 200 {
        let token = LeaseToken::new();
        let some = ClaimRequest {
            max_bytes: 4 << 20,
            ..request(token, 1_000)
        };
        let claimed = log.store.claim(&some).await.unwrap().messages;
        arrived.note(&claimed);
        log.settle_all(token, &claimed).await;
        if arrived.all.len() > ROWS + 20 {
            most = most.max(log.ahead().await);
            let sending = log
                .count(
                    "select count(*) from pg_stat_activity where application_name = current_schema()
                     and wait_event = 'ClientWrite' and query_start < clock_timestamp() - interval '2 seconds'",
                )
                .await;
            assert_eq!(sending, 0);
        }
    }
    assert_eq!(most, 1, "large rows are read ahead, too");
}
