//! A log with cursor and failed tables, on the commerce system's own DDL.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;
#[path = "support/log.rs"]
mod support_log;

use std::time::{Duration, Instant};

use posthaste_core::lifecycle::{State, Verdict};
use posthaste_core::store::{AdminStore, ClaimRequest, DeadHead, Filter, Ordering, ProducerStore, SchemaStore};
use posthaste_core::{Inbox, InboxStore, Message, OutboxOptions, PublishError, RelayStore};
use posthaste_postgres::{LogOptions, PostgresHandled, PostgresLogStore};
use posthaste_relay::{Relay, RelayConfig};
use posthaste_testkit::{Fault, FaultyPublisher, RecordingPublisher, Rule};
use sqlx::{AssertSqlSafe, Executor, Row, SqlSafeStr};
use support_log::{Log, Work, dead, request, retry};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_mins(1);

fn events(broker: &RecordingPublisher) -> Vec<String> {
    let event = |delivery: &posthaste_core::publisher::Delivery| delivery.message.event_id().into_owned();
    broker.deliveries().iter().map(event).collect()
}

async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn every_statement_is_prepared_by_the_server() {
    let log = Log::fresh(1).await;
    for (name, sql) in log.store().statements() {
        let prepared = log.pool.prepare(AssertSqlSafe(sql.clone()).into_sql_str()).await;
        prepared.unwrap_or_else(|error| panic!("{name}: {error}\n{sql}"));
    }
}

#[tokio::test]
async fn the_finished_statements_are_the_ones_in_the_repository() {
    let log = Log::fresh(1).await;
    for (name, sql) in log.store().statements() {
        insta::assert_snapshot!(format!("commerce_{name}"), sql);
    }
}

/// Proves C4.
#[tokio::test(flavor = "multi_thread")]
async fn the_relay_runs_on_the_tables_as_they_stand_and_leaves_the_log_as_it_was() {
    let log = Log::fresh(4).await;
    let mut appended = Vec::new();
    for order in 0..250 {
        appended.push(log.append(&log.pool, &format!("{}", order % 10)).await);
    }
    let content =
        "select coalesce(string_agg(o::text || o.xmin::text || o.ctid::text, ',' order by id), '') from outbox o";
    let before = log.texts(content).await;
    let broker = RecordingPublisher::new();
    let report = Relay::new(log.store(), broker.clone())
        .config(log.config())
        .drain()
        .await
        .unwrap();
    assert_eq!(report.delivered, 250);
    assert_eq!(events(&broker), appended, "each once, in order");
    assert_eq!(log.cursor().await, 250, "newest wins");
    let moves = log.number("select count(*) from outbox_cursor").await;
    assert!((2..=20).contains(&moves), "appended, and not for every row: {moves}");
    assert_eq!(log.failed().await, 0);
    assert_eq!(log.texts(content).await, before, "rows of the log are never changed");
    let delivery = broker.deliveries().swap_remove(42);
    let message = &delivery.message;
    assert_eq!(
        (message.topic.as_str(), message.ordering_key.as_deref()),
        ("order-events", Some("2"))
    );
    assert_eq!(message.event_type.as_deref(), Some("loopers.order.created.v1"));
    assert_eq!(message.source.as_deref(), Some("commerce-api"));
    assert_eq!(
        (message.aggregate_type.as_deref(), message.aggregate_id.as_deref()),
        (Some("Order"), Some("2"))
    );
    assert_eq!(&message.payload[..], br#"{"orderId": "2"}"#);
    assert_eq!(message.id.number(), Some(43));
    let created: chrono::DateTime<chrono::Utc> = sqlx::query_scalar("select created_at from outbox where id = 43")
        .fetch_one(&log.pool)
        .await
        .unwrap();
    assert_eq!(delivery.created_at, created);
}

/// Proves C5.
#[tokio::test(flavor = "multi_thread")]
async fn the_main_lane_takes_a_hundred_and_failures_go_to_their_table_while_the_cursor_moves_on() {
    let log = Log::fresh(4).await;
    let policy: RelayConfig = serde_json::from_value(log.map.policy().clone().into()).unwrap();
    assert_eq!(
        (policy.poll_interval, policy.batch_size),
        (Duration::from_millis(500), 100)
    );
    assert_eq!(policy.publish_timeout, Duration::from_secs(30));
    for order in 0..150 {
        log.append(&log.pool, &order.to_string()).await;
    }
    let store = log.store();
    let first = Work::claim(&store, &request(100)).await;
    assert_eq!(first.claim.messages.len(), 100);
    let second = Work::claim(&store, &request(100)).await;
    assert_eq!(
        second.claim.messages.len(),
        50,
        "what is in flight is not claimed twice"
    );
    assert_eq!(first.settle(&store, &[(7, retry(1)), (8, dead())]).await, []);
    assert_eq!(second.settle(&store, &[]).await, []);
    store.leave(request(1).worker).await.unwrap();
    assert_eq!(log.cursor().await, 150);
    let failed =
        log.texts("select aggregate_id || ' ' || retry_count || ' ' || last_error from outbox_failed order by id");
    assert_eq!(failed.await, ["7 0 the broker said no", "8 10 too large"]);
    let copied =
        "select count(*) from outbox_failed f join outbox o using (event_id, event_type, source, aggregate_type,
        aggregate_id, payload)";
    assert_eq!(log.number(copied).await, 2, "all that a retry needs");
}

