//! How often the reader looks at what waits beside the log, while a look takes long.

use std::time::{Duration, Instant};

use posthaste_core::lifecycle::Verdict;
use posthaste_core::store::SchemaStore;
use posthaste_sqlite::SqliteLogStore;

use crate::log::{claim, enqueue, keyed, request, settle};
use crate::support::{self, Work};

/// Ten thousand wait behind a hundred that are tried again tomorrow, and one that may go.
const WAITING: &str = "
    with recursive n (i) as (select 1 union all select i + 1 from n where i < 10000)
    insert into posthaste_log_failed (log_id, id, topic, ordering_key, content_type, payload, next_attempt_at, created_at)
    select 0, 'waits ' || i, 'orders', 'w' || (i % 100), 'text/plain', x'', iif(i <= 100, 9000000000000, 0), 0
    from n
    union all
    select 0, 'goes', 'orders', 'goes', 'text/plain', x'', 0, 0";

/// What waits behind a message that was delivered may go, and that is no reason either. Proves pitfall 18.
#[tokio::test]
async fn long_looks_at_what_waits_leave_most_of_the_time_to_fresh_messages() {
    let (pool, _directory) = support::pool(1).await;
    let store = SqliteLogStore::new(pool.clone()).retrying_every(Duration::from_millis(1));
    store.migrate().await.unwrap();
    sqlx::query(WAITING).execute(&pool).await.unwrap();
    let work = Work::of(&pool).await;
    let (retry, asked) = (request(10), Instant::now());
    let retried = claim(&store, &retry).await;
    let (took, look) = (asked.elapsed(), work.done());
    assert_eq!(retried.len(), 1);
    assert_eq!(settle(&store, &retry, &retried, &Verdict::Delivered).await, []);
    // It rests nine times as long.
    for _ in 0..3 {
        store.pass_time(took);
        let ids = enqueue(&store, [keyed("fresh")]).await;
        work.done();
        let fresh = request(10);
        assert_eq!(claim(&store, &fresh).await, ids);
        let cost = work.done();
        assert!(cost < look / 2, "{cost}, and a look {look}");
        assert_eq!(settle(&store, &fresh, &ids, &Verdict::Delivered).await, []);
    }
    store.pass_time(took * 9);
    assert_eq!(claim(&store, &request(10)).await, []);
    assert!(work.done() > look / 2, "then it looks again");
}

/// Proves pitfall 18.
#[tokio::test]
async fn retries_of_a_key_follow_each_other_as_soon_as_the_one_before_is_delivered() {
    let (pool, _directory) = support::pool(5).await;
    let interval = Duration::from_mins(10);
    let store = SqliteLogStore::new(pool).retrying_every(interval);
    store.migrate().await.unwrap();
    let of_key = enqueue(&store, (0..5).map(|_| keyed("k"))).await;
    let first = request(10);
    assert_eq!(claim(&store, &first).await, of_key);
    let (delay, error) = (Duration::ZERO, "no".to_owned());
    assert_eq!(
        settle(&store, &first, &of_key, &Verdict::Retry { delay, error }).await,
        []
    );
    store.pass_time(interval);
    for id in of_key {
        let retry = request(10);
        assert_eq!(claim(&store, &retry).await, [id]);
        assert_eq!(settle(&store, &retry, &[id], &Verdict::Delivered).await, []);
        // It rests from its last look.
        store.pass_time(Duration::from_secs(10));
    }
}
