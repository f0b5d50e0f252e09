//! What MySQL and MariaDB say of their tables.

use std::collections::HashMap;

use async_trait::async_trait;
use posthaste_core::StoreError;
use posthaste_sql::table::catalogue::literals;
use posthaste_sql::table::{Catalogue, Database, Identifier, LiveColumn, LiveIndex, LiveTable, Shape, TableName};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, MySqlPool, Row};

use crate::error::store_error;

/// The catalogue of a MySQL or MariaDB database.
#[derive(Clone, Debug)]
pub struct MySqlCatalogue {
    pool: MySqlPool,
}

impl MySqlCatalogue {
    /// The catalogue of the database that the pool connects to.
    pub fn new(pool: MySqlPool) -> Self {
        Self { pool }
    }

    async fn rows(&self, sql: &'static str, table: &TableName) -> sqlx::Result<Vec<MySqlRow>> {
        sqlx::query(sql)
            .bind(table.schema.as_ref().map(Identifier::as_str))
            .bind(table.name.as_str())
            .fetch_all(&self.pool)
            .await
    }

    /// What stands after the name of each column where the table is created. A view has none.
    async fn definitions(&self, table: &TableName) -> sqlx::Result<HashMap<String, String>> {
        let sql = format!("show create table {}", table.quoted('`'));
        let row = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(&self.pool).await?;
        // A view's text has no lines that begin with a name.
        let text: String = row.try_get_unchecked(1)?;
        Ok(text.lines().filter_map(definition).collect())
    }

    async fn look(&self, table: &TableName) -> sqlx::Result<Option<LiveTable>> {
        let columns = self
            .rows(include_str!("../queries/catalogue/columns.sql"), table)
            .await?;
        if columns.is_empty() {
            return Ok(None);
        }
        let checks = self
            .rows(include_str!("../queries/catalogue/checks.sql"), table)
            .await?;
        let checks: Vec<String> = checks
            .iter()
            .map(|row| row.try_get("check_clause").map(unescaped))
            .collect::<sqlx::Result<_>>()?;
        let indexes = self
            .rows(include_str!("../queries/catalogue/indexes.sql"), table)
            .await?;
        let definitions = self.definitions(table).await?;
        let mut live = LiveTable {
            name: table.clone(),
            columns: columns
                .iter()
                .map(|row| column(row, &checks, &definitions))
                .collect::<sqlx::Result<_>>()?,
            indexes: self::indexes(&indexes)?,
            shape: Shape::Table,
        };
        let parts = self.rows(include_str!("../queries/catalogue/shape.sql"), table).await?;
        live.shape = shape(&live, &parts)?;
        Ok(Some(live))
    }
}

#[async_trait]
impl Catalogue for MySqlCatalogue {
    fn database(&self) -> Database {
        Database::MySql
    }

    async fn tables(&self, schema: Option<&Identifier>) -> Result<Vec<TableName>, StoreError> {
        let names: Vec<String> = sqlx::query_scalar(include_str!("../queries/catalogue/tables.sql"))
            .bind(schema.map(Identifier::as_str))
            .fetch_all(&self.pool)
            .await
            .map_err(store_error)?;
        let names = names.into_iter().filter_map(|name| Identifier::new(name).ok());
        let table = |name| TableName {
            schema: schema.cloned(),
            name,
        };
        Ok(names.map(table).collect())
    }

    async fn describe(&self, table: &TableName) -> Result<Option<LiveTable>, StoreError> {
        self.look(table).await.map_err(store_error)
    }

    async fn values(&self, table: &TableName, column: &Identifier, limit: u32) -> Result<Vec<String>, StoreError> {
        let sql = include_str!("../queries/catalogue/values.sql")
            .replace("\"@column\"", &column.quoted('`'))
            .replace("\"@table\"", &table.quoted('`'));
        sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(limit)
            .fetch_all(&self.pool)
            .await
            .map_err(store_error)
    }
}

/// MySQL writes a condition as it would stand between quotes: with a backslash before each of its own.
fn unescaped(check: String) -> String {
    let all_escaped = check.match_indices('\'').all(|(at, _)| check[..at].ends_with('\\'));
    if all_escaped {
        check.replace("\\\\\\'", "''").replace("\\'", "'")
    } else {
        check
    }
}

/// A line such as "  `status` varchar(20) NOT NULL DEFAULT 'NEW',".
fn definition(line: &str) -> Option<(String, String)> {
    let rest = line.strip_prefix("  `")?;
    let doubled = rest.replace("``", "  ");
    let end = doubled.find('`')?;
    let name = rest[..end].replace("``", "`");
    let definition = rest[end + 1..].trim();
    Some((name, definition.strip_suffix(',').unwrap_or(definition).to_owned()))
}