/// Proves C5.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_attempted_is_not_skipped() {
    let log = Log::fresh(4).await;
    for order in 0..20 {
        log.append(&log.pool, &order.to_string()).await;
    }
    let store = log.store();
    let work = Work::claim(&store, &request(20)).await;
    let away = Verdict::Postponed {
        delay: Duration::from_millis(200),
        error: "away".to_owned(),
    };
    let mut but = vec![(10, away)];
    but.extend((11..20).map(|place| (place, Verdict::Released)));
    assert_eq!(work.settle(&store, &but).await, []);
    let again = Work::claim(&store, &request(20)).await;
    assert_eq!(again.claim.messages.len(), 9, "all but the one that waits, and at once");
    again.settle(&store, &[]).await;
    store.leave(request(1).worker).await.unwrap();
    assert_eq!(
        log.cursor().await,
        10,
        "the cursor stands before what was not attempted"
    );
    assert_eq!(log.failed().await, 0, "and no attempt was used up");
    drop(store);
    let successor = log.store();
    eventually("a successor begins there", async || {
        !Work::claim(&successor, &request(1)).await.claim.messages.is_empty()
    })
    .await;
}

/// Proves C5.
#[tokio::test(flavor = "multi_thread")]
async fn a_circuit_that_opens_in_the_middle_of_a_batch_costs_nothing_but_time() {
    let log = Log::fresh(4).await;
    let mut appended = Vec::new();
    for order in 0..40 {
        appended.push(log.append(&log.pool, &order.to_string()).await);
    }
    let broker = FaultyPublisher::new(RecordingPublisher::new());
    broker.inject(
        Rule::new(Fault::transport())
            .when(|message| message.id.number().is_some_and(|id| id > 20))
            .times(12),
    );
    let mut config = log.config();
    config.breaker.open_for = Duration::from_millis(100);
    config.retry.backoff = posthaste_core::Backoff::Schedule {
        delays: vec![Duration::from_millis(50)],
    };
    let stop = CancellationToken::new();
    let relay = Relay::new(log.store(), broker.clone()).config(config);
    let running = tokio::spawn(relay.run_until(stop.clone()));
    eventually("all are delivered", async || {
        broker.inner().first_deliveries().len() >= 40
    })
    .await;
    stop.cancel();
    running.await.unwrap().unwrap();
    let mut delivered = events(broker.inner());
    delivered.sort();
    delivered.dedup();
    appended.sort();
    assert_eq!(delivered, appended);
    assert_eq!((log.cursor().await, log.failed().await), (40, 0));
}

/// Proves C7.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_row_is_retried_with_growing_waits_until_it_is_left_to_an_operator() {
    let log = Log::fresh(4).await;
    let event = log.append(&log.pool, "1").await;
    let policy: RelayConfig = serde_json::from_value(log.map.policy().clone().into()).unwrap();
    let store = log.store();
    let mut waits = Vec::new();
    for attempt in 1..=11_u32 {
        let work = Work::claim(&store, &request(10)).await;
        assert_eq!(work.events(), std::slice::from_ref(&event), "attempt {attempt}");
        assert_eq!(work.claim.messages[0].attempts, attempt);
        let failure = posthaste_core::Outcome::Failed(PublishError::transient("no"));
        let verdict = posthaste_core::lifecycle::decide(failure, attempt, &policy.retry, None, 0.5);
        work.settle(&store, &[(0, verdict)]).await;
        let row = sqlx::query(
            "select retry_count, round(extract(epoch from next_retry_at - now()))::bigint as wait from outbox_failed",
        );
        let row = row.fetch_one(&log.pool).await.unwrap();
        waits.push(row.get::<i64, _>("wait"));
        assert_eq!(row.get::<i32, _>("retry_count"), i32::try_from(attempt - 1).unwrap());
        assert!(
            Work::claim(&store, &request(10)).await.events().is_empty(),
            "not before its time"
        );
        log.make_due().await;
    }
    assert_eq!(waits[..10], [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
    assert!(
        Work::claim(&store, &request(10)).await.events().is_empty(),
        "at ten it stays"
    );
    let filter = Filter {
        state: Some(State::Dead),
        ..Filter::default()
    };
    let listed = store.list(&filter, None, 10).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].attempts, listed[0].message.event_id().into_owned()),
        (11, event)
    );
    assert!(
        listed[0]
            .last_error
            .as_deref()
            .is_some_and(|error| error.contains("gave up after 11 attempts"))
    );
}

