//! Rows get into the log once, in order, and in the caller's transaction, by every way there is.

use std::time::Duration;

use chrono::Utc;
use posthaste_core::lifecycle::{LeaseToken, State, Verdict};
use posthaste_core::store::{
    AdminStore, ClaimRequest, DeadLetter, Filter, KeyOrdering, PurgeRequest, Restored, SchemaStore, Scope,
    StoreErrorKind,
};
use posthaste_core::{EnqueueError, Message, OutboxOptions, RelayStore};
use posthaste_postgres::{PostgresLogStore, PostgresStore};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Executor};

use crate::fixture::{Log, numbered, payloads, request};
use crate::support;

/// Every part of a message, by each way of writing it.
#[tokio::test]
async fn every_field_comes_back_whichever_way_it_was_written() {
    let log = Log::fresh().await;
    let full = |n: usize| {
        Message::new("orders", format!("body {n}\0\\x").into_bytes())
            .key("k")
            .tenant("acme")
            .event_type("acme.order.created.v1")
            .source("urn:shop")
            .aggregate("Order", "7")
            .header("trace", "a \"b\" \\ ä")
            .content_type("text/plain")
    };
    let later = |n: usize| full(n).not_before(Utc::now() + Duration::from_hours(1));
    let deduped = |n: usize| full(n).dedupe_key(format!("acme/{n}"));
    let bare = |n: usize| Message::new("orders", n.to_string());
    let calls: [Vec<Message>; 8] = [
        vec![full(0)],
        vec![full(1), full(2)],
        (3..1_203).map(full).collect(),
        vec![deduped(1_203)],
        vec![bare(1_205)],
        vec![bare(1_206), bare(1_207)],
        vec![bare(1_208), full(1_209)],
        vec![later(1_204)],
    ];
    let mut expected = Vec::new();
    for messages in calls {
        expected.extend(messages.clone());
        let outcomes = log.enqueue(messages).await;
        assert!(outcomes.iter().all(|outcome| outcome.is_new()));
    }
    log.run("update log_failed set next_attempt_at = now() - interval '1 second'")
        .await;
    let found = log.claim(2_000).await;
    let due = log.claim(2_000).await;
    assert_eq!(found.len(), 1_209);
    assert!(due.is_empty(), "its lane is in flight");
    let all = log.store.list(&Filter::default(), None, 2_000).await.unwrap();
    assert_eq!(all.len(), expected.len());
    for record in all {
        let message = &record.message;
        let id = message.effective_event_id().into_owned();
        let sent = expected.iter().find(|sent| sent.id.to_string() == id).unwrap();
        assert_eq!(message.payload, sent.payload);
        assert_eq!(message.topic, sent.topic);
        assert_eq!(message.ordering_key, sent.ordering_key);
        assert_eq!(message.tenant, sent.tenant);
        assert_eq!(message.event_type, sent.event_type);
        assert_eq!(message.source, sent.source);
        assert_eq!(message.aggregate_type, sent.aggregate_type);
        assert_eq!(message.aggregate_id, sent.aggregate_id);
        assert_eq!(message.content_type, sent.content_type);
        assert_eq!(message.headers, sent.headers);
    }
}

/// Very many rows take several statements, also in a savepoint, and none of a rollback is there. Proves B2.
#[tokio::test]
async fn very_many_rows_are_in_order_and_in_the_callers_transaction() {
    let log = Log::fresh().await;
    let outbox = log.store.outbox(OutboxOptions::default());
    let mut tx = log.pool.begin().await.unwrap();
    outbox.enqueue_all(&mut tx, numbered(0..11_500)).await.unwrap();
    let mut undone = tx.begin().await.unwrap();
    outbox.enqueue_all(&mut undone, numbered(20_000..31_000)).await.unwrap();
    undone.rollback().await.unwrap();
    let mut kept = tx.begin().await.unwrap();
    outbox.enqueue_all(&mut kept, numbered(11_500..11_510)).await.unwrap();
    kept.commit().await.unwrap();
    // The transaction goes on being one.
    tx.execute("select 1").await.unwrap();
    assert!(log.claim(10).await.is_empty(), "nothing is committed");
    tx.commit().await.unwrap();
    let mut tx = log.pool.begin().await.unwrap();
    outbox.enqueue_all(&mut tx, numbered(20_000..22_000)).await.unwrap();
    tx.rollback().await.unwrap();
    let in_order = "select count(*) from (
        select convert_from(payload, 'UTF8')::bigint as n, row_number() over (order by seq) - 1 as place from log) r
        where n = place";
    assert_eq!(log.count(in_order).await, 11_510);
    assert_eq!(log.count("select count(*) from log").await, 11_510);
    let claimed = log.claim(2_000).await;
    let expected: Vec<_> = (0..2_000).map(|n| n.to_string()).collect();
    assert_eq!(payloads(&claimed), expected);
}

