//! What an operator asks of dead messages costs as much as there are of them, whatever waits beside them.

use std::time::Duration;

use posthaste_core::lifecycle::{LeaseToken, State, Verdict};
use posthaste_core::store::{ClaimRequest, Filter, SchemaStore};
use posthaste_core::{AdminStore, Enqueued, Message, MessageId, RelayStore};
use sqlx::{AssertSqlSafe, Executor, Row};
use tokio::time::timeout;

use crate::fixture::{Log, payloads, request};

const BACKLOG: i64 = 20_000;

/// A log with three dead messages, one of each key, and their ids.
async fn with_three_dead() -> (Log, Vec<MessageId>) {
    let log = Log::fresh().await;
    let message = |key: &str| Message::new("orders", "{}").key(key).tenant(format!("t-{key}"));
    let ids = log.enqueue(["a", "b", "c"].map(message).to_vec()).await;
    let token = LeaseToken::new();
    for claimed in log.claim_as(token, 10).await {
        let error = "no".to_owned();
        log.settle(token, claimed.message.id, Verdict::Dead { error }).await;
    }
    (log, ids.into_iter().map(Enqueued::id).collect())
}

fn dead() -> Filter {
    Filter {
        state: Some(State::Dead),
        ..Filter::default()
    }
}

/// As whoever does not read the log asks.
async fn list(log: &Log, filter: &Filter) -> Vec<MessageId> {
    let operator = Log::over(log.pool.clone(), log.store.map().clone());
    let listed = operator.store.list(filter, None, 100).await.unwrap();
    listed.into_iter().map(|record| record.message.id).collect()
}

#[tokio::test]
async fn dead_messages_are_found_though_nobody_may_read_the_log() {
    let (log, ids) = with_three_dead().await;
    log.enqueue((0..100).map(|n| Message::new("orders", n.to_string())).collect())
        .await;
    let mut locked = log.pool.begin().await.unwrap();
    locked.execute("lock table log in access exclusive mode").await.unwrap();
    let asked = async {
        assert_eq!(list(&log, &dead()).await, ids);
        for (filter, found) in [
            (
                Filter {
                    ordering_key: Some("b".to_owned()),
                    ..dead()
                },
                &ids[1..2],
            ),
            (
                Filter {
                    tenant: Some("t-c".to_owned()),
                    ..dead()
                },
                &ids[2..],
            ),
            (
                Filter {
                    topic: Some("payments".to_owned()),
                    ..dead()
                },
                &[],
            ),
            (
                Filter {
                    ids: vec![ids[2], ids[0], MessageId::text("other")],
                    ..dead()
                },
                &[ids[0], ids[2]][..],
            ),
        ] {
            assert_eq!(list(&log, &filter).await, found, "{filter:?}");
        }
        let page = log.store.list(&dead(), Some(ids[0]), 1).await.unwrap();
        assert_eq!(page[0].message.id, ids[1]);
        assert_eq!(log.store.list(&dead(), Some(ids[2]), 1).await.unwrap(), []);
        let b = Filter {
            ordering_key: Some("b".to_owned()),
            ..dead()
        };
        assert_eq!(log.store.replay(&b, 100).await.unwrap(), ids[1..2]);
        assert_eq!(log.store.discard(&dead(), 100).await.unwrap(), [ids[0], ids[2]]);
        assert_eq!(list(&log, &dead()).await, []);
    };
    let asked = timeout(Duration::from_secs(30), asked).await;
    asked.expect("the log is not waited for");
}

/// One that waits for those before it in its key is dead in the memory of its reader alone.
#[tokio::test]
async fn a_dead_message_is_listed_before_that_is_written_down() {
    let log = Log::fresh().await;
    let ids = log.enqueue(vec![
        Message::new("orders", "1").key("k"),
        Message::new("orders", "2").key("k"),
    ]);
    let ids: Vec<MessageId> = ids.await.into_iter().map(Enqueued::id).collect();
    let token = LeaseToken::new();
    let pipelined = ClaimRequest {
        pipelined: true,
        ..request(token, 10)
    };
    let claim = log.store.claim(&pipelined).await.unwrap();
    assert_eq!(payloads(&claim.messages), ["1", "2"]);
    let error = "no".to_owned();
    log.settle(token, claim.messages[1].message.id, Verdict::Dead { error })
        .await;
    assert_eq!(log.count("select count(*) from log_failed").await, 0);
    let listed = log.store.list(&dead(), None, 100).await.unwrap();
    let listed: Vec<_> = listed
        .iter()
        .map(|record| record.message.effective_event_id())
        .collect();
    assert_eq!(listed, [ids[1].to_string()]);
}

