//! Handlers that tolerate errors of the database for which it has given up their transaction.

use std::sync::Arc;

use posthaste_consumer::{Consumer, HandlerError, Once, Received};
use posthaste_core::store::SchemaStore;
use posthaste_kafka::dead_letter::DeadLetter;
use posthaste_mysql::MySqlStore;
use rdkafka::Message as _;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, Executor, MySqlConnection, MySqlPool, PgConnection};
use tokio::sync::Semaphore;

use crate::support;
use crate::support::{Running, SOLD, Sale, World};

/// What the dead letter of an event says whose transaction was gone each time.
async fn assert_given_up(world: &World) {
    let dead = world.read(&world.dead_letter_topic(), 1).await.remove(0);
    let letter = DeadLetter::read(dead.headers().unwrap()).unwrap();
    assert_eq!(letter.attempts, 3);
    for words in ["nothing of it was kept", "return errors of the database"] {
        assert!(letter.error.contains(words), "{}", letter.error);
    }
}

/// Writes an effect, and then something that violates a constraint, which it takes for "already there".
async fn tolerate(world: &World, tx: &mut PgConnection, event: &Received<Sale>) -> Result<(), HandlerError> {
    world.effect(tx, "a", event.payload.n).await?;
    if event.payload.n < 0 {
        let again = format!("insert into {}.once values (1)", world.schema);
        match tx.execute(AssertSqlSafe(again)).await {
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {}
            done => return Ok(done.map(|_| ())?),
        }
    }
    Ok(())
}

/// PostgreSQL answers the commit of an aborted transaction with success. The event counts as handled only if its effect
/// is there: it is tried again and ends in the dead-letter topic, with a sentence that says why.
///
/// Proves C17.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_tolerates_an_error_that_ended_its_transaction_has_failed() {
    let Some(world) = World::new(1).await else { return };
    let once = format!(
        "create table {schema}.once (n bigint unique); insert into {schema}.once values (1)",
        schema = world.schema
    );
    world
        .store
        .pool()
        .execute(sqlx::raw_sql(AssertSqlSafe(once)))
        .await
        .unwrap();
    world
        .send_all(&[(world.sale("a", -1), 0), (world.sale("a", 1), 0)])
        .await;
    let effects = world.clone();
    let running = Running::start(world.consumer().on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| tolerate(&effects, tx, &event).await,
    ));
    world.until_committed(0, 2).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.retried, report.dead_letters), (1, 2, 1));
    assert_given_up(&world).await;
    assert_eq!(world.effects().await, [("a".to_owned(), 1)]);
    assert_eq!(world.recorded().await.len(), 1, "the one that was handled");
}

/// So it is for handlers that leave no record.
#[tokio::test(flavor = "multi_thread")]
async fn an_idempotent_handler_is_held_to_the_same() {
    let Some(world) = World::new(1).await else { return };
    world.send(&world.sale("a", 1), Some(0)).await;
    let effects = world.clone();
    let running = Running::start(world.consumer().on_idempotent(
        SOLD,
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            effects.effect(tx, "a", event.payload.n).await?;
            drop(tx.execute("select 1 / 0").await);
            Ok(())
        },
    ));
    world.until_committed(0, 1).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.retried, report.dead_letters), (0, 2, 1));
    assert_given_up(&world).await;
    assert!(world.effects().await.is_empty());
}

/// What may fail can be tried in a savepoint of its own.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_within_a_savepoint_may_be_tolerated() {
    let Some(world) = World::new(1).await else { return };
    world.send(&world.sale("a", 1), Some(0)).await;
    let effects = world.clone();
    let running = Running::start(world.consumer().on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            let mut part = tx.begin().await?;
            drop(part.execute("select 1 / 0").await);
            part.rollback().await?;
            Ok(effects.effect(tx, "a", event.payload.n).await?)
        },
    ));
    world.until_committed(0, 1).await;
    assert_eq!(running.stop().await.handled, 1);
    assert_eq!(world.effects().await.len(), 1);
}

/// Two rows that transactions lock in either order, and some more that make a transaction weigh.
async fn accounts() -> MySqlPool {
    let address = std::env::var("POSTHASTE_TEST_MYSQL_URL").expect("run these tests with `cargo xtask test`");
    let options: MySqlConnectOptions = address.parse().unwrap();
    let name = format!("t_{}", uuid::Uuid::new_v4().simple());
    let mut server = MySqlConnection::connect_with(&options).await.unwrap();
    let create = format!("create database {name} character set utf8mb4");
    server.execute(AssertSqlSafe(create)).await.unwrap();
    let pool = MySqlPoolOptions::new().connect_with(options.database(&name)).await;
    let pool = pool.unwrap();
    let tables = "create table account (id int primary key, sold int not null);
        insert into account values (1, 0), (2, 0);
        create table ballast (n int)";
    pool.execute(sqlx::raw_sql(tables)).await.unwrap();
    pool
}

/// Gets into a deadlock with another transaction and is its victim, because that one has written more.
async fn deadlock(tx: &mut MySqlConnection, pool: &MySqlPool) -> sqlx::Error {
    let mut other = pool.begin().await.unwrap();
    let ballast = "insert into ballast values (1), (2), (3), (4), (5), (6), (7), (8), (9)";
    other.execute(ballast).await.unwrap();
    let lock = "update account set sold = sold + 100 where id = 2";
    other.execute(lock).await.unwrap();
    let crossing = tokio::spawn(async move {
        let crossed = "update account set sold = sold + 100 where id = 1";
        let crossed = other.execute(crossed).await;
        other.rollback().await.unwrap();
        crossed.unwrap();
    });
    let error = tx.execute("update account set sold = sold + 1 where id = 2").await;
    let error = error.expect_err("this one is the victim");
    crossing.await.unwrap();
    error
}

/// MySQL rolls the whole transaction back for a deadlock and takes what follows as statements on their own. A handler
/// that tries its statement again has lost what it did before, and its record.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_goes_on_after_a_deadlock_has_failed() {
    if support::left_out("mariadb") {
        return;
    }
    let Some(world) = World::new(1).await else { return };
    let pool = accounts().await;
    let store = MySqlStore::new(pool.clone());
    store.migrate().await.unwrap();
    world.send(&world.sale("a", 1), Some(0)).await;
    let deadlocks = Arc::new(Semaphore::new(1));
    let (others, left) = (pool.clone(), Arc::clone(&deadlocks));
    let running = Running::start(Consumer::new(world.config(), store.inbox(&world.group)).on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut MySqlConnection, _: Received<Sale>| {
            let first = "update account set sold = sold + 1 where id = 1";
            tx.execute(first).await?;
            if let Ok(once) = left.try_acquire() {
                once.forget();
                let error = deadlock(tx, &others).await;
                assert!(error.to_string().contains("Deadlock"), "{error}");
                return Ok(());
            }
            tx.execute("update account set sold = sold + 1 where id = 2").await?;
            Ok(())
        },
    ));
    world.until_committed(0, 1).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.retried, report.dead_letters), (1, 1, 0));
    let sold: Vec<i32> = sqlx::query_scalar("select sold from account order by id")
        .fetch_all(&pool)
        .await
        .unwrap();
    assert_eq!(sold, [1, 1], "both of the attempt that was kept");
    let drop_database = "set @drop = concat('drop database ', database()); execute immediate @drop";
    pool.execute(sqlx::raw_sql(drop_database)).await.unwrap();
}