/// The table's trigger costs as much as the rest of an insert. The library leaves rows to it only where there are several
/// shards, one row at a time.
#[tokio::test]
async fn with_one_shard_the_library_does_without_the_trigger() {
    let log = Log::fresh().await;
    log.run("drop trigger log_place on log").await;
    log.enqueue(numbered(0..1)).await;
    log.enqueue(numbered(1..100)).await;
    let later = Utc::now() + Duration::from_hours(1);
    log.enqueue(vec![Message::new("t", "{}").not_before(later)]).await;
    let placed = "select count(*) from log where shard = 0 and seq > 0";
    assert_eq!(log.count(placed).await, 100);
    log.raise(4).await;
    log.enqueue(numbered(100..200)).await;
    assert_eq!(log.count("select count(*) from log where seq >> 44 = shard").await, 200);
}

/// A bad message is refused before any SQL runs, however many there are.
#[tokio::test]
async fn one_bad_message_of_many_is_refused_and_the_transaction_goes_on() {
    let log = Log::fresh().await;
    let outbox = log.store.outbox(OutboxOptions::default());
    let mut tx = log.pool.begin().await.unwrap();
    let mut messages = numbered(0..1_200);
    messages[700].topic = "".into();
    let refused = outbox.enqueue_all(&mut tx, messages).await.unwrap_err();
    assert!(
        matches!(refused, EnqueueError::Invalid { position: 700, .. }),
        "{refused}"
    );
    let named = Message::new("orders", "{}").namespace("other");
    let refused = outbox.enqueue(&mut tx, named).await.unwrap_err().to_string();
    assert!(refused.contains("namespace"), "{refused}");
    outbox.enqueue(&mut tx, Message::new("orders", "1")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(payloads(&log.claim(10).await), ["1"]);
}

/// A transaction that is prepared holds back nothing but its own, and comes when it is committed.
#[tokio::test]
async fn a_prepared_transaction_is_delivered_when_it_is_committed() {
    let log = Log::fresh().await;
    if log
        .count("select setting::bigint from pg_settings where name = 'max_prepared_transactions'")
        .await
        == 0
    {
        println!("the server allows no prepared transactions");
        return;
    }
    let name = support::fresh_schema();
    let outbox = log.store.outbox(OutboxOptions::default());
    let mut session = log.pool.acquire().await.unwrap();
    session.execute("begin").await.unwrap();
    outbox
        .enqueue(&mut session, Message::new("orders", "held").key("a"))
        .await
        .unwrap();
    session
        .execute(AssertSqlSafe(format!("prepare transaction '{name}'")))
        .await
        .unwrap();
    log.enqueue(vec![Message::new("orders", "free").key("b")]).await;
    let token = LeaseToken::new();
    let claimed = log.claim_as(token, 10).await;
    assert_eq!(payloads(&claimed), ["free"]);
    log.settle(token, claimed[0].message.id, Verdict::Delivered).await;
    assert!(log.claim(10).await.is_empty());
    session
        .execute(AssertSqlSafe(format!("commit prepared '{name}'")))
        .await
        .unwrap();
    assert_eq!(payloads(&log.claim(10).await), ["held"]);
}

/// Rows that other languages insert, by COPY or by INSERT, have their place given by the table.
#[tokio::test]
async fn inserts_and_copies_from_any_language_get_their_place() {
    let log = Log::fresh().await;
    log.run("insert into log (topic, ordering_key, payload) values ('t', 'k', '1'), ('t', 'k', '2')")
        .await;
    let mut connection = log.pool.acquire().await.unwrap();
    let mut copy = connection
        .copy_in_raw("copy log (topic, ordering_key, payload) from stdin")
        .await
        .unwrap();
    copy.send(&b"t\tk\t3\nt\tk\t4\n"[..]).await.unwrap();
    copy.finish().await.unwrap();
    log.run("select * from enqueue(topic => 't', key => 'k', payload => '5', headers => '{\"a\": \"b\"}')")
        .await;
    let claimed = log.claim(10).await;
    assert_eq!(payloads(&claimed), ["1", "2", "3", "4", "5"]);
    assert_eq!(claimed[4].message.headers.get("a").map(String::as_str), Some("b"));
    let sequences: Vec<_> = claimed.iter().map(|claimed| claimed.sequence.unwrap()).collect();
    assert!(sequences.is_sorted(), "{sequences:?}");
}

/// Proves B2. What messages of a call have in common goes over once, and comes back with each of them.
#[tokio::test]
async fn each_message_has_what_is_its_own_and_what_is_common() {
    let log = Log::fresh().await;
    let calls = support::calls_in_which_one_differs();
    for messages in calls.clone() {
        log.enqueue(messages).await;
    }
    let given: Vec<_> = calls.concat();
    let request = ClaimRequest {
        ordering: KeyOrdering::None,
        ..request(LeaseToken::new(), 1_000)
    };
    let claimed = log.store.claim(&request).await.unwrap().messages;
    assert_eq!(claimed.len(), given.len());
    for (claimed, given) in claimed.iter().zip(&given) {
        support::assert_as_given(&claimed.message, given);
    }
}

/// At the end of the log rows are decoded in another way than beside others that wait.
#[tokio::test]
async fn a_row_is_the_same_whichever_way_it_is_read() {
    let log = Log::fresh().await;
    for messages in support::calls_in_which_one_differs() {
        log.enqueue(messages).await;
    }
    log.run(
        r"insert into log (topic, ordering_key, tenant, event_type, aggregate_id, payload, headers, created_at) values
            ('t', null, null, null, null, '', null, 'infinity'), ('t', 'a key of more than 23 bytes', 'ü', '', 'x', '\x00ff', '', default),
            ('t', '', '', 'one', '', 'p', '{}', '2001-02-03 04:05:06+00'), (' ', 'k', null, null, 'k', 'p', 'null', '-infinity'),
            ('', 'k', null, null, 'k', 'p', '\xff', default)",
    )
    .await;
    let token = LeaseToken::new();
    let unordered = |token| ClaimRequest {
        ordering: KeyOrdering::None,
        ..request(token, 1_000)
    };
    let at_the_end = log.store.claim(&unordered(token)).await.unwrap().messages;
    assert_eq!(at_the_end.len(), 16 * 3 * 3 + 5);
    for claimed in &at_the_end {
        log.settle(token, claimed.message.id, Verdict::Released).await;
    }
    let again = log.store.claim(&unordered(LeaseToken::new())).await.unwrap().messages;
    assert_eq!(at_the_end, again);
}

/// Headers are bytes, which a plain insert may fill with anything.
#[tokio::test]
async fn headers_that_are_no_text_are_a_fault_of_their_row_and_of_no_other() {
    let log = Log::fresh().await;
    log.run(
        r#"insert into log (topic, ordering_key, payload, headers) values
            ('t', 'a', '1', convert_to('{"a": "ü"}', 'UTF8')), ('t', 'b', '2', '\xff00'), ('t', 'c', '3', null)"#,
    )
    .await;
    // At the end of the log, behind others that wait, and from the table of failures.
    for n in 1..=3 {
        let token = LeaseToken::new();
        let claimed = log.claim_as(token, 10).await;
        assert_eq!(payloads(&claimed), ["1", "2", "3"]);
        assert_eq!(claimed[0].message.headers.get("a").map(String::as_str), Some("ü"));
        let faults: Vec<_> = claimed.iter().map(|claimed| claimed.fault.as_deref()).collect();
        assert!(faults[0].is_none() && faults[2].is_none(), "{faults:?}");
        assert!(faults[1].is_some_and(|fault| fault.contains("headers")), "{faults:?}");
        let (delay, error) = (Duration::ZERO, "no".to_owned());
        for one in &claimed {
            let verdict = match n {
                1 => Verdict::Released,
                _ => Verdict::Retry {
                    delay,
                    error: error.clone(),
                },
            };
            log.settle(token, one.message.id, verdict).await;
        }
    }
    assert_eq!(log.store.list(&Filter::default(), None, 10).await.unwrap().len(), 3);
}

/// The log takes nothing that its table of failures could not.
#[tokio::test]
async fn what_is_too_long_for_the_table_of_failures_is_refused_by_the_log() {
    let log = Log::fresh().await;
    // Of digits that no compression makes shorter.
    let text = |bytes: usize| {
        let uuid = |_| uuid::Uuid::new_v4().simple().to_string();
        (0..=bytes / 32).map(uuid).collect::<String>()[..bytes].to_owned()
    };
    let insert = async |topic: String, key: String| {
        let insert = format!("insert into log (topic, ordering_key, payload) values ('{topic}', '{key}', 'p')");
        log.pool.execute(AssertSqlSafe(insert)).await
    };
    for (topic, key, named) in [
        (text(513), text(1), "log_topic_fits"),
        (text(1), text(2_049), "log_ordering_key_fits"),
    ] {
        let refused = insert(topic, key).await.unwrap_err().to_string();
        assert!(refused.contains(named), "{refused}");
    }
    insert(text(512), text(2_048)).await.unwrap();
    let token = LeaseToken::new();
    let claimed = log.claim_as(token, 10).await;
    let (delay, error) = (Duration::ZERO, "no".to_owned());
    log.settle(token, claimed[0].message.id, Verdict::Retry { delay, error })
        .await;
    assert_eq!(log.claim(10).await.len(), 1);
}

/// The SQL function keeps to dedupe keys, times and traces as that of the queue does.
#[tokio::test]
async fn the_sql_function_writes_to_the_log() {
    let log = Log::fresh().await;
    let call = |arguments: &str| format!("select * from enqueue(topic => 't', payload => 'x', {arguments})");
    let first: (uuid::Uuid, bool) = sqlx::query_as(AssertSqlSafe(call("dedupe_key => 'd'")))
        .fetch_one(&log.pool)
        .await
        .unwrap();
    let second: (uuid::Uuid, bool) = sqlx::query_as(AssertSqlSafe(call("dedupe_key => 'd'")))
        .fetch_one(&log.pool)
        .await
        .unwrap();
    assert_eq!((first.1, second), (true, (first.0, false)));
    let same = call("dedupe_key => 'same', message_id => '00000000-0000-4000-8000-000000000001'");
    log.run(&format!("begin; {same}; {same}; {same}; commit; {same}")).await;
    assert_eq!(
        log.count("select count(*) from log").await,
        2,
        "an event is appended once"
    );
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    log.run(&format!(
        "begin; set local posthaste.traceparent = '{trace}'; {}; commit",
        call("key => 'k'")
    ))
    .await;
    log.run(&call("key => 'k', not_before => now() + interval '1 hour'"))
        .await;
    assert_eq!(
        log.count("select count(*) from outbox").await,
        0,
        "the queue is not used"
    );
    assert_eq!(log.count("select count(*) from log_failed where attempts = 0").await, 1);
    let claimed = log.claim(10).await;
    assert_eq!(claimed.len(), 3);
    assert_eq!(
        claimed[2].message.headers.get("traceparent").map(String::as_str),
        Some(trace)
    );
    let refused = log
        .pool
        .execute(AssertSqlSafe(call("namespace => 'other'")))
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("a log has no namespaces"), "{refused}");
    let refused = log
        .pool
        .execute(AssertSqlSafe(call("event_type => 'x'")))
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("not a type name"), "{refused}");
}

