//! Readers of an existing log that die with events in flight.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use posthaste_core::RelayStore;
use posthaste_core::lifecycle::Verdict;
use posthaste_postgres::{LogLayoutOptions, PostgresLogStore};

use super::DEADLINE;
use super::restarts::user_of;
use crate::support::log::{Log, Work, request};

fn store_in(log: &Log, state_schema: &str) -> PostgresLogStore {
    let options = LogLayoutOptions::of(&log.map)
        .retry_interval(Duration::ZERO)
        .state_schema(Some(state_schema.to_owned()));
    PostgresLogStore::with_options(log.pool.clone(), log.map.clone(), options).unwrap()
}

/// What a relay claims as soon as the server has ended the connection of the one before.
async fn claim_once_free(store: &PostgresLogStore, limit: u32) -> Work {
    let begun = Instant::now();
    loop {
        let work = Work::claim(store, &request(limit)).await;
        if !work.events().is_empty() {
            return work;
        }
        assert!(begun.elapsed() < DEADLINE, "nothing comes");
    }
}

/// Proves B8 and pitfall 33.
#[tokio::test]
async fn an_event_that_kills_every_reader_dies_alone_and_the_others_of_its_key_follow() {
    let log = Log::fresh(6).await;
    for order in 0..60 {
        log.append(&log.pool, &(order % 10).to_string()).await;
    }
    let killer = log.append(&log.pool, "3").await;
    let behind = log.append(&log.pool, "3").await;
    let (mut delivered, mut crashes, begun) = (Vec::new(), 0, Instant::now());
    let mut store = log.store();
    while delivered.len() < 61 {
        assert!(
            begun.elapsed() < DEADLINE,
            "{crashes} crashes, {} delivered",
            delivered.len()
        );
        let work = Work::claim(&store, &request(100)).await;
        if work.events().contains(&killer) {
            crashes += 1;
            store = log.store();
            continue;
        }
        work.settle(&store, &[]).await;
        delivered.extend(
            work.events()
                .into_iter()
                .filter(|event| !delivered.contains(event))
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(delivered.last(), Some(&behind), "in order");
    let allowed = request(1).max_attempts;
    assert!((allowed..=allowed + 3).contains(&crashes), "{crashes} crashes");
    let dead = log
        .texts("select event_id from outbox_failed where retry_count >= 10")
        .await;
    assert_eq!((dead, log.failed().await), (vec![killer], 1));
    store.close().await.unwrap();
}

/// Proves B8 and pitfall 33.
#[tokio::test]
async fn an_event_whose_retries_kill_every_reader_dies_alone_and_others_do_not_wait_for_that() {
    let log = Log::fresh(6).await;
    let mut failing = Vec::new();
    for order in 0..10 {
        failing.push(log.append(&log.pool, &order.to_string()).await);
    }
    let mut store = log.store();
    let (delay, error) = (Duration::ZERO, "no".to_owned());
    let retry = Verdict::Retry { delay, error };
    let retries: Vec<_> = (0..10).map(|place| (place, retry.clone())).collect();
    claim_once_free(&store, 100).await.settle(&store, &retries).await;
    for order in 10..30 {
        log.append(&log.pool, &order.to_string()).await;
    }
    let killer = failing.swap_remove(4);
    let (mut delivered, mut before_crash, begun) = (BTreeSet::new(), Vec::new(), Instant::now());
    while delivered.len() < 29 || log.failed().await > 1 || before_crash.is_empty() {
        assert!(
            begun.elapsed() < DEADLINE,
            "{before_crash:?}, {} delivered",
            delivered.len()
        );
        let work = Work::claim(&store, &request(100)).await;
        if work.events().contains(&killer) {
            before_crash.push(delivered.len());
            store = log.store();
            continue;
        }
        work.settle(&store, &[]).await;
        delivered.extend(work.events());
    }
    // What is left is dead in the end.
    let dead = async || {
        log.texts("select event_id from outbox_failed where retry_count >= 10")
            .await
    };
    while dead().await.is_empty() {
        assert!(begun.elapsed() < DEADLINE, "{before_crash:?}");
        if Work::claim(&store, &request(100)).await.events().contains(&killer) {
            before_crash.push(delivered.len());
            store = log.store();
        }
    }
    assert_eq!(dead().await, [killer]);
    // One attempt was the first delivery.
    let allowed = request(1).max_attempts - 1;
    assert!(before_crash.len() <= allowed as usize + 3, "{before_crash:?}");
    assert!(before_crash[1] >= 20, "fresh ones went first: {before_crash:?}");
    store.close().await.unwrap();
}

#[tokio::test]
async fn events_that_were_merely_in_flight_survive_many_kills() {
    let log = Log::fresh(6).await;
    for order in 0..200 {
        log.append(&log.pool, &order.to_string()).await;
    }
    for _ in 0..2 * request(1).max_attempts {
        let store = log.store();
        claim_once_free(&store, 20).await.settle(&store, &[]).await;
        claim_once_free(&store, 20).await;
    }
    let store = log.store();
    let last = log.append(&log.pool, "last").await;
    loop {
        let work = claim_once_free(&store, 100).await;
        work.settle(&store, &[]).await;
        if work.events().contains(&last) {
            break;
        }
    }
    assert_eq!(log.failed().await, 0);
    store.close().await.unwrap();
}

/// A table of readers as an earlier version made it.
async fn make_old_table(log: &Log) -> String {
    let schema = crate::support::fresh_schema();
    log.pool_run(&format!(
        "create schema {schema}; create table {schema}.log_readers (log text primary key, tables text not null,
             state text not null, position bigint not null, updated_at timestamptz not null default clock_timestamp())"
    ))
    .await;
    schema
}

#[tokio::test]
async fn a_table_of_an_earlier_version_is_brought_up_to_date() {
    let log = Log::fresh(6).await;
    let schema = make_old_table(&log).await;
    for order in 0..20 {
        log.append(&log.pool, &order.to_string()).await;
    }
    assert_eq!(claim_once_free(&store_in(&log, &schema), 20).await.events().len(), 20);
    let again = claim_once_free(&store_in(&log, &schema), 20).await;
    assert!(again.claim.reclaimed && again.events().len() < 20, "in smaller groups");
}

#[tokio::test]
async fn a_reader_that_may_not_change_the_table_goes_on_without() {
    let log = Log::fresh(6).await;
    let schema = make_old_table(&log).await;
    let (pool, role) = user_of(&log).await;
    log.pool_run(&format!(
        "grant usage on schema {schema} to {role}; grant select, insert, update on {schema}.log_readers to {role}"
    ))
    .await;
    for order in 0..20 {
        log.append(&log.pool, &order.to_string()).await;
    }
    let log = Log { pool, map: log.map };
    let store = store_in(&log, &schema);
    let work = claim_once_free(&store, 10).await;
    work.settle(&store, &[]).await;
    store.close().await.unwrap();
    let successor = store_in(&log, &schema);
    let rest = claim_once_free(&successor, 100).await.events().len();
    assert_eq!(rest, 10, "nothing is repeated");
    drop(successor);
    let again = claim_once_free(&store_in(&log, &schema), 100).await;
    assert!(!again.claim.reclaimed && again.events().len() == 10, "as ever");
}
