//! From rows to the core's types.

use std::cell::RefCell;

use chrono::{DateTime, Utc};
use posthaste_core::store::ClaimedMessage;
use posthaste_core::{MessageId, Text};
use posthaste_sql::TableMap;
use posthaste_sql::log::{Lane, LogRow as ReadRow, Policy};
use posthaste_sql::table::{Held, Kind, Role, SqlRow, Table};
use sqlx::postgres::PgRow;
use sqlx::{Row, ValueRef};

use super::own_row;
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
            Role::Headers => Ok(headers(self.row.bytes(role)?.as_deref())),
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

/// Headers come as bytes, which need not be text: the server would refuse all rows of the statement, not only theirs.
fn headers(bytes: Option<&[u8]>) -> Held<String> {
    match bytes.map(std::str::from_utf8) {
        None => Held::Known(None),
        Some(Ok(text)) => Held::Known(Some(text.to_owned())),
        Some(Err(_)) => Held::Unreadable {
            wanted: "text in UTF-8",
            nearest: None,
        },
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
    Ok(key.map(|key| (kind.unwrap_or_default().into(), key.into())))
}

/// Where `read_tail.sql` has what a message is made of.
pub(super) const fn place(role: Role) -> Option<usize> {
    Some(match role {
        Role::Id => 0,
        Role::EventId => 1,
        Role::OrderingKey => 2,
        Role::Tenant => 3,
        Role::EventType => 4,
        Role::Source => 5,
        Role::AggregateType => 6,
        Role::AggregateId => 7,
        Role::Topic => 8,
        Role::ContentType => 9,
        Role::Payload => 10,
        Role::Headers => 11,
        Role::CreatedAt => 12,
        _ => return None,
    })
}

/// What the table of failures says of the row.
const BESIDE: usize = 13;

/// What stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beside(i32);

impl Beside {
    /// The connection is not the reader's own.
    pub(super) fn is_another_reader(self) -> bool {
        self.0 == 1
    }

    /// The table of failures is not empty, and what it says of the row was not asked for.
    pub(super) fn is_unknown(self) -> bool {
        self.0 == 16
    }

    /// The row is in the table of failures.
    fn is_kept(self) -> bool {
        self.0 & 2 != 0
    }

    /// An earlier row of its lane is there, behind which it has to wait.
    fn is_held(self, topic: &str, policy: &Policy<'_>) -> bool {
        self.0 & 4 != 0 || (self.0 & 8 != 0 && policy.blocks(topic))
    }
}

/// Most different texts of one column that are kept.
const MAX_TEXTS: usize = 32;

/// Texts that many rows have in common, such as their types: each is kept once.
#[derive(Debug, Default)]
pub(super) struct Texts {
    by_place: [Vec<Text>; BESIDE],
}

impl Texts {
    pub(super) fn get(&mut self, place: usize, text: &str) -> Text {
        let known = &mut self.by_place[place];
        if let Some(text) = known.iter().find(|known| known.as_str() == text) {
            return text.clone();
        }
        let text = Text::new(text);
        if known.len() < MAX_TEXTS {
            known.push(text.clone());
        }
        text
    }
}

/// How rows of `read_tail.sql` are decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct TailColumns {
    has_numbers: bool,
    /// Whether it is Posthaste's own log.
    is_own: bool,
    /// Whose text is the lane's kind, if it has one.
    lane_type: Option<usize>,
    /// By what a lane is named, if there are lanes.
    lane_key: Option<usize>,
}

impl TailColumns {
    /// The same lanes as in `read.sql`.
    pub(super) fn of(map: &TableMap) -> Self {
        let in_failed = |role| map.has((Table::Failed, role));
        let key = if in_failed(Role::OrderingKey) {
            Role::OrderingKey
        } else {
            Role::AggregateId
        };
        Self {
            has_numbers: map.column(Role::Id).is_some_and(|column| column.kind == Kind::Integer),
            is_own: map.has(Role::Shard),
            lane_type: if map.has(Role::Shard) {
                place(Role::Topic)
            } else {
                place(Role::AggregateType).filter(|_| map.has(Role::AggregateType) && in_failed(Role::AggregateType))
            },
            lane_key: place(key).filter(|_| map.has(Role::OrderingKey)),
        }
    }

    /// What the table of failures says of a row.
    pub(super) fn beside(row: &PgRow) -> sqlx::Result<Beside> {
        row.try_get(BESIDE).map(Beside)
    }

