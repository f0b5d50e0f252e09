//! From rows to the core's types.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use posthaste_core::MessageId;
use posthaste_core::store::ClaimedMessage;
use posthaste_sql::TableMap;
use posthaste_sql::log::Lane;
use posthaste_sql::table::{Held, Role, SqlRow};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::rows::ByRole;

/// A row of the log or of the table of failures: what they have in common is selected, the rest of a message they lack.
struct LogRow<'r> {
    row: ByRole<'r>,
    /// Its id in the log, where that is known.
    sequence: Option<i64>,
    attempts: i64,
}

impl LogRow<'_> {
    fn lacks(role: Role) -> bool {
        matches!(
            role,
            Role::Namespace | Role::DedupeKey | Role::ContentHash | Role::MaxAttempts | Role::Version
        )
    }
}

impl SqlRow for LogRow<'_> {
    type Error = sqlx::Error;

    fn text(&self, role: Role) -> sqlx::Result<Held<String>> {
        match role {
            Role::Id => Ok(Held::Known(self.row.number(role)?.map(|id| id.to_string()))),
            _ if Self::lacks(role) => Ok(Held::Known(None)),
            _ => self.row.text(role),
        }
    }

    fn number(&self, role: Role) -> sqlx::Result<Option<i64>> {
        match role {
            Role::Seq => Ok(self.sequence),
            Role::Attempts => Ok(Some(self.attempts)),
            _ if Self::lacks(role) => Ok(None),
            _ => self.row.number(role),
        }
    }

    fn bytes(&self, role: Role) -> sqlx::Result<Option<Vec<u8>>> {
        if Self::lacks(role) {
            Ok(None)
        } else {
            self.row.bytes(role)
        }
    }

    fn time(&self, role: Role) -> sqlx::Result<Held<DateTime<Utc>>> {
        self.row.time(role)
    }

    fn undecodable(role: Role, reason: String) -> sqlx::Error {
        ByRole::undecodable(role, reason)
    }
}

/// A fresh row of the log.
pub(super) fn fresh(row: &PgRow, map: &TableMap) -> sqlx::Result<ClaimedMessage> {
    map.claimed(&LogRow {
        row: ByRole(row),
        sequence: row.try_get("id")?,
        attempts: 1,
    })
}

/// A failed row.
pub(super) fn failed(row: &PgRow, map: &TableMap) -> sqlx::Result<ClaimedMessage> {
    let counted: i64 = row.try_get("attempts")?;
    // This claim is one more; and where retries are counted, the first attempt was made in the log.
    let attempts = counted.saturating_add(if map.is_native() { 1 } else { 2 });
    let mut claimed = map.claimed(&LogRow {
        row: ByRole(row),
        sequence: row.try_get("log_id")?,
        attempts,
    })?;
    claimed.message.id = failed_id(row.try_get("id")?);
    Ok(claimed)
}

/// What the ids of failed rows begin with. The number that one has in its table may be that of another row in the log.
const FAILED: &str = "failed-";

/// The id of a failed row, made of its primary key: events may have ids of any length, and two rows the same.
pub(super) fn failed_id(number: i64) -> MessageId {
    MessageId::text(&format!("{FAILED}{number}"))
}

/// The primary key of a failed row, if an id is that of one.
pub(super) fn failed_number(id: MessageId) -> Option<i64> {
    let MessageId::Text(text) = id else { return None };
    text.as_str().strip_prefix(FAILED)?.parse().ok()
}

/// Within what a row keeps its order.
pub(super) fn lane(row: &PgRow) -> sqlx::Result<Option<Lane>> {
    let kind: Option<String> = row.try_get("lane_type")?;
    let key: Option<String> = row.try_get("lane_key")?;
    Ok(key.map(|key| (Arc::from(kind.unwrap_or_default()), Arc::from(key))))
}
