//! How the statements are executed: every one by an index, whatever is in the table and whatever SQLite believes about it.

use std::time::{Duration, Instant};

use posthaste_core::lifecycle::LeaseToken;
use posthaste_core::store::{ClaimRequest, DeadHead, KeyOrdering, RelayStore, SchemaStore, Scope, WorkerId};
use posthaste_sqlite::SqliteStore;
use sqlx::{AssertSqlSafe, Executor, Row};

use crate::support;

/// Fills the outbox with pending rows of a thousand keys.
async fn backlog(store: &SqliteStore, rows: u32) {
    let insert = "with recursive n (i) as (select 1 union all select i + 1 from n where i < ?1)
        insert into posthaste_outbox (topic, ordering_key, payload)
        select 'orders', cast(i % 1000 as text), x'7b7d' from n";
    sqlx::query(insert).bind(rows).execute(store.pool()).await.unwrap();
}

/// One line of a plan.
struct Step {
    id: i64,
    parent: i64,
    detail: String,
}

async fn plan(store: &SqliteStore, statement: &str) -> Vec<Step> {
    let (_, sql) = store
        .statements()
        .into_iter()
        .find(|(name, _)| *name == statement)
        .unwrap();
    let explain = AssertSqlSafe(format!("explain query plan {sql}"));
    let rows = sqlx::query(explain).fetch_all(store.pool()).await.unwrap();
    rows.iter()
        .map(|row| Step {
            id: row.get("id"),
            parent: row.get("parent"),
            detail: row.get("detail"),
        })
        .collect()
}

fn text(plan: &[Step]) -> String {
    let steps: Vec<_> = plan.iter().map(|step| step.detail.as_str()).collect();
    steps.join("\n")
}

/// What a plan does inside the step that begins with `detail`.
fn inside<'a>(plan: &'a [Step], detail: &str) -> Vec<&'a Step> {
    let root = plan.iter().find(|step| step.detail.starts_with(detail)).unwrap();
    let mut found = vec![root];
    // Steps follow their parents.
    for step in plan {
        if found.iter().any(|parent| parent.id == step.parent) {
            found.push(step);
        }
    }
    found
}

/// Statements with the indexes that must serve them.
const SERVED_BY: [(&str, &[&str]); 18] = [
    (
        "enqueue",
        &["_dedupe_key (namespace=? AND topic=? AND dedupe_key=?)", "_id (id=?)"],
    ),
    (
        "find_holders",
        &["_dedupe_key (namespace=? AND topic=? AND dedupe_key=?)", "_id (id=?)"],
    ),
    ("probe", &["_fresh (", "_waiting (", "_leased ("]),
    (
        "claim_any",
        &["_fresh (", "_waiting (namespace=? AND next_attempt_at<?)", "_id (id=?)"],
    ),
    (
        "claim_per_key",
        &[
            "_fresh (namespace=? AND rowid<?)",
            "_waiting (namespace=? AND next_attempt_at<?)",
            "_waiting_key (namespace=? AND topic=? AND ordering_key=? AND rowid<?)",
            "_dead (namespace=? AND topic=? AND ordering_key=? AND rowid<?)",
            "COVERING INDEX posthaste_outbox_leased",
            "_id (id=?)",
        ],
    ),
    (
        "reclaim",
        &[
            "_leased (namespace=? AND locked_until<?)",
            "_fresh (namespace=? AND rowid<?)",
            "_id (id=?)",
        ],
    ),
    ("settle", &["_id (id=?)"]),
    ("extend", &["_id (id=?)"]),
    (
        "sweep",
        &[
            "_leased (namespace=? AND locked_until<?)",
            "_tried (namespace=? AND attempts>?)",
            "_id (id=?)",
        ],
    ),
    ("purge_delivered", &["_delivered (delivered_at<?)", "_id (id=?)"]),
    (
        "purge_dedupe",
        &["_expiry (expires_at<?)", "_dedupe_key (namespace=? AND"],
    ),
    (
        "purge_inbox",
        &["_handled (consumer=? AND handled_at<?)", "_inbox_key (consumer=? AND"],
    ),
    ("stats", &["_fresh (", "_waiting (", "_leased (", "_dead ("]),
    ("topic_gauges", &["_fresh (", "_waiting ("]),
    ("purge_dead", &["_dead", "_id (id=?)"]),
    ("find", &["_id (id=?)"]),
    ("trial_rows", &["USING INDEX posthaste_outbox_fresh"]),
    ("trial_claim", &["_id (id=?)"]),
];

/// Statistics as of the moment when the tables had a single row each.
async fn misleading_statistics(store: &SqliteStore) {
    for sql in [
        "insert into posthaste_outbox (topic, payload, status) values ('t', x'', 'dead')",
        "insert into posthaste_outbox_dedupe values ('default', 't', 'k', 'x', 0)",
        "insert into posthaste_inbox values ('c', 'k', 0)",
        "analyze",
    ] {
        store.pool().execute(sql).await.unwrap();
    }
}

/// Proves pitfalls 27, 28.
#[tokio::test]
async fn every_statement_keeps_its_index_whatever_the_statistics() {
    let store = support::store(1).await;
    assert_served_by_indexes(&store, "without statistics").await;
    misleading_statistics(&store).await;
    backlog(&store, 200_000).await;
    assert_served_by_indexes(&store, "with statistics of empty tables").await;
    store.pool().execute("analyze").await.unwrap();
    assert_served_by_indexes(&store, "with true statistics").await;
}

