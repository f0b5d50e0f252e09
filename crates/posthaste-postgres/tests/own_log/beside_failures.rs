//! Dead letters and messages that wait: the log is read on beside them as it is without, and what they hold back stays back.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use posthaste_core::RelayStore;
use posthaste_core::lifecycle::{LeaseToken, Verdict};
use posthaste_core::store::{ClaimRequest, DeadHead, KeyOrdering, SchemaStore};
use sqlx::{Connection, Row};

use crate::fixture::{Log, numbered, payloads, request};
use crate::read_ahead::{Arrived, ROWS};

/// Keys of the messages that are enqueued.
const KEYS: usize = 7;

impl Log {
    /// Failures of keys that no message has: dead ones, or such that wait until tomorrow.
    async fn fail_others(&self, count: u32, is_dead: bool) {
        let (due, died) = if is_dead {
            ("now()", "now()")
        } else {
            ("now() + interval '1 day'", "null")
        };
        self.run(&format!(
            "insert into log_failed (shard, log_id, event_id, topic, ordering_key, payload, attempts, next_attempt_at, died_at)
             select 0, -i, gen_random_uuid(), 'orders', 'other-' || i, 'x', 5, {due}, {died} from generate_series(1, {count}) i"
        ))
        .await;
    }

    async fn in_failed(&self) -> i64 {
        self.count("select count(*) from log_failed").await
    }

    /// Claims and settles all that comes; returns how many connections read ahead at most.
    async fn settle_everything(&self, arrived: &mut Arrived, claim: impl Fn(LeaseToken) -> ClaimRequest) -> i64 {
        let mut most = 0;
        loop {
            let token = LeaseToken::new();
            let claimed = self.store.claim(&claim(token)).await.unwrap().messages;
            if claimed.is_empty() {
                return most;
            }
            arrived.note(&claimed);
            self.settle_all(token, &claimed).await;
            most = most.max(self.ahead().await);
        }
    }
}

pub(crate) fn blocking(token: LeaseToken) -> ClaimRequest {
    ClaimRequest {
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Block,
            except: Vec::new(),
        },
        ..request(token, 1_000)
    }
}

/// Whoever keeps dead letters, or messages for tomorrow, would have a slow log for as long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_is_read_ahead_beside_dead_letters_and_messages_that_wait() {
    for is_dead in [true, false] {
        let log = Log::fresh().await;
        log.fail_others(3, is_dead).await;
        log.enqueue_backlog().await;
        let mut arrived = Arrived::default();
        let most = log.settle_everything(&mut arrived, |token| request(token, 1_000)).await;
        assert_eq!((arrived.all.len(), most), (ROWS, 1), "dead: {is_dead}");
        assert_eq!(log.in_failed().await, 3);
    }
}

/// Of thousands of failures none is read to find out that they hold nothing back.
#[tokio::test]
async fn reading_on_looks_at_no_failures_but_by_index() {
    let log = Log::fresh().await;
    log.fail_others(20_000, true).await;
    log.enqueue(numbered(0..3_000)).await;
    let mut conn = log.pool.acquire().await.unwrap();
    let mut tx = conn.begin().await.unwrap();
    let statements = log.store.statements();
    let (_, text) = statements.iter().find(|(name, _)| name.ends_with("read_tail")).unwrap();
    for sql in [
        "set local plan_cache_mode = force_generic_plan".to_owned(),
        "set local posthaste.reader = 'this'".to_owned(),
        format!("prepare reading_on as {text}"),
    ] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut *tx).await.unwrap();
    }
    // Without statistics, as before the first `analyze`, with them, and where one of the keys waits.
    for step in [
        "",
        "analyze log_failed",
        "insert into log_failed (shard, log_id, event_id, topic, ordering_key, payload)
         values (0, -99999, gen_random_uuid(), 'orders', 'k1', 'x')",
        // Where there is one key only, the planner expects to find each at the first look.
        "delete from log_failed;
         insert into log_failed (shard, log_id, event_id, topic, ordering_key, payload)
         select 0, -n, gen_random_uuid(), 'orders', 'other', 'x' from generate_series(1, 5000) n;
         analyze log_failed",
        "update log_failed set died_at = now();
         analyze log_failed",
    ] {
        sqlx::raw_sql(step).execute(&mut *tx).await.unwrap();
        for blocks in [false, true] {
            let explain = format!(
                "explain (analyze, costs off, timing off) execute reading_on (0, 1000, 'this', 0, 1, {blocks})"
            );
            let plan = sqlx::raw_sql(sqlx::AssertSqlSafe(explain))
                .fetch_all(&mut *tx)
                .await
                .unwrap();
            let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
            let scans_more_than_one =
                |line: &&String| line.contains("Seq Scan on log_failed") && !line.contains("never executed");
            let scans: Vec<_> = plan.iter().filter(scans_more_than_one).collect();
            // Whether there is any failure at all is seen from the first row.
            let first_only = scans.iter().all(|line| line.contains("rows=1 "));
            assert!(scans.len() <= 1 && first_only, "{step}\n{}", plan.join("\n"));
            assert!(
                plan.iter()
                    .all(|line| !line.contains("->  Sort") || line.contains("never executed")),
                "{step}\n{}",
                plan.join("\n")
            );
        }
    }
}

