//! What looks at a log cost the server.

use std::time::{Duration, Instant};

use posthaste_core::lifecycle::{LeaseToken, State, Verdict};
use posthaste_core::store::Filter;
use posthaste_core::{AdminStore, RelayStore};
use posthaste_postgres::{LogLayoutOptions, PostgresLogStore};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::fixture::{Log, numbered};
use crate::support;

/// What a process of the server loads when it compiles its first statement, and not before.
const COMPILER: &str = "llvmjit.so";

/// Somebody else who uses a log.
struct Other {
    log: Log,
    name: String,
}

impl Other {
    /// For whom the server compiles what it expects to cost more than this.
    async fn of(log: &Log, jit_above_cost: &str) -> Self {
        let name = support::fresh_schema();
        let address: PgConnectOptions = support::server_url().parse().unwrap();
        let address = address
            .application_name(&name)
            .options([("jit_above_cost", jit_above_cost)]);
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .connect_with(address)
            .await
            .unwrap();
        let log = Log::over(pool, log.store.map().clone());
        Self { log, name }
    }

    /// Whether the server has compiled a statement of any of its connections.
    async fn was_compiled(&self) -> bool {
        let pids: Vec<i32> = sqlx::query_scalar("select pid from pg_stat_activity where application_name = $1")
            .bind(&self.name)
            .fetch_all(&self.log.pool)
            .await
            .unwrap();
        assert!(!pids.is_empty());
        // One that has just ended compiled nothing that anybody waited for.
        let maps = pids
            .iter()
            .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/maps")).ok());
        maps.into_iter().any(|maps| maps.contains(COMPILER))
    }
}

/// The plan that the server is talked into has costs that are made up, so high that it would compile the statement for half a second
/// before it runs for a millisecond.
#[tokio::test]
async fn no_page_of_a_log_is_compiled() {
    let log = Log::fresh().await;
    let enqueued = log.enqueue(numbered(0..50)).await;
    let token = LeaseToken::new();
    let claimed = log.claim_as(token, 10).await;
    let error = "refused".to_owned();
    log.settle(token, claimed[0].message.id, Verdict::Dead { error }).await;
    log.store.close().await.unwrap();
    let as_by_default = Other::of(&log, "100000").await;
    let operator = &as_by_default.log.store;
    for state in [None, Some(State::Pending), Some(State::Dead)] {
        let filter = Filter {
            state,
            ..Filter::default()
        };
        assert!(!operator.list(&filter, None, 20).await.unwrap().is_empty());
    }
    assert!(operator.show(enqueued[20].id()).await.unwrap().is_some());
    operator.table_gauges("default").await.unwrap();
    assert!(!as_by_default.was_compiled().await);

    // This would be seen.
    let eager = Other::of(&log, "0").await;
    if sqlx::query_scalar("select pg_jit_available()")
        .fetch_one(&log.pool)
        .await
        .unwrap()
    {
        eager.log.run("select count(*) from pg_class where relpages > 0").await;
        assert!(eager.was_compiled().await);
    }
}

/// Of shards and segments the server expects many more than there are, the more so without statistics.
#[tokio::test]
async fn no_look_at_shards_and_no_reading_is_compiled() {
    let log = Log::fresh().await;
    log.enqueue(numbered(0..50)).await;
    let operator = Other::of(&log, "100").await;
    assert!(!operator.log.store.shards().await.unwrap().is_empty());
    operator.log.store.hold_ups().await.unwrap();
    assert!(!operator.was_compiled().await, "status");
    let reader = Other::of(&log, "100").await;
    assert_eq!(reader.log.claim(20).await.len(), 20);
    assert!(!reader.was_compiled().await, "reading");
}

impl Log {
    /// Reads for a while, as a relay does beside fresh messages, and if that is asked for beside others whose time comes. How much of
    /// that time passed in calls as long as a look.
    async fn share_of_looks(&self, look: Duration, some_come_due: bool) -> f64 {
        let (begun, mut in_looks, mut fresh) = (Instant::now(), Duration::ZERO, 0);
        let mut came_due = begun;
        while begun.elapsed() < look * 40 {
            self.enqueue(numbered(0..1)).await;
            if some_come_due && came_due.elapsed() > look / 2 {
                came_due = Instant::now();
                self.run(
                    "insert into log_failed (shard, log_id, event_id, topic, ordering_key, payload)
                     values (0, 0, gen_random_uuid(), 'orders', gen_random_uuid()::text, 'x')
                     on conflict (shard, log_id) do nothing",
                )
                .await;
            }
            let (token, asked) = (LeaseToken::new(), Instant::now());
            let claimed = self.claim_as(token, 20).await;
            if asked.elapsed() > look / 2 {
                in_looks += asked.elapsed();
            }
            fresh += claimed.len();
            self.settle_all(token, &claimed).await;
        }
        assert!(fresh > 0);
        in_looks.as_secs_f64() / begun.elapsed().as_secs_f64()
    }
}

/// Thirty thousand wait behind one that is tried again tomorrow: a look at them finds nothing, and is long. Proves pitfall 18.
#[tokio::test]
async fn long_looks_at_what_waits_leave_most_of_the_time_to_fresh_messages() {
    let log = Log::fresh().await;
    log.run(
        "insert into log_failed (shard, log_id, event_id, topic, ordering_key, payload, next_attempt_at)
         select 0, -n, gen_random_uuid(), 'orders', 'w' || n % 100, 'x', now() + case when n > 29900 then interval '1 day' else '0' end
         from generate_series(1, 30000) n",
    )
    .await;
    // Each claim looks, and the shortest of them took what a look takes.
    let mut look = Duration::MAX;
    for _ in 0..3 {
        let asked = Instant::now();
        assert!(log.claim(20).await.is_empty());
        look = look.min(asked.elapsed());
    }
    let map = log.store.map().clone();
    log.store.close().await.unwrap();
    let options = LogLayoutOptions::of(&map).retry_interval(Duration::from_millis(1));
    let store = PostgresLogStore::with_options(log.pool.clone(), map, options).unwrap();
    let log = Log { store, pool: log.pool };
    for some_come_due in [false, true] {
        let share = log.share_of_looks(look, some_come_due).await;
        assert!(
            share < 0.4,
            "{share} of the time was spent looking, {look:?} at a time; some come due: {some_come_due}"
        );
    }
}
