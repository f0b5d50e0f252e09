//! What the database refuses to write: found at the start, or borne without sending anything again.

use std::time::{Duration, Instant};

use posthaste_core::RelayStore;
use posthaste_core::lifecycle::Verdict;
use posthaste_core::store::StoreErrorKind;
use posthaste_relay::Relay;
use sqlx::postgres::PgPoolOptions;
use tokio_util::sync::CancellationToken;

use super::{DEADLINE, Receiver, eventually};

use crate::support::log::{Log, Work, dead, request, retry};

#[tokio::test]
async fn a_column_that_is_too_short_for_what_fails_is_found_at_the_start() {
    let log = Log::fresh(2).await;
    log.run("alter table outbox_failed alter event_type type varchar(10)")
        .await;
    let error = log.store().check().await.unwrap_err().to_string();
    assert!(
        error.contains("event_type takes 10 characters") && error.contains("as long as the log's"),
        "{error}"
    );
    log.run(
        "alter table outbox_failed alter event_type type text;
         alter table outbox_failed alter last_error type varchar(200)",
    )
    .await;
    let error = log.store().check().await.unwrap_err().to_string();
    assert!(error.contains("last_error") && error.contains("max ="), "{error}");
}

/// Whether a relay starts does not hang on which event is the newest.
#[tokio::test]
async fn one_event_that_could_not_be_written_down_as_failed_stops_no_start() {
    let log = Log::fresh(4).await;
    for order in ["1", "2", "3", "refused"] {
        log.append(&log.pool, order).await;
    }
    log.run("alter table outbox_failed add constraint odd check (aggregate_id <> 'refused')")
        .await;
    let error = log.store().check().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::SomeRows, "{error}");
    assert_eq!(log.failed().await, 0, "a trial is rolled back");
    let receiver = Receiver::default();
    let relay = Relay::new(log.store(), receiver.clone()).config(log.config());
    assert_eq!(relay.drain().await.unwrap().delivered, 4);

    log.run("alter table outbox_failed add constraint closed check (aggregate_id = 'none') not valid")
        .await;
    let error = log.store().check().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Other, "{error}");
}

#[tokio::test]
async fn rights_constraints_and_triggers_are_tried_at_the_start_and_leave_nothing_behind() {
    let log = Log::fresh(4).await;
    log.append(&log.pool, "1").await;
    log.store().check().await.unwrap();
    assert_eq!(
        (log.failed().await, log.cursor().await),
        (0, 0),
        "a trial is rolled back"
    );
    assert_eq!(log.number("select count(*) from outbox_cursor").await, 1);
    let forbid = "create function forbid() returns trigger language plpgsql as $$
        begin raise exception 'the owner forbids it'; end $$;";
    log.pool_run(forbid).await;
    for (what, verb) in [
        ("an event that failed", "insert on outbox_failed"),
        ("a retry that failed", "update on outbox_failed"),
        ("a retry that was delivered", "delete on outbox_failed"),
        ("the cursor", "insert on outbox_cursor"),
    ] {
        let table = verb.rsplit(' ').next().unwrap();
        log.pool_run(&format!(
            "create trigger forbid before {verb} for each row execute function forbid()"
        ))
        .await;
        let error = log.store().check().await.unwrap_err().to_string();
        assert!(
            error.contains(what) && error.contains("the owner forbids it"),
            "{error}"
        );
        log.pool_run(&format!("drop trigger forbid on {table}")).await;
    }
    log.store().check().await.unwrap();
}

