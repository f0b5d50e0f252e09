//! From rows to the core's types, and ids to what the server can cast.

use chrono::{DateTime, Utc};
use posthaste_core::message::MessageId;
use posthaste_core::store::ClaimedMessage;
use posthaste_sql::TableMap;
use posthaste_sql::table::{Held, Kind, Role, SqlRow};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

/// A thousand years: longer than anybody means, and no further from now than the server can count.
const FOREVER_MS: i64 = 1_000 * 365 * 24 * 3_600 * 1_000;

/// Milliseconds as SQL takes them.
pub(crate) fn millis(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).map_or(FOREVER_MS, |millis| millis.min(FOREVER_MS))
}

pub(crate) fn id(row: &PgRow, map: &TableMap) -> sqlx::Result<MessageId> {
    Ok(map.id(row.try_get("id")?))
}

pub(crate) fn ids(rows: &[PgRow], map: &TableMap) -> sqlx::Result<Vec<MessageId>> {
    rows.iter().map(|row| id(row, map)).collect()
}

/// An id as the text that is cast to the column's type; nothing if no row of the table can have it.
pub(crate) fn id_text(id: MessageId, map: &TableMap) -> Option<String> {
    match map.column(Role::Id).map(|column| column.kind) {
        Some(Kind::Integer) => id.number().map(|number| number.to_string()),
        Some(Kind::Uuid) => id.uuid().map(|uuid| uuid.to_string()),
        Some(Kind::UuidBytes) => id.uuid().map(bytes_of_uuid),
        _ => Some(id.to_string()),
    }
}

/// A UUID as `bytea` reads it.
pub(crate) fn bytes_of_uuid(uuid: Uuid) -> String {
    format!("\\x{}", uuid.simple())
}

/// A row by role.
pub(crate) struct ByRole<'r>(pub(crate) &'r PgRow);

impl SqlRow for ByRole<'_> {
    type Error = sqlx::Error;

    fn text(&self, role: Role) -> sqlx::Result<Held<String>> {
        self.0.try_get(role.name()).map(Held::Known)
    }

    fn number(&self, role: Role) -> sqlx::Result<Option<i64>> {
        self.0.try_get(role.name())
    }

    fn bytes(&self, role: Role) -> sqlx::Result<Option<Vec<u8>>> {
        self.0.try_get(role.name())
    }

    fn time(&self, role: Role) -> sqlx::Result<Held<DateTime<Utc>>> {
        self.0.try_get(role.name()).map(Held::Known)
    }

    fn undecodable(role: Role, reason: String) -> sqlx::Error {
        sqlx::Error::ColumnDecode {
            index: role.name().to_owned(),
            source: reason.into(),
        }
    }
}

/// Claimed rows in the order in which they came.
pub(crate) fn claimed(rows: &[PgRow], map: &TableMap) -> sqlx::Result<Vec<ClaimedMessage>> {
    rows.iter().map(|row| map.claimed(&ByRole(row))).collect()
}

/// Claimed rows by sequence; `UPDATE … RETURNING` gives them in any order.
pub(crate) fn claimed_by_sequence(mut rows: Vec<PgRow>, map: &TableMap) -> sqlx::Result<Vec<ClaimedMessage>> {
    rows.sort_by_cached_key(|row| row.try_get::<i64, _>("seq").unwrap_or_default());
    claimed(&rows, map)
}
