//! What SQLite says of its tables.

use async_trait::async_trait;
use posthaste_core::StoreError;
use posthaste_sql::table::catalogue::literals;
use posthaste_sql::table::{Catalogue, Database, Identifier, LiveColumn, LiveIndex, LiveTable, Shape, TableName};
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Row, SqlitePool};

use crate::error::store_error;

/// The catalogue of a SQLite database.
#[derive(Clone, Debug)]
pub struct SqliteCatalogue {
    pool: SqlitePool,
}

impl SqliteCatalogue {
    /// The catalogue of the database that the pool opens.
    pub fn new(pool: SqlitePool) -> Self {
        Self { pool }
    }

    async fn look(&self, table: &TableName) -> sqlx::Result<Option<LiveTable>> {
        let name = table.name.as_str();
        let found = sqlx::query(include_str!("../queries/catalogue/columns.sql"))
            .bind(name)
            .fetch_all(&self.pool)
            .await?;
        if found.is_empty() {
            return Ok(None);
        }
        let ddl: Option<String> =
            sqlx::query_scalar("select sql from sqlite_schema where type = 'table' and name = ?1")
                .bind(name)
                .fetch_optional(&self.pool)
                .await?
                .flatten();
        let mut columns = Vec::new();
        let mut key: Vec<(i64, String)> = Vec::new();
        for row in &found {
            let column = column(row, ddl.as_deref().unwrap_or_default())?;
            match row.try_get("pk")? {
                0 => {}
                place => key.push((place, column.name.clone())),
            }
            columns.push(column);
        }
        key.sort();
        let rows = sqlx::query(include_str!("../queries/catalogue/indexes.sql"))
            .bind(name)
            .fetch_all(&self.pool)
            .await?;
        let mut indexes = indexes(&rows)?;
        if !key.is_empty() && !indexes.iter().any(|index| index.primary) {
            // A primary key that is the row's own number has no index besides the table.
            indexes.push(LiveIndex {
                name: "primary key".to_owned(),
                columns: key.into_iter().map(|(_, name)| name).collect(),
                unique: true,
                partial: false,
                primary: true,
            });
        }
        Ok(Some(LiveTable {
            name: table.clone(),
            columns,
            indexes,
            // What has columns and is no table is a view.
            shape: if ddl.is_some() {
                Shape::Table
            } else {
                Shape::Other("a view")
            },
        }))
    }
}

#[async_trait]
impl Catalogue for SqliteCatalogue {
    fn database(&self) -> Database {
        Database::Sqlite
    }

    async fn tables(&self, _schema: Option<&Identifier>) -> Result<Vec<TableName>, StoreError> {
        let names: Vec<String> = sqlx::query_scalar(include_str!("../queries/catalogue/tables.sql"))
            .fetch_all(&self.pool)
            .await
            .map_err(store_error)?;
        let names = names.into_iter().filter_map(|name| Identifier::new(name).ok());
        Ok(names.map(|name| TableName { schema: None, name }).collect())
    }

    async fn describe(&self, table: &TableName) -> Result<Option<LiveTable>, StoreError> {
        self.look(table).await.map_err(store_error)
    }

    async fn values(&self, table: &TableName, column: &Identifier, limit: u32) -> Result<Vec<String>, StoreError> {
        let sql = include_str!("../queries/catalogue/values.sql")
            .replace("\"@column\"", &column.quoted('"'))
            .replace("\"@table\"", &table.quoted('"'));
        sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(limit)
            .fetch_all(&self.pool)
            .await
            .map_err(store_error)
    }
}

fn column(row: &SqliteRow, ddl: &str) -> sqlx::Result<LiveColumn> {
    let name: String = row.try_get("name")?;
    let declared: String = row.try_get("type_name")?;
    let type_name = declared.split('(').next().unwrap_or_default();
    Ok(LiveColumn {
        type_name: type_name.trim().to_lowercase(),
        nullable: row.try_get("nullable")?,
        default: row.try_get("default")?,
        max_length: None,
        generated: row.try_get("generated")?,
        values: checked_values(ddl, &name),
        definition: None,
        name,
    })
}

/// The texts of `check (column in ('a', 'b'))` in a table's definition, which is all that SQLite keeps of it.
fn checked_values(ddl: &str, column: &str) -> Vec<String> {
    let lower = ddl.to_ascii_lowercase();
    let column = column.to_ascii_lowercase();
    for (at, _) in lower.match_indices("check") {
        let after = &lower[at + "check".len()..];
        let Some(inside) = after.trim_start().strip_prefix('(') else {
            continue;
        };
        let begins = lower.len() - inside.len();
        let inner = &ddl[begins..begins + balanced(inside)];
        let condition = inner.to_ascii_lowercase();
        let list = condition.trim_start_matches(['"', '`', '[']).strip_prefix(&column);
        if list.is_some_and(|rest| rest.trim_start_matches(['"', '`', ']', ' ']).starts_with("in")) {
            return literals(inner);
        }
    }
    Vec::new()
}

/// How far it is to the bracket that ends what has begun.
fn balanced(text: &str) -> usize {
    let mut depth = 1;
    for (place, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return place;
        }
    }
    text.len()
}

fn indexes(rows: &[SqliteRow]) -> sqlx::Result<Vec<LiveIndex>> {
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
                partial: row.try_get("is_partial")?,
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
    fn the_values_of_a_check_are_found_in_the_definition() {
        let ddl = r#"create table t (id integer, "Status" text not null CHECK ("Status" IN ('a', 'b (c)', 'it''s')), n int check (n > 0))"#;
        assert_eq!(checked_values(ddl, "Status"), ["a", "b (c)", "it's"]);
        assert!(checked_values(ddl, "n").is_empty());
    }
}