/// Proves C7.
#[tokio::test(flavor = "multi_thread")]
async fn the_retry_lane_takes_fifty_every_five_seconds_and_deletes_what_succeeds() {
    let log = Log::fresh(4).await;
    let options = LogOptions::of(&log.map);
    assert_eq!(
        (options.retry_interval, options.retry_batch, options.max_retries),
        (Duration::from_secs(5), 50, 10)
    );
    for order in 0..120 {
        log.append(&log.pool, &order.to_string()).await;
    }
    let store = PostgresLogStore::new(log.pool.clone(), log.map.clone()).unwrap();
    let work = Work::claim(&store, &request(200)).await;
    let all: Vec<_> = (0..120).map(|place| (place, retry(0))).collect();
    work.settle(&store, &all).await;
    assert!(
        Work::claim(&store, &request(200)).await.events().is_empty(),
        "looked at when the log was claimed"
    );
    store.leave(request(1).worker).await.unwrap();
    let store = log.store();
    let work = Work::claim(&store, &request(200)).await;
    assert_eq!(work.events().len(), 50);
    work.settle(&store, &[(0, retry(60)), (1, Verdict::Released)]).await;
    assert_eq!(log.failed().await, 72, "48 of 120 were delivered");
    assert_eq!(Work::claim(&store, &request(200)).await.events().len(), 50);
}

/// Proves C10.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_failure_later_events_of_the_aggregate_wait_and_others_do_not() {
    let log = Log::fresh(4).await;
    let mut appended = Vec::new();
    for n in 0..30 {
        appended.push(log.append(&log.pool, ["a", "b", "c"][n % 3]).await);
    }
    let store = log.store();
    let work = Work::claim(&store, &request(6)).await;
    assert_eq!(work.keys(), ["a", "b", "c", "a", "b", "c"]);
    // The publisher stops the lane of what failed.
    work.settle(&store, &[(0, retry(60)), (3, Verdict::Released)]).await;
    let rest = Work::claim(&store, &request(100)).await;
    assert_eq!(rest.keys(), ["b", "c"].repeat(8), "nothing of a");
    rest.settle(&store, &[]).await;
    let parked = log.texts("select event_id from outbox_failed order by id").await;
    let of_a: Vec<String> = appended.iter().step_by(3).cloned().collect();
    assert_eq!(parked, of_a, "in order, each once");
    log.append(&log.pool, "a").await;
    assert!(Work::claim(&store, &request(100)).await.events().is_empty());
    assert_eq!(log.failed().await, 11);
    log.make_due().await;
    let head = Work::claim(&store, &request(100)).await;
    assert_eq!(head.events(), of_a[..1], "what failed goes alone");
    assert!(
        Work::claim(&store, &request(100)).await.events().is_empty(),
        "its followers wait for it"
    );
    head.settle(&store, &[]).await;
    let followers = Work::claim(&store, &request(100)).await;
    assert_eq!(
        followers.events()[..9],
        of_a[1..],
        "then the run of those that only waited"
    );
    followers.settle(&store, &[]).await;
    store.leave(request(1).worker).await.unwrap();
    assert_eq!((log.cursor().await, log.failed().await), (31, 0));
    let event = log.append(&log.pool, "a").await;
    let again = log.store();
    assert_eq!(
        Work::claim(&again, &request(100)).await.events(),
        [event],
        "the aggregate is free"
    );
}

