//! More lanes that are held back than are gone through one by one: everything is looked at once, and nothing is overlooked.

use std::time::Duration;

use posthaste_core::RelayStore;
use posthaste_core::lifecycle::LeaseToken;
use posthaste_core::store::{ClaimRequest, DeadHead, KeyOrdering, Scope, WorkerId};
use posthaste_postgres::PostgresStore;
use sqlx::{AssertSqlSafe, Executor};

use crate::support;

/// Above what is gone through lane by lane.
const LANES: u32 = 2_500;

fn request(dead_head: DeadHead) -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit: 100,
        max_bytes: 1 << 20,
        scan_limit: None,
        lease: Duration::from_secs(30),
        max_attempts: 5,
        ordering: KeyOrdering::PerKey {
            dead_head,
            except: Vec::new(),
        },
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    }
}

/// Two rows for each of many lanes, the first of which is in the given state, and then those of the rest.
async fn store(head: &str, rest: &str) -> PostgresStore {
    let store = support::store(3).await;
    let schema = store.channel().replace("posthaste:", "");
    let columns = "topic, ordering_key, payload, status, attempts, created_at, next_attempt_at, locked_by, lease_token,
        locked_until";
    let fresh = "'pending', 0, now(), now(), null::uuid, null::uuid, null::timestamptz";
    let sql = format!(
        "insert into {schema}.outbox (id, namespace, {columns})
         select gen_random_uuid(), 'default', rows.*
         from (
            select 't', 'held' || n, 'head'::bytea, {head} from generate_series(1, {LANES}) n
            union all select 't', 'held' || n, 'follower'::bytea, {fresh} from generate_series(1, {LANES}) n
         ) rows;
         insert into {schema}.outbox (id, namespace, {columns})
         select gen_random_uuid(), 'default', 't', key, body::bytea, state.* from (values {rest}) as rows (key, body, waits)
         cross join lateral (
            select {fresh} where not waits
            union all
            select 'pending', 1, now(), now() + interval '1 hour', null, null, null where waits
         ) state;
         analyze {schema}.outbox"
    );
    let sql = sqlx::raw_sql(AssertSqlSafe(sql));
    store.pool().execute(sql).await.unwrap();
    store
}

async fn payloads(store: &PostgresStore, request: &ClaimRequest) -> Vec<String> {
    let claim = store.claim(request).await.unwrap();
    let text = |payload: &[u8]| String::from_utf8(payload.to_vec()).unwrap();
    claim.messages.iter().map(|m| text(&m.message.payload)).collect()
}

const REST: &str = "('open', 'free 1', false), ('open', 'free 2', false), (null, 'without a key', false),
    ('mixed', 'before', false), ('mixed', 'waits', true), ('mixed', 'behind', false)";

/// Proves pitfall 18.
#[tokio::test]
async fn what_is_free_behind_many_held_lanes_is_found() {
    for head in [
        "'pending', 1, now(), now() + interval '1 hour', null::uuid, null::uuid, null::timestamptz",
        "'processing', 1, now(), now(), gen_random_uuid(), gen_random_uuid(), now() + interval '1 hour'",
    ] {
        let store = store(head, REST).await;
        let skip = request(DeadHead::Skip);
        let expected = ["free 1", "free 2", "without a key", "before"];
        assert_eq!(payloads(&store, &skip).await, expected, "{head}");
        assert!(payloads(&store, &skip).await.is_empty(), "{head}");
    }
}

/// Proves pitfall 17.
#[tokio::test]
async fn dead_heads_of_many_lanes_hold_them_back_where_they_are_to() {
    let head = "'dead', 5, now(), now(), null::uuid, null::uuid, null::timestamptz";
    let store = store(head, REST).await;
    let expected = ["free 1", "free 2", "without a key", "before"];
    assert_eq!(payloads(&store, &request(DeadHead::Block)).await, expected);
    assert!(payloads(&store, &request(DeadHead::Block)).await.is_empty());
    assert_eq!(payloads(&store, &request(DeadHead::Skip)).await, vec!["follower"; 100]);
}

/// A retry that is due is found behind as many that are not.
///
/// Proves pitfall 18.
#[tokio::test]
async fn what_is_due_behind_many_held_lanes_is_found() {
    let head = "'pending', 1, now(), now() + interval '1 hour', null::uuid, null::uuid, null::timestamptz";
    let store = store(head, "('late', 'due', true), ('late', 'behind', false)").await;
    let schema = store.channel().replace("posthaste:", "");
    let due = format!(
        "update {schema}.outbox set created_at = now() - interval '1 hour',
        next_attempt_at = now() - interval '1 minute' where payload = 'due'"
    );
    store.pool().execute(AssertSqlSafe(due)).await.unwrap();
    assert_eq!(payloads(&store, &request(DeadHead::Skip)).await, ["due"]);
}
