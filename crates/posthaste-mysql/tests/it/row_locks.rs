//! Tables without leases, with names that nobody should choose: rows stay locked while they are published.

use std::time::{Duration, Instant};

use posthaste_core::lifecycle::{LeaseToken, Settlement};
use posthaste_core::store::{Claim, ClaimRequest, DeadHead, ExtendRequest, KeyOrdering, Scope, WorkerId};
use posthaste_core::{MessageId, RelayStore};
use posthaste_mysql::MySqlStore;
use posthaste_relay::{Relay, RelayConfig};
use posthaste_sql::TableMap;
use posthaste_testkit::{FaultyPublisher, RecordingPublisher};

use crate::support;

const DDL: &str = "create table `Or``der -- $1` (
    `select` bigint unsigned not null auto_increment primary key,
    `Key'` int,
    `\"from\"` mediumtext not null,
    `st;atus` smallint not null default 10,
    `group` int,
    `wai\\\\t` bigint
)";

const MAP: &str = r#"
name = "strange"
order = ["id"]
topic = { fixed = "strange" }

[tables]
outbox = "Or`der -- $1"

[columns]
id = { column = "select", kind = "integer", generated = true }
ordering_key = { column = "Key'", kind = "integer" }
payload = { column = "\"from\"", kind = "text" }
status = { column = "st;atus", kind = "integer" }
attempts = "group"
next_attempt_at = { column = "wai\\\\t", kind = "epoch_ms" }

[states]
pending = 10
waiting = 15
delivered = 20
dead = -1
"#;

async fn store(connections: u32) -> MySqlStore {
    let pool = support::pool(connections).await;
    support::run(&pool, DDL).await;
    MySqlStore::with_map(pool, TableMap::from_toml(MAP).unwrap()).unwrap()
}

async fn insert(store: &MySqlStore, rows: &[(i32, &str)]) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for (key, payload) in rows {
        let done = sqlx::query("insert into `Or``der -- $1` (`Key'`, `\"from\"`) values (?, ?)")
            .bind(key)
            .bind(payload)
            .execute(store.pool())
            .await
            .unwrap();
        ids.push(MessageId::Number(i64::try_from(done.last_insert_id()).unwrap()));
    }
    ids
}

/// State, attempts and whether it waits, of every row.
async fn rows(store: &MySqlStore) -> Vec<(i16, Option<i32>, bool)> {
    sqlx::query_as("select `st;atus`, `group`, `wai\\\\t` is not null from `Or``der -- $1` order by `select`")
        .fetch_all(store.pool())
        .await
        .unwrap()
}

fn request(ordering: KeyOrdering) -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit: 2,
        max_bytes: 1 << 20,
        scan_limit: None,
        lease: Duration::from_mins(1),
        max_attempts: 3,
        ordering,
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    }
}

fn in_order() -> KeyOrdering {
    KeyOrdering::PerKey {
        dead_head: DeadHead::Skip,
        except: Vec::new(),
    }
}

fn ids(claim: &Claim) -> Vec<MessageId> {
    claim.messages.iter().map(|claimed| claimed.message.id).collect()
}

#[tokio::test]
async fn a_table_with_strange_names_is_served_by_its_map_alone() {
    let store = store(4).await;
    insert(&store, &[(1, "a"), (2, "b"), (1, "ü")]).await;
    let broker = FaultyPublisher::new(RecordingPublisher::new());
    let relay = Relay::new(store.clone(), broker.clone()).config(RelayConfig::default());
    let report = tokio::time::timeout(Duration::from_mins(1), relay.drain())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(report.delivered, 3);
    let published: Vec<_> = broker
        .inner()
        .deliveries()
        .into_iter()
        .map(|delivery| delivery.message)
        .collect();
    let payloads: Vec<_> = published.iter().map(|message| message.payload.as_ref()).collect();
    assert_eq!(payloads, ["a".as_bytes(), b"b", "ü".as_bytes()]);
    assert_eq!(published[0].ordering_key.as_deref(), Some("1"));
    assert_eq!(published[0].topic, "strange");
    assert_eq!(rows(&store).await, [(20, Some(1), false); 3]);
}

/// Proves E2.
#[tokio::test]
async fn rows_stay_locked_while_they_are_published_and_nobody_else_gets_them() {
    let store = store(4).await;
    let inserted = insert(&store, &[(1, "a"), (2, "b"), (3, "c")]).await;
    let first = request(KeyOrdering::None);
    let claim = store.claim(&first).await.unwrap();
    assert_eq!(ids(&claim), inserted[..2]);
    assert_eq!(claim.messages[0].attempts, 1);
    let second = request(KeyOrdering::None);
    assert_eq!(ids(&store.claim(&second).await.unwrap()), inserted[2..]);
    assert_eq!(ids(&store.claim(&request(KeyOrdering::None)).await.unwrap()), []);
    assert_eq!(
        store
            .extend(ExtendRequest::new(first.token, &inserted, first.lease))
            .await
            .unwrap()
            .held,
        inserted[..2]
    );

    let verdicts = [
        Settlement::delivered(inserted[0], first.token),
        Settlement::retry(inserted[1], first.token, Duration::from_hours(1), "full"),
    ];
    assert_eq!(store.settle(&verdicts).await.unwrap().lost, []);
    let dead = Settlement::dead(inserted[2], second.token, "refused");
    assert_eq!(store.settle(std::slice::from_ref(&dead)).await.unwrap().lost, []);
    assert_eq!(
        rows(&store).await,
        [(20, Some(1), false), (15, Some(1), true), (-1, Some(1), false)]
    );
    assert_eq!(
        store.settle(&[dead]).await.unwrap().lost,
        inserted[2..],
        "its claim is over"
    );
}

