use std::collections::HashMap;

use posthaste_core::lifecycle::State;

use super::super::BuiltinMap;
use super::*;

/// A row in which columns hold what they hold, and others nothing.
#[derive(Default)]
struct GivenRow {
    texts: HashMap<Role, String>,
    numbers: HashMap<Role, i64>,
    unreadable: Option<Role>,
}

impl GivenRow {
    fn of<const N: usize>(texts: [(Role, &str); N]) -> Self {
        Self {
            texts: texts.map(|(role, text)| (role, text.to_owned())).into(),
            ..Self::default()
        }
    }

    fn claimed_by(&self, map: &TableMap) -> ClaimedMessage {
        map.claimed(self).expect("every column is there")
    }
}

impl SqlRow for GivenRow {
    type Error = String;

    fn text(&self, role: Role) -> Result<Held<String>, String> {
        let text = self.texts.get(&role).cloned();
        Ok(match self.unreadable {
            Some(unreadable) if unreadable == role => Held::Unreadable {
                wanted: "text in UTF-8",
                nearest: text,
            },
            _ => Held::Known(text),
        })
    }

    fn number(&self, role: Role) -> Result<Option<i64>, String> {
        Ok(self.numbers.get(&role).copied())
    }

    fn bytes(&self, role: Role) -> Result<Option<Vec<u8>>, String> {
        Ok(self.texts.get(&role).map(|text| text.clone().into_bytes()))
    }

    fn time(&self, role: Role) -> Result<Held<DateTime<Utc>>, String> {
        Ok(match self.unreadable {
            Some(unreadable) if unreadable == role => Held::Unreadable {
                wanted: "a date of the calendar",
                nearest: None,
            },
            _ => Held::Known(
                self.numbers
                    .get(&role)
                    .and_then(|millis| DateTime::from_timestamp_millis(*millis)),
            ),
        })
    }

    fn undecodable(role: Role, reason: String) -> String {
        format!("{role}: {reason}")
    }
}

fn native() -> TableMap {
    TableMap::in_schema("posthaste").expect("it is a name")
}

fn builtin(name: &str) -> TableMap {
    BuiltinMap::find(name).expect("it ships").map().expect("it is sound")
}

#[test]
fn rows_become_messages_by_the_rules_of_the_map() {
    let map = builtin("order-service");
    let id = (Role::Id, "01890a5d-ac96-774b-bcce-b302099a8057");
    let claimed = GivenRow::of([id, (Role::AggregateType, "Order")]).claimed_by(&map);
    assert_eq!(
        (
            claimed.message.topic.as_str(),
            claimed.message.source.as_deref(),
            claimed.fault
        ),
        ("order-events", Some("order-service"), None)
    );
    let claimed = GivenRow::of([id]).claimed_by(&map);
    assert!(claimed.fault.unwrap().contains("no aggregate_type"));
    let map = builtin("commerce");
    let bad = [
        (Role::Id, "7"),
        (Role::EventType, "OrderCreated"),
        (Role::Headers, "[1]"),
    ];
    let claimed = GivenRow::of(bad).claimed_by(&map);
    assert_eq!(claimed.message.id, 7.into());
    assert!(claimed.fault.unwrap().contains("acme.order.created.v1"));
}

/// What a column holds beside texts must not keep an event from being delivered.
#[test]
fn headers_of_any_kind_travel_as_texts() {
    let map = builtin("commerce");
    let headers = |json: &str| {
        let row = [
            (Role::Id, "7"),
            (Role::EventType, "acme.order.created.v1"),
            (Role::Headers, json),
        ];
        let claimed = GivenRow::of(row).claimed_by(&map);
        (claimed.message.headers, claimed.fault)
    };
    let (found, fault) = headers(
        r#"{"user": {"id": 7, "tags": [1]}, "retries": 3, "ok": true, "big": 12345678901234567890123, "none": null, "t": "x"}"#,
    );
    assert_eq!(fault, None);
    let found: Vec<_> = found
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            ("big", "12345678901234567890123"),
            ("ok", "true"),
            ("retries", "3"),
            ("t", "x"),
            ("user", r#"{"id":7,"tags":[1]}"#),
        ]
    );
    for nothing in ["null", "", "{}"] {
        assert_eq!(headers(nothing), (Headers::new(), None), "{nothing}");
    }
    assert!(headers("[1]").1.unwrap().contains("not a JSON object"));
}

