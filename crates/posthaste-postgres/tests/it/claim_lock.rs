//! Claims in order take turns. What a claim sees is what there is when its turn has come.

use std::time::Duration;

use posthaste_core::lifecycle::LeaseToken;
use posthaste_core::store::{ClaimRequest, DeadHead, KeyOrdering, Scope, WorkerId};
use posthaste_core::{Message, OutboxOptions, RelayStore};
use posthaste_postgres::PostgresStore;
use sqlx::{AssertSqlSafe, Executor, Postgres, Transaction};

use crate::support;

const LONG: Duration = Duration::from_secs(30);

fn request() -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit: 100,
        max_bytes: 1 << 20,
        scan_limit: None,
        lease: LONG,
        max_attempts: 5,
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Skip,
            except: Vec::new(),
        },
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    }
}

/// The same outbox through a pool of its own.
async fn again(store: &PostgresStore, connections: u32) -> PostgresStore {
    let schema = store.channel().replace("posthaste:", "");
    PostgresStore::in_schema(support::pool(connections).await, &schema).unwrap()
}

/// A transaction that holds the claim lock, as that of another relay does.
async fn take_lock(store: &PostgresStore) -> Transaction<'static, Postgres> {
    let mut holder = store.pool().begin().await.unwrap();
    sqlx::query("select pg_advisory_xact_lock(hashtextextended($1, 0))")
        .bind(format!("{}:default", store.channel()))
        .execute(&mut *holder)
        .await
        .unwrap();
    holder
}

async fn until_a_claim_waits(store: &PostgresStore) {
    let waiting = "select count(*) from pg_stat_activity
        where wait_event_type = 'Lock' and wait_event = 'advisory' and query like '%' || $1 || '%'";
    let one_waits = async {
        while sqlx::query_scalar::<_, i64>(waiting)
            .bind(store.channel())
            .fetch_one(store.pool())
            .await
            .unwrap()
            == 0
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, one_waits).await.expect("it waits");
}

/// A producer commits an earlier row of the key late, and the holder of the lock claims it before the waiting claim has its
/// turn. A claim that looked when it began to wait would know of neither, and hand out the later row beside the earlier one.
///
/// Proves pitfall 4.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waited_for_its_turn_sees_what_was_claimed_meanwhile() {
    let store = support::store(6).await;
    let outbox = store.outbox(OutboxOptions::default());
    let [earlier, later] = ["earlier", "later"].map(|payload| Message::new("t", payload).key("k"));
    let id = earlier.id;
    let mut late_producer = store.pool().begin().await.unwrap();
    outbox.enqueue(&mut late_producer, earlier).await.unwrap();
    let mut producer = store.pool().begin().await.unwrap();
    outbox.enqueue(&mut producer, later).await.unwrap();
    producer.commit().await.unwrap();

    let mut holder = take_lock(&store).await;
    let claim = tokio::spawn({
        let store = store.clone();
        async move { store.claim(&request()).await }
    });
    until_a_claim_waits(&store).await;
    late_producer.commit().await.unwrap();
    let schema = store.channel().replace("posthaste:", "");
    let in_flight = format!(
        "update {schema}.outbox set status = 'processing', attempts = 1, locked_by = gen_random_uuid(),
            lease_token = gen_random_uuid(), locked_until = now() + interval '1 minute' where id = '{id}'"
    );
    holder.execute(AssertSqlSafe(in_flight)).await.unwrap();
    holder.commit().await.unwrap();

    let claimed = tokio::time::timeout(LONG, claim).await.unwrap().unwrap().unwrap();
    let claimed: Vec<_> = claimed
        .messages
        .into_iter()
        .map(|claimed| claimed.message.payload)
        .collect();
    assert!(claimed.is_empty(), "{claimed:?} beside an earlier row of its key");
}

/// Whether its time is up or nobody wants it any more: the connection that goes back to the pool has no transaction open.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waited_in_vain_leaves_nothing_behind() {
    let store = support::store(4).await;
    let outbox = store.outbox(OutboxOptions::default());
    let single = again(&store, 1).await;

    let holder = take_lock(&store).await;
    let error = single.claim(&request()).await.unwrap_err().to_string();
    assert!(error.contains("lock timeout"), "{error}");
    holder.rollback().await.unwrap();
    assert_eq!(single.claim(&request()).await.unwrap().messages.len(), 0);

    let holder = take_lock(&store).await;
    let given_up = tokio::spawn({
        let single = single.clone();
        async move { single.claim(&request()).await }
    });
    until_a_claim_waits(&store).await;
    given_up.abort();
    assert!(given_up.await.unwrap_err().is_cancelled());
    holder.rollback().await.unwrap();
    let mut tx = store.pool().begin().await.unwrap();
    outbox.enqueue(&mut tx, Message::new("t", "x").key("k")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(single.claim(&request()).await.unwrap().messages.len(), 1);
    let committed = again(&store, 1).await.claim(&request()).await.unwrap();
    assert_eq!(committed.messages.len(), 0, "what was claimed is committed");
}