/// Also those that are in the same read, and those of the next ones. Proves pitfall 5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_waits_holds_back_its_own_rows_and_no_others() {
    let log = Log::fresh().await;
    log.enqueue(numbered(0..KEYS)).await;
    let token = LeaseToken::new();
    let mut claimed = log.claim_as(token, 1_000).await;
    let failed = claimed.remove(3);
    log.settle_all(token, &claimed).await;
    let (delay, error) = (std::time::Duration::from_hours(1), "refused".to_owned());
    log.settle(token, failed.message.id, Verdict::Retry { delay, error })
        .await;
    log.enqueue(numbered(KEYS..5_000)).await;
    let mut arrived = Arrived::default();
    log.settle_everything(&mut arrived, |token| request(token, 1_000)).await;
    let waits = |number: &usize| number % KEYS == 3;
    let others: BTreeSet<usize> = (KEYS..5_000).filter(|number| !waits(number)).collect();
    assert_eq!(arrived.all, others);
    log.run("update log_failed set next_attempt_at = now()").await;
    let mut of_key = Arrived::default();
    let begun = std::time::Instant::now();
    while of_key.all.len() < (0..5_000).filter(waits).count() {
        log.settle_everything(&mut of_key, |token| request(token, 1_000)).await;
        assert!(begun.elapsed().as_secs() < 60, "{} came", of_key.all.len());
    }
    assert!(of_key.all.iter().all(waits));
    assert_eq!(log.in_failed().await, 0);
}

/// A reader wrote a failure down and crashed before it could store that it had: the row is not handed out a second time.
#[tokio::test]
async fn what_is_in_the_table_of_failures_is_not_handed_out_of_the_log() {
    let log = Log::fresh().await;
    log.fail_others(2, true).await;
    log.enqueue(numbered(0..50)).await;
    log.run(
        "insert into log_failed (shard, log_id, event_id, topic, ordering_key, payload, attempts, died_at)
         select shard, seq, id, topic, ordering_key, payload, 5, now() from log where payload in ('10', '20', '49')",
    )
    .await;
    let mut arrived = Arrived::default();
    log.settle_everything(&mut arrived, |token| request(token, 1_000)).await;
    let others: BTreeSet<usize> = (0..50).filter(|number| ![10, 20, 49].contains(number)).collect();
    assert_eq!(arrived.all, others);
    let position = log.count("select position from log_shards").await;
    let last = log.count("select max(seq) from log").await;
    assert_eq!(position, last, "they are settled");
}

/// Proves pitfall 17.
#[tokio::test]
async fn a_dead_letter_blocks_its_key_where_that_is_the_policy_and_else_nothing() {
    for blocks in [true, false] {
        let log = Log::fresh().await;
        log.enqueue(numbered(0..KEYS)).await;
        let token = LeaseToken::new();
        let mut claimed = log.store.claim(&blocking(token)).await.unwrap().messages;
        let dead = claimed.remove(5);
        log.settle_all(token, &claimed).await;
        let error = "refused".to_owned();
        log.settle(token, dead.message.id, Verdict::Dead { error }).await;
        log.enqueue(numbered(KEYS..2_000)).await;
        let mut arrived = Arrived::default();
        let claim = |token| if blocks { blocking(token) } else { request(token, 1_000) };
        log.settle_everything(&mut arrived, claim).await;
        let comes = |number: &usize| !blocks || number % KEYS != 5;
        let expected: BTreeSet<usize> = (KEYS..2_000).filter(comes).collect();
        assert_eq!(arrived.all, expected, "blocks: {blocks}");
    }
}

/// More rows than are read at a time wait behind one, and what comes after them is not waited for until the next poll.
#[tokio::test]
async fn others_come_at_once_behind_many_rows_that_wait() {
    let log = Log::fresh().await;
    log.run(
        "insert into log_failed (shard, log_id, event_id, topic, ordering_key, payload, next_attempt_at)
         values (0, 0, gen_random_uuid(), 'orders', 'slow', 'x', now() + interval '1 day')",
    )
    .await;
    let mut messages: Vec<_> = numbered(0..9_000);
    for message in &mut messages {
        message.ordering_key = Some("slow".into());
    }
    log.enqueue(messages).await;
    log.enqueue(numbered(9_000..9_001)).await;
    let token = LeaseToken::new();
    let claimed = log.claim_as(token, 20).await;
    assert_eq!(payloads(&claimed), ["9000"]);
    log.settle_all(token, &claimed).await;
    // A claim leaves to the next one what it has not written down within a while.
    let begun = Instant::now();
    while log.in_failed().await < 9_001 {
        assert_eq!(log.claim(20).await.len(), 0);
        assert!(begun.elapsed() < Duration::from_mins(1), "they are not written down");
    }
}
