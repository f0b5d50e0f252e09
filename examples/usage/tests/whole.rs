//! Records and their dispatch, on a real server.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use posthaste::core::publisher::Delivery;
use posthaste::{Message, PublishError};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Executor, PgPool};
use tokio_util::sync::CancellationToken;
use usage::record::{self, Usage};
use uuid::Uuid;

/// A database of its own; `None` where the test runner said that there is no server.
async fn database() -> Option<PgPool> {
    let without = std::env::var("POSTHASTE_TEST_WITHOUT").unwrap_or_default();
    if without.split(',').any(|server| server == "postgres") {
        eprintln!("NOT RUN: this test needs PostgreSQL");
        return None;
    }
    let url = std::env::var("POSTHASTE_TEST_POSTGRES_URL").expect("the server of `cargo xtask test`");
    let server: PgConnectOptions = url.parse().expect("a URL");
    let name = format!("usage_{}", Uuid::new_v4().simple());
    let admin = PgPool::connect_with(server.clone()).await.expect("the server is up");
    let create = format!("create database {name}");
    admin.execute(AssertSqlSafe(create)).await.expect("a new database");
    let pool = PgPool::connect_with(server.database(&name)).await.expect("it is there");
    usage::setup(&pool).await.expect("the tables");
    Some(pool)
}

async fn count(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.expect("a number")
}

async fn eventually(pool: &PgPool, sql: &'static str, wanted: i64) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while count(pool, sql).await != wanted {
        assert!(Instant::now() < deadline, "never {wanted}: {sql}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A repeated reading is enqueued and counted once, also by transactions that race; what was rolled back leaves no row; a
/// key of another tenant is refused, and the transaction stays usable.
///
/// Proves B2 and B5.
#[tokio::test(flavor = "multi_thread")]
async fn a_reading_is_told_once_and_only_if_it_is_committed() {
    let Some(pool) = database().await else { return };
    let outbox = record::outbox(pool.clone()).expect("the map serves the table");
    let tenant = Uuid::new_v4();
    let reading = |reading| Usage {
        tenant,
        reading,
        units: 5,
    };
    let racers = (0..4).map(|_| {
        let (pool, outbox, usage) = (pool.clone(), outbox.clone(), reading(1));
        tokio::spawn(async move {
            let mut tx = pool.begin().await.expect("a transaction");
            let told = record::record(&outbox, &mut tx, &usage).await.expect("it is told");
            tx.commit().await.expect("it is committed");
            told
        })
    });
    let mut told = Vec::new();
    for racer in racers.collect::<Vec<_>>() {
        told.push(racer.await.expect("it ends"));
    }
    assert_eq!(told.iter().filter(|told| told.is_new()).count(), 1);
    assert!(told.iter().all(|one| one.id() == told[0].id()), "{told:?}");

    let mut tx = pool.begin().await.expect("a transaction");
    record::record(&outbox, &mut tx, &reading(2)).await.expect("it is told");
    tx.rollback().await.expect("it is undone");

    let mut tx = pool.begin().await.expect("a transaction");
    let foreign = Message::new("usage-recorded", "{}")
        .tenant(tenant.to_string())
        .dedupe_key("another/1");
    let refused = outbox
        .enqueue(&mut tx, foreign)
        .await
        .expect_err("the key is not the tenant's");
    let named = |part| refused.to_string().contains(part);
    assert!(named("refused") && named("another/1"), "{refused}");
    record::record(&outbox, &mut tx, &reading(3))
        .await
        .expect("the transaction goes on");
    tx.commit().await.expect("it is committed");

    assert_eq!(count(&pool, "select count(*) from modkit_outbox_events").await, 2);
    assert_eq!(count(&pool, "select units from usage_total").await, 10);
    let fresh =
        "select count(*) from modkit_outbox_events where status = 'pending' and attempts = 0 and locked_by is null";
    assert_eq!(count(&pool, fresh).await, 2);
}

/// The dispatcher hands over every record with its tenant, tries again what failed, and ends when the token fires; rows of
/// other namespaces are not its own.
///
/// Proves B1 and B13.
#[tokio::test(flavor = "multi_thread")]
async fn records_are_dispatched_until_the_token_fires() {
    let Some(pool) = database().await else { return };
    let outbox = record::outbox(pool.clone()).expect("the map serves the table");
    let tenant = Uuid::new_v4();
    for reading in 1..=20 {
        let mut tx = pool.begin().await.expect("a transaction");
        let usage = Usage {
            tenant,
            reading,
            units: 1,
        };
        record::record(&outbox, &mut tx, &usage).await.expect("it is told");
        tx.commit().await.expect("it is committed");
    }
    pool.execute("insert into modkit_outbox_events (id, namespace, topic, payload, status) values (gen_random_uuid(), 'other', 't', '{}', 'pending')")
        .await
        .expect("another one's row");
    let seen: Arc<Mutex<Vec<i64>>> = Arc::default();
    let stop = CancellationToken::new();
    let send = {
        let seen = Arc::clone(&seen);
        move |delivery: Delivery| {
            let seen = Arc::clone(&seen);
            async move {
                assert_eq!(delivery.message.tenant.as_deref(), Some(tenant.to_string().as_str()));
                let body: serde_json::Value = serde_json::from_slice(&delivery.message.payload).expect("JSON");
                if body["reading"] == 7 && delivery.attempt == 1 {
                    return Err(PublishError::transient("not yet"));
                }
                seen.lock().expect("not poisoned").extend(body["reading"].as_i64());
                Ok(())
            }
        }
    };
    let dispatcher = tokio::spawn(usage::dispatch::until(pool.clone(), send, stop.clone()));
    eventually(
        &pool,
        "select count(*) from modkit_outbox_events where status = 'delivered'",
        20,
    )
    .await;
    stop.cancel();
    dispatcher.await.expect("it ends").expect("and well");
    let mut seen = seen.lock().expect("not poisoned").clone();
    seen.sort_unstable();
    assert_eq!(seen, (1..=20).collect::<Vec<_>>());
    assert_eq!(
        count(
            &pool,
            "select attempts::bigint from modkit_outbox_events where payload ->> 'reading' = '7'"
        )
        .await,
        2
    );
    assert_eq!(
        count(
            &pool,
            "select count(*) from modkit_outbox_events where status = 'pending'"
        )
        .await,
        1
    );
}
