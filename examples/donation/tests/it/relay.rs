//! The relay on the service's own tables, as they stand.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use donation::donate::donate;
use donation::relay;
use posthaste::core::publisher::Delivery;
use posthaste::mysql::MySqlStore;
use posthaste::publishers::Callback;
use posthaste::relay::{Relay, RelayConfig, RelayError, RelayReport};
use posthaste::{PublishError, Publisher};
use sqlx::{AssertSqlSafe, Executor, MySqlPool};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::support::{counts, database, from_ann};

/// A row of the outbox, as far as the tests look at it.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    status: String,
    version: i64,
    retry_count: i32,
    is_locked: bool,
    waits: Option<i64>,
}

async fn row(pool: &MySqlPool, request_id: &str) -> Row {
    let (status, version, retry_count, is_locked, waits) = sqlx::query_as(
        "select status, version, retry_count, locked_by is not null or locked_at is not null,
                timestampdiff(second, updated_at, next_retry_at)
           from donation_outbox where request_id = ?",
    )
    .bind(request_id)
    .fetch_one(pool)
    .await
    .unwrap();
    Row {
        status,
        version,
        retry_count,
        is_locked,
        waits,
    }
}

async fn reason(pool: &MySqlPool, request_id: &str) -> String {
    let reason = "select q.reason from donation_dlq q join donation_outbox o on o.id = q.original_id
                   where q.request_id = ? and q.payload = o.payload and q.event_type = o.event_type
                     and q.created_at is not null";
    sqlx::query_scalar(reason)
        .bind(request_id)
        .fetch_one(pool)
        .await
        .unwrap()
}

async fn run(pool: &MySqlPool, sql: &str) {
    pool.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
}

/// A relay with the map's own policy.
fn with(pool: &MySqlPool, publisher: impl Publisher, change: impl FnOnce(&mut RelayConfig)) -> Relay {
    let store = MySqlStore::with_map(pool.clone(), relay::map().unwrap()).unwrap();
    let mut config = relay::policy().unwrap();
    change(&mut config);
    Relay::new(store, publisher).config(config)
}

async fn drain(pool: &MySqlPool, publisher: impl Publisher) -> RelayReport {
    with(pool, publisher, |_| ()).drain().await.unwrap()
}

/// What was published, by request id.
type Heard = Arc<Mutex<Vec<String>>>;

fn recording() -> (Heard, impl Publisher) {
    let heard = Heard::default();
    let sink = Arc::clone(&heard);
    let publisher = Callback::new(move |delivery: Delivery| {
        sink.lock()
            .unwrap()
            .push(delivery.message.effective_event_id().into_owned());
        async { Ok(()) }
    });
    (heard, publisher.concurrency(1))
}

fn failing() -> impl Publisher {
    Callback::new(|_| async { Err(PublishError::transient("not today")) })
}

/// Proves D1 and D4.
#[tokio::test(flavor = "multi_thread")]
async fn the_table_is_served_as_it_stands_by_its_own_policy() {
    let Some(pool) = database().await else { return };
    let policy = relay::policy().unwrap();
    assert_eq!(
        (policy.poll_interval, policy.batch_size),
        (Duration::from_secs(10), 100)
    );
    for n in 0..20 {
        donate(&pool, &from_ann(&format!("r-{n}"), 1)).await.unwrap();
    }
    let (heard, publisher) = recording();
    let report = drain(&pool, publisher).await;
    assert_eq!(report.delivered, 20);
    assert_eq!(
        *heard.lock().unwrap(),
        (0..20).map(|n| format!("r-{n}")).collect::<Vec<_>>()
    );
    assert_eq!(
        counts(&pool, ["donation_outbox where status = 'COMPLETED'", "donation_dlq"]).await,
        [20, 0]
    );
    let done = row(&pool, "r-0").await;
    assert_eq!((done.retry_count, done.is_locked), (0, false), "{done:?}");
}

/// A row's status and who has it.
type Held = (String, Option<String>);

/// Proves D4.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_on_its_way_is_marked_with_the_relays_name() {
    let Some(pool) = database().await else { return };
    donate(&pool, &from_ann("r-1", 1)).await.unwrap();
    let seen: Arc<Mutex<Vec<Held>>> = Arc::default();
    let (looking, sink) = (pool.clone(), Arc::clone(&seen));
    let publisher = Callback::new(move |_| {
        let (pool, sink) = (looking.clone(), Arc::clone(&sink));
        async move {
            let row = sqlx::query_as("select status, locked_by from donation_outbox where locked_at is not null");
            let row = row.fetch_one(&pool).await.unwrap();
            sink.lock().unwrap().push(row);
            Ok(())
        }
    });
    drain(&pool, publisher).await;
    let seen = seen.lock().unwrap();
    let (status, locked_by) = &seen[0];
    assert_eq!(status, "PROCESSING");
    assert!(locked_by.as_ref().is_some_and(|name| !name.is_empty()), "{seen:?}");
}

/// Proves D1 and D3.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_was_changed_by_hand_is_never_published_and_ends_in_the_dead_letter_table() {
    let Some(pool) = database().await else { return };
    for id in ["r-1", "r-2", "r-3"] {
        donate(&pool, &from_ann(id, 5)).await.unwrap();
    }
    run(
        &pool,
        "update donation_outbox set payload = replace(payload, ':5,', ':500,') where request_id = 'r-2'",
    )
    .await;
    let (heard, publisher) = recording();
    let report = drain(&pool, publisher).await;
    assert_eq!((report.delivered, report.died), (2, 1));
    assert_eq!(*heard.lock().unwrap(), ["r-1", "r-3"]);
    assert_eq!(row(&pool, "r-2").await.status, "DEAD_LETTER");
    let reason = reason(&pool, "r-2").await;
    assert!(reason.contains("do not match their hash"), "{reason}");
    assert_eq!(counts(&pool, ["donation_dlq"]).await, [1]);
}

