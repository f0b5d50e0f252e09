//! Many messages wait beside the log, for their turn or for an operator.

use std::time::{Duration, Instant};

use posthaste_core::lifecycle::{LeaseToken, Settlement, Verdict};
use posthaste_core::store::{ClaimedMessage, SchemaStore};
use posthaste_core::{Message, RelayStore};
use sqlx::{AssertSqlSafe, Connection, Executor, Row};
use tokio::time::timeout;

use crate::beside_failures::blocking;
use crate::fixture::{Log, payloads, request};

impl Log {
    /// Messages that stand behind others and were never tried, of keys by their numbers, all due.
    async fn waiting(&self, keys: u32, count: u32) {
        self.waiting_beyond(0, keys, count).await;
    }

    /// The same with numbers of the log that no others have.
    async fn waiting_beyond(&self, number: u32, keys: u32, count: u32) {
        self.run(&format!(
            "insert into log_failed (shard, log_id, event_id, topic, ordering_key, payload)
             select 0, {number} + n, gen_random_uuid(), 'orders', 'k' || n % {keys}, convert_to(n::text, 'UTF8') from generate_series(1, {count}) n"
        ))
        .await;
    }
}

/// Proves pitfall 18.
#[tokio::test]
async fn messages_that_a_dead_one_blocks_hide_no_others() {
    let log = Log::fresh().await;
    log.waiting(1, 6_000).await;
    log.run(
        "update log_failed set died_at = now() where log_id = 1;
         insert into log_failed (shard, log_id, event_id, topic, ordering_key, payload)
         values (0, 7000, gen_random_uuid(), 'orders', 'free', 'free')",
    )
    .await;
    let claimed = log.store.claim(&blocking(LeaseToken::new())).await.unwrap().messages;
    assert_eq!(payloads(&claimed), ["free"]);
}

/// The receiver of one topic is unavailable for an hour: what stands behind messages that wait for it is due all the while. Proves
/// pitfall 18.
#[tokio::test]
async fn messages_behind_postponed_ones_hide_no_others() {
    const KEYS: u32 = 600;
    for blocks in [false, true] {
        let log = Log::fresh().await;
        let claim = |token| if blocks { blocking(token) } else { request(token, 1_000) };
        let message = |n: u32| Message::new("orders", "x").key(format!("k{n}"));
        log.enqueue((0..KEYS).map(message).collect()).await;
        let token = LeaseToken::new();
        let claimed = log.store.claim(&claim(token)).await.unwrap().messages;
        assert_eq!(claimed.len(), KEYS as usize);
        let postpone = |claimed: &ClaimedMessage| Settlement {
            id: claimed.message.id,
            token,
            verdict: Verdict::Postponed {
                delay: Duration::from_hours(1),
                error: "unavailable".to_owned(),
            },
            version: None,
            without_letter: false,
        };
        let postponed: Vec<_> = claimed.iter().map(postpone).collect();
        log.store.settle(&postponed).await.unwrap();
        log.run(&format!(
            "insert into log_failed (shard, log_id, event_id, topic, ordering_key, payload)
             select 0, 10000 + n, gen_random_uuid(), 'orders', 'k' || n, 'x'::bytea from generate_series(0, {KEYS} - 1) n
             union all select 0, 20000, gen_random_uuid(), 'orders', 'free', 'free'::bytea"
        ))
        .await;
        let claimed = log.store.claim(&claim(LeaseToken::new())).await.unwrap().messages;
        assert_eq!(payloads(&claimed), ["free"], "blocks: {blocks}");
    }
}

