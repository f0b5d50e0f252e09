//! From rows to the core's types.

use std::time::Duration;

use chrono::{DateTime, Utc};
use posthaste_core::MessageId;
use posthaste_sql::table::{Held, Role, SqlRow, TableMap};
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

/// A row by role.
pub(crate) struct ByRole<'r>(pub(crate) &'r MySqlRow);

impl SqlRow for ByRole<'_> {
    type Error = sqlx::Error;

    fn text(&self, role: Role) -> sqlx::Result<Held<String>> {
        self.0.try_get(role.name()).map(Held::Known)
    }

    fn number(&self, role: Role) -> sqlx::Result<Option<i64>> {
        let column = self.0.try_get_raw(role.name())?;
        if <u64 as Type<MySql>>::compatible(&column.type_info()) {
            let number: Option<u64> = self.0.try_get(role.name())?;
            return Ok(number.map(|number| number.try_into().unwrap_or(i64::MAX)));
        }
        self.0.try_get(role.name())
    }

    fn bytes(&self, role: Role) -> sqlx::Result<Option<Vec<u8>>> {
        self.0.try_get(role.name())
    }

    fn time(&self, role: Role) -> sqlx::Result<Held<DateTime<Utc>>> {
        let column = self.0.try_get_raw(role.name())?;
        let is_time = <DateTime<Utc> as Type<MySql>>::compatible(&column.type_info());
        match self.0.try_get(role.name()) {
            // A server may be told to keep what is no date, such as the 0th of a month. If the column has another type
            // this is about all rows.
            Err(sqlx::Error::ColumnDecode { .. }) if is_time => Ok(Held::Unreadable {
                wanted: "a date of the calendar",
                nearest: None,
            }),
            time => time.map(Held::Known),
        }
    }

    fn undecodable(role: Role, reason: String) -> sqlx::Error {
        undecodable(role.name(), reason)
    }
}