async fn assert_served_by_indexes(store: &SqliteStore, stage: &str) {
    for (statement, indexes) in SERVED_BY {
        let plan = plan(store, statement).await;
        for index in indexes {
            let served = plan.iter().any(|step| step.detail.contains(index));
            assert!(served, "{statement}, {stage}: no {index} in\n{}", text(&plan));
        }
    }
    for (statement, _) in store.statements() {
        // An operator's list goes through the rows by sequence until it has enough, a trial through the fresh ones.
        if matches!(statement, "list" | "trial_rows") {
            continue;
        }
        let plan = plan(store, statement).await;
        let scan = plan.iter().find(|step| scans_a_table(&step.detail));
        assert!(scan.is_none(), "{statement}, {stage}: a scan in\n{}", text(&plan));
    }
    for statement in ["claim_any", "claim_per_key"] {
        let plan = plan(store, statement).await;
        for candidates in ["MATERIALIZE fresh", "MATERIALIZE due"] {
            let steps = inside(&plan, candidates);
            let sorts = steps.iter().any(|step| step.detail.contains("FOR ORDER BY"));
            assert!(
                !sorts,
                "{statement}, {stage}: the backlog is sorted in\n{}",
                text(&plan)
            );
        }
    }
}

fn scans_a_table(step: &str) -> bool {
    let Some(scanned) = step.strip_prefix("SCAN ") else {
        return false;
    };
    let name = scanned.split(' ').next().unwrap_or_default();
    // The statements call the tables by their names, or `o`, `d` and `e`; operators may mean all dead rows. There are a
    // handful of relays, and a leader for each namespace.
    !["posthaste_relays", "posthaste_leaders"].contains(&name)
        && (name.starts_with("posthaste_") || ["o", "d", "e"].contains(&name))
        && !scanned.ends_with("INDEX posthaste_outbox_dead")
}

fn request(ordering: KeyOrdering) -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit: 100,
        max_bytes: 1 << 20,
        scan_limit: None,
        lease: Duration::from_secs(30),
        max_attempts: 5,
        ordering,
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    }
}

/// The quickest of some claims of a hundred rows.
async fn quickest_claim(store: &SqliteStore, ordering: &KeyOrdering) -> Duration {
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        let claim = store.claim(&request(ordering.clone())).await.unwrap();
        quickest = quickest.min(start.elapsed());
        assert_eq!(claim.messages.len(), 100);
    }
    quickest
}

/// Proves pitfall 28.
#[tokio::test]
async fn a_claim_costs_the_same_at_any_backlog() {
    let per_key = KeyOrdering::PerKey {
        dead_head: DeadHead::Block,
        except: Vec::new(),
    };
    let (small, large) = (support::store(1).await, support::store(1).await);
    for (store, rows) in [(&small, 2_000), (&large, 200_000)] {
        misleading_statistics(store).await;
        backlog(store, rows).await;
    }
    for ordering in [per_key, KeyOrdering::None] {
        let at_2k = quickest_claim(&small, &ordering).await;
        let at_200k = quickest_claim(&large, &ordering).await;
        assert!(
            at_200k < at_2k * 10,
            "{ordering:?}: {at_2k:?} at 2,000 rows, {at_200k:?} at 200,000"
        );
    }
}

/// A plan shows no difference between a set that is looked up and one that is gone through.
#[tokio::test]
async fn a_claim_costs_the_same_whatever_is_in_flight() {
    let rows = "with recursive n (i) as (select 0 union all select i + 1 from n where i < 1999)
        insert into posthaste_outbox (topic, ordering_key, payload) select 'orders', i, x'7b7d' from n";
    let claim = "update posthaste_outbox set status = 'processing', lease_token = 'other', locked_by = 'other', locked_until = ?1
        where cast(ordering_key as integer) between ?2 and ?3";
    let later = 4_000_000_000_000_i64;
    let ordering = KeyOrdering::PerKey {
        dead_head: DeadHead::Block,
        except: Vec::new(),
    };
    // Fresh rows, and those that a worker left behind, each with and without a thousand others that are in flight.
    for left_behind in [false, true] {
        let mut costs = Vec::new();
        for in_flight in [false, true] {
            let store = support::store(1).await;
            store.pool().execute(rows).await.unwrap();
            if left_behind {
                let left = sqlx::query(claim).bind(1).bind(1_000).bind(1_999);
                left.execute(store.pool()).await.unwrap();
            }
            let others = if in_flight {
                sqlx::query(claim).bind(later).bind(0).bind(999)
            } else {
                sqlx::query("delete from posthaste_outbox where cast(ordering_key as integer) < 1000")
            };
            others.execute(store.pool()).await.unwrap();
            let work = support::Work::of(store.pool()).await;
            let claimed = store.claim(&request(ordering.clone())).await.unwrap();
            assert_eq!(claimed.reclaimed, left_behind);
            assert_eq!(claimed.messages.len(), 100);
            costs.push(work.done());
        }
        assert!(
            costs[1] < costs[0] * 2,
            "left behind: {left_behind}, with none in flight and with a thousand: {costs:?}"
        );
    }
}
