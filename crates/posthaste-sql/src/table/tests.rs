use super::*;
use posthaste_core::store::StoreRequirements;

const SOUND: &str = r#"
name = "t"
order = ["created_at", "id"]
topic = { fixed = "t" }
[tables]
outbox = "Order"
[columns]
id = { column = "my id", kind = "integer", generated = true }
payload = { column = "body", kind = "text" }
status = { column = "select", kind = "integer" }
attempts = "tries"
locked_by = { column = "who", kind = "text" }
locked_until = { column = "until", kind = "epoch_ms" }
created_at = "at"
[states]
pending = 0
processing = 1
delivered = 2
dead = 3
"#;

fn toml(change: impl FnOnce(String) -> String) -> Result<TableMap, MapError> {
    TableMap::from_toml(&change(SOUND.to_owned()))
}

#[test]
fn every_builtin_map_is_sound() {
    let strategies: Vec<_> = BUILTIN_MAPS
        .iter()
        .map(|builtin| {
            (
                builtin.name,
                builtin
                    .map()
                    .unwrap_or_else(|error| panic!("{}: {error}", builtin.name))
                    .strategy(),
            )
        })
        .collect();
    assert_eq!(
        strategies,
        [
            ("commerce", Strategy::Log),
            ("donation", Strategy::Leased),
            ("logistics", Strategy::RowLocks),
            ("order-service", Strategy::RowLocks),
            ("usage", Strategy::Leased),
        ]
    );
    let requirements = |name| BuiltinMap::find(name).unwrap().map().unwrap().requirements();
    assert_eq!(
        requirements("order-service"),
        StoreRequirements {
            batch_settlement: true,
            in_memory_attempts: true,
            append_only: false,
            undated_deaths: true,
            dead_letter_table: false,
            known_by_event: false,
        }
    );
    assert!(requirements("commerce").append_only);
    assert!(!requirements("logistics").in_memory_attempts && requirements("logistics").batch_settlement);
    assert_eq!(
        requirements("donation"),
        StoreRequirements {
            dead_letter_table: true,
            ..StoreRequirements::default()
        }
    );
}

#[test]
fn a_sound_map_is_read() {
    let map = toml(|sound| sound).unwrap();
    assert_eq!(map.strategy(), Strategy::Leased);
    assert_eq!(map.state("2"), Some(State::Delivered));
    assert_eq!(
        map.column(Role::LeaseToken).unwrap().name.as_str(),
        "who",
        "the proof of a claim is kept there"
    );
    assert!(!map.has(Role::LockedBy) && map.has(Property::GeneratedId));
}

/// What is replaced in a sound map by what, the field that is refused then, and a part of the remedy.
const REFUSALS: &[(&str, &str, &str, &str)] = &[
    ("name = \"t\"", "nome = \"t\"", "nome", "unknown field"),
    (
        "status = {",
        "state = {",
        "columns.state",
        "did you mean status? The roles are id",
    ),
    (
        "kind = \"text\" }\nstatus",
        "kind = \"txt\" }\nstatus",
        "columns.payload.kind",
        "\"txt\" is no kind; use bytes, text, json, jsonb (line ",
    ),
    (
        "kind = \"text\" }\nstatus",
        "knd = \"text\" }\nstatus",
        "columns.payload.knd",
        "unknown field `knd`",
    ),
    (
        "pending = 0",
        "pending = \"NEW\"",
        "states.pending",
        "`NEW` cannot be kept",
    ),
    (
        "status = { column = \"select\", kind = \"integer\" }",
        "status = { column = \"select\", kind = \"boolean\" }",
        "states.dead",
        "tell two states apart",
    ),
    (
        "kind = \"text\" }\nstatus",
        "kind = \"uuid\" }\nstatus",
        "columns.payload.kind",
        "use bytes, text, json, jsonb",
    ),
    ("\"my id\"", "\"\"", "columns.id", "it is empty"),
    ("\"my id\"", "\"a\\nb\"", "columns.id", "control character"),
    ("pending = 0", "open = 0", "states.open", "the states are pending"),
    ("pending = 0", "pending = 1", "states.processing", "already"),
    ("dead = 3", "", "states.dead", "say which label"),
    (
        "locked_until = ",
        "locked_at = 1\nlocked_until = ",
        "columns.locked_at",
        "expected a text, or a table in braces",
    ),
    (
        "locked_by = { column = \"who\", kind = \"text\" }",
        "",
        "columns.lease_token",
        "proof of a claim",
    ),
    ("attempts = \"tries\"", "", "columns.attempts", "tried forever"),
    (
        "locked_until = { column = \"until\", kind = \"epoch_ms\" }",
        "",
        "states.processing",
        "map locked_until",
    ),
    ("payload = {", "#payload = {", "columns.payload", "name its column"),
    ("{ fixed = \"t\" }", "\"column\"", "topic", "choose another rule"),
    (
        "{ fixed = \"t\" }",
        "\"elsewhere\"",
        "topic",
        "{ fixed = \"elsewhere\" }",
    ),
    (
        "{ fixed = \"t\" }",
        "{ template = \"{colour}\" }",
        "topic.template",
        "event_type",
    ),
    (
        "[\"created_at\", \"id\"]",
        "[\"at\"]",
        "order",
        "name roles, not columns",
    ),
    ("[\"created_at\", \"id\"]", "[\"seq\"]", "order", "under [columns]"),
    ("[\"created_at\", \"id\"]", "[]", "order", "at least one"),
    (
        "outbox = \"Order\"",
        "inbox = \"Order\"",
        "tables.inbox",
        "a map may name",
    ),
    (
        "outbox = \"Order\"",
        "outbox = \"Order\"\ndead_letter = \"d\"",
        "dead_letter.columns",
        "which columns",
    ),
    (
        "name = \"t\"",
        "name = \"t\"\nzone = \"'; drop\"",
        "zone",
        "not a time zone",
    ),
    (
        "[states]",
        "[constants]\ncolour = \"red\"\n[states]",
        "constants.colour",
        "only these",
    ),
    (
        "attempts = \"tries\"",
        "attempts = { column = \"tries\", counts = \"sheep\" }",
        "columns.attempts.counts",
        "use attempts or retries",
    ),
    (
        "kind = \"text\" }\nstatus",
        "kind = \"jsonb\" }\ncontent_hash = \"h\"\nstatus",
        "columns.content_hash",
        "rewritten by the database",
    ),
];

