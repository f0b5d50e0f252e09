//! Thousands of messages that wait are no reason for those behind them to wait.

use std::time::Duration;

use posthaste_core::lifecycle::Verdict;
use posthaste_core::store::{ClaimRequest, SchemaStore};
use posthaste_core::{Message, MessageId};
use posthaste_sqlite::SqliteLogStore;

use crate::log::{another, claim, enqueue, execute, fresh, keyed, request, settle};
use crate::support::{self, Work};

/// More than a reader keeps in memory.
const MANY: usize = 12_000;

/// What is claimed before others go.
const IN_FLIGHT: usize = 100;

/// What of that is delivered then; the rest fails.
const DELIVERED: usize = 95;

/// More claims than anything here takes.
const MAX_CLAIMS: usize = 200;

/// Its lease outlasts a test on a machine with other work.
fn unhurried(limit: u32) -> ClaimRequest {
    ClaimRequest {
        lease: Duration::from_hours(1),
        ..request(limit)
    }
}

/// Messages as another program inserts them; the key is an expression over their number.
async fn insert_many(store: &SqliteLogStore, key: &str) -> Vec<MessageId> {
    let insert = format!(
        "with recursive n (i) as (select 1 union all select i + 1 from n where i < {MANY})
        insert into posthaste_log (topic, ordering_key, payload) select 'orders', {key}, x'7b7d' from n"
    );
    let insert = sqlx::query(sqlx::AssertSqlSafe(insert));
    insert.execute(store.pool()).await.unwrap();
    let ids: Vec<String> = sqlx::query_scalar("select id from posthaste_log order by seq")
        .fetch_all(store.pool())
        .await
        .unwrap();
    ids.iter().map(|id| id.parse().unwrap()).collect()
}

/// Waits for one message, while whatever else comes is dealt with by another.
async fn wait_for(
    store: &SqliteLogStore,
    wanted: MessageId,
    deal_with_others: impl AsyncFn(&ClaimRequest, &[MessageId]),
) {
    for _ in 0..MAX_CLAIMS {
        let work = unhurried(1_000);
        let mut claimed = claim(store, &work).await;
        let found = claimed.contains(&wanted);
        claimed.retain(|id| *id != wanted);
        deal_with_others(&work, &claimed).await;
        if found {
            assert_eq!(settle(store, &work, &[wanted], &Verdict::Delivered).await, []);
            return;
        }
        store.pass_time(Duration::from_secs(2));
    }
    panic!("what waits holds up all others");
}

/// Proves pitfall 18.
#[tokio::test]
async fn a_key_whose_receiver_is_slow_does_not_keep_others_waiting_and_stays_in_order() {
    let (store, _directory) = fresh().await;
    let slow = insert_many(&store, "'one'").await;
    let first = unhurried(u32::try_from(IN_FLIGHT).unwrap());
    assert_eq!(claim(&store, &first).await, slow[..IN_FLIGHT]);
    let quick = enqueue(&store, [keyed("another")]).await[0];
    wait_for(&store, quick, async |_, others| {
        assert_eq!(others, [], "they wait for those in flight");
    })
    .await;
    // Some of those in flight fail after all; the others of its key have not passed it.
    assert_eq!(
        settle(&store, &first, &slow[..DELIVERED], &Verdict::Delivered).await,
        []
    );
    let (delay, error) = (Duration::ZERO, "no".to_owned());
    let failed = Verdict::Retry { delay, error };
    assert_eq!(settle(&store, &first, &slow[DELIVERED..IN_FLIGHT], &failed).await, []);
    let mut arrived = slow[..DELIVERED].to_vec();
    for _ in 0..MAX_CLAIMS {
        let work = unhurried(1_000);
        let claimed = claim(&store, &work).await;
        assert_eq!(settle(&store, &work, &claimed, &Verdict::Delivered).await, []);
        arrived.extend(claimed);
        if arrived.len() >= 2_000 {
            break;
        }
    }
    assert!(arrived.len() >= 2_000, "{} came", arrived.len());
    assert_eq!(arrived, slow[..arrived.len()], "in order");
}

/// Each of them is put off again and again, as while one of several publishers is unavailable.
#[tokio::test]
async fn messages_of_an_unavailable_receiver_do_not_keep_others_waiting() {
    let (store, _directory) = fresh().await;
    insert_many(&store, "'k' || i").await;
    let available = enqueue(&store, [Message::new("available", "{}")]).await[0];
    let (delay, error) = (Duration::from_secs(30), "unavailable".to_owned());
    let put_off = Verdict::Postponed { delay, error };
    wait_for(&store, available, async |work, others| {
        assert_eq!(settle(&store, work, others, &put_off).await, []);
    })
    .await;
    let attempts: i64 = sqlx::query_scalar("select coalesce(max(attempts), 0) from posthaste_log_failed")
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert_eq!(attempts, 0, "nothing was tried");
}

/// All that may be parked is refused.
#[tokio::test]
async fn what_may_not_be_parked_is_not_searched_for_and_goes_when_its_receiver_is_back() {
    let (pool, _directory) = support::pool(1).await;
    let store = another(&pool);
    store.migrate().await.unwrap();
    insert_many(&store, "'k' || i").await;
    let available = enqueue(&store, [Message::new("available", "{}")]).await[0];
    execute(
        &store,
        "create trigger no before insert on posthaste_log_failed when new.topic = 'orders'
        begin select raise(abort, 'audit: no'); end",
    )
    .await;
    let (delay, error) = (Duration::from_secs(30), "unavailable".to_owned());
    let put_off = Verdict::Postponed { delay, error };
    let work = Work::of(&pool).await;
    let mut costs = Vec::new();
    for _ in 0..40 {
        work.done();
        let some = unhurried(1_000);
        let claimed = claim(&store, &some).await;
        costs.push(work.done());
        assert_eq!(settle(&store, &some, &claimed, &put_off).await, []);
        store.pass_time(Duration::from_secs(1));
    }
    let most = costs.iter().copied().max().unwrap_or_default();
    assert!(most < costs[0] * 60, "{costs:?}");
    wait_for(&store, available, async |work, others| {
        assert_eq!(settle(&store, work, others, &Verdict::Delivered).await, []);
    })
    .await;
}