#[tokio::test]
async fn a_user_without_the_rights_of_a_relay_is_told_at_the_start() {
    let log = Log::fresh(2).await;
    let schema = log.texts("select current_schema()::text").await.remove(0);
    log.pool_run(&format!(
        "create role {schema} login; grant usage on schema {schema} to {schema};
         grant select on all tables in schema {schema} to {schema};
         grant insert on outbox_cursor, outbox_failed to {schema};
         grant usage on all sequences in schema {schema} to {schema};
         grant update (retry_count) on outbox_failed to {schema}"
    ))
    .await;
    let role = schema.clone();
    let limited = PgPoolOptions::new()
        .max_connections(2)
        .after_connect(move |connection, _| {
            let sql = format!("set role {role}");
            Box::pin(async move {
                sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(connection).await?;
                Ok(())
            })
        })
        .connect_with((*log.pool.connect_options()).clone())
        .await
        .unwrap();
    let store = posthaste_postgres::PostgresLogStore::new(limited, log.map.clone()).unwrap();
    // The table is empty: rights are looked at all the same.
    let error = store.check().await.unwrap_err().to_string();
    assert!(
        error.contains("a retry that failed") && error.contains("permission denied"),
        "{error}"
    );
    log.pool_run(&format!("grant update, delete on outbox_failed to {schema}"))
        .await;
    store.check().await.unwrap();
    log.pool_run(&format!("drop owned by {schema}; drop role {schema}"))
        .await;
}

/// Twenty events, one of which the receiver refuses and the table of failures as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_cannot_be_written_stops_its_lane_and_nothing_is_sent_again() {
    let log = Log::fresh(4).await;
    let receiver = Receiver::refusing("7");
    let stop = CancellationToken::new();
    let relay = Relay::new(log.store(), receiver.clone()).config(log.config());
    let running = tokio::spawn(relay.run_until(stop.clone()));
    // After the start, so that the trial does not find it.
    eventually("the relay reads", async || {
        log.number(
            "select count(*) from pg_locks where locktype = 'advisory' and granted
             and ((classid::bigint << 32) | objid::bigint)
                = hashtextextended('posthaste:log:' || 'outbox_cursor'::regclass::oid::text, 0)",
        )
        .await
            == 1
    })
    .await;
    log.run("alter table outbox_failed add constraint short check (aggregate_id <> '7')")
        .await;
    let mut events = Vec::new();
    for order in 0..20 {
        events.push(log.append(&log.pool, &order.to_string()).await);
    }
    let follower = log.append(&log.pool, "7").await;
    eventually("the others are delivered", async || receiver.attempts().len() >= 20).await;
    // Long enough for two more tries to write it down.
    tokio::time::sleep(Duration::from_secs(4)).await;
    for event in &events {
        assert_eq!(receiver.attempts_of(event), 1);
    }
    assert_eq!(receiver.attempts_of(&follower), 0, "its lane stands still");
    log.run("alter table outbox_failed drop constraint short").await;
    eventually("it is written down, and the next one is tried", async || {
        log.texts("select aggregate_id from outbox_failed where retry_count = 10")
            .await
            == ["7", "7"]
    })
    .await;
    stop.cancel();
    running.await.unwrap().unwrap();
    for event in &events {
        assert_eq!(receiver.attempts_of(event), 1, "and never sent again");
    }
    assert_eq!(receiver.attempts_of(&follower), 1);
    assert_eq!(log.cursor().await, 21);
}

#[tokio::test]
async fn of_many_failures_only_those_that_are_refused_are_named() {
    let log = Log::fresh(4).await;
    log.run("alter table outbox_failed add constraint short check (aggregate_id <> '5')")
        .await;
    for order in [1, 2, 5, 3, 5, 4] {
        log.append(&log.pool, &order.to_string()).await;
    }
    let store = log.store();
    let work = Work::claim(&store, &request(10)).await;
    let settlements: Vec<_> = (0..6)
        .map(|place| posthaste_core::lifecycle::Settlement::retry(work.id(place), work.token, Duration::ZERO, "no"))
        .collect();
    let settled = store.settle(&settlements).await.unwrap();
    assert_eq!(settled.lost, []);
    let refused: Vec<_> = settled.refused.iter().map(|refused| refused.id).collect();
    assert_eq!(refused, [work.id(2)], "what stands behind it in its lane waits");
    assert!(settled.refused[0].error.to_string().contains("short"));
    let failed = log.texts("select aggregate_id from outbox_failed order by id").await;
    assert_eq!(failed, ["1", "2", "3", "4"]);
}