/// Proves C10.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_whose_broker_fails_now_and_then_keeps_the_order_of_every_aggregate() {
    let log = Log::fresh(4).await;
    let mut appended = Vec::new();
    for n in 0..400 {
        appended.push(log.append(&log.pool, &(n % 7).to_string()).await);
    }
    let broker = FaultyPublisher::new(RecordingPublisher::new());
    broker.fail_while(|_| rand::random_bool(0.05));
    let mut config = log.config();
    config.retry.max_attempts = 1_000;
    config.retry.backoff = posthaste_core::Backoff::Schedule {
        delays: vec![Duration::from_millis(5)],
    };
    let options = LogOptions {
        retry_interval: Duration::ZERO,
        max_retries: 999,
        ..LogOptions::of(&log.map)
    };
    let store = PostgresLogStore::with_options(log.pool.clone(), log.map.clone(), options).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(Relay::new(store, broker.clone()).config(config).run_until(stop.clone()));
    eventually("all are delivered", async || broker.inner().deliveries().len() >= 400).await;
    stop.cancel();
    running.await.unwrap().unwrap();
    let delivered = events(broker.inner());
    for key in 0..7 {
        let in_order: Vec<_> = appended.iter().skip(key).step_by(7).collect();
        let as_delivered: Vec<_> = delivered.iter().filter(|event| in_order.contains(event)).collect();
        assert_eq!(as_delivered, in_order, "aggregate {key}");
    }
    assert_eq!(log.failed().await, 0);
}

/// Proves C10.
#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_was_given_up_is_skipped_or_blocks_by_policy() {
    let log = Log::fresh(4).await;
    for _ in 0..3 {
        log.append(&log.pool, "a").await;
    }
    let store = log.store();
    let work = Work::claim(&store, &request(10)).await;
    work.settle(&store, &[(0, dead()), (1, Verdict::Released), (2, Verdict::Released)])
        .await;
    let blocking = ClaimRequest {
        ordering: Ordering::PerKey {
            dead_head: DeadHead::Block,
            except: Vec::new(),
        },
        ..request(10)
    };
    assert!(Work::claim(&store, &blocking).await.events().is_empty());
    assert_eq!(log.failed().await, 3, "parked behind the dead one");
    let excepted = ClaimRequest {
        ordering: Ordering::PerKey {
            dead_head: DeadHead::Block,
            except: vec!["order-events".to_owned()],
        },
        ..request(10)
    };
    let passed = Work::claim(&store, &excepted).await;
    assert_eq!(passed.keys().len(), 2, "this topic has the other policy");
    passed
        .settle(&store, &[(0, Verdict::Released), (1, Verdict::Released)])
        .await;
    let dead_row = log
        .texts("select event_id from outbox_failed where retry_count >= 10")
        .await;
    let filter = Filter {
        ids: vec![dead_row[0].parse().unwrap()],
        ..Filter::default()
    };
    assert_eq!(store.replay(&filter, 10).await.unwrap().len(), 1);
    assert!(
        store.replay(&filter, 10).await.unwrap().is_empty(),
        "of two operators one gets it"
    );
    let head = Work::claim(&store, &blocking).await;
    assert_eq!(head.events(), dead_row);
    head.settle(&store, &[]).await;
    assert_eq!(Work::claim(&store, &blocking).await.keys().len(), 2);
}

