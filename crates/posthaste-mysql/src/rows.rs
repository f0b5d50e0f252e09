//! From rows to the core's types.

use std::time::Duration;

use chrono::{DateTime, Utc};
use posthaste_core::MessageId;
use posthaste_core::store::{ClaimedMessage, Record};
use posthaste_sql::table::{RawRow, Role, TableMap};
use sqlx::mysql::MySqlRow;
use sqlx::{MySql, Row, Type, ValueRef};

/// A hundred years: longer than anybody means, and far from where a `DATETIME` ends.
const FOREVER_MS: i64 = 100 * 365 * 24 * 3_600 * 1_000;

/// Milliseconds as SQL takes them.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).map_or(FOREVER_MS, |millis| millis.min(FOREVER_MS))
}

pub(crate) fn undecodable(column: &str, reason: String) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: reason.into(),
    }
}

pub(crate) fn id(row: &MySqlRow, map: &TableMap) -> sqlx::Result<MessageId> {
    Ok(map.id(&row.try_get::<String, _>("id")?))
}

pub(crate) fn ids(rows: &[MySqlRow], map: &TableMap) -> sqlx::Result<Vec<MessageId>> {
    rows.iter().map(|row| id(row, map)).collect()
}

fn raw(row: &MySqlRow, map: &TableMap) -> sqlx::Result<RawRow> {
    let (created_at, fault) = match time(row, Role::CreatedAt)? {
        Time::Known(time) => (time, None),
        // A table may leave it empty; then it is as if the row had just come.
        Time::Missing => (Utc::now(), None),
        Time::Unreadable => (
            DateTime::default(),
            Some(map.unreadable(Role::CreatedAt, "a date of the calendar")),
        ),
    };
    Ok(RawRow {
        id: row.try_get("id")?,
        event_id: row.try_get("event_id")?,
        namespace: row.try_get("namespace")?,
        topic: row.try_get("topic")?,
        ordering_key: row.try_get("ordering_key")?,
        tenant: row.try_get("tenant")?,
        dedupe_key: row.try_get("dedupe_key")?,
        event_type: row.try_get("event_type")?,
        source: row.try_get("source")?,
        aggregate_type: row.try_get("aggregate_type")?,
        aggregate_id: row.try_get("aggregate_id")?,
        content_type: row.try_get("content_type")?,
        payload: row.try_get::<Option<_>, _>("payload")?.unwrap_or_default(),
        headers: row.try_get("headers")?,
        content_hash: row.try_get("content_hash")?,
        attempts: row.try_get::<Option<i64>, _>("attempts")?.unwrap_or(0),
        max_attempts: row.try_get("max_attempts")?,
        version: row.try_get("version")?,
        created_at,
        fault,
    })
}

/// What a column has for a time.
enum Time {
    Known(DateTime<Utc>),
    Missing,
    /// A server may be told to keep what is no date, such as the 0th of a month.
    Unreadable,
}

impl Time {
    fn known(self) -> Option<DateTime<Utc>> {
        match self {
            Self::Known(time) => Some(time),
            Self::Missing | Self::Unreadable => None,
        }
    }
}

fn time(row: &MySqlRow, role: Role) -> sqlx::Result<Time> {
    let column = row.try_get_raw(role.name())?;
    let is_time = <DateTime<Utc> as Type<MySql>>::compatible(&column.type_info());
    match row.try_get::<Option<DateTime<Utc>>, _>(role.name()) {
        Ok(time) => Ok(time.map_or(Time::Missing, Time::Known)),
        // If the column has another type this is about all rows.
        Err(sqlx::Error::ColumnDecode { .. }) if is_time => Ok(Time::Unreadable),
        Err(error) => Err(error),
    }
}

pub(crate) fn claimed(row: &MySqlRow, map: &TableMap) -> sqlx::Result<ClaimedMessage> {
    Ok(map.claimed(&raw(row, map)?))
}

pub(crate) fn record(row: &MySqlRow, map: &TableMap) -> sqlx::Result<Record> {
    let word: String = row.try_get("status")?;
    let state = map
        .state(&word)
        .ok_or_else(|| undecodable("status", format!("`{word}` is not a state of this table map")))?;
    let raw = raw(row, map)?;
    let time = |role| Ok::<_, sqlx::Error>(time(row, role)?.known());
    let locked_by: Option<String> = row.try_get("locked_by")?;
    Ok(Record {
        message: map.message(&raw).0,
        sequence: row.try_get("seq")?,
        state,
        attempts: u32::try_from(raw.attempts).unwrap_or(0),
        next_attempt_at: time(Role::NextAttemptAt)?.unwrap_or(raw.created_at),
        // A proof that is kept as text begins with the worker.
        locked_by: locked_by.map(|by| by.split('/').next().unwrap_or_default().to_owned()),
        locked_until: time(Role::LockedUntil)?,
        last_error: row.try_get("last_error")?,
        created_at: raw.created_at,
        updated_at: time(Role::UpdatedAt)?.unwrap_or(raw.created_at),
        delivered_at: time(Role::DeliveredAt)?,
    })
}
