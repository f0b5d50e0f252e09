//! What a driver gives for a row, by role: the stores differ in no more than this.

use chrono::{DateTime, Utc};
use posthaste_core::message::Text;

use super::Role;

/// A row with a column for each role that a statement selects, under the role's name.
pub trait SqlRow {
    /// The driver's own.
    type Error;

    /// Text, whatever the column's type is.
    fn text(&self, role: Role) -> Result<Held<String>, Self::Error>;

    /// The same as a message keeps it. A driver may have an equal one already.
    ///
    /// # Errors
    /// Those of [`SqlRow::text`].
    fn message_text(&self, role: Role) -> Result<Held<Text>, Self::Error> {
        Ok(match self.text(role)? {
            Held::Known(text) => Held::Known(text.map(Text::from)),
            Held::Unreadable { wanted, nearest } => Held::Unreadable {
                wanted,
                nearest: nearest.map(Text::from),
            },
        })
    }

    /// The primary key where it is known to be a number; else it is read as a text.
    fn numeric_id(&self) -> Option<i64> {
        None
    }

    /// A whole number.
    fn number(&self, role: Role) -> Result<Option<i64>, Self::Error>;

    /// Bytes as they are stored.
    fn bytes(&self, role: Role) -> Result<Option<Vec<u8>>, Self::Error>;

    /// A time, whatever the column's type is.
    fn time(&self, role: Role) -> Result<Held<DateTime<Utc>>, Self::Error>;

    /// The driver's error about a column that has no meaning.
    fn undecodable(role: Role, reason: String) -> Self::Error;
}

/// What a column holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held<T> {
    /// This, or nothing.
    Known(Option<T>),
    /// Something that is no such value. That is a fault of its row, and of no other.
    Unreadable {
        /// What it should be.
        wanted: &'static str,
        /// What comes nearest.
        nearest: Option<T>,
    },
}

impl<T> Held<T> {
    /// The value, or what comes nearest.
    pub fn nearest(self) -> Option<T> {
        match self {
            Self::Known(value) => value,
            Self::Unreadable { nearest, .. } => nearest,
        }
    }
}