/// Proves pitfall 28.
#[tokio::test]
async fn a_page_of_dead_messages_reads_none_that_wait_and_a_page_of_the_log_reads_no_more_than_it_shows() {
    let (log, _) = with_three_dead().await;
    log.run(&format!(
        "insert into log (topic, ordering_key, payload)
         select 'orders', 'k' || n % 100, convert_to(repeat('x', 100), 'UTF8') from generate_series(1, {BACKLOG}) n;
         insert into log_failed (shard, log_id, event_id, topic, ordering_key, payload, next_attempt_at)
         select 0, nextval('log_shard_0_seq'), gen_random_uuid(), 'orders', 'k', '', now() + interval '1 day'
         from generate_series(1, {BACKLOG}) n"
    ))
    .await;
    let in_order = "set local enable_seqscan = off; set local enable_sort = off";
    for _ in ["no statistics", "true statistics"] {
        let found = plan(&log, "", "find_dead", "0, 10, null, '{}', 100, null, null, null").await;
        assert!(most_rows(&found) <= 3, "{found}");
        let page = plan(&log, in_order, "list_log", "'{1}', '{17592186044415}', 1000, null").await;
        assert!(most_rows(&page) <= 1_000, "{page}");
        let pages = plan(
            &log,
            in_order,
            "list_log",
            "'{1,100}', '{50,17592186044415}', 1000, null",
        )
        .await;
        assert!(most_rows(&pages) <= 1_050, "{pages}");
        log.run("analyze log, log_failed").await;
    }
}

/// The plan of a statement with these arguments, and what it has read.
pub(crate) async fn plan(log: &Log, settings: &str, name: &str, arguments: &str) -> String {
    let statements = log.store.statements();
    let (_, sql) = statements.iter().find(|(statement, _)| *statement == name).unwrap();
    let mut tx = log.pool.begin().await.unwrap();
    let run = format!(
        "{settings}; prepare hot as {sql}; explain (analyze, buffers off, timing off, costs off) execute hot({arguments});
         deallocate hot"
    );
    let rows = tx.fetch_all(sqlx::raw_sql(AssertSqlSafe(run))).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0) + "\n").collect()
}

/// The most rows that a node of the plan has produced or thrown away. PostgreSQL 18 prints `rows=1.00`.
pub(crate) fn most_rows(plan: &str) -> i64 {
    let after = |text: &'static str| plan.split(text).skip(1);
    let counts = after("actual rows=").chain(after("Removed by Filter: "));
    let counts = counts.filter_map(|rest| rest.split([' ', '.', '\n']).next()?.parse().ok());
    counts.max().unwrap_or(0)
}

/// A producer that tries again with its own id may have written it twice: the log has no index to find that out.
#[tokio::test]
async fn of_two_dead_messages_with_one_event_each_has_a_name_of_its_own() {
    let log = Log::fresh().await;
    log.run(
        "insert into log_failed (shard, log_id, event_id, topic, ordering_key, payload, died_at)
         select 0, n, ('00000000-0000-0000-0000-00000000000' || n % 2)::uuid, 'orders', 'k' || n, 'x', now()
         from generate_series(1, 3) n",
    )
    .await;
    let ids = list(&log, &dead()).await;
    let twice = MessageId::guess("00000000-0000-0000-0000-000000000001");
    assert!(!ids.contains(&twice) && ids.len() == 3, "{ids:?}");
    let mut paged = Vec::new();
    while let [record] = &log.store.list(&dead(), paged.last().copied(), 1).await.unwrap()[..] {
        paged.push(record.message.id);
        assert!(paged.len() <= 3, "{paged:?}");
    }
    assert_eq!(paged, ids);
    let of = |id| Filter {
        ids: vec![id],
        ..dead()
    };
    assert_eq!(
        list(&log, &of(twice)).await,
        [ids[0], ids[2]],
        "by the event both are found"
    );
    let row = log.store.show(MessageId::Number(3)).await.unwrap();
    assert_eq!(
        row.map(|record| record.message.id),
        None,
        "it is in no segment of the log"
    );
    assert_eq!(log.store.discard(&of(ids[2]), 10).await.unwrap(), ids[2..]);
    let left = list(&log, &dead()).await;
    assert_eq!(left, [twice, ids[1]], "what is left has its event's id again");
}
