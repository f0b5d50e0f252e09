//! SQLite keeps whatever a driver binds, in a column of any type. A row that cannot be read is nobody else's trouble.

use std::time::Duration;

use posthaste_core::lifecycle::State;
use posthaste_core::store::{AdminStore, Filter, ProducerStore, Record, RelayStore, SchemaStore, Scope};
use posthaste_core::{Message, OutboxOptions};
use posthaste_relay::{Relay, RelayReport};
use posthaste_sql::TableMap;
use posthaste_sql::table::Kind;
use posthaste_sqlite::SqliteStore;
use posthaste_testkit::RecordingPublisher;
use sqlx::{AssertSqlSafe, Executor};
use tempfile::TempDir;

use crate::support;

/// What becomes of the odd row.
#[derive(Clone, Copy, Debug)]
enum End {
    /// There is a way to read it, and this is its payload.
    Delivered(&'static str),
    /// Its error names the column.
    Dead,
    /// Nothing can be written about it.
    Unclaimable,
}
use End::{Dead, Delivered, Unclaimable};

const CASES: [(&str, &str, End); 33] = [
    ("payload", "42", Delivered("42")),
    ("payload", "1.5", Delivered("1.5")),
    ("payload", "'text'", Delivered("text")),
    ("content_hash", "5", Dead),
    ("headers", "x'ff'", Dead),
    ("headers", "cast(x'ff' as text)", Dead),
    ("headers", "x'7b7d'", Delivered("{}")),
    ("headers", "7", Dead),
    ("topic", "x'ff'", Dead),
    ("topic", "cast(x'ff' as text)", Dead),
    ("topic", "x'6162'", Delivered("{}")),
    ("topic", "5", Delivered("{}")),
    ("ordering_key", "x'ff'", Dead),
    ("ordering_key", "cast(x'ff' as text)", Dead),
    ("ordering_key", "5", Delivered("{}")),
    ("tenant", "x'ff'", Dead),
    ("content_type", "x'ff'", Dead),
    ("event_type", "cast(x'ff' as text)", Dead),
    ("source", "cast(x'ff' as text)", Dead),
    ("aggregate_id", "x'ff'", Dead),
    ("created_at", "'2026-01-01'", Dead),
    ("created_at", "x'00'", Dead),
    ("created_at", "1e300", Dead),
    ("created_at", "9223372036854775807", Dead),
    ("created_at", "-9223372036854775808", Dead),
    ("created_at", "1763318000000.5", Delivered("{}")),
    ("attempts", "1.5", Delivered("{}")),
    ("updated_at", "'soon'", Delivered("{}")),
    ("locked_until", "'soon'", Delivered("{}")),
    ("last_error", "x'ff'", Delivered("{}")),
    ("id", "x'00ff'", Unclaimable),
    ("id", "cast(x'ff' as text)", Unclaimable),
    (
        "id",
        "cast('11111111-1111-4111-8111-111111111111' as blob)",
        Unclaimable,
    ),
];

/// Tables whose rows are claimed by their indexes, and such whose rows are claimed in order.
async fn stores() -> [(SqliteStore, TempDir); 2] {
    let (pool, directory) = support::pool(2).await;
    let split = (SqliteStore::new(pool), directory);
    let (pool, directory) = support::pool(2).await;
    let map = TableMap::with_prefix("posthaste_").unwrap();
    let map = map.with_times(Kind::EpochMs).without_split_index();
    let in_order = (SqliteStore::with_map(pool, map).unwrap(), directory);
    let stores = [split, in_order];
    for (store, _) in &stores {
        store.migrate().await.unwrap();
    }
    stores
}

/// An odd row before, and twenty rows after it that are as they should be.
async fn fill(store: &SqliteStore, column: &str, value: &str) {
    let mut row = vec![
        ("topic", "'odd'"),
        ("ordering_key", "'odd'"),
        ("payload", "'{}'"),
        ("next_attempt_at", "1763318000000"),
        ("created_at", "1763318000000"),
    ];
    row.retain(|(name, _)| *name != column);
    row.push((column, value));
    let (columns, values): (Vec<_>, Vec<_>) = row.into_iter().unzip();
    let (columns, values) = (columns.join(", "), values.join(", "));
    let insert = format!("insert into posthaste_outbox ({columns}) values ({values})");
    store.pool().execute(AssertSqlSafe(insert)).await.unwrap();
    let others = (0..20).map(|n| Message::new("t", "good").key(format!("k{n}")));
    let options = OutboxOptions::default();
    store.enqueue_and_commit(&options, others.collect()).await.unwrap();
}

async fn drain(store: &SqliteStore, broker: &RecordingPublisher) -> RelayReport {
    let relay = Relay::new(store.clone(), broker.clone());
    let drained = tokio::time::timeout(Duration::from_secs(30), relay.drain()).await;
    drained.expect("a drain ends").unwrap()
}

/// The odd row, which is the first.
async fn odd(store: &SqliteStore) -> Record {
    let mut records = store.list(&Filter::default(), None, 100).await.unwrap();
    assert_eq!(records.len(), 21);
    records.swap_remove(0)
}

async fn try_case(case: (&str, &str, End)) {
    let [(split, _first), (in_order, _second)] = stores().await;
    tokio::join!(try_on(&split, "by indexes", case), try_on(&in_order, "in order", case));
}

async fn try_on(store: &SqliteStore, way: &str, (column, value, end): (&str, &str, End)) {
    let case = format!("{column} = {value}, {way}");
    fill(store, column, value).await;
    assert_eq!(odd(store).await.state, State::Pending, "{case}");
    assert_eq!(store.stats("default").await.unwrap().pending, 21, "{case}");

    let broker = RecordingPublisher::new();
    let report = drain(store, &broker).await;
    let mut payloads: Vec<_> = broker.deliveries().into_iter().map(|one| one.message.payload).collect();
    payloads.retain(|payload| payload != "good");
    let record = odd(store).await;
    let stats = store.stats("default").await.unwrap();
    assert_eq!(report.delivered, 20 + payloads.len() as u64, "{case}");
    match end {
        Delivered(payload) => {
            assert_eq!(
                (payloads, record.state),
                (vec![payload.into()], State::Delivered),
                "{case}"
            );
        }
        Dead => {
            let error = record.last_error.unwrap_or_default();
            let name = if column == "content_hash" { "hash" } else { column };
            assert_eq!(
                (payloads.len(), record.state, stats.dead),
                (0, State::Dead, 1),
                "{case}"
            );
            assert!(error.contains(name), "{case}: {error}");
        }
        Unclaimable => {
            assert_eq!((payloads.len(), stats.processing), (0, 1), "{case}");
            assert!(!report.is_complete(), "{case}");
        }
    }
}

/// Proves pitfall 19.
#[tokio::test]
async fn a_row_that_cannot_be_read_stops_no_other() {
    futures::future::join_all(CASES.map(|case| Box::pin(try_case(case)))).await;
}

#[tokio::test]
async fn a_row_without_a_name_dies_when_its_attempts_are_used_up() {
    for (store, _directory) in stores().await {
        fill(&store, "id", "x'00ff'").await;
        let leave = "update posthaste_outbox set status = 'processing', attempts = 9.5, locked_until = 0 where seq = 1";
        store.pool().execute(leave).await.unwrap();
        assert_eq!(store.sweep(&Scope::default(), 9).await.unwrap().len(), 1);
        assert_eq!(odd(&store).await.state, State::Dead);
    }
}

#[tokio::test]
async fn attempts_that_are_no_number_are_used_up() {
    for (store, _directory) in stores().await {
        fill(&store, "attempts", "'many'").await;
        assert_eq!(store.sweep(&Scope::default(), 9).await.unwrap().len(), 1);
        let record = odd(&store).await;
        assert_eq!((record.state, record.attempts), (State::Dead, 0));
    }
}