    pub(super) fn decode(
        self,
        row: &PgRow,
        map: &TableMap,
        policy: &Policy<'_>,
        texts: &mut Texts,
    ) -> sqlx::Result<(ReadRow, ClaimedMessage)> {
        let beside = Self::beside(row)?;
        let (mut row, claimed) = self.decode_alone(row, map, texts)?;
        row.kept = beside.is_kept();
        row.held = beside.is_held(&claimed.message.topic, policy);
        Ok((row, claimed))
    }

    /// The row as if there were no failures.
    fn decode_alone(self, row: &PgRow, map: &TableMap, texts: &mut Texts) -> sqlx::Result<(ReadRow, ClaimedMessage)> {
        let id = row.try_get(0)?;
        if self.is_own
            && let Some(decoded) = own_row::decode(row, id, texts)?
        {
            return Ok(decoded);
        }
        let row = TailRow {
            row,
            id,
            has_numbers: self.has_numbers,
            is_own: self.is_own,
            texts: RefCell::new(texts),
        };
        let lane = self.lane(&row)?;
        let claimed = map.claimed(&row)?;
        let row = ReadRow {
            id: row.id,
            lane,
            kept: false,
            held: false,
        };
        Ok((row, claimed))
    }

    fn lane(self, row: &TailRow<'_>) -> sqlx::Result<Option<Lane>> {
        let Some(key) = self.lane_key else { return Ok(None) };
        let Some(key) = row.str_at(key)? else { return Ok(None) };
        let kind = match self.lane_type {
            Some(place) => row.str_at(place)?.map(|kind| row.texts.borrow_mut().get(place, kind)),
            None => None,
        };
        Ok(Some((kind.unwrap_or_default(), Text::new(key))))
    }
}

/// A row by the places of its columns.
struct TailRow<'r> {
    row: &'r PgRow,
    id: i64,
    has_numbers: bool,
    is_own: bool,
    texts: RefCell<&'r mut Texts>,
}

impl TailRow<'_> {
    fn str_at(&self, place: usize) -> sqlx::Result<Option<&str>> {
        let value = self.row.try_get_raw(place)?;
        if value.is_null() {
            return Ok(None);
        }
        value.as_str().map(Some).map_err(sqlx::Error::Decode)
    }

    fn bytes_at(&self, role: Role) -> sqlx::Result<Option<&[u8]>> {
        let Some(place) = place(role) else { return Ok(None) };
        let value = self.row.try_get_raw(place)?;
        if value.is_null() {
            return Ok(None);
        }
        value.as_bytes().map(Some).map_err(sqlx::Error::Decode)
    }
}

impl SqlRow for TailRow<'_> {
    type Error = sqlx::Error;

    fn text(&self, role: Role) -> sqlx::Result<Held<String>> {
        if role == Role::Id {
            return Ok(Held::Known(Some(self.id.to_string())));
        }
        if role == Role::Headers {
            return Ok(headers(self.bytes_at(role)?));
        }
        let text = place(role).map_or(Ok(None), |place| self.str_at(place))?;
        Ok(Held::Known(text.map(str::to_owned)))
    }

    fn message_text(&self, role: Role) -> sqlx::Result<Held<Text>> {
        let Some(place) = place(role) else {
            return Ok(Held::Known(None));
        };
        if self.is_own && role == Role::EventId {
            let id = self.row.try_get(place)?;
            return Ok(Held::Known(Some(own_row::hyphenated(id))));
        }
        let text = self.str_at(place)?.map(|text| match role {
            Role::EventType | Role::Source | Role::AggregateType | Role::Topic | Role::ContentType => {
                self.texts.borrow_mut().get(place, text)
            }
            _ => Text::new(text),
        });
        Ok(Held::Known(text))
    }

    fn numeric_id(&self) -> Option<i64> {
        self.has_numbers.then_some(self.id)
    }

    fn number(&self, role: Role) -> sqlx::Result<Option<i64>> {
        Ok(match role {
            Role::Seq => Some(self.id),
            Role::Attempts => Some(1),
            _ => None,
        })
    }

    fn bytes(&self, role: Role) -> sqlx::Result<Option<Vec<u8>>> {
        place(role).map_or(Ok(None), |place| self.row.try_get(place))
    }

    fn time(&self, role: Role) -> sqlx::Result<Held<DateTime<Utc>>> {
        let time = place(role).map_or(Ok(None), |place| self.row.try_get(place))?;
        Ok(Held::Known(time))
    }

    fn undecodable(role: Role, reason: String) -> sqlx::Error {
        ByRole::undecodable(role, reason)
    }
}