/// A schema whose queue is in use keeps its function until it is told otherwise.
#[tokio::test]
async fn a_queue_in_use_keeps_its_function_until_the_log_takes_over() {
    let schema = support::fresh_schema();
    let queue = PostgresStore::in_schema(support::pool(2).await, &schema).unwrap();
    queue.migrate().await.unwrap();
    let enqueue = format!("select * from {schema}.enqueue(topic => 't', payload => 'x')");
    queue.pool().execute(AssertSqlSafe(enqueue.clone())).await.unwrap();
    let log = Log::in_schema(&schema).await;
    log.run(&enqueue).await;
    assert_eq!(log.count("select count(*) from outbox").await, 2);
    log.run("select use_log(); select use_log()").await;
    log.run(&enqueue).await;
    assert_eq!(log.count("select count(*) from outbox").await, 2);
    assert_eq!(log.count("select count(*) from log").await, 1);
    assert!(log.store.migrate().await.unwrap().is_empty(), "nothing is left to do");
    assert!(queue.migrate().await.unwrap().is_empty());
}

/// The library, the trigger and the SQL function say the same about keys.
#[tokio::test]
async fn a_key_is_in_one_shard_whichever_way_it_was_written() {
    let log = Log::fresh().await;
    for shard in 4..8 {
        log.run(&format!("create sequence log_shard_{shard}_seq owned by log.seq"))
            .await;
    }
    log.run("select setval('log_shape', 4 * 65536 + 4)").await;
    let message = |key: &str| Message::new("t", "1").key(key);
    let later = Utc::now() + Duration::from_hours(1);
    for key in ["a", "b", "c", "d", "ä", "a longer key with spaces"] {
        log.enqueue(vec![message(key)]).await;
        log.enqueue(vec![message(key), message(key)]).await;
        log.enqueue((0..1_000).map(|_| message(key)).collect()).await;
        log.enqueue(vec![message(key).dedupe_key(key), message(key).not_before(later)])
            .await;
        log.run(&format!(
            "select * from enqueue(topic => 't', key => '{key}', payload => '1')"
        ))
        .await;
        log.run(&format!(
            "insert into log (topic, ordering_key, payload) values ('t', '{key}', '1')"
        ))
        .await;
    }
    let placed = "select count(*) from (
        select ordering_key, min(shard) as first, max(shard) as last, count(*) as rows
        from (select ordering_key, shard from log union all select ordering_key, shard from log_failed) r
        group by 1) k
        where first = last and rows = 1007 and first = 4 + log_hash(ordering_key) % 4";
    assert_eq!(log.count(placed).await, 6);
    let shards = "select count(distinct shard) from log";
    assert!(log.count(shards).await > 1, "keys are spread");
    // Rows without a key are spread too.
    log.enqueue((0..100).map(|_| Message::new("u", "1")).collect()).await;
    assert_eq!(
        log.count("select count(distinct shard) from log where topic = 'u'")
            .await,
        4
    );
}

