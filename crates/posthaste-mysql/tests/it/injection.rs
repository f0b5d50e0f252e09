//! No name and no label of a map is ever read as SQL.

use posthaste_core::{Message, OutboxOptions, RelayStore};
use posthaste_mysql::MySqlStore;
use posthaste_relay::Relay;
use posthaste_sql::TableMap;
use posthaste_testkit::RecordingPublisher;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sqlx::AssertSqlSafe;

use crate::support;

/// What has a meaning to SQL, to the templates, or to whoever splices strings.
const PIECES: [&str; 22] = [
    "`",
    "\"",
    "'",
    ";",
    "-- ",
    "#",
    "/*",
    "*/",
    "/*!50000 ",
    "\\",
    "\\'",
    "?",
    "\"@id\"",
    "'@open'",
    "/*if topic*/",
    "{}",
    "é",
    "\n",
    "x",
    ".",
    "); drop table o; -- ",
    "``",
];

fn nasty() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(PIECES.to_vec());
    // MySQL has no names that end in a space.
    prop::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat() + "z")
}

#[derive(Clone, Debug)]
struct Names {
    table: String,
    columns: Vec<String>,
    labels: Vec<String>,
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// TOML reads what JSON writes.
fn toml(text: &str) -> String {
    serde_json::json!(text).to_string()
}

impl Names {
    fn map(&self) -> Result<TableMap, posthaste_sql::table::MapError> {
        let column = |place: usize| toml(&self.columns[place]);
        let label = |place: usize| toml(&self.labels[place]);
        TableMap::from_toml(&format!(
            "name = \"n\"\norder = [\"created_at\", \"id\"]\ntopic = {{ fixed = \"t\" }}\n[tables]\noutbox = {}\n[columns]\n\
             id = {}\npayload = {{ column = {}, kind = \"text\" }}\nstatus = {}\nattempts = {}\n\
             locked_by = {{ column = {}, kind = \"text\" }}\nlocked_until = {}\nordering_key = {}\ncreated_at = {}\n\
             last_error = {}\n[states]\npending = {}\nprocessing = {}\ndelivered = {}\ndead = {}\n",
            toml(&self.table),
            column(0),
            column(1),
            column(2),
            column(3),
            column(4),
            column(5),
            column(6),
            column(7),
            column(8),
            label(0),
            label(1),
            label(2),
            label(3),
        ))
    }

    fn ddl(&self) -> String {
        let types = [
            "char(36) primary key",
            "text",
            "varchar(100)",
            "int",
            "varchar(100)",
            "datetime(6)",
            "varchar(100)",
            "datetime(6)",
            "text",
        ];
        let column = |(name, kind): (&String, &str)| format!("{} {kind}", quoted(name));
        let columns: Vec<_> = self.columns.iter().zip(types).map(column).collect();
        format!("create table {} ({})", quoted(&self.table), columns.join(", "))
    }

    /// Whether a map may refuse it: control characters, and names that are too long.
    fn refusable(&self) -> bool {
        let control = |text: &String| text.chars().any(char::is_control);
        let mut names = self.columns.iter().chain([&self.table]);
        names.any(|name| control(name) || name.len() > 63) || self.labels.iter().any(control)
    }
}

async fn deliver(names: &Names) {
    let Ok(map) = names.map() else {
        assert!(names.refusable(), "refused for no reason: {:?}", names.map());
        return;
    };
    let database = support::fresh_database().await;
    let pool = support::pool_on(&database, 2).await;
    support::run(&pool, names.ddl()).await;
    let store = MySqlStore::with_map(pool.clone(), map).unwrap();
    store.check().await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    let message = Message::new("t", "it's").key("k");
    store
        .outbox(OutboxOptions::default())
        .enqueue(&mut tx, message)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let broker = RecordingPublisher::new();
    let report = Relay::new(store, broker.clone()).drain().await.unwrap();
    assert_eq!(report.delivered, 1);
    assert_eq!(broker.deliveries()[0].message.payload, "it's");
    let status = format!("select {} from {}", quoted(&names.columns[2]), quoted(&names.table));
    let status: String = sqlx::query_scalar(AssertSqlSafe(status))
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(status, names.labels[2], "the label stands in the table as it is");
    support::run(&pool, format!("drop database {database}")).await;
    pool.close().await;
}

#[test]
fn names_and_labels_are_quoted_or_refused() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let numbered = |many| {
        let numbered = |texts: Vec<String>| {
            let number = |(place, text): (usize, String)| format!("{text}{place}");
            texts.into_iter().enumerate().map(number).collect::<Vec<_>>()
        };
        prop::collection::vec(nasty(), many).prop_map(numbered)
    };
    let names =
        (nasty(), numbered(9), numbered(4)).prop_map(|(table, columns, labels)| Names { table, columns, labels });
    let mut runner = TestRunner::new(Config {
        cases: 200,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&names, |names| {
        runtime.block_on(deliver(&names));
        Ok(())
    });
    outcome.unwrap();
}