/// Proves C16.
#[tokio::test(flavor = "multi_thread")]
async fn old_cursor_rows_are_removed_in_batches_but_never_the_newest() {
    let log = Log::fresh(2).await;
    log.run(
        "insert into outbox_cursor (last_processed_id, created_at)
         select n, now() - interval '30 days' + n * interval '1 minute' from generate_series(1, 2500) n",
    )
    .await;
    log.run("delete from outbox_cursor where last_processed_id = 0").await;
    let store = log.store();
    let keep = Duration::from_hours(7 * 24);
    assert_eq!(store.purge(keep, 1_000).await.unwrap(), 1_000);
    assert_eq!(store.purge(keep, 1_000).await.unwrap(), 1_000);
    assert_eq!(
        store.purge(keep, 1_000).await.unwrap(),
        499,
        "all are old, and the newest is kept"
    );
    assert_eq!(log.cursor().await, 2_500);
    log.run("insert into outbox_cursor (last_processed_id, created_at) values (2501, now() - interval '6 days')")
        .await;
    assert_eq!(store.purge(keep, 1_000).await.unwrap(), 1, "young rows stay");
    assert_eq!(log.number("select count(*) from outbox_cursor").await, 1);
    assert_eq!(log.number("select count(*) from outbox").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn settled_rows_of_the_log_are_removed_only_where_that_is_asked_for() {
    let log = Log::fresh(4).await;
    for order in 0..5 {
        log.append(&log.pool, &order.to_string()).await;
    }
    let relay = Relay::new(log.store(), RecordingPublisher::new()).config(log.config());
    relay.drain().await.unwrap();
    log.append(&log.pool, "unread").await;
    log.run("update outbox set created_at = now() - interval '8 days'")
        .await;
    let keep = Duration::from_hours(7 * 24);
    log.store().purge(keep, 100).await.unwrap();
    assert_eq!(
        log.number("select count(*) from outbox").await,
        6,
        "the log is its owner's"
    );
    let options = LogOptions {
        purge_log: true,
        ..LogOptions::of(&log.map)
    };
    let purging = PostgresLogStore::with_options(log.pool.clone(), log.map.clone(), options).unwrap();
    purging.purge(keep, 100).await.unwrap();
    assert_eq!(log.texts("select aggregate_id from outbox").await, ["unread"]);
}

/// A reader whose connection ended is followed at once, and cannot write any more.
#[tokio::test(flavor = "multi_thread")]
async fn one_reads_at_a_time_and_whoever_lost_the_seat_writes_nothing() {
    let log = Log::fresh(4).await;
    for order in 0..4 {
        log.append(&log.pool, &order.to_string()).await;
    }
    let (first, second) = (log.store(), log.store());
    let work = Work::claim(&first, &request(2)).await;
    assert!(
        Work::claim(&second, &request(4)).await.events().is_empty(),
        "the first one reads"
    );
    let ended = sqlx::query(
        "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted
         and ((classid::bigint << 32) | objid::bigint)
            = hashtextextended('posthaste:log:' || 'outbox_cursor'::regclass::oid::text, 0)",
    );
    assert_eq!(ended.fetch_all(&log.pool).await.unwrap().len(), 1);
    let mut followed = Vec::new();
    eventually("the second one follows", async || {
        followed = Work::claim(&second, &request(4)).await.events();
        !followed.is_empty()
    })
    .await;
    assert_eq!(followed.len(), 4, "from the cursor on: repeated, not skipped");
    let settlements = [posthaste_core::lifecycle::Settlement::retry(
        work.id(0),
        work.token,
        Duration::ZERO,
        "late",
    )];
    for _ in 0..2 {
        assert_eq!(
            first.settle(&settlements).await.unwrap().lost,
            [work.id(0)],
            "its connection is gone, and with it its lease"
        );
    }
    assert_eq!((log.failed().await, log.cursor().await), (0, 0));
}

/// A reader that is frozen says nothing, so the server ends its connection after the lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_reader_loses_its_seat_after_its_lease() {
    let log = Log::fresh(4).await;
    log.append(&log.pool, "1").await;
    let (frozen, second) = (log.store(), log.store());
    let lease = Duration::from_secs(1);
    let brief = ClaimRequest { lease, ..request(1) };
    let begun = Instant::now();
    let work = Work::claim(&frozen, &brief).await;
    assert_eq!(work.events().len(), 1);
    eventually("the second one follows", async || {
        !Work::claim(&second, &brief).await.events().is_empty()
    })
    .await;
    assert!(begun.elapsed() >= lease, "not before the frozen one's lease was over");
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "and soon after: {:?}",
        begun.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_renews_keeps_its_seat_and_one_that_leaves_is_followed_at_once() {
    let log = Log::fresh(4).await;
    log.append(&log.pool, "1").await;
    let (first, second) = (log.store(), log.store());
    let brief = ClaimRequest {
        lease: Duration::from_millis(600),
        ..request(1)
    };
    let work = Work::claim(&first, &brief).await;
    for _ in 0..8 {
        sleep(Duration::from_millis(200)).await;
        assert_eq!(
            first.extend(work.token, &[work.id(0)], brief.lease).await.unwrap(),
            [work.id(0)]
        );
        assert!(Work::claim(&second, &brief).await.events().is_empty());
    }
    work.settle(&first, &[]).await;
    first.leave(brief.worker).await.unwrap();
    let event = log.append(&log.pool, "2").await;
    eventually("the second one follows", async || {
        Work::claim(&second, &brief).await.events() == [event.clone()]
    })
    .await;
}

/// What a worker of the same process left behind goes out again after its lease.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_worker_that_forgot_them_are_handed_out_again_after_their_lease() {
    let log = Log::fresh(4).await;
    log.append(&log.pool, "1").await;
    let store = log.store();
    let brief = ClaimRequest {
        lease: Duration::from_millis(300),
        ..request(1)
    };
    let forgotten = Work::claim(&store, &brief).await;
    assert_eq!(forgotten.events().len(), 1);
    let mut again = Work::claim(&store, &brief).await;
    assert!(again.events().is_empty());
    eventually("again", async || {
        again = Work::claim(&store, &brief).await;
        !again.events().is_empty()
    })
    .await;
    assert_eq!(
        forgotten.settle(&store, &[]).await,
        [forgotten.id(0)],
        "its lease is lost"
    );
    assert_eq!(again.settle(&store, &[]).await, []);
}

/// Proves pitfall 1.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_commits_late_is_not_skipped_and_one_that_rolls_back_is_not_waited_for() {
    let log = Log::fresh(8).await;
    let store = log.store();
    let mut late = log.pool.begin().await.unwrap();
    let late_event = log.append(&mut *late, "late").await;
    let mut undone = log.pool.begin().await.unwrap();
    log.append(&mut *undone, "undone").await;
    let third = log.append(&log.pool, "third").await;
    let work = Work::claim(&store, &request(10)).await;
    assert_eq!(work.events(), [third], "nobody waits for them");
    work.settle(&store, &[]).await;
    assert_eq!(store.gaps().await, Some((2, 0)));
    undone.rollback().await.unwrap();
    assert!(Work::claim(&store, &request(10)).await.events().is_empty());
    store.leave(request(1).worker).await.unwrap();
    assert_eq!(
        log.cursor().await,
        0,
        "the cursor waits where a row may come, also over a restart"
    );
    let store = log.store();
    let repeated = Work::claim(&store, &request(10)).await;
    assert_eq!(repeated.keys(), ["third"]);
    repeated.settle(&store, &[]).await;
    late.commit().await.unwrap();
    let work = Work::claim(&store, &request(10)).await;
    assert_eq!(work.events(), [late_event]);
    work.settle(&store, &[]).await;
    eventually("all gaps are closed", async || {
        Work::claim(&store, &request(10)).await;
        store.gaps().await == Some((0, 1))
    })
    .await;
    store.leave(request(1).worker).await.unwrap();
    assert_eq!(log.cursor().await, 3);
}

