use super::*;
use crate::table::{BuiltinMap, Identifier, LiveIndex};

fn column(name: &str, type_name: &str) -> LiveColumn {
    LiveColumn {
        name: name.to_owned(),
        type_name: type_name.to_owned(),
        nullable: true,
        ..LiveColumn::default()
    }
}

fn index(columns: &[&str], unique: bool, primary: bool) -> LiveIndex {
    LiveIndex {
        name: columns.join("_"),
        columns: columns.iter().map(ToString::to_string).collect(),
        unique,
        partial: false,
        primary,
    }
}

/// The usage table as its owner made it.
fn usage() -> LiveTable {
    let columns = [
        ("id", "uuid"),
        ("namespace", "text"),
        ("topic", "text"),
        ("tenant_id", "uuid"),
        ("dedupe_key", "text"),
        ("payload", "jsonb"),
        ("status", "text"),
        ("attempts", "integer"),
        ("next_attempt_at", "timestamp with time zone"),
        ("locked_by", "uuid"),
        ("locked_until", "timestamp with time zone"),
        ("last_error", "text"),
        ("created_at", "timestamp with time zone"),
        ("updated_at", "timestamp with time zone"),
    ];
    LiveTable {
        name: TableName {
            schema: None,
            name: Identifier::new("modkit_outbox_events").expect("a good name"),
        },
        columns: columns.iter().map(|(name, kind)| column(name, kind)).collect(),
        indexes: vec![
            index(&["id"], true, true),
            index(&["status", "created_at", "id"], false, false),
            index(&["namespace", "topic", "dedupe_key"], true, false),
        ],
        shape: Shape::Table,
    }
}

fn map() -> TableMap {
    BuiltinMap::find("usage").expect("it ships").map().expect("it is sound")
}

/// What is found after something was done to the table.
fn after(change: impl FnOnce(&mut LiveTable)) -> Vec<Finding> {
    let mut live = usage();
    change(&mut live);
    check(&map(), &[live], Database::Postgres)
}

fn set(live: &mut LiveTable, name: &str, change: impl FnOnce(&mut LiveColumn)) {
    change(
        live.columns
            .iter_mut()
            .find(|column| column.name == name)
            .expect("it is there"),
    );
}

#[test]
fn a_table_that_fits_has_no_findings() {
    assert_eq!(after(|_| {}), []);
}