/// Sequences are not transactional: a transaction with an old snapshot writes to the newest segment as well.
#[tokio::test]
async fn rows_go_to_the_current_segment_also_from_an_old_snapshot() {
    let log = Log::fresh().await;
    let outbox = log.store.outbox(OutboxOptions::default());
    let mut tx = log
        .pool
        .begin_with("begin isolation level repeatable read; select 1")
        .await
        .unwrap();
    log.run("select nextval('log_segment')").await;
    outbox.enqueue(&mut tx, Message::new("t", "1")).await.unwrap();
    outbox.enqueue_all(&mut tx, numbered(0..2)).await.unwrap();
    outbox.enqueue_all(&mut tx, numbered(2..1_002)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(log.count("select count(*) from log_2").await, 1_003);
    assert_eq!(log.count("select count(*) from log").await, 1_003);
    assert_eq!(log.claim(2_000).await.len(), 1_003);
}

/// Whatever the schema is called.
#[tokio::test]
async fn a_schema_may_have_any_name() {
    let schema = format!("it's \"{}\"", uuid::Uuid::new_v4().simple());
    let log = Log::in_schema(&schema).await;
    log.enqueue(vec![Message::new("t", "1").key("k")]).await;
    log.enqueue(vec![Message::new("t", "2").key("k"), Message::new("t", "3").key("k")])
        .await;
    log.enqueue(vec![Message::new("t", "4").key("k").dedupe_key("d")]).await;
    log.enqueue(numbered(0..1_000)).await;
    log.run("select * from enqueue(topic => 't', key => 'k', payload => '5')")
        .await;
    assert_eq!(log.claim(2_000).await.len(), 1_005);
    log.store.check_for(&Scope::default()).await.unwrap();
}

/// Failures, retries, deaths and replays happen beside the log, whose rows are never changed.
#[tokio::test]
async fn rows_of_the_log_are_never_changed() {
    let log = Log::fresh().await;
    log.enqueue(numbered(0..20)).await;
    for round in 0..6 {
        let token = LeaseToken::new();
        for claimed in log.claim_as(token, 100).await {
            let id = claimed.message.id;
            let verdict = match (round, claimed.message.payload[0] % 3) {
                (_, 0) => Verdict::Delivered,
                (3.., 1) => Verdict::Dead { error: "no".to_owned() },
                _ => Verdict::Retry {
                    delay: Duration::ZERO,
                    error: "not now".to_owned(),
                },
            };
            log.settle(token, id, verdict).await;
        }
    }
    let dead = Filter {
        state: Some(State::Dead),
        ..Filter::default()
    };
    assert!(!log.store.replay(&dead, 1).await.unwrap().is_empty());
    assert!(!log.store.discard(&dead, 1).await.unwrap().is_empty());
    log.store.close().await.unwrap();
    let changed = "select count(*) from log where xmax <> 0";
    assert_eq!(log.count(changed).await, 0);
    assert_eq!(log.count("select count(*) from log").await, 20);
    let dead_rows =
        "select coalesce(sum(pg_stat_get_xact_tuples_updated(inhrelid) + pg_stat_get_dead_tuples(inhrelid)), 0)::bigint
         from pg_inherits where inhparent = 'log'::regclass";
    assert_eq!(log.count(dead_rows).await, 0);
}

/// What was given up goes by its age, and no sooner.
#[tokio::test]
async fn the_dead_are_purged_by_the_time_of_their_death() {
    let log = Log::fresh().await;
    let messages = numbered(0..2);
    let first = messages[0].id;
    log.enqueue(messages).await;
    let token = LeaseToken::new();
    for claimed in log.claim_as(token, 10).await {
        log.settle(token, claimed.message.id, Verdict::Dead { error: "no".to_owned() })
            .await;
    }
    log.run("update log_failed set died_at = died_at - interval '2 days' where id = (select min(id) from log_failed)")
        .await;
    assert!(!log.store.requirements().undated_deaths);
    let request = PurgeRequest {
        dead: Some(Duration::from_hours(24)),
        ..PurgeRequest::older_than(Duration::from_hours(24), 10)
    };
    assert_eq!(log.store.purgeable(&request).await.unwrap().dead, 1);
    let removed = log.store.purge(&request).await.unwrap().dead;
    assert_eq!(removed, [first], "they are named as consumers would have known them");
    assert_eq!(log.store.stats("default").await.unwrap().dead, 1);
}

fn letter(message: &Message) -> DeadLetter {
    DeadLetter {
        attempts: 4,
        error: "no".to_owned(),
        created_at: Utc::now(),
        died_at: Utc::now(),
        hash: None,
        message: message.clone(),
    }
}

/// Copies of the file in which they were kept may be brought back by several at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_is_brought_back_once_by_many_at_once() {
    let log = Log::fresh().await;
    for round in 1..=20 {
        let letter = letter(&Message::new("orders", "body"));
        let imports: Vec<_> = (0..4)
            .map(|_| {
                let (store, letter) = (log.store.clone(), letter.clone());
                tokio::spawn(async move { store.restore(&letter).await.unwrap() })
            })
            .collect();
        let mut inserted = 0;
        for import in imports {
            inserted += usize::from(import.await.unwrap() == Restored::Inserted);
        }
        let failed = log.count("select count(*) from log_failed").await;
        assert_eq!((inserted, failed), (1, round));
    }
}

