//! Names and labels that look like SQL, or like the placeholders of our own statements.

use std::collections::HashSet;

use posthaste_core::lifecycle::{Settlement, State};
use posthaste_core::store::{AdminStore, ExtendRequest, Filter, ProducerStore, RelayStore, SchemaStore};
use posthaste_core::{Message, OutboxOptions};
use posthaste_sql::TableMap;
use posthaste_sqlite::SqliteStore;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{AssertSqlSafe, Executor, SqlitePool};

use super::tables::request;

/// What breaks out of quotes, ends statements, begins comments, or is a placeholder.
const PIECES: &[&str] = &[
    "\"",
    "'",
    "`",
    "[",
    "]",
    ";",
    "--",
    "/*",
    "*/",
    "\"@topic\"",
    "'@pending'",
    "'@open'",
    "/*if x*/",
    "/*else*/",
    "/*end*/",
    "/*as id*/",
    "\"@outbox+id\"",
    "\\",
    "?1",
    "$1",
    ":a",
    "); drop table canary; --",
    "ü",
    " ",
];

/// What no name may have.
const CONTROL: &[&str] = &["\n", "\r\n", "\0", "\u{1}"];

/// The roles whose columns get such names, in the order of the table's columns.
const ROLES: [(&str, &str, &str); 14] = [
    ("id", "integer", "integer primary key"),
    ("payload", "text", "text"),
    ("status", "text", "text"),
    ("attempts", "integer", "integer"),
    ("lease_token", "text", "text"),
    ("locked_until", "epoch_ms", "integer"),
    ("created_at", "timestamp", "text"),
    ("updated_at", "epoch_us", "integer"),
    ("next_attempt_at", "epoch_s", "integer"),
    ("topic", "text", "text"),
    ("ordering_key", "text", "text"),
    ("tenant", "text", "text"),
    ("last_error", "text", "text"),
    ("version", "integer", "integer"),
];

const STATES: [&str; 5] = ["pending", "waiting", "processing", "delivered", "dead"];

fn name() -> impl Strategy<Value = String> {
    vec(prop_oneof![select(PIECES).prop_map(str::to_owned), "[a-z]{1,3}"], 1..5).prop_map(|pieces| pieces.concat())
}

#[derive(Clone, Debug)]
struct Names {
    table: String,
    letters: String,
    columns: Vec<String>,
    labels: Vec<String>,
}

fn names() -> impl Strategy<Value = Names> {
    let columns = vec(name(), ROLES.len());
    let control = proptest::option::weighted(0.1, select(CONTROL));
    (name(), name(), columns, vec(name(), STATES.len()), control)
        .prop_map(|(table, letters, mut columns, labels, control)| {
            columns[3] += control.unwrap_or_default();
            Names {
                table,
                letters,
                columns,
                labels,
            }
        })
        .prop_filter("names must differ", |names| {
            let differ = |names: &[&String]| {
                let lower: HashSet<_> = names.iter().map(|name| name.to_lowercase()).collect();
                lower.len() == names.len() && names.iter().all(|name| !name.trim().is_empty())
            };
            differ(&names.columns.iter().collect::<Vec<_>>())
                && differ(&names.labels.iter().collect::<Vec<_>>())
                && differ(&[&names.table, &names.letters, &"canary".to_owned()])
                && !names.table.to_lowercase().starts_with("sqlite_")
        })
}

impl Names {
    fn toml(&self) -> String {
        let text = |text: &str| serde_json::to_string(text).unwrap();
        let columns = ROLES.iter().zip(&self.columns).map(|((role, kind, _), column)| {
            let generated = *role == "id";
            format!(
                "{role} = {{ column = {}, kind = \"{kind}\", generated = {generated} }}",
                text(column)
            )
        });
        let states = (STATES.iter().zip(&self.labels)).map(|(state, label)| format!("{state} = {}", text(label)));
        let lines = [
            "name = \"n\"\norder = [\"created_at\", \"id\"]\ntopic = \"column\"\n[tables]".to_owned(),
            format!("outbox = {}\ndead_letter = {}", text(&self.table), text(&self.letters)),
            "[dead_letter.columns]".to_owned(),
            format!(
                "id = {}\nlast_error = {}",
                text(&self.columns[0]),
                text(&self.columns[12])
            ),
            "[columns]".to_owned(),
        ];
        let lines = lines
            .into_iter()
            .chain(columns)
            .chain(["[states]".to_owned()])
            .chain(states);
        lines.collect::<Vec<_>>().join("\n")
    }

    fn has_control_characters(&self) -> bool {
        let all = [&self.table, &self.letters]
            .into_iter()
            .chain(&self.columns)
            .chain(&self.labels);
        all.flat_map(|name| name.chars()).any(char::is_control)
    }