/// Proves D6 and D1.
#[tokio::test(flavor = "multi_thread")]
async fn retries_wait_longer_each_time_and_end_at_the_rows_own_limit() {
    let Some(pool) = database().await else { return };
    donate(&pool, &from_ann("r-1", 1)).await.unwrap();
    let due = "update donation_outbox set next_retry_at = utc_timestamp() - interval 1 second";
    for (retries, wait) in [(1, 30), (2, 60), (3, 120)] {
        drain(&pool, failing()).await;
        let row = row(&pool, "r-1").await;
        assert_eq!(
            (row.status.as_str(), row.retry_count, row.is_locked),
            ("FAILED", retries, false),
            "{row:?}"
        );
        // Times have whole seconds here.
        assert!(row.waits.is_some_and(|waits| (waits - wait).abs() <= 1), "{row:?}");
        assert_eq!(drain(&pool, failing()).await, RelayReport::default(), "it is not due");
        run(&pool, due).await;
    }
    assert_eq!(drain(&pool, failing()).await.died, 1);
    let dead = row(&pool, "r-1").await;
    assert_eq!((dead.status.as_str(), dead.retry_count), ("DEAD_LETTER", 3), "{dead:?}");
    let said = reason(&pool, "r-1").await;
    assert!(said.contains("not today"), "{said}");

    for (id, limit) in [("r-none", 0), ("r-one", 1)] {
        donate(&pool, &from_ann(id, 1)).await.unwrap();
        run(
            &pool,
            &format!("update donation_outbox set max_retries = {limit} where request_id = '{id}'"),
        )
        .await;
        for _ in 0..limit {
            assert_eq!(drain(&pool, failing()).await.retried, 1);
            run(&pool, &format!("{due} where request_id = '{id}'")).await;
        }
        assert_eq!(drain(&pool, failing()).await.died, 1);
        let dead = row(&pool, id).await;
        assert_eq!(
            (dead.status.as_str(), dead.retry_count),
            ("DEAD_LETTER", limit),
            "{dead:?}"
        );
    }
    assert_eq!(counts(&pool, ["donation_dlq"]).await, [3]);
}

/// Proves D8.
#[tokio::test(flavor = "multi_thread")]
async fn every_transition_checks_and_raises_the_version() {
    let Some(pool) = database().await else { return };
    donate(&pool, &from_ann("r-1", 1)).await.unwrap();
    assert_eq!(row(&pool, "r-1").await.version, 0);
    drain(&pool, failing()).await;
    let failed = row(&pool, "r-1").await.version;
    assert_eq!(failed, 2, "one claim, one verdict");

    // Somebody else changes the row while it is being published, as the service's own code would.
    run(
        &pool,
        "update donation_outbox set next_retry_at = utc_timestamp() - interval 1 second",
    )
    .await;
    let meddling = pool.clone();
    let publisher = Callback::new(move |_| {
        let pool = meddling.clone();
        async move {
            run(
                &pool,
                "update donation_outbox set max_retries = 9, version = version + 1",
            )
            .await;
            Ok(())
        }
    });
    let error = with(&pool, publisher, |_| ()).drain().await.unwrap_err();
    let RelayError::Unsettled { report } = error else {
        panic!("{error}")
    };
    assert_eq!((report.delivered, report.lease_lost), (0, 1), "{report:?}");
    let changed = row(&pool, "r-1").await;
    assert_eq!(
        (changed.status.as_str(), changed.version),
        ("PROCESSING", failed + 2),
        "{changed:?}"
    );
}

/// Proves D5.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_relay_that_died_are_taken_back_after_five_minutes() {
    let Some(pool) = database().await else { return };
    let policy = relay::policy().unwrap();
    let five_minutes = Duration::from_mins(5);
    assert_eq!(
        (policy.stalled_after, policy.recover_interval),
        (five_minutes, five_minutes)
    );
    for id in ["r-old", "r-new"] {
        donate(&pool, &from_ann(id, 1)).await.unwrap();
    }
    // As a relay that was killed leaves them.
    let held =
        "update donation_outbox set status = 'PROCESSING', locked_by = 'dead relay', version = 1, retry_count = 0";
    run(
        &pool,
        &format!("{held}, locked_at = utc_timestamp() - interval 6 minute where request_id = 'r-old'"),
    )
    .await;
    run(
        &pool,
        &format!("{held}, locked_at = utc_timestamp() - interval 3 minute where request_id = 'r-new'"),
    )
    .await;

    let (heard, publisher) = recording();
    let stop = CancellationToken::new();
    let quick = |config: &mut RelayConfig| {
        config.recover_interval = Duration::from_millis(200);
        config.poll_interval = Duration::from_millis(200);
        config.max_poll_interval = Duration::from_millis(200);
    };
    let relay = tokio::spawn(with(&pool, publisher, quick).run_until(stop.clone()));
    let deadline = Instant::now() + Duration::from_mins(1);
    while row(&pool, "r-old").await.status != "COMPLETED" {
        assert!(
            Instant::now() < deadline,
            "never taken back: {:?}",
            row(&pool, "r-old").await
        );
        sleep(Duration::from_millis(50)).await;
    }
    stop.cancel();
    relay.await.unwrap().unwrap();
    assert_eq!(*heard.lock().unwrap(), ["r-old"]);
    let new = row(&pool, "r-new").await;
    assert_eq!((new.status.as_str(), new.is_locked), ("PROCESSING", true), "{new:?}");
}
