//! How a database says what all of them have.

use crate::table::Kind;

/// What a statement wants to read a column as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text.
    Text,
    /// Bytes.
    Bytes,
    /// A whole number.
    Integer,
    /// A moment.
    Time,
    /// The last 36 characters: the part of a proof that is unique.
    Fence,
}

impl Form {
    /// The form of this name in statements.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "text" => Self::Text,
            "bytes" => Self::Bytes,
            "int" => Self::Integer,
            "time" => Self::Time,
            "fence" => Self::Fence,
            _ => return None,
        })
    }
}

/// One database's way of saying things. Stores have one each.
pub trait Dialect: Sync {
    /// The quote for identifiers.
    fn quote(&self) -> char;

    /// A text as a literal.
    fn literal(&self, text: &str) -> String;

    /// An expression that reads a column of some kind in some form. `zone` is that of times without one.
    fn read(&self, column: &str, kind: Kind, form: Form, zone: &str) -> String;

    /// What is read where the table has no such column.
    fn missing(&self, form: Form) -> &'static str;

    /// An expression that turns a moment into what a column of some kind keeps.
    fn keep_time(&self, moment: &str, kind: Kind, zone: &str) -> String;

    /// A part that several statements have in common, by its name; see `/*put …*/` in [`crate::template`].
    fn part(&self, name: &str) -> Option<&'static str>;

    /// The type to which a parameter for a column of some kind is cast.
    fn type_name(&self, kind: Kind) -> &'static str;
}