/// As after an hour without a broker.
#[tokio::test]
async fn thousands_that_are_due_are_handed_out_in_order_and_without_a_look_at_each_for_each() {
    const COUNT: u32 = 20_000;
    let log = Log::fresh().await;
    log.waiting(4, COUNT).await;
    let begun = Instant::now();
    let mut next = [4, 1, 2, 3];
    let mut count = 0;
    while count < COUNT {
        let token = LeaseToken::new();
        let claimed = log.claim_as(token, 2_000).await;
        for number in payloads(&claimed) {
            let number: u32 = number.parse().unwrap();
            let expected = &mut next[(number % 4) as usize];
            assert_eq!(number, *expected, "in the order of its key");
            *expected += 4;
            count += 1;
        }
        log.settle_all(token, &claimed).await;
        assert!(
            begun.elapsed() < Duration::from_mins(1),
            "{count} in {:?}",
            begun.elapsed()
        );
    }
}

/// How often the server does the step of a plan that it does most often, of those that it does at all.
fn most_loops(plan: &[String]) -> u64 {
    let loops = |line: &String| -> Option<u64> {
        let (_, loops) = line.split_once("loops=")?;
        loops.trim_end_matches(')').parse().ok()
    };
    plan.iter().filter_map(loops).max().unwrap()
}

/// Nor is each compared with each that is in flight.
#[tokio::test]
async fn of_thousands_of_keys_that_are_due_others_are_asked_for_where_a_message_goes_and_only_there() {
    const LIMIT: u64 = 100;
    let log = Log::fresh().await;
    log.waiting(5_000, 5_000).await;
    let statements = log.store.statements();
    let (_, text) = statements.iter().find(|(name, _)| name.ends_with("retry")).unwrap();
    let in_flight = |prefix: &str| (0..2_000).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>().join(",");
    let (topics, keys, places) = (in_flight("t"), in_flight("k"), in_flight(""));
    let mut conn = log.pool.acquire().await.unwrap();
    let mut tx = conn.begin().await.unwrap();
    tx.execute(AssertSqlSafe(format!("prepare due as {text}")))
        .await
        .unwrap();
    for step in [
        "set local plan_cache_mode = force_generic_plan",
        "set local plan_cache_mode = force_custom_plan",
        "analyze log_failed",
    ] {
        tx.execute(step).await.unwrap();
        for blocks in [false, true] {
            let explain = format!(
                "explain (analyze, costs off, timing off) execute due (5, true, '{{7,8,9}}', '{{{topics}}}', '{{{keys}}}', {blocks}, {LIMIT},
                    0, 1, 1000000, '{{}}', '{{}}', {blocks}, '{{}}', '{{{topics}}}', '{{{keys}}}', '{{{places}}}')"
            );
            let plan = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(&mut *tx).await.unwrap();
            let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
            assert!(
                most_loops(&plan) <= LIMIT + 1,
                "{step}, blocks: {blocks}\n{}",
                plan.join("\n")
            );
        }
    }
}

/// What a look at all of them takes is more than a statement, or a call, is given.
#[tokio::test]
async fn fresh_messages_come_though_no_look_at_those_that_wait_is_ever_finished() {
    let log = Log::fresh().await;
    log.waiting_beyond(1_000, 1_000, 200_000).await;
    let limited = log.with_statement_timeout("200ms").await;
    for (fresh, reader, limit) in [
        ("by the server", &limited, Duration::from_mins(1)),
        ("by the relay", &log, Duration::from_millis(300)),
    ] {
        log.enqueue(vec![Message::new("orders", fresh).key(fresh)]).await;
        let mut failures = 0;
        loop {
            let token = LeaseToken::new();
            let claim = timeout(limit, reader.store.claim(&request(token, 100))).await;
            let claimed = claim
                .ok()
                .and_then(Result::ok)
                .map_or_else(Vec::new, |claim| claim.messages);
            if !claimed.is_empty() {
                assert_eq!(payloads(&claimed), [fresh], "a look was finished: more have to wait");
                reader.settle_all(token, &claimed).await;
                break;
            }
            failures += 1;
            assert!(failures < 20, "it does not come where the limit is set {fresh}");
        }
        reader.store.close().await.unwrap();
    }
}