/// The id is taken before the transaction has a number of its own, so "lower id, older transaction" is false.
///
/// Proves pitfall 2.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_whose_transaction_got_its_number_after_a_later_row_was_read_is_delivered() {
    let log = Log::fresh(8).await;
    // The first id of thirty-two is logged, which gives its transaction a number.
    let warm = log.append(&log.pool, "warm").await;
    // The insert stops between taking its id and writing the row.
    log.run(
        "create function hold() returns trigger language plpgsql as $$
         begin
            if new.aggregate_id = 'held' then perform pg_advisory_xact_lock_shared(hashtext(current_schema())); end if;
            return new;
         end $$;
         create trigger hold before insert on outbox for each row execute function hold()",
    )
    .await;
    let mut gate = log.pool.begin().await.unwrap();
    gate.execute("select pg_advisory_xact_lock(hashtext(current_schema()))")
        .await
        .unwrap();
    let pool = log.pool.clone();
    let held = tokio::spawn(async move {
        let insert = "insert into outbox (event_id, event_type, source, aggregate_type, aggregate_id, payload)
            values ('held', 'loopers.order.created.v1', 's', 'Order', 'held', '{}')";
        pool.execute(insert).await.unwrap();
    });
    eventually("the insert has its id and waits", async || {
        log.number("select last_value from outbox_id_seq").await == 2
    })
    .await;
    let without_a_number = log.number(
        "select count(*) from pg_locks l join pg_stat_activity a using (pid)
         where l.relation = 'outbox'::regclass and l.mode = 'RowExclusiveLock' and a.backend_xid is null",
    );
    assert_eq!(
        without_a_number.await,
        1,
        "it holds its lock and has no transaction number yet"
    );
    let later = log.append(&log.pool, "later").await;
    let store = log.store();
    let work = Work::claim(&store, &request(10)).await;
    assert_eq!(work.events(), [warm, later]);
    work.settle(&store, &[]).await;
    for _ in 0..3 {
        assert!(Work::claim(&store, &request(10)).await.events().is_empty());
    }
    gate.commit().await.unwrap();
    held.await.unwrap();
    let older = log
        .number(
            "select count(*) from outbox a, outbox b where a.id = 2 and b.id = 3
        and a.xmin::text::bigint > b.xmin::text::bigint",
        )
        .await;
    assert_eq!(older, 1, "the lower id has the younger transaction");
    let work = Work::claim(&store, &request(10)).await;
    assert_eq!(work.events(), ["held"]);
}

