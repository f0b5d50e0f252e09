//! From rows to the core's types.

use std::cmp::Ordering;
use std::time::Duration;

use chrono::{DateTime, Utc};
use posthaste_core::message::MessageId;
use posthaste_core::store::{ClaimedMessage, RefusedRow};
use posthaste_sql::TableMap;
use posthaste_sql::table::{Held, Kind, Role, SqlRow};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, TypeInfo, ValueRef};

/// A thousand years: longer than anybody means, and far from where SQLite's integers turn into floats.
const FOREVER_MS: i64 = 1_000 * 365 * 24 * 3_600 * 1_000;

/// Milliseconds as SQL takes them.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).map_or(FOREVER_MS, |millis| millis.min(FOREVER_MS))
}

/// A time as the tables keep it, rounded up: nothing is delivered too early.
pub(crate) fn epoch_millis(time: DateTime<Utc>) -> i64 {
    time.timestamp_micros().saturating_add(999).div_euclid(1_000)
}

/// A duration from now in milliseconds, for a column of some role. One that keeps whole seconds loses what is left of
/// the last one, and nothing may be over too early.
pub(crate) fn kept_until(map: &TableMap, role: Role, duration: Duration) -> i64 {
    let lost = match map.column(role).map(|column| column.kind) {
        Some(Kind::EpochS) => 999,
        _ => 0,
    };
    millis(duration) + lost
}

pub(crate) fn time(row: &SqliteRow, column: &str) -> sqlx::Result<DateTime<Utc>> {
    let millis: i64 = row.try_get(column)?;
    DateTime::from_timestamp_millis(millis)
        .ok_or_else(|| undecodable(column, format!("{millis} is not a time in milliseconds")))
}

pub(crate) fn undecodable(column: &str, reason: String) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: reason.into(),
    }
}

pub(crate) fn id(row: &SqliteRow, column: &str, map: &TableMap) -> sqlx::Result<MessageId> {
    // A primary key of SQLite's may be missing.
    let bytes = row.try_get_unchecked::<Option<Vec<u8>>, _>(column)?.unwrap_or_default();
    Ok(map.id(&String::from_utf8_lossy(&bytes)))
}

/// Whether statements find a row by its id: not if that is bytes where it should be text, or no text at all.
pub(crate) fn is_found_by_id(row: &SqliteRow) -> sqlx::Result<bool> {
    let bytes = row.try_get_unchecked::<Option<Vec<u8>>, _>("id")?.unwrap_or_default();
    Ok(row.try_get("found_by_id")? && std::str::from_utf8(&bytes).is_ok())
}

/// The ids of changed rows in the table's order; `RETURNING` gives them in any order.
pub(crate) fn ids_in_order(mut rows: Vec<SqliteRow>, map: &TableMap) -> sqlx::Result<Vec<MessageId>> {
    sort(&mut rows, map);
    rows.iter().map(|row| id(row, "id", map)).collect()
}

/// Claimed rows in the table's order, for `UPDATE … RETURNING` gives them in any order; and those of which nobody could say
/// what became of them. The latter stay claimed, until they have used up their attempts.
pub(crate) fn claimed(
    mut rows: Vec<SqliteRow>,
    map: &TableMap,
) -> sqlx::Result<(Vec<ClaimedMessage>, Vec<RefusedRow>)> {
    sort(&mut rows, map);
    let (mut messages, mut refused) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in &rows {
        if is_found_by_id(row)? {
            messages.push(map.claimed(&ByRole(row))?);
        } else {
            let error = map.unreadable(Role::Id, "kept as text");
            let id = id(row, "id", map)?;
            refused.push(RefusedRow { id, error });
        }
    }
    Ok((messages, refused))
}

/// A row by role. Columns may hold anything, whatever they were declared as.
pub(crate) struct ByRole<'r>(pub(crate) &'r SqliteRow);

impl SqlRow for ByRole<'_> {
    type Error = sqlx::Error;

    fn text(&self, role: Role) -> sqlx::Result<Held<String>> {
        let Some(bytes) = self.0.try_get_unchecked::<Option<Vec<u8>>, _>(role.name())? else {
            return Ok(Held::Known(None));
        };
        Ok(match String::from_utf8(bytes) {
            Ok(text) => Held::Known(Some(text)),
            Err(error) => Held::Unreadable {
                wanted: "text in UTF-8",
                nearest: Some(String::from_utf8_lossy(error.as_bytes()).into_owned()),
            },
        })
    }

    fn number(&self, role: Role) -> sqlx::Result<Option<i64>> {
        self.0.try_get(role.name())
    }

    fn bytes(&self, role: Role) -> sqlx::Result<Option<Vec<u8>>> {
        self.0.try_get(role.name())
    }

    fn time(&self, role: Role) -> sqlx::Result<Held<DateTime<Utc>>> {
        let value = self.0.try_get_raw(role.name())?;
        if value.is_null() {
            return Ok(Held::Known(None));
        }
        let time = match value.type_info().name() {
            // SQLite cuts off what is not whole.
            "INTEGER" | "REAL" => DateTime::from_timestamp_millis(self.0.try_get_unchecked(role.name())?),
            _ => None,
        };
        Ok(match time {
            Some(time) => Held::Known(Some(time)),
            None => Held::Unreadable {
                wanted: "a time in milliseconds since 1970",
                nearest: None,
            },
        })
    }

    fn undecodable(role: Role, reason: String) -> sqlx::Error {
        undecodable(role.name(), reason)
    }
}

/// A value of an order column. They compare as in SQLite, as long as a column does not mix whole and other numbers.
#[derive(PartialEq, PartialOrd)]
enum Place {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
}

fn place(row: &SqliteRow, column: usize) -> sqlx::Result<Place> {
    let name = format!("order_{column}");
    let name = name.as_str();
    let value = row.try_get_raw(name)?;
    if value.is_null() {
        return Ok(Place::Null);
    }
    Ok(match value.type_info().name() {
        "INTEGER" => Place::Integer(row.try_get_unchecked(name)?),
        "REAL" => Place::Real(row.try_get_unchecked(name)?),
        "BLOB" => Place::Bytes(row.try_get_unchecked(name)?),
        _ => Place::Text(row.try_get_unchecked(name)?),
    })
}

fn sort(rows: &mut [SqliteRow], map: &TableMap) {
    let columns = map.order().len();
    rows.sort_by_cached_key(|row| {
        let places = (0..columns).map(|column| place(row, column).unwrap_or(Place::Null));
        Places(places.collect())
    });
}

#[derive(PartialEq)]
struct Places(Vec<Place>);

impl Eq for Places {}

impl Ord for Places {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for Places {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