/// A letter that was kept elsewhere comes back as what it was, once.
#[tokio::test]
async fn a_dead_letter_is_brought_back() {
    let log = Log::fresh().await;
    let message = Message::new("orders", "body")
        .key("k")
        .header("a", "b")
        .content_type("text/plain");
    let letter = letter(&message);
    assert_eq!(log.store.restore(&letter).await.unwrap(), Restored::Inserted);
    assert_eq!(log.store.restore(&letter).await.unwrap(), Restored::There(State::Dead));
    let record = log.store.show(message.id).await.unwrap().unwrap();
    assert_eq!((record.state, record.attempts), (State::Dead, 4));
    assert_eq!(log.store.replay(&Filter::default(), 10).await.unwrap().len(), 1);
    let claimed = log.claim(10).await;
    assert_eq!(claimed[0].message.headers, message.headers);
    assert_eq!(claimed[0].message.effective_event_id(), message.id.to_string());
}

/// A relay without the right to write down failures says so at its start.
#[tokio::test]
async fn missing_rights_are_told_at_the_start() {
    let log = Log::fresh().await;
    log.store.check_for(&Scope::default()).await.unwrap();
    let role = support::fresh_schema();
    log.run(&format!(
        "create role {role} login; grant usage on schema {schema} to {role};
         grant select on all tables in schema {schema} to {role}; grant usage, select on all sequences in schema {schema} to {role}",
        schema = log.store.map().schema().unwrap()
    ))
    .await;
    let address: PgConnectOptions = support::server_url().parse().unwrap();
    let pool = PgPoolOptions::new()
        .connect_with(address.username(&role))
        .await
        .unwrap();
    let store = PostgresLogStore::new(pool, log.store.map().clone()).unwrap();
    let refused = store.check_for(&Scope::default()).await.unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::Access, "{refused}");
    assert!(refused.to_string().contains("log_failed"), "{refused}");
}