#[test]
fn each_lack_is_found_with_its_field_and_its_fix() {
    type Change = fn(&mut LiveTable);
    let cases: [(Change, Severity, &str, &str, Option<&str>); 10] = [
        (
            |live| live.columns.retain(|column| column.name != "locked_until"),
            Severity::Error,
            "columns.locked_until",
            "has no column locked_until",
            Some(r#"alter table "modkit_outbox_events" add column "locked_until" timestamptz null;"#),
        ),
        (
            |live| set(live, "attempts", |column| column.type_name = "text".into()),
            Severity::Error,
            "columns.attempts.kind",
            "is text, which does not keep integer; say kind = \"text\" in the map",
            None,
        ),
        (
            |live| set(live, "locked_by", |column| column.nullable = false),
            Severity::Error,
            "columns.lease_token",
            "may not be NULL, but the relay empties it",
            Some(r#"alter table "modkit_outbox_events" alter column "locked_by" drop not null;"#),
        ),
        (
            |live| set(live, "status", |column| column.max_length = Some(9)),
            Severity::Error,
            "columns.status",
            "holds 9 characters, and the longest label of [states] has 10",
            Some(r#"alter table "modkit_outbox_events" alter column "status" type varchar(10);"#),
        ),
        (
            |live| {
                let labels = ["pending", "BUSY", "delivered", "dead"].map(str::to_owned);
                set(live, "status", |column| column.values = labels.to_vec());
            },
            Severity::Error,
            "states.processing",
            "the column status takes pending, BUSY, delivered, dead, and `processing` is none of them",
            None,
        ),
        (
            |live| set(live, "last_error", |column| column.max_length = Some(200)),
            Severity::Error,
            "columns.last_error",
            "say max = 200 in the map",
            None,
        ),
        (
            |live| {
                live.columns.push(LiveColumn {
                    nullable: false,
                    ..column("region", "text")
                });
            },
            Severity::Warning,
            "columns",
            "the column region may not be NULL, has no default and is in no role",
            Some(r#"alter table "modkit_outbox_events" alter column "region" drop not null;"#),
        ),
        (
            |live| {
                live.indexes
                    .retain(|index| !index.columns.contains(&"dedupe_key".to_owned()));
            },
            Severity::Error,
            "columns.dedupe_key",
            "no unique index on (namespace, topic, dedupe_key)",
            Some(
                r#"create unique index "modkit_outbox_events_dedupe" on "modkit_outbox_events" ("namespace", "topic", "dedupe_key") where "dedupe_key" is not null;"#,
            ),
        ),
        (
            |live| live.indexes.retain(|index| index.columns[0] != "status"),
            Severity::Warning,
            "order",
            "every claim reads the whole table",
            Some(
                r#"create index "modkit_outbox_events_claim" on "modkit_outbox_events" ("status", "created_at", "id");"#,
            ),
        ),
        (
            |live| live.indexes.retain(|index| !index.primary),
            Severity::Error,
            "columns.id",
            "two rows could have the same id",
            Some(r#"alter table "modkit_outbox_events" add primary key ("id");"#),
        ),
    ];
    for (change, severity, field, problem, fix) in cases {
        let found = after(change);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].severity, found[0].field.as_str()), (severity, field));
        assert!(found[0].problem.contains(problem), "{}", found[0].problem);
        assert_eq!(found[0].fix.as_deref(), fix);
    }
}

#[test]
fn an_order_that_is_left_to_chance_within_a_transaction_is_told() {
    let toml = BuiltinMap::find("usage").expect("it ships").toml;
    let toml = toml.replace(
        "[columns]",
        "[columns]\nordering_key = { column = \"tenant_id\", kind = \"uuid\" }",
    );
    let map = TableMap::from_toml(&toml).expect("it is sound");
    let found = |time: &str, id: &str| {
        let mut live = usage();
        for (name, default) in [("created_at", time), ("id", id)] {
            let column = live.columns.iter_mut().find(|column| column.name == name);
            column.expect("it is there").default = Some(default.to_owned());
        }
        check(&map, &[live], Database::Postgres)
    };
    let told = found("now()", "gen_random_uuid()");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((told[0].severity, told[0].field.as_str()), (Severity::Warning, "order"));
    assert!(told[0].problem.contains("be clock_timestamp()"), "{}", told[0].problem);
    assert_eq!(found("clock_timestamp()", "gen_random_uuid()"), []);
    assert_eq!(found("now()", "uuidv7()"), []);
}

/// The relay raises a version with every change, so rows that differ in it alone become equal.
#[test]
fn a_unique_index_over_what_the_relay_changes_is_an_error() {
    let toml = BuiltinMap::find("usage").expect("it ships").toml;
    let toml = toml.replace("[columns]", "[columns]\nversion = \"version\"");
    let map = TableMap::from_toml(&toml).expect("it is sound");
    let mut live = usage();
    live.columns.push(column("version", "integer"));
    assert_eq!(check(&map, &[live.clone()], Database::Postgres), []);
    live.indexes.push(index(&["tenant_id", "version"], true, false));
    let found = check(&map, &[live.clone()], Database::Postgres);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].severity, found[0].field.as_str()),
        (Severity::Error, "columns.version")
    );
    assert!(
        found[0].problem.contains("tenant_id_version over (tenant_id, version)")
            && found[0].problem.contains("take it out of the map"),
        "{found:?}"
    );
    // With the row's own id in it no two rows are ever equal.
    live.indexes[3].columns.push("id".to_owned());
    assert_eq!(check(&map, &[live], Database::Postgres), []);
}

const NUMBERED: &str = r#"
name = "numbered"
order = ["seq"]
topic = { fixed = "t" }
[tables]
outbox = "order_outbox"
[columns]
id = { column = "id", kind = "integer", generated = true }
seq = "sequence_number"
payload = { column = "body", kind = "text" }
status = "status"
[states]
pending = "NEW"
delivered = "SENT"
dead = "DEAD"
[constants]
source = "order-outbox"
"#;

fn numbered() -> LiveTable {
    LiveTable {
        name: TableName {
            schema: None,
            name: Identifier::new("order_outbox").expect("a good name"),
        },
        columns: vec![
            column("id", "bigint"),
            column("sequence_number", "bigint"),
            column("body", "text"),
            column("status", "text"),
        ],
        indexes: vec![
            index(&["id"], true, true),
            index(&["status", "sequence_number"], false, false),
        ],
        shape: Shape::Table,
    }
}