    fn ddl(&self) -> String {
        let columns: Vec<_> = (ROLES.iter().zip(&self.columns))
            .map(|((_, _, declared), column)| format!("{} {declared}", quoted(column)))
            .collect();
        format!(
            "create table {} ({}); create table {} ({}, {}); create table canary (sings text); insert into canary values ('yes')",
            quoted(&self.table),
            columns.join(", "),
            quoted(&self.letters),
            quoted(&self.columns[0]),
            quoted(&self.columns[12])
        )
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

async fn statuses(pool: &SqlitePool, names: &Names) -> Vec<String> {
    let sql = format!(
        "select {} from {} order by 1",
        quoted(&names.columns[2]),
        quoted(&names.table)
    );
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(pool).await.unwrap()
}

/// A whole life under these names.
async fn live(names: &Names, map: TableMap) {
    let pool = SqlitePoolOptions::new().max_connections(1).idle_timeout(None);
    let pool = pool.connect("sqlite::memory:").await.unwrap();
    pool.execute(sqlx::raw_sql(AssertSqlSafe(names.ddl()))).await.unwrap();
    let store = SqliteStore::with_map(pool.clone(), map).unwrap();
    store.check().await.unwrap();
    for (name, sql) in store.statements() {
        let prepared = sqlx::query(AssertSqlSafe(format!("explain {sql}")))
            .fetch_all(&pool)
            .await;
        prepared.unwrap_or_else(|error| panic!("{name}: {error}\n{sql}"));
    }
    // What is enqueued may say anything too; it is never part of a statement.
    let nasty = &names.labels[0];
    let message = |body: &str| {
        Message::new(nasty.clone(), body.to_owned())
            .key(nasty.clone())
            .tenant(nasty.clone())
    };
    let messages = vec![message("a"), message("b"), message("c")];
    store
        .enqueue_and_commit(&OutboxOptions::default(), messages)
        .await
        .unwrap();
    assert_eq!(statuses(&pool, names).await, [&names.labels[0]; 3].map(Clone::clone));

    let request = request();
    let claim = store.claim(&request).await.unwrap();
    assert_eq!(claim.messages.len(), 3);
    assert!(claim.messages.iter().all(|claimed| claimed.message.topic == *nasty));
    assert_eq!(statuses(&pool, names).await, [&names.labels[2]; 3].map(Clone::clone));
    assert_eq!(
        store
            .extend(ExtendRequest::new(request.token, &[1.into()], request.lease))
            .await
            .unwrap()
            .held,
        [1.into()]
    );
    let settlements = [
        Settlement::delivered(1.into(), request.token),
        Settlement::retry(2.into(), request.token, request.lease, nasty.clone()),
        Settlement::dead(3.into(), request.token, nasty.clone()),
    ];
    assert!(store.settle(&settlements).await.unwrap().lost.is_empty());
    let mut expected = vec![
        names.labels[3].clone(),
        names.labels[1].clone(),
        names.labels[4].clone(),
    ];
    expected.sort();
    assert_eq!(statuses(&pool, names).await, expected);
    let stats = store.stats("default").await.unwrap();
    assert_eq!((stats.pending, stats.waiting, stats.dead), (1, 1, 1));
    let dead = Filter {
        state: Some(State::Dead),
        topic: Some(nasty.clone()),
        ordering_key: Some(nasty.clone()),
        tenant: Some(nasty.clone()),
        ..Filter::default()
    };
    let listed = store.list(&dead, None, 10).await.unwrap();
    assert_eq!(listed[0].last_error.as_ref(), Some(nasty));
    assert_eq!(store.replay(&dead, 10).await.unwrap(), [3.into()]);
    assert_eq!(
        store.sweep(&posthaste_core::store::Scope::default(), 1).await.unwrap(),
        [2.into()]
    );
    assert_eq!(store.discard(&dead, 10).await.unwrap(), [2.into()]);
    assert_eq!(store.list(&Filter::default(), None, 10).await.unwrap().len(), 2);
    let canary: String = sqlx::query_scalar("select sings from canary")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(canary, "yes");
    let tables: i64 = sqlx::query_scalar("select count(*) from sqlite_schema")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(tables, 3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every name is refused, or quoted so that it is a name and nothing else.
    #[test]
    fn no_name_or_label_is_ever_more_than_that(names in names()) {
        match TableMap::from_toml(&names.toml()) {
            Err(error) => prop_assert!(names.has_control_characters() || error.problem.contains("63 bytes"), "{}", error),
            Ok(map) => {
                prop_assert!(!names.has_control_characters());
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(live(&names, map));
            }
        }
    }
}
