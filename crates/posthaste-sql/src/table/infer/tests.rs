use super::*;
use crate::table::{Identifier, LiveIndex, Shape, Strategy, TableMap};

fn table(columns: &[(&str, &str)]) -> LiveTable {
    let column = |(name, kind): &(&str, &str)| LiveColumn {
        name: (*name).to_owned(),
        type_name: (*kind).to_owned(),
        nullable: true,
        ..LiveColumn::default()
    };
    LiveTable {
        name: TableName {
            schema: None,
            name: Identifier::new("My \"Events\"").expect("a good name"),
        },
        columns: columns.iter().map(column).collect(),
        indexes: vec![LiveIndex {
            columns: vec![columns[0].0.to_owned()],
            unique: true,
            primary: true,
            ..LiveIndex::default()
        }],
        shape: Shape::Table,
    }
}

fn with_labels(mut table: LiveTable, labels: &[&str]) -> LiveTable {
    let status = table.columns.iter_mut().find(|column| plain(&column.name) == "status");
    status.expect("it has a status").values = labels.iter().map(ToString::to_string).collect();
    table
}

fn propose(table: &LiveTable) -> (Proposal, TableMap) {
    let proposal = infer(table, &[], Database::Postgres);
    let map = TableMap::from_toml(&proposal.toml).unwrap_or_else(|error| panic!("{error}\n{}", proposal.toml));
    (proposal, map)
}

const QUEUE: [(&str, &str); 5] = [
    ("ID", "uuid"),
    ("Status", "text"),
    ("messageBody", "text"),
    ("data", "jsonb"),
    ("createdAt", "timestamp without time zone"),
];

/// `FAILED` is the end where nothing else is, and a wait where something is.
#[test]
fn words_find_their_states() {
    let (proposal, map) = propose(&with_labels(table(&QUEUE), &["NEW", "SENT", "FAILED"]));
    let labels = |map: &TableMap| {
        let label = |state| map.label(state).map(ToString::to_string).unwrap_or_default();
        ["pending", "waiting", "delivered", "dead"].map(label)
    };
    assert_eq!(labels(&map), ["NEW", "NEW", "SENT", "FAILED"]);
    assert!(!proposal.toml.contains("# a guess"), "{}", proposal.toml);
    let (proposal, map) = propose(&with_labels(
        table(&QUEUE),
        &["PENDING", "FAILED", "COMPLETED", "DEAD_LETTER"],
    ));
    assert_eq!(labels(&map), ["PENDING", "FAILED", "COMPLETED", "DEAD_LETTER"]);
    assert!(
        proposal.toml.contains("waiting = \"FAILED\" # a guess"),
        "{}",
        proposal.toml
    );
    let said = proposal
        .notes
        .iter()
        .any(|note| note.contains("\"FAILED\" in Status to be tried again?"));
    assert!(said, "{:?}", proposal.notes);
}

/// What the relay would change, or would order or send by mistake, is named and not mapped.
#[test]
fn columns_that_only_look_like_a_role_are_left_out_and_said() {
    let mut columns = QUEUE.to_vec();
    columns.extend([
        ("version", "integer"),
        ("sequence_number", "bigint"),
        ("metadata", "jsonb"),
    ]);
    let plain = with_labels(table(&columns), &["NEW", "SENT", "FAILED"]);
    let with_metadata = |values: &[&str]| {
        let mut table = plain.clone();
        let metadata = table.columns.iter_mut().find(|column| column.name == "metadata");
        metadata.expect("it has one").values = values.iter().map(ToString::to_string).collect();
        propose(&table)
    };
    for values in [
        &[][..],
        &[r#"{"user": {"id": 7}}"#],
        &[r#"{"a": "b"}"#, r#"{"retries": 3}"#],
        &[r#"{"Type": "t"}"#],
        &["[1]"],
    ] {
        let (proposal, map) = with_metadata(values);
        for role in [Role::Version, Role::Seq, Role::Headers] {
            assert!(!map.has(role), "{role}: {}", proposal.toml);
        }
        for remark in [
            "# in no role: version (integer); ",
            "sequence_number (bigint); ",
            "metadata (jsonb); ",
        ] {
            assert!(proposal.toml.contains(remark), "{remark}: {}", proposal.toml);
        }
        assert_eq!(map.order(), [Role::CreatedAt, Role::Id]);
    }
    let (_, map) = with_metadata(&[r#"{"traceparent": "00-1"}"#, "{}"]);
    assert!(map.has(Role::Headers));
    let mut generated = plain.clone();
    for column in &mut generated.columns {
        column.generated = column.name == "sequence_number";
    }
    assert_eq!(propose(&generated).1.order(), [Role::Seq]);
}

#[test]
fn what_cannot_be_known_is_marked_and_listed() {
    let (proposal, map) = propose(&with_labels(table(&QUEUE), &["new", "zzz"]));
    assert_eq!(map.label("delivered").expect("a guess").to_string(), "delivered");
    for part in [
        "for delivered?",
        "\"zzz\" mean",
        "In which zone",
        "in which zone",
        "ordering_key",
        "topic",
    ] {
        let said = proposal
            .notes
            .iter()
            .any(|note| note.to_lowercase().contains(&part.to_lowercase()));
        assert!(said, "{part}: {:?}", proposal.notes);
    }
    assert!(
        proposal.toml.contains("# in no role: messageBody (text)"),
        "{}",
        proposal.toml
    );
}

#[test]
fn half_a_lease_is_none() {
    let mut columns = QUEUE.to_vec();
    columns.push(("locked_until", "timestamp with time zone"));
    let (proposal, map) = propose(&with_labels(table(&columns), &["NEW", "SENT", "FAILED"]));
    assert_eq!(map.strategy(), Strategy::RowLocks);
    assert!(
        proposal.notes.iter().any(|note| note.contains("locked_by")),
        "{:?}",
        proposal.notes
    );
    columns.extend([("locked_by", "uuid"), ("attempts", "integer")]);
    let (_, map) = propose(&with_labels(table(&columns), &["NEW", "SENT", "FAILED"]));
    assert_eq!(map.strategy(), Strategy::Leased);
}

#[test]
fn numbers_are_guessed_in_the_order_of_a_life() {
    let mut columns = QUEUE.to_vec();
    columns[1] = ("status", "smallint");
    let mut table = with_labels(table(&columns), &["10", "20"]);
    table.columns[1].default = Some("20".to_owned());
    let (proposal, map) = propose(&table);
    let label = |state| map.label(state).expect("a guess").to_string();
    assert_eq!(
        [label("pending"), label("delivered"), label("dead")],
        ["20", "10", "21"]
    );
    assert!(proposal.toml.contains("# a guess"), "{}", proposal.toml);
}