#[tokio::test]
async fn a_row_that_is_given_back_is_what_it_was_before_the_claim() {
    let store = store(4).await;
    let inserted = insert(&store, &[(1, "a"), (2, "b")]).await;
    let first = ClaimRequest {
        limit: 1,
        ..request(KeyOrdering::None)
    };
    assert_eq!(ids(&store.claim(&first).await.unwrap()), inserted[..1]);
    let retry = Settlement::retry(inserted[0], first.token, Duration::ZERO, "full");
    assert_eq!(store.settle(&[retry]).await.unwrap().lost, []);
    let before = rows(&store).await;
    assert_eq!(before, [(15, Some(1), true), (10, None, false)]);

    let second = request(KeyOrdering::None);
    assert_eq!(ids(&store.claim(&second).await.unwrap()), inserted);
    let given_back: Vec<_> = inserted
        .iter()
        .map(|id| Settlement::released(*id, second.token))
        .collect();
    assert_eq!(store.settle(&given_back).await.unwrap().lost, []);
    let after = rows(&store).await;
    assert_eq!(after[0], before[0]);
    assert_eq!((after[1].0, after[1].2), (10, false));
}

/// Proves E6.
#[tokio::test]
async fn rows_of_a_relay_that_dies_are_free_at_once() {
    let store = store(4).await;
    let inserted = insert(&store, &[(1, "a")]).await;
    let pool = support::pool_on(&database(&store).await, 2).await;
    let dying = MySqlStore::with_map(pool.clone(), TableMap::from_toml(MAP).unwrap()).unwrap();
    assert_eq!(ids(&dying.claim(&request(in_order())).await.unwrap()), inserted);
    assert_eq!(ids(&store.claim(&request(in_order())).await.unwrap()), []);

    // As when its process ends: the server sees its connections close.
    end_holders(&store).await;
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let claim = store.claim(&request(in_order())).await.unwrap();
        if ids(&claim) == inserted {
            break;
        }
        assert!(Instant::now() < deadline, "the rows were not freed");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn database(store: &MySqlStore) -> String {
    sqlx::query_scalar("select database()")
        .fetch_one(store.pool())
        .await
        .unwrap()
}

/// Ends the connections to this database that are in a transaction. `InnoDB` tells of transactions from a list that it keeps
/// for a moment and does not make anew while somebody reads it, so those that are there may be seen later only.
async fn end_holders(store: &MySqlStore) {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let ids: Vec<i64> = sqlx::query_scalar(
            "select cast(trx_mysql_thread_id as signed) from information_schema.innodb_trx
             join information_schema.processlist on id = trx_mysql_thread_id
             where db = database() and id <> connection_id()",
        )
        .fetch_all(store.pool())
        .await
        .unwrap();
        if !ids.is_empty() {
            let kills: Vec<_> = ids.iter().map(|id| format!("kill {id}")).collect();
            return support::run(store.pool(), kills.join(";")).await;
        }
        assert!(Instant::now() < deadline, "nobody holds the rows");
        // Longer than the list is kept.
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

#[tokio::test]
async fn a_claim_that_is_not_renewed_is_given_up() {
    let store = store(4).await;
    let inserted = insert(&store, &[(1, "a")]).await;
    let short = ClaimRequest {
        lease: Duration::from_millis(300),
        ..request(in_order())
    };
    assert_eq!(ids(&store.claim(&short).await.unwrap()), inserted);
    let deadline = Instant::now() + Duration::from_mins(1);
    while ids(&store.claim(&request(in_order())).await.unwrap()) != inserted {
        assert!(Instant::now() < deadline, "the rows were not freed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let late = Settlement::delivered(inserted[0], short.token);
    assert_eq!(store.settle(&[late]).await.unwrap().lost, inserted, "its claim is over");
    assert_eq!(
        store
            .extend(ExtendRequest::new(short.token, &inserted, short.lease))
            .await
            .unwrap()
            .held,
        []
    );
    assert_eq!(rows(&store).await, [(10, None, false)]);
}

/// Proves pitfall 4.
#[tokio::test]
async fn while_rows_are_claimed_in_order_nobody_else_claims() {
    let store = store(4).await;
    let inserted = insert(&store, &[(1, "a"), (1, "b"), (1, "c"), (2, "d")]).await;
    let first = request(in_order());
    assert_eq!(ids(&store.claim(&first).await.unwrap()), inserted[..2]);
    assert_eq!(ids(&store.claim(&request(in_order())).await.unwrap()), []);
    let retry = |id| Settlement::retry(id, first.token, Duration::from_hours(1), "full");
    assert_eq!(store.settle(&[retry(inserted[0])]).await.unwrap().lost, []);
    let second = request(in_order());
    assert_eq!(
        ids(&store.claim(&second).await.unwrap()),
        inserted[3..],
        "the key waits for its head"
    );
}