fn column(row: &MySqlRow, checks: &[String], definitions: &HashMap<String, String>) -> sqlx::Result<LiveColumn> {
    let name: String = row.try_get("name")?;
    let type_name: String = row.try_get("type_name")?;
    let column_type: String = row.try_get("column_type")?;
    let default: Option<String> = row.try_get("column_default")?;
    let max_length: Option<i64> = row.try_get("max_length")?;
    // `status` in ('a','b'), and nothing that asks for more than that.
    let begins = format!("`{}` in (", name.replace('`', "``"));
    let listed = checks
        .iter()
        .find(|check| check.trim_start_matches('(').starts_with(&begins));
    let values = match type_name.as_str() {
        "enum" => literals(&column_type),
        _ => listed.map(|check| literals(check)).unwrap_or_default(),
    };
    Ok(LiveColumn {
        type_name,
        nullable: row.try_get("nullable")?,
        // MariaDB writes the default that is none as a word.
        default: default.filter(|default| !default.eq_ignore_ascii_case("null")),
        max_length: max_length.and_then(|length| usize::try_from(length).ok()),
        generated: row.try_get::<Option<bool>, _>("is_generated")?.unwrap_or_default(),
        values,
        definition: definitions.get(&name).cloned(),
        name,
    })
}

/// One row for each way in which the table is partitioned, or one for a table that is not.
fn shape(live: &LiveTable, rows: &[MySqlRow]) -> sqlx::Result<Shape> {
    let mut by = Vec::new();
    for row in rows {
        if row.try_get("is_view")? {
            return Ok(Shape::Other("a view"));
        }
        let Some(expression) = row.try_get::<Option<String>, _>("expression")? else {
            continue;
        };
        by.extend(columns_of(&expression, live));
    }
    Ok(if by.is_empty() {
        Shape::Table
    } else {
        Shape::Partitioned { by }
    })
}

/// The columns in an expression that rows are partitioned by. `key ()` means the primary key.
fn columns_of(expression: &str, live: &LiveTable) -> Vec<String> {
    if expression.is_empty() {
        return live.primary_key().to_vec();
    }
    let is_part_of_name = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '$';
    let words: Vec<&str> = expression.split(|letter| !is_part_of_name(letter)).collect();
    let is_named = |name: &str| expression.contains(&format!("`{}`", name.replace('`', "``"))) || words.contains(&name);
    let names = live.columns.iter().map(|column| column.name.clone());
    names.filter(|name| is_named(name)).collect()
}

fn indexes(rows: &[MySqlRow]) -> sqlx::Result<Vec<LiveIndex>> {
    let mut indexes: Vec<LiveIndex> = Vec::new();
    let mut cut = false;
    for row in rows {
        let name: String = row.try_get("index_name")?;
        if indexes.last().is_none_or(|index| index.name != name) {
            cut = false;
            indexes.push(LiveIndex {
                name,
                columns: Vec::new(),
                unique: row.try_get("is_unique")?,
                partial: false,
                primary: row.try_get("is_primary")?,
            });
        }
        let column: Option<String> = row.try_get("column_name")?;
        match (column, indexes.last_mut()) {
            (Some(column), Some(index)) if !cut => index.columns.push(column),
            _ => cut = true,
        }
    }
    Ok(indexes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_read_from_the_lines_of_their_columns() {
        let read = |line| definition(line).map(|(name, rest)| format!("{name}: {rest}"));
        let line = "  `it``s` varchar(5) COLLATE utf8mb4_bin NOT NULL DEFAULT 'a,',";
        assert_eq!(
            read(line).as_deref(),
            Some("it`s: varchar(5) COLLATE utf8mb4_bin NOT NULL DEFAULT 'a,'")
        );
        assert_eq!(
            read("  `n` int(11) DEFAULT NULL").as_deref(),
            Some("n: int(11) DEFAULT NULL")
        );
        assert_eq!(read("  PRIMARY KEY (`n`)"), None);
    }

    #[test]
    fn conditions_are_read_as_either_server_writes_them() {
        let mariadb = "`status` in ('NEW','it\\'s')";
        assert_eq!(unescaped(mariadb.to_owned()), mariadb);
        let mysql = r"(`status` in (_utf8mb4\'NEW\',_utf8mb4\'it\\\'s\'))";
        assert_eq!(
            unescaped(mysql.to_owned()),
            "(`status` in (_utf8mb4'NEW',_utf8mb4'it''s'))"
        );
    }
}