/// Every refusal names the field and says what to do.
#[test]
fn what_cannot_work_is_refused_by_name() {
    for (from, to, field, remedy) in REFUSALS {
        let changed = toml(|sound| {
            assert!(sound.contains(from), "{from}");
            sound.replace(from, to)
        });
        let error = changed.expect_err(to);
        assert_eq!(error.field, *field, "{error}");
        assert!(!error.to_string().contains("untagged"), "{error}");
        assert!(error.to_string().contains(remedy), "{error}");
    }
}

/// Each error names the line of its field, or of the table around it where the field is missing.
#[test]
fn errors_name_their_line() {
    let line = |from: &str, to: &str| {
        let error = toml(|sound| sound.replace(from, to)).expect_err(to);
        (error.line, error.to_string())
    };
    let text = SOUND.replace("kind = \"text\" }\nstatus", "kind = \"txt\" }\nstatus");
    let expected = 1 + text.lines().position(|line| line.contains("txt")).expect("it is there");
    let (found, said) = line("kind = \"text\" }\nstatus", "kind = \"txt\" }\nstatus");
    assert_eq!(found, Some(expected), "{said}");
    assert!(
        said.starts_with("columns.payload.kind: ") && said.ends_with(&format!("(line {expected})")),
        "{said}"
    );
    let (found, said) = line("dead = 3", "");
    let states = 1 + SOUND
        .lines()
        .position(|line| line.contains("[states]"))
        .expect("it is there");
    assert_eq!(found, Some(states), "{said}");
}

#[test]
fn limits_and_errors_are_kept_as_the_table_has_them() {
    let map = BuiltinMap::find("donation").unwrap().map().unwrap();
    assert_eq!(map.row_limit(3), 4, "three retries are four attempts");
    assert_eq!(map.error_text(&"é\0".repeat(400)).chars().count(), 500);
    let fence = map.fence(WorkerId::new(), LeaseToken::new());
    assert!(fence.len() <= 100, "it fits");
}

#[test]
fn the_native_log_is_a_log_beside_the_tables_of_the_queue() {
    let map = TableMap::native_log("shop").unwrap();
    assert_eq!(map.strategy(), Strategy::Log);
    assert!(map.is_native() && map.has(Role::Shard) && map.has(Property::GeneratedId));
    let name = |table| map.table(table).unwrap().to_string();
    assert_eq!(name(Table::Outbox), "shop.log");
    assert_eq!(name(Table::Failed), "shop.log_failed");
    assert_eq!(name(Table::ReaderState), "shop.log_shards");
    assert_eq!(name(Table::Dedupe), "shop.outbox_dedupe");
    assert!(!map.has(Table::Cursor) && !map.requirements().undated_deaths);
    // Shards are for Posthaste's own logs.
    assert_eq!(Role::named("shard"), None);
}