#[test]
fn a_number_that_the_database_does_not_give_and_a_source_that_is_a_guess_are_warned_of() {
    let fields = |toml: &str, live: &LiveTable| {
        let map = TableMap::from_toml(toml).expect("it is sound");
        let found = check(&map, std::slice::from_ref(live), Database::Postgres);
        let warned = |finding: &Finding| finding.severity == Severity::Warning;
        assert!(found.iter().all(warned), "{found:?}");
        found.into_iter().map(|finding| finding.field).collect::<Vec<_>>()
    };
    let mut live = numbered();
    assert_eq!(fields(NUMBERED, &live), ["constants.source", "order"]);
    set(&mut live, "sequence_number", |column| column.generated = true);
    assert_eq!(fields(NUMBERED, &live), ["constants.source"]);
    let named = NUMBERED.replace("source = \"order-outbox\"", "source = \"shop\"");
    assert_eq!(fields(&named, &live), [""; 0]);
    let unnamed = NUMBERED.replace("source = \"order-outbox\"", "");
    assert_eq!(fields(&unnamed, &live), ["constants.source"]);
}

/// SQLite has no row locks, so the columns of a lease are what such a table lacks.
#[test]
fn the_columns_of_a_lease_come_as_sql() {
    let named = NUMBERED.replace("source = \"order-outbox\"", "source = \"shop\"");
    let map = TableMap::from_toml(&named).expect("it is sound");
    let found = check(&map, &[numbered()], Database::Sqlite);
    let lease = found
        .iter()
        .find(|finding| finding.field == "columns.locked_until")
        .expect("it is refused");
    let fix = lease.fix.as_deref().expect("there is SQL for it");
    let expected = "alter table \"order_outbox\" add column \"locked_by\" text null;\n\
        alter table \"order_outbox\" add column \"locked_until\" integer null;\n\
        alter table \"order_outbox\" add column \"attempts\" integer default 0;\n-- and in the map";
    assert!(fix.starts_with(expected), "{fix}");
    assert!(
        fix.contains("--   locked_until = { column = \"locked_until\", kind = \"epoch_ms\" }"),
        "{fix}"
    );
}

#[test]
fn an_index_that_is_not_unique_does_not_dedupe() {
    let found = after(|live| live.indexes[2].unique = false);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].field, "columns.dedupe_key");
}

/// The proof of a claim in a text is longer than the UUID that its owner thought of.
#[test]
fn a_text_too_short_for_the_proof_of_a_claim_is_found() {
    let toml = BuiltinMap::find("usage").expect("it ships").toml;
    let toml = toml.replace(
        "locked_by = \"locked_by\"",
        "locked_by = { column = \"locked_by\", kind = \"text\" }",
    );
    let map = TableMap::from_toml(&toml).expect("it is sound");
    let mut live = usage();
    set(&mut live, "locked_by", |column| {
        column.type_name = "character varying".into();
        column.max_length = Some(72);
    });
    let found = check(&map, &[live.clone()], Database::Postgres);
    assert!(found[0].problem.contains("the proof of a claim has 73"), "{found:?}");
    set(&mut live, "locked_by", |column| column.max_length = Some(73));
    assert_eq!(check(&map, &[live], Database::Postgres), []);
}

#[test]
fn a_missing_table_is_proposed_as_a_whole_in_the_words_of_its_database() {
    for (database, id, until) in [
        (
            Database::Postgres,
            "\"id\" uuid primary key",
            "\"locked_until\" timestamptz null",
        ),
        (
            Database::MySql,
            "`id` char(36) primary key",
            "`locked_until` datetime(6) null",
        ),
        (
            Database::Sqlite,
            "\"id\" text primary key",
            "\"locked_until\" text null",
        ),
    ] {
        let found = check(&map(), &[], database);
        assert_eq!(found.len(), 1, "{found:?}");
        let fix = found[0].fix.as_deref().expect("a map says its columns");
        assert!(fix.contains(id) && fix.contains(until), "{fix}");
    }
}

#[test]
fn ids_that_are_trusted_are_said_to_be() {
    let builtin = BuiltinMap::find("commerce").expect("it ships").toml;
    let trusted = builtin.replace("layout = \"log\"", "layout = \"log\"\nids = \"trusted\"");
    for (toml, warned) in [(builtin, false), (trusted.as_str(), true)] {
        let map = TableMap::from_toml(toml).expect("it is sound");
        let findings = check(&map, &[], Database::Postgres);
        let about_ids = findings.iter().find(|finding| finding.field == "ids");
        assert_eq!(
            about_ids.map(|finding| finding.severity),
            warned.then_some(Severity::Warning)
        );
    }
}
