//! No name and no label of a map is ever read as SQL.

use posthaste_core::{Message, RelayStore};
use posthaste_relay::Relay;
use posthaste_sql::TableMap;
use posthaste_testkit::RecordingPublisher;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::place::Place;

/// What has a meaning to SQL, to the templates, or to whoever splices strings.
fn nasty() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "\"",
        "'",
        ";",
        "--",
        "/*",
        "*/",
        "\\",
        "$1",
        "\"@id\"",
        "'@open'",
        "/*if topic*/",
        "/*end*/",
        "{}",
        "%s",
        "é",
        "\n",
        "\0",
        "x",
        " ",
        "); drop table o; --",
        "''",
        "\"\"",
        "E'",
        "::",
        "?",
    ]);
    prop::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat())
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// TOML reads what JSON writes.
fn toml(text: &str) -> String {
    serde_json::json!(text).to_string()
}

#[derive(Clone, Debug)]
struct Names {
    table: String,
    columns: Vec<String>,
    labels: Vec<String>,
    leased: bool,
}

impl Names {
    fn map(&self) -> Result<TableMap, posthaste_sql::table::MapError> {
        let column = |place: usize| toml(&self.columns[place]);
        let label = |place: usize| toml(&self.labels[place]);
        let (mut lease, mut processing) = (String::new(), String::new());
        if self.leased {
            lease = format!(
                "locked_by = {{ column = {}, kind = \"text\" }}\nlocked_until = {}",
                column(4),
                column(5)
            );
            processing = format!("processing = {}", label(3));
        }
        TableMap::from_toml(&format!(
            "name = \"n\"\norder = [\"created_at\", \"id\"]\ntopic = {{ fixed = \"t\" }}\n[tables]\noutbox = {}\n[columns]\n\
             id = {}\npayload = {{ column = {}, kind = \"text\" }}\nstatus = {}\nattempts = {}\n{lease}\n\
             ordering_key = {}\ncreated_at = {}\nlast_error = {}\n[states]\npending = {}\ndelivered = {}\ndead = {}\n\
             {processing}\n",
            toml(&self.table),
            column(0),
            column(1),
            column(2),
            column(3),
            column(6),
            column(7),
            column(8),
            label(0),
            label(1),
            label(2),
        ))
    }

    fn ddl(&self) -> String {
        let types = [
            "uuid primary key",
            "text",
            "text",
            "int",
            "text",
            "timestamptz",
            "text",
            "timestamptz",
            "text",
        ];
        let column = |place: usize| format!("{} {}", quoted(&self.columns[place]), types[place]);
        let columns = self.used().map(column);
        format!(
            "create table {} ({})",
            quoted(&self.table),
            columns.collect::<Vec<_>>().join(", ")
        )
    }

    /// The places of the columns that the map names.
    fn used(&self) -> impl Iterator<Item = usize> {
        let leased = self.leased;
        (0..self.columns.len()).filter(move |place| leased || !(4..=5).contains(place))
    }

    /// Whether a map may refuse it: control characters, and names that PostgreSQL would cut off.
    fn refusable(&self) -> bool {
        let control = |text: &String| text.chars().any(char::is_control);
        let mut names = self.used().map(|place| &self.columns[place]).chain([&self.table]);
        let labels = if self.leased { 4 } else { 3 };
        names.any(|name| control(name) || name.len() > 63) || self.labels[..labels].iter().any(control)
    }
}

async fn deliver(names: &Names) {
    let Ok(map) = names.map() else {
        assert!(names.refusable(), "refused for no reason: {:?}", names.map());
        return;
    };
    let place = Place::new(map, &names.ddl(), 2).await;
    place.store.check().await.unwrap();
    place.enqueue(vec![Message::new("t", "it's").key("k")]).await.unwrap();
    let broker = RecordingPublisher::new();
    assert_eq!(
        Relay::new(place.store.clone(), broker.clone())
            .drain()
            .await
            .unwrap()
            .delivered,
        1
    );
    assert_eq!(broker.deliveries()[0].message.payload, "it's");
    let status = format!("select {} from {}", quoted(&names.columns[2]), quoted(&names.table));
    assert_eq!(
        place.text(&status).await,
        names.labels[1],
        "the label stands in the table as it is"
    );
    place.dispose().await;
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
    let names = (nasty(), numbered(9), numbered(4), any::<bool>()).prop_map(|(table, columns, labels, leased)| Names {
        table,
        columns,
        labels,
        leased,
    });
    let mut runner = TestRunner::new(Config {
        cases: 100,
        failure_persistence: None,
        ..Config::default()
    });
    let outcome = runner.run(&names, |names| {
        runtime.block_on(deliver(&names));
        Ok(())
    });
    outcome.unwrap();
}
