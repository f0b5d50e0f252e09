//! What a database says of its tables.

use async_trait::async_trait;

use super::{Database, Identifier, TableMap, TableName};
use posthaste_core::store::StoreError;

/// A table as it is in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveTable {
    /// The name by which it was asked for.
    pub name: TableName,
    /// Its columns, in their order.
    pub columns: Vec<LiveColumn>,
    /// Its indexes, that of the primary key among them.
    pub indexes: Vec<LiveIndex>,
    /// What sort of table it is.
    pub shape: Shape,
}

/// What sort of table it is, as far as that decides how it can be changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// One that can be changed and have indexes.
    #[default]
    Table,
    /// One that shows the rows of others, such as a view: those have to be changed.
    Other(&'static str),
    /// One in parts, whose unique indexes have to include the columns that it is partitioned by.
    Partitioned {
        /// Those columns; none where an expression stands for them that allows no unique index at all.
        by: Vec<String>,
    },
}

/// A column as it is in the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveColumn {
    /// Its name.
    pub name: String,
    /// What the database calls its type, in small letters and without a length.
    pub type_name: String,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// What it is when an insert says nothing, as an expression.
    pub default: Option<String>,
    /// Most characters or bytes it holds, where the database keeps to it.
    pub max_length: Option<usize>,
    /// Whether the database gives the value: a number of its own, or one that is computed.
    pub generated: bool,
    /// The only values it may have, where the database says so.
    pub values: Vec<String>,
    /// All that stands after its name where the table is created, in databases where a change has to repeat it.
    pub definition: Option<String>,
}

/// An index as it is in the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveIndex {
    /// Its name.
    pub name: String,
    /// Its columns; an expression in place of a column is left out, with all that follow. None if it serves nothing.
    pub columns: Vec<String>,
    /// Whether no two rows may be equal in it.
    pub unique: bool,
    /// Whether it has some of the rows only.
    pub partial: bool,
    /// Whether it is that of the primary key.
    pub primary: bool,
}

impl LiveTable {
    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<&LiveColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The columns of the primary key.
    pub fn primary_key(&self) -> &[String] {
        self.indexes
            .iter()
            .find(|index| index.primary)
            .map_or(&[], |index| &index.columns)
    }
}

impl LiveColumn {
    /// Whether an insert may leave it out.
    pub fn may_be_left_out(&self) -> bool {
        self.nullable || self.generated || self.default.is_some()
    }
}

/// Asks a database about its tables. Changes nothing.
#[async_trait]
pub trait Catalogue: Send + Sync {
    /// Which database it is.
    fn database(&self) -> Database;

    /// The tables of a schema; without one, those that can be named without a schema.
    async fn tables(&self, schema: Option<&Identifier>) -> Result<Vec<TableName>, StoreError>;

    /// One table; nothing if it is not there.
    async fn describe(&self, table: &TableName) -> Result<Option<LiveTable>, StoreError>;

    /// Some of the different values that a column has now, as text: at most `limit`, from a limited number of rows.
    async fn values(&self, table: &TableName, column: &Identifier, limit: u32) -> Result<Vec<String>, StoreError>;
}

/// Those of a map's tables that are there.
pub async fn describe_all(map: &TableMap, catalogue: &dyn Catalogue) -> Result<Vec<LiveTable>, StoreError> {
    let mut found = Vec::new();
    for (_, table) in map.tables() {
        found.extend(catalogue.describe(table).await?);
    }
    Ok(found)
}

/// The texts in a piece of SQL such as `status in ('NEW', 'SENT')`.
pub fn literals(sql: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = sql;
    while let Some((_, after)) = rest.split_once('\'') {
        let mut text = String::new();
        let mut parts = after;
        rest = loop {
            let Some((part, after)) = parts.split_once('\'') else {
                return found;
            };
            text += part;
            match after.strip_prefix('\'') {
                // A quote inside a text is written twice.
                Some(after) => {
                    text.push('\'');
                    parts = after;
                }
                None => break after,
            }
        };
        if !found.contains(&text) {
            found.push(text);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_with_their_quotes() {
        let check = "CHECK (((s)::text = ANY ((ARRAY['NEW'::character varying, 'it''s'::text, 'NEW', ''])::text[])))";
        assert_eq!(literals(check), ["NEW", "it's", ""]);
        assert!(literals("s > 0 and 'unfinished").is_empty());
    }
}
