//! Enqueueing into a table whose own indexes say what may be there once.

use std::collections::HashSet;

use chrono::{DateTime, SecondsFormat, Utc};
use posthaste_core::enqueue::{NewRow, Prepared};
use posthaste_core::store::StoreErrorKind;
use posthaste_core::{EnqueueError, Enqueued, StoreError};
use posthaste_sql::TableMap;
use posthaste_sql::table::{Kind, Property, Role};

use crate::rows::{bytes_of_uuid, id_text};
use crate::runner::{Runner, Texts};
use crate::statements::Plain;

/// Writes what is new, and says of the rest under which id it was there before.
pub(crate) async fn run<C: Runner + ?Sized>(
    conn: &mut C,
    map: &TableMap,
    statements: &Plain,
    prepared: &Prepared,
) -> Result<Vec<Enqueued>, EnqueueError> {
    map.fits(prepared)?;
    // Where the database gives the ids, one row at a time: nothing else says which id is whose.
    let at_once = if map.has(Property::GeneratedId) {
        1
    } else {
        prepared.rows.len()
    };
    let mut outcomes = Vec::with_capacity(prepared.rows.len());
    for rows in prepared.rows.chunks(at_once) {
        let written = conn.fetch((&statements.insert).into(), columns(map, rows)).await?;
        let written: HashSet<_> = written.into_iter().map(|(_, id)| map.id(&id)).collect();
        let now = |row: &NewRow| match map.has(Property::GeneratedId).then(|| written.iter().next()) {
            Some(given) => given.copied().map(Enqueued::Inserted),
            // As the table reads it: a text that looks like a UUID is a text there.
            None => written
                .contains(&map.id(&row.message.id.to_string()))
                .then_some(Enqueued::Inserted(row.message.id)),
        };
        outcomes.extend(rows.iter().map(now));
    }
    let missing: Vec<_> = (0..outcomes.len()).filter(|place| outcomes[*place].is_none()).collect();
    if !missing.is_empty() {
        // In a statement of its own: the one above does not see what was committed while it waited.
        let rows: Vec<&NewRow> = missing.iter().map(|place| &prepared.rows[*place]).collect();
        let found = conn.fetch((&statements.find_enqueued).into(), keys(map, &rows)).await?;
        for (place, id) in found {
            let place = usize::try_from(place - 1).ok().and_then(|place| missing.get(place));
            if let Some(place) = place {
                outcomes[*place] = Some(Enqueued::Duplicate(map.id(&id)));
            }
        }
    }
    let outcomes: Option<Vec<_>> = outcomes.into_iter().collect();
    outcomes.ok_or_else(|| EnqueueError::Store(vanished()))
}

fn vanished() -> StoreError {
    StoreError {
        kind: StoreErrorKind::Contention,
        message: "a row was in the way of another one and is not to be found".to_owned(),
        remedy: Some("retry the transaction; if it stays so, look at the table's unique indexes"),
        source: None,
    }
}

fn columns(map: &TableMap, rows: &[NewRow]) -> Vec<Texts> {
    let column = |text: &dyn Fn(&NewRow) -> Option<String>| rows.iter().map(text).collect::<Texts>();
    let mut columns = vec![column(&|row| id_text(row.message.id, map))];
    columns.extend(Role::TEXTS.map(|role| column(&|row| text(map, row, role))));
    columns.push(column(&|row| Some(payload(map, row))));
    columns.push(column(&|row| Some(serde_json::json!(row.message.headers).to_string())));
    columns.push(column(&|row| Some(hash(map, row))));
    columns.push(column(&|row| row.message.not_before.map(moment)));
    columns
}

/// By what a row may be there already.
fn keys(map: &TableMap, rows: &[&NewRow]) -> Vec<Texts> {
    let mut columns = vec![rows.iter().map(|row| id_text(row.message.id, map)).collect()];
    for role in [Role::EventId, Role::Namespace, Role::Topic, Role::DedupeKey] {
        columns.push(rows.iter().map(|row| text(map, row, role)).collect());
    }
    columns
}

/// Text that is cast to the column's type.
pub(crate) fn text(map: &TableMap, row: &NewRow, role: Role) -> Option<String> {
    let own_id = || (role == Role::EventId).then(|| row.message.id.to_string());
    let text = map.new_text(row, role).map(str::to_owned).or_else(own_id)?;
    Some(match map.column(role).map(|column| column.kind) {
        Some(Kind::UuidBytes) => text.parse().map_or(text, bytes_of_uuid),
        _ => text,
    })
}

/// The payload as text that is cast to the column's type.
pub(crate) fn payload(map: &TableMap, row: &NewRow) -> String {
    let bytes = &row.message.payload;
    match map.column(Role::Payload).map(|column| column.kind) {
        Some(Kind::Bytes) | None => hex(bytes),
        // Checked to be text before.
        Some(_) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

fn hash(map: &TableMap, row: &NewRow) -> String {
    let hash = map.hash_recipe().hash(&row.message);
    match map.column(Role::ContentHash).map(|column| column.kind) {
        Some(Kind::Bytes) => hex(hash.as_bytes()),
        _ => hash.to_string(),
    }
}

/// Bytes as `bytea` reads them.
fn hex(bytes: &[u8]) -> String {
    let digits = |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0'));
    "\\x".chars().chain(bytes.iter().flat_map(digits)).collect()
}

fn moment(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}
