//! A server may be told to keep what is no date. A row that cannot be read is nobody else's trouble.

use std::time::Duration;

use posthaste_core::integrity::ContentHash;
use posthaste_core::lifecycle::State;
use posthaste_core::store::{AdminStore, Filter, ProducerStore, Record, RelayStore};
use posthaste_core::{Message, OutboxOptions};
use posthaste_mysql::MySqlStore;
use posthaste_relay::{Relay, RelayReport};
use posthaste_sql::table::BuiltinMap;
use posthaste_testkit::RecordingPublisher;

use crate::support;

/// What becomes of the odd row.
#[derive(Clone, Copy, Debug)]
enum End {
    Delivered,
    /// Its error names the column.
    Dead,
}
use End::{Dead, Delivered};

const CASES: [(&str, &str, End); 8] = [
    ("created_at", "'2026-00-10'", Dead),
    ("created_at", "'2026-02-00'", Dead),
    ("created_at", "'0000-00-00'", Delivered),
    ("next_attempt_at", "'2026-00-10'", Delivered),
    ("updated_at", "'2026-00-10'", Delivered),
    ("delivered_at", "'2026-00-10'", Delivered),
    ("locked_until", "'2026-00-10'", Delivered),
    ("payload", "null", Delivered),
];

/// Lets a statement of the same connection write what is no date.
const ANY_DATE: &str = "set session sql_mode = 'ALLOW_INVALID_DATES';";

/// An odd row before, and twenty rows after it that are as they should be.
async fn fill(store: &MySqlStore, column: &str, value: &str) {
    let mut row = vec![
        ("id", "uuid()"),
        ("namespace", "'default'"),
        ("topic", "'odd'"),
        ("ordering_key", "'odd'"),
        ("content_type", "'application/json'"),
        ("payload", "'{}'"),
        ("headers", "'{}'"),
        ("status", "'pending'"),
        ("attempts", "0"),
        ("next_attempt_at", "utc_timestamp(6)"),
        ("created_at", "utc_timestamp(6)"),
        ("updated_at", "utc_timestamp(6)"),
    ];
    row.retain(|(name, _)| *name != column);
    row.push((column, value));
    let (columns, values): (Vec<_>, Vec<_>) = row.into_iter().unzip();
    let (columns, values) = (columns.join(", "), values.join(", "));
    let nullable = "alter table posthaste_outbox modify payload longblob";
    support::run(store.pool(), nullable).await;
    let insert = format!("{ANY_DATE} insert into posthaste_outbox ({columns}) values ({values})");
    support::run(store.pool(), insert).await;
    let others = (0..20).map(|n| Message::new("t", "good").key(format!("k{n}")));
    let options = OutboxOptions::default();
    store.enqueue_and_commit(&options, others.collect()).await.unwrap();
}

async fn drain(store: &MySqlStore) -> RelayReport {
    let relay = Relay::new(store.clone(), RecordingPublisher::new());
    let drained = tokio::time::timeout(Duration::from_mins(1), relay.drain()).await;
    drained.expect("a drain ends").unwrap()
}

/// The odd row, which is the first.
async fn odd(store: &MySqlStore) -> Record {
    let mut records = store.list(&Filter::default(), None, 100).await.unwrap();
    assert_eq!(records.len(), 21);
    records.swap_remove(0)
}

/// Proves pitfall 19.
#[tokio::test]
async fn a_row_that_cannot_be_read_stops_no_other() {
    for (column, value, end) in CASES {
        let case = format!("{column} = {value}");
        let store = support::store(2).await;
        fill(&store, column, value).await;
        assert_eq!(odd(&store).await.state, State::Pending, "{case}");
        assert_eq!(store.stats("default").await.unwrap().pending, 21, "{case}");
        let report = drain(&store).await;
        let record = odd(&store).await;
        let stats = store.stats("default").await.unwrap();
        match end {
            Delivered => assert_eq!((report.delivered, record.state), (21, State::Delivered), "{case}"),
            Dead => {
                let error = record.last_error.unwrap_or_default();
                let found = (report.delivered, record.state, stats.dead);
                assert_eq!(found, (20, State::Dead, 1), "{case}");
                assert!(error.starts_with(column), "{case}: {error}");
                let dead = Filter {
                    state: Some(State::Dead),
                    ..Filter::default()
                };
                assert_eq!(store.replay(&dead, 10).await.unwrap().len(), 1, "{case}");
            }
        }
        support::drop_database(store.pool()).await;
    }
}

/// Proves pitfall 19.
#[tokio::test]
async fn such_a_row_of_an_existing_table_goes_to_its_dead_letters() {
    let pool = support::pool(2).await;
    let builtin = BuiltinMap::find("donation").unwrap();
    support::run(&pool, builtin.ddl).await;
    let store = MySqlStore::with_map(pool, builtin.map().unwrap()).unwrap();
    for (request, created_at) in [("r0", "'2026-02-00'"), ("r1", "now()"), ("r2", "now()")] {
        let hash = ContentHash::of(&[request.as_bytes(), b"DONATION_COMPLETED", b"{}"]);
        let insert = format!(
            "{ANY_DATE} insert into donation_outbox (request_id, event_type, payload, content_hash, created_at, updated_at)
             values ('{request}', 'DONATION_COMPLETED', '{{}}', '{hash}', {created_at}, now())"
        );
        support::run(store.pool(), insert).await;
    }
    let report = drain(&store).await;
    assert_eq!((report.delivered, report.died), (2, 1));
    let reason: String = sqlx::query_scalar("select reason from donation_dlq")
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert!(reason.contains("created_at"), "{reason}");
    support::drop_database(store.pool()).await;
}