#[tokio::test]
async fn a_retry_whose_success_cannot_be_written_keeps_its_lane_waiting() {
    let log = Log::fresh(4).await;
    log.append(&log.pool, "1").await;
    let next = log.append(&log.pool, "1").await;
    let store = log.store();
    let work = Work::claim(&store, &request(10)).await;
    work.settle(&store, &[(0, retry(0)), (1, Verdict::Released)]).await;
    let mut work = Work::claim(&store, &request(10)).await;
    if work.events().is_empty() {
        work = Work::claim(&store, &request(10)).await;
    }
    assert_eq!(work.keys(), ["1"]);
    log.pool_run(
        "create function forbid() returns trigger language plpgsql as $$
         begin raise exception 'the owner forbids it'; end $$;
         create trigger forbid before delete on outbox_failed for each row execute function forbid()",
    )
    .await;
    let delivered = posthaste_core::lifecycle::Settlement::delivered(work.id(0), work.token);
    let settled = store.settle(&[delivered]).await.unwrap();
    assert_eq!(settled.refused.len(), 1);
    for _ in 0..5 {
        assert!(
            Work::claim(&store, &request(10)).await.events().is_empty(),
            "not at once"
        );
    }
    log.run("drop trigger forbid on outbox_failed").await;
    let mut again = Work::claim(&store, &request(10)).await;
    eventually("it comes again for its verdict, which the relay knows", async || {
        again = Work::claim(&store, &request(10)).await;
        !again.events().is_empty()
    })
    .await;
    assert_eq!((again.id(0), again.events().len()), (work.id(0), 1), "alone");
    assert_eq!(again.settle(&store, &[]).await, []);
    assert_eq!(
        Work::claim(&store, &request(10)).await.events(),
        [next],
        "then its lane goes on"
    );
}

/// A lock that is held elsewhere costs time, not knowledge.
#[tokio::test]
async fn a_statement_that_fails_for_now_costs_nothing_that_the_reader_knows() {
    let log = Log::fresh(4).await;
    let mut open = log.pool.begin().await.unwrap();
    log.append(&mut *open, "open").await;
    for order in 0..10 {
        log.append(&log.pool, &order.to_string()).await;
    }
    let brief = posthaste_core::store::ClaimRequest {
        lease: Duration::from_millis(500),
        ..request(10)
    };
    let store = log.store();
    let work = Work::claim(&store, &brief).await;
    let mut lock = log.pool.begin().await.unwrap();
    sqlx::raw_sql("lock table outbox_failed in access exclusive mode")
        .execute(&mut *lock)
        .await
        .unwrap();
    assert_eq!(work.settle(&store, &[(3, dead())]).await, [], "remembered");
    assert!(store.claim(&brief).await.is_err());
    lock.rollback().await.unwrap();
    assert!(
        Work::claim(&store, &brief).await.events().is_empty(),
        "nothing is sent again"
    );
    assert_eq!(log.texts("select aggregate_id from outbox_failed").await, ["3"]);
    open.rollback().await.unwrap();
}

