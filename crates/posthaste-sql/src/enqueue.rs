//! Enqueueing without a driver: statements, what to bind to them, and what they answer.
//!
//! A store says which statements write a message; the owner of the transaction runs them. That is the store's own driver, or an
//! ORM with a connection of its own: see `PostgresEnqueue` of `posthaste-postgres`, `MySqlEnqueue` of `posthaste-mysql` and
//! `SqliteEnqueue` of `posthaste-sqlite`.

mod pending;

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};
use uuid::Uuid;

pub use pending::{EnqueueSteps, PendingEnqueue, RefusableSteps, outcomes};

/// A statement to be run, for any driver.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Query<'a, A = Argument<'a>> {
    /// Its text, with the database's own placeholders.
    pub sql: Arc<str>,
    /// What to bind, in this order.
    pub arguments: Vec<A>,
    /// Whether it returns rows, with the columns of an [`AnswerRow`]. Some drivers run other statements by another function.
    pub returns_rows: bool,
    /// Whether the connection's session is known to keep a statement once it was prepared. If not, do not name it: a pooler may
    /// give the next transaction another session.
    pub is_kept: bool,
    messages: PhantomData<&'a ()>,
}

impl<A> Query<'_, A> {
    /// A statement that returns rows, with its arguments, of which nothing is kept.
    pub fn new(sql: &Arc<str>, arguments: Vec<A>) -> Self {
        Self {
            sql: Arc::clone(sql),
            arguments,
            returns_rows: true,
            is_kept: false,
            messages: PhantomData,
        }
    }

    /// The same, as a statement that returns none.
    #[must_use]
    pub fn without_rows(mut self) -> Self {
        self.returns_rows = false;
        self
    }
}

/// One argument of a [`Query`]. Arrays have one element for each message, none where all would be null, or where the statement
/// says so one that is the same for all; a single message goes without arrays.
///
/// Code that binds them should hear of a new kind from the compiler, so all kinds can be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument<'a> {
    /// `text[]`, with nulls.
    Texts(Vec<Option<Cow<'a, str>>>),
    /// `bytea[]`.
    Bytes(Vec<&'a [u8]>),
    /// `uuid[]`. The statement also casts a `text[]`.
    Uuids(Vec<Uuid>),
    /// `timestamptz[]`, with nulls.
    Times(Vec<Option<DateTime<Utc>>>),
    /// `text`, or null.
    Text(Option<Cow<'a, str>>),
    /// `bytea`.
    Blob(&'a [u8]),
    /// `timestamptz`, or null.
    Time(Option<DateTime<Utc>>),
    /// `bigint`.
    Integer(i64),
}

impl Argument<'_> {
    /// The argument as a text or null, which the statement casts to its type: for a driver that has no arrays, or none with
    /// nulls. Bytes take twice their room.
    ///
    /// ```
    /// use posthaste_sql::enqueue::Argument;
    ///
    /// let texts = Argument::Texts(vec![Some(r#"a "b""#.into()), None]);
    /// assert_eq!(texts.to_text().unwrap(), r#"{"a \"b\"",null}"#);
    /// assert_eq!(Argument::Bytes(vec![&[0, 255]]).to_text().unwrap(), r#"{"\\x00ff"}"#);
    /// assert_eq!(Argument::Blob(&[0, 255]).to_text().unwrap(), r"\x00ff");
    /// assert_eq!(Argument::Integer(7).to_text().unwrap(), "7");
    /// assert_eq!(Argument::Text(None).to_text(), None);
    /// ```
    pub fn to_text(&self) -> Option<String> {
        Some(match self {
            Self::Texts(texts) => array(texts.iter().map(|text| text.as_deref().map(quoted))),
            Self::Bytes(bytes) => array(bytes.iter().map(|bytes| Some(quoted(&hex(bytes))))),
            Self::Uuids(ids) => array(ids.iter().map(|id| Some(id.to_string()))),
            Self::Times(times) => array(times.iter().map(|time| time.map(|time| quoted(&moment(time))))),
            Self::Text(text) => return text.as_deref().map(str::to_owned),
            Self::Blob(bytes) => hex(bytes),
            Self::Time(time) => return time.map(moment),
            Self::Integer(number) => number.to_string(),
        })
    }
}

/// One argument of a [`Query`] for a database that has no arrays: MySQL, MariaDB and SQLite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A text, or null.
    Text(Option<Cow<'a, str>>),
    /// Bytes.
    Bytes(Cow<'a, [u8]>),
    /// A whole number, or null.
    Integer(Option<i64>),
}

fn array(elements: impl Iterator<Item = Option<String>>) -> String {
    let elements: Vec<_> = elements
        .map(|element| element.unwrap_or_else(|| "null".to_owned()))
        .collect();
    format!("{{{}}}", elements.join(","))
}

fn quoted(element: &str) -> String {
    format!("\"{}\"", element.replace('\\', r"\\").replace('"', "\\\""))
}

/// Bytes as `bytea` reads them.
pub fn hex(bytes: &[u8]) -> String {
    let digits = |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0'));
    "\\x".chars().chain(bytes.iter().flat_map(digits)).collect()
}

/// A time as `timestamptz` reads it.
pub fn moment(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// One row that a [`Query`] returns, by its columns' names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerRow {
    /// `place`, a `bigint`.
    pub place: i64,
    /// `id`, a text.
    pub id: String,
    /// `is_new`, a boolean.
    pub is_new: bool,
}