/// Proves pitfall 3.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_write_transaction_delays_nobody_where_a_watermark_would_stall() {
    let log = Log::fresh(8).await;
    let store = log.store();
    let mut open_tx = log.pool.begin().await.unwrap();
    log.append(&mut *open_tx, "long").await;
    for order in 0..50 {
        log.append(&log.pool, &order.to_string()).await;
    }
    let behind_the_watermark = log.number(
        "select count(*) from outbox where xmin::text::bigint < pg_snapshot_xmin(pg_current_snapshot())::text::bigint",
    );
    assert_eq!(behind_the_watermark.await, 0, "a watermark hands out nothing");
    let work = Work::claim(&store, &request(100)).await;
    assert_eq!(
        work.events().len(),
        50,
        "the gap holds back one row: the one that is not there"
    );
    work.settle(&store, &[]).await;
    for order in 0..50 {
        log.append(&log.pool, &order.to_string()).await;
        let work = Work::claim(&store, &request(100)).await;
        assert_eq!(work.events().len(), 1);
        work.settle(&store, &[]).await;
    }
    assert_eq!(store.gaps().await, Some((1, 0)));
    open_tx.rollback().await.unwrap();
    Work::claim(&store, &request(100)).await;
    assert_eq!(store.gaps().await, Some((0, 1)));
}

/// A transaction in its second phase has no session; it is waited for all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_transaction_is_not_overlooked() {
    let log = Log::fresh(4).await;
    if log.texts("show max_prepared_transactions").await == ["0"] {
        return;
    }
    let store = log.store();
    let mut connection = log.pool.acquire().await.unwrap();
    connection.execute("begin").await.unwrap();
    let event = log.append(&mut *connection, "prepared").await;
    let later = log.append(&log.pool, "later").await;
    assert_eq!(Work::claim(&store, &request(10)).await.events(), [later]);
    let name = format!("'{event}'");
    let run = async |sql: String| log.pool.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    connection
        .execute(sqlx::raw_sql(AssertSqlSafe(format!("prepare transaction {name}"))))
        .await
        .unwrap();
    for _ in 0..5 {
        assert!(Work::claim(&store, &request(10)).await.events().is_empty());
        assert_eq!(store.gaps().await, Some((1, 0)), "it may come yet");
    }
    run(format!("commit prepared {name}")).await;
    assert_eq!(Work::claim(&store, &request(10)).await.events(), [event]);
}

/// A sequence with a cache hands ids to sessions in advance, and no lock would say so.
#[tokio::test]
async fn a_sequence_with_a_cache_is_refused() {
    let log = Log::fresh(2).await;
    log.store().check().await.unwrap();
    log.run("alter sequence outbox_id_seq cache 20").await;
    let error = log.store().check().await.unwrap_err().to_string();
    assert!(error.contains("cache 20") && error.contains("cache 1"), "{error}");
}

