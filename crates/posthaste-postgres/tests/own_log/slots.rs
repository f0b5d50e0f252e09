//! A relay that has more shards than connections for their readers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use posthaste_core::lifecycle::{LeaseToken, Verdict};
use posthaste_core::store::{LeadRequest, LeaderRole, Leadership, WorkerId};
use posthaste_core::{Message, RelayStore};
use posthaste_postgres::LogLayoutOptions;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::fixture::{Log, payloads};
use crate::support;

const PATIENCE: Duration = Duration::from_mins(2);
const KEYS: usize = 40;

/// Connections that have the lock of a shard's reader.
const READERS: &str = "select count(distinct l.pid) from pg_locks l
    where l.locktype = 'advisory' and l.granted and l.objsubid = 1
        and ((l.classid::bigint << 32) | l.objid::bigint) in (
            select hashtextextended('posthaste:log:' || 'log_shards'::regclass::oid::text || ':' || s.shard::text, 0)
            from log_shards s)";

fn of_many_keys(round: usize) -> Vec<Message> {
    let message = |key: usize| Message::new("orders", format!("{key}/{round}")).key(format!("k{key}"));
    (0..KEYS).map(message).collect()
}

/// Delivers all of it; says how many readers had a connection at once.
async fn deliver_all(log: &Log, relay: &Log, rounds: usize) -> i64 {
    let begun = Instant::now();
    let (mut delivered, mut most) = (BTreeSet::new(), 0);
    let mut highest: BTreeMap<String, usize> = BTreeMap::new();
    while delivered.len() < KEYS * rounds {
        let token = LeaseToken::new();
        let claimed = relay.claim_as(token, 30).await;
        most = most.max(log.count(READERS).await);
        for (one, payload) in claimed.iter().zip(payloads(&claimed)) {
            relay.settle(token, one.message.id, Verdict::Delivered).await;
            let (key, round) = payload.split_once('/').unwrap();
            let round = round.parse().unwrap();
            let before = highest.insert(key.to_owned(), round);
            assert!(before.is_none_or(|before| before < round), "{payload} after {before:?}");
            assert!(delivered.insert(payload), "nothing comes twice");
        }
        assert!(begun.elapsed() < PATIENCE, "{} of {}", delivered.len(), KEYS * rounds);
    }
    most
}

/// All of its shards are read, on no more connections than it may have, and what is finished is not sent again.
#[tokio::test]
async fn a_relay_with_more_shards_than_connections_reads_them_in_turn() {
    let log = Log::fresh().await;
    let options = LogLayoutOptions::of(log.store.map()).max_readers(3);
    let relay = Log::with_options(log.pool.clone(), log.store.map().clone(), options);
    log.raise(12).await;
    for round in 0..5 {
        log.enqueue(of_many_keys(round)).await;
    }
    let most = deliver_all(&log, &relay, 5).await;
    assert!((1..=3).contains(&most), "{most} readers at once");
    let request = LeadRequest {
        role: LeaderRole::Upkeep,
        namespace: "default".to_owned(),
        worker: WorkerId::new(),
        lease: Duration::from_secs(30),
    };
    let lead = relay.store.elect_janitor(&request).await.unwrap();
    assert!(
        matches!(lead, Leadership::Held),
        "also while the first shard's reader rests"
    );
    relay.store.close().await.unwrap();
}

/// The readers that have a connection go on, and make room for those that get none.
#[tokio::test]
async fn a_relay_that_gets_no_more_connections_reads_all_shards_with_those_that_it_has() {
    let log = Log::fresh().await;
    log.raise(12).await;
    let schema = log.store.map().schema().unwrap().as_str().to_owned();
    let role = format!("relay_of_{schema}");
    log.run(&format!(
        "create role \"{role}\" login connection limit 6;
         grant usage on schema \"{schema}\" to \"{role}\";
         grant all on all tables in schema \"{schema}\" to \"{role}\";
         grant all on all sequences in schema \"{schema}\" to \"{role}\""
    ))
    .await;
    let address: PgConnectOptions = support::server_url().parse().unwrap();
    let pool = PgPoolOptions::new()
        .max_connections(2)
        .connect_with(address.username(&role))
        .await
        .unwrap();
    let relay = Log::over(pool, log.store.map().clone());
    for round in 0..5 {
        log.enqueue(of_many_keys(round)).await;
    }
    let most = deliver_all(&log, &relay, 5).await;
    assert!((1..=5).contains(&most), "{most} readers at once");
    relay.store.close().await.unwrap();
    relay.pool.close().await;
    log.run(&format!("drop owned by \"{role}\"; drop role \"{role}\""))
        .await;
}