/// Whoever reads and cannot say how far publishes everything again at every start.
///
/// Proves pitfall 19.
#[tokio::test]
async fn a_log_whose_cursor_cannot_be_written_is_not_read() {
    let log = Log::fresh(4).await;
    let run = async |sql: String| {
        let sql = sqlx::raw_sql(sqlx::AssertSqlSafe(sql));
        sqlx::Executor::execute(&log.pool, sql).await.unwrap();
    };
    let refuse = async |how: &str| {
        let body =
            format!("create or replace function refuse() returns trigger language plpgsql as $$ begin {how}; end $$");
        run(body).await;
        run(
            "create or replace trigger refuse before insert on outbox_cursor for each row execute function refuse()"
                .into(),
        )
        .await;
    };
    let rows = "select count(*) from outbox_cursor";
    let before = log.number(rows).await;
    let first = log.append(&log.pool, "1").await;
    let store = log.store();
    for (how, says) in [("raise exception 'no'", "no"), ("return null", "swallows inserts")] {
        refuse(how).await;
        let error = store.claim(&request(10)).await.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    run("drop trigger refuse on outbox_cursor".into()).await;
    let work = Work::claim(&store, &request(10)).await;
    assert_eq!(work.events(), [first]);
    assert_eq!(log.number(rows).await, before, "a trial leaves nothing behind");

    // Nor is it read on.
    refuse("return null").await;
    let second = log.append(&log.pool, "2").await;
    assert_eq!(work.settle(&store, &[]).await, []);
    tokio::time::sleep(Duration::from_millis(500)).await;
    store.claim(&request(10)).await.unwrap_err();
    run("drop trigger refuse on outbox_cursor".into()).await;
    assert_eq!(Work::claim(&store, &request(10)).await.events(), [second]);
}

/// A replica, or a primary that was left over from a failover.
#[tokio::test]
async fn a_log_on_a_server_that_is_read_only_is_not_read() {
    let log = Log::fresh(4).await;
    log.append(&log.pool, "1").await;
    let options = (*log.pool.connect_options())
        .clone()
        .options([("default_transaction_read_only", "on")]);
    let pool = sqlx::postgres::PgPoolOptions::new()
        .max_connections(2)
        .connect_with(options)
        .await
        .unwrap();
    let store = posthaste_postgres::PostgresLogStore::new(pool, log.map.clone()).unwrap();
    let error = store.claim(&request(10)).await.unwrap_err();
    assert_eq!(error.kind, posthaste_core::store::StoreErrorKind::ReadOnly, "{error}");
    assert_eq!(Work::claim(&log.store(), &request(10)).await.events().len(), 1);
}

/// More of them than the reader keeps in memory, and none that was tried: they can go on waiting there.
#[tokio::test]
async fn events_that_wait_and_are_not_taken_by_the_table_of_failures_are_delivered_in_order() {
    const EVENTS: usize = 12_000;
    for keys in [EVENTS, 10] {
        let log = Log::fresh(4).await;
        log.pool_run(&format!(
            "insert into outbox (event_id, event_type, source, aggregate_type, aggregate_id, payload)
             select gen_random_uuid()::text, 'loopers.order.created.v1', 'commerce-api', 'Order', (n % {keys})::text, '{{}}'
             from generate_series(1, {EVENTS}) n"
        ))
        .await;
        let store = log.store();
        log.run(
            "create function forbid() returns trigger language plpgsql as $$ begin raise exception 'nothing today'; end $$;
             create trigger forbid before insert on outbox_failed for each row execute function forbid()",
        )
        .await;
        let begun = Instant::now();
        for _ in 0..30 {
            let work = Work::claim(&store, &request(1_000)).await;
            let postponed = |place| {
                let (delay, error) = (Duration::from_secs(30), "unavailable".to_owned());
                (place, Verdict::Postponed { delay, error })
            };
            let postponed: Vec<_> = (0..work.events().len()).map(postponed).collect();
            assert_eq!(work.settle(&store, &postponed).await, []);
            store.pass_time(Duration::from_secs(1));
        }
        // The receiver is back.
        let mut arrived = Vec::new();
        while arrived.len() < EVENTS {
            let work = Work::claim(&store, &request(1_000)).await;
            arrived.extend(work.claim.messages.iter().map(|claimed| claimed.sequence.unwrap()));
            assert_eq!(work.settle(&store, &[]).await, []);
            store.pass_time(Duration::from_secs(1));
            assert!(
                begun.elapsed() < DEADLINE,
                "{} of {EVENTS} with {keys} keys came",
                arrived.len()
            );
        }
        let keys = i64::try_from(keys).unwrap();
        for key in 0..keys.min(10) {
            let of_key = arrived.iter().filter(|number| *number % keys == key);
            assert!(of_key.is_sorted(), "in the order of their keys");
        }
    }
}