#[tokio::test]
async fn a_relay_of_some_topics_is_refused() {
    let log = Log::fresh(2).await;
    let mut part = request(1);
    part.scope.topics = vec!["order-events".to_owned()];
    let error = log.store().claim(&part).await.unwrap_err().to_string();
    assert!(error.contains("scope.topics"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_sees_what_waits_and_what_was_given_up() {
    let log = Log::fresh(4).await;
    for order in 0..6 {
        log.append(&log.pool, &order.to_string()).await;
    }
    let store = log.store();
    let work = Work::claim(&store, &request(3)).await;
    work.settle(&store, &[(0, dead()), (1, retry(60))]).await;
    let stats = store.stats("default").await.unwrap();
    assert_eq!(
        (stats.pending, stats.waiting, stats.processing, stats.dead),
        (4, 1, 0, 1)
    );
    let keys = async |filter: Filter, after, limit| {
        let listed = store.list(&filter, after, limit).await.unwrap();
        listed
            .into_iter()
            .map(|record| record.message.ordering_key.unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(Filter::default(), None, 10).await, ["0", "1", "3", "4", "5"]);
    let page = store.list(&Filter::default(), None, 1).await.unwrap();
    assert_eq!(keys(Filter::default(), Some(page[0].message.id), 2).await, ["1", "3"]);
    let third = store.list(&Filter::default(), None, 3).await.unwrap().pop().unwrap();
    assert_eq!(third.state, State::Pending);
    assert_eq!(keys(Filter::default(), Some(third.message.id), 9).await, ["4", "5"]);
    let dead_only = Filter {
        state: Some(State::Dead),
        ..Filter::default()
    };
    assert_eq!(keys(dead_only.clone(), None, 9).await, ["0"]);
    let topic = Filter {
        topic: Some("payment-events".to_owned()),
        ..Filter::default()
    };
    assert!(keys(topic.clone(), None, 9).await.is_empty());
    assert_eq!(store.show(3.into()).await.unwrap().unwrap().state, State::Delivered);
    assert!(store.show(99.into()).await.unwrap().is_none());
    assert!(store.discard(&topic, 9).await.unwrap().is_empty());
    assert_eq!(store.discard(&dead_only, 9).await.unwrap(), [page[0].message.id]);
    assert_eq!(log.failed().await, 1);
}

/// Proves C4.
#[tokio::test(flavor = "multi_thread")]
async fn an_application_appends_in_its_own_transaction() {
    let log = Log::fresh(4).await;
    let store = log.store();
    let options = OutboxOptions {
        source: Some("commerce-api".to_owned()),
        ..OutboxOptions::default()
    };
    let outbox = store.outbox(options.clone());
    let message = || {
        Message::json("order-events", &serde_json::json!({"orderId": 7}))
            .unwrap()
            .event_type("loopers.order.created.v1")
            .aggregate("Order", "7")
            .key("7")
    };
    let mut undone = log.pool.begin().await.unwrap();
    outbox.enqueue(&mut undone, message()).await.unwrap();
    undone.rollback().await.unwrap();
    let mut tx = log.pool.begin().await.unwrap();
    let id = outbox.enqueue(&mut tx, message()).await.unwrap().id();
    let refused = outbox
        .enqueue(&mut tx, message().dedupe_key("k"))
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("dedupe_key"), "{refused}");
    tx.commit().await.unwrap();
    store.enqueue_and_commit(&options, vec![message()]).await.unwrap();
    let work = Work::claim(&store, &request(10)).await;
    assert_eq!(work.events().len(), 2);
    assert_eq!(work.events()[0], id.to_string());
    assert_eq!(work.claim.messages[0].message.source.as_deref(), Some("commerce-api"));
    assert_eq!(work.claim.messages[0].message.topic, "order-events");
}

/// A type name that gives no topic cannot be published; it must not hold up the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_without_a_topic_is_given_up_and_the_rest_goes_on() {
    let log = Log::fresh(4).await;
    log.append(&log.pool, "1").await;
    log.run("update outbox set event_type = 'OrderCreated'").await;
    log.append(&log.pool, "2").await;
    let broker = RecordingPublisher::new();
    Relay::new(log.store(), broker.clone())
        .config(log.config())
        .drain()
        .await
        .unwrap();
    assert_eq!(broker.deliveries().len(), 1);
    let error = log
        .texts("select last_error from outbox_failed where retry_count = 10")
        .await;
    assert!(error[0].contains("OrderCreated"), "{error:?}");
    assert_eq!(log.cursor().await, 2);
}

/// Proves C16.
#[tokio::test(flavor = "multi_thread")]
async fn effects_are_recorded_once_by_their_three_parts_and_forgotten_after_a_week() {
    let log = Log::fresh(4).await;
    let handled = PostgresHandled::new(log.pool.clone(), &log.map).unwrap();
    let record = async |key: &str| {
        let mut tx = handled.begin().await.unwrap();
        let new = handled.record(&mut tx, key).await.unwrap();
        handled.commit(tx).await.unwrap();
        new
    };
    assert!(record("Order/42/SALES_COUNT_INCREASED").await);
    assert!(!record("Order/42/SALES_COUNT_INCREASED").await);
    assert!(record("ProductView/7_a/b_c/VIEW_COUNT_INCREASED").await);
    let rows =
        log.texts("select aggregate_type || ' ' || aggregate_id || ' ' || action from event_handled order by id");
    assert_eq!(
        rows.await,
        [
            "Order 42 SALES_COUNT_INCREASED",
            "ProductView 7_a/b_c VIEW_COUNT_INCREASED"
        ]
    );
    let mut dropped = handled.begin().await.unwrap();
    assert!(handled.record(&mut dropped, "Order/43/X").await.unwrap());
    drop(dropped);
    let mut careless = handled.begin().await.unwrap();
    assert!(handled.record(&mut careless, "Order/43/X").await.unwrap());
    careless.execute("select 1 / 0").await.unwrap_err();
    let lost = handled.commit(careless).await.unwrap_err().to_string();
    assert!(lost.contains("nothing of it was kept"), "{lost}");
    assert!(record("Order/43/X").await, "a rollback forgets, by whomever");
    let mut tx = handled.begin().await.unwrap();
    assert!(handled.record(&mut tx, "no parts").await.is_err());
    drop(tx);
    log.run("update event_handled set handled_at = now() - interval '8 days' where aggregate_id <> '43'")
        .await;
    let week = Duration::from_hours(7 * 24);
    assert_eq!(handled.purge(week, 1).await.unwrap(), 1, "in batches");
    assert_eq!(handled.purge(week, 10).await.unwrap(), 1);
    assert_eq!(log.texts("select aggregate_id from event_handled").await, ["43"]);
}