/// What has no reading is told by its column, and what comes nearest is shown; the row is not published.
#[test]
fn what_has_no_reading_is_a_fault_of_its_row() {
    let map = native();
    for (role, wanted) in [
        (Role::OrderingKey, "text in UTF-8"),
        (Role::CreatedAt, "a date of the calendar"),
    ] {
        let row = GivenRow {
            unreadable: Some(role),
            ..GivenRow::of([
                (Role::Id, "a"),
                (Role::Topic, "orders"),
                (Role::OrderingKey, "k\u{fffd}"),
                (Role::Headers, "[1]"),
            ])
        };
        let claimed = row.claimed_by(&map);
        assert_eq!(claimed.message.ordering_key.as_deref(), Some("k\u{fffd}"));
        assert_eq!(claimed.fault, Some(map.unreadable(role, wanted)));
    }
}

/// A row is found again only by the spelling that it has.
#[test]
fn ids_keep_their_spelling() {
    let map = native();
    let spelt = [
        "01890a5d-ac96-774b-bcce-b302099a8057",
        "01890A5D-AC96-774B-BCCE-B302099A8057",
        "007",
        "7",
        "",
    ];
    for text in spelt {
        assert_eq!(map.id(text).to_string(), text);
    }
    // Bytes have none: the statement made the text.
    let bytes = r#"name = "t"
order = ["seq"]
topic = "column"
[tables]
outbox = "t"
[columns]
id = { column = "id", kind = "uuid_bytes" }
seq = { column = "seq", generated = true }
topic = "topic"
payload = "payload"
status = "status"
attempts = "attempts"
locked_by = "locked_by"
lease_token = "lease_token"
locked_until = "locked_until"
created_at = "created_at"
[states]
pending = "p"
processing = "r"
delivered = "d"
dead = "x"
"#;
    let map = TableMap::from_toml(bytes).expect("it is sound");
    assert_eq!(map.id("01890a5dac96774bbcceb302099a8057").to_string(), spelt[0]);
}

#[test]
fn records_are_read_by_the_labels_of_the_map() {
    let map = native();
    let mut row = GivenRow::of([
        (Role::Id, "a"),
        (Role::Topic, "orders"),
        (Role::Status, "dead"),
        (Role::LockedBy, "worker/token"),
        (Role::LastError, "refused"),
    ]);
    row.numbers = [
        (Role::CreatedAt, 1_000),
        (Role::DeliveredAt, 3_000),
        (Role::Attempts, 4),
        (Role::Seq, 9),
    ]
    .into();
    let record = map.record(&row).expect("every column is there");
    assert_eq!(
        (
            record.state,
            record.attempts,
            record.sequence,
            record.locked_by.as_deref()
        ),
        (State::Dead, 4, Some(9), Some("worker"))
    );
    assert_eq!(map.claimed(&row).expect("every column is there").sequence, Some(9));
    let at = |millis| DateTime::from_timestamp_millis(millis).expect("it is a time");
    assert_eq!((record.next_attempt_at, record.updated_at), (at(1_000), at(1_000)));
    assert_eq!((record.delivered_at, record.locked_until), (Some(at(3_000)), None));
    row.texts.insert(Role::Status, "odd".to_owned());
    assert_eq!(
        map.record(&row).expect_err("it is no state"),
        "status: `odd` is not a state of this table map"
    );
}
