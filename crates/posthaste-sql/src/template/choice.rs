//! Statements that first choose rows and then change them.

/// A file whose first part, up to the line `/*list picked*/`, chooses the rows that the rest changes and calls them `picked`. So
/// the rows can be listed without being changed, with the same arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice<'a> {
    choosing: &'a str,
    rows: &'a str,
    change: &'a str,
}

impl<'a> Choice<'a> {
    /// The parts of a file, if it has such a line.
    pub fn of(file: &'a str) -> Option<Self> {
        let (choosing, rest) = file.split_once("/*list ")?;
        let (rows, change) = rest.split_once("*/\n")?;
        Some(Self { choosing, rows, change })
    }

    /// The whole statement.
    pub fn statement(&self) -> String {
        format!("{}{}", self.choosing, self.change)
    }

    /// The statement that lists the rows; `list` makes the rest of it from what the rows are called.
    pub fn listing(&self, list: impl FnOnce(&str) -> String) -> String {
        format!("{} {}", self.choosing, list(self.rows))
    }
}
