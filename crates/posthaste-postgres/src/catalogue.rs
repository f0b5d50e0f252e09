//! What PostgreSQL says of its tables.

use async_trait::async_trait;
use posthaste_core::StoreError;
use posthaste_sql::table::catalogue::literals;
use posthaste_sql::table::{Catalogue, Database, Identifier, LiveColumn, LiveIndex, LiveTable, Shape, TableName};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgPool, Row};

use crate::error::store_error;

/// The catalogue of a PostgreSQL database.
#[derive(Clone, Debug)]
pub struct PostgresCatalogue {
    pool: PgPool,
}

impl PostgresCatalogue {
    /// The catalogue of the database that the pool connects to, also through a pooler in transaction mode.
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    async fn rows(&self, sql: &'static str, name: &str) -> Result<Vec<PgRow>, StoreError> {
        let query = sqlx::query(sql).persistent(false).bind(name);
        let mut tx = self.pool.begin().await.map_err(store_error)?;
        query.fetch_all(&mut *tx).await.map_err(store_error)
    }
}

#[async_trait]
impl Catalogue for PostgresCatalogue {
    fn database(&self) -> Database {
        Database::Postgres
    }

    async fn tables(&self, schema: Option<&Identifier>) -> Result<Vec<TableName>, StoreError> {
        let mut tx = self.pool.begin().await.map_err(store_error)?;
        let names: Vec<String> = sqlx::query_scalar(include_str!("../queries/catalogue/tables.sql"))
            .persistent(false)
            .bind(schema.map(Identifier::as_str))
            .fetch_all(&mut *tx)
            .await
            .map_err(store_error)?;
        // What cannot be an identifier here cannot be in a map either.
        let names = names.into_iter().filter_map(|name| Identifier::new(name).ok());
        let table = |name| TableName {
            schema: schema.cloned(),
            name,
        };
        Ok(names.map(table).collect())
    }

    async fn describe(&self, table: &TableName) -> Result<Option<LiveTable>, StoreError> {
        let name = table.quoted('"');
        let columns = self
            .rows(include_str!("../queries/catalogue/columns.sql"), &name)
            .await?;
        if columns.is_empty() {
            return Ok(None);
        }
        let indexes = self
            .rows(include_str!("../queries/catalogue/indexes.sql"), &name)
            .await?;
        let shape = self.rows(include_str!("../queries/catalogue/shape.sql"), &name).await?;
        let live = LiveTable {
            name: table.clone(),
            shape: shape
                .first()
                .map(self::shape)
                .transpose()
                .map_err(store_error)?
                .unwrap_or_default(),
            columns: columns
                .iter()
                .map(column)
                .collect::<sqlx::Result<_>>()
                .map_err(store_error)?,
            indexes: indexes
                .iter()
                .map(index)
                .collect::<sqlx::Result<_>>()
                .map_err(store_error)?,
        };
        Ok(Some(live))
    }

    async fn values(&self, table: &TableName, column: &Identifier, limit: u32) -> Result<Vec<String>, StoreError> {
        let sql = include_str!("../queries/catalogue/values.sql")
            .replace("\"@column\"", &column.quoted('"'))
            .replace("\"@table\"", &table.quoted('"'));
        let mut tx = self.pool.begin().await.map_err(store_error)?;
        sqlx::query_scalar(AssertSqlSafe(sql))
            .persistent(false)
            .bind(i64::from(limit))
            .fetch_all(&mut *tx)
            .await
            .map_err(store_error)
    }
}

fn column(row: &PgRow) -> sqlx::Result<LiveColumn> {
    let default: Option<String> = row.try_get("default")?;
    let numbered = default
        .as_deref()
        .is_some_and(|default| default.starts_with("nextval("));
    let max_length: Option<i32> = row.try_get("max_length")?;
    let mut values: Vec<String> = row.try_get("labels")?;
    let checks: Vec<String> = row.try_get("checks")?;
    // Only those that list values say what the values are.
    let lists = |check: &&String| check.contains("ARRAY[") || check.contains(" = '");
    for value in checks.iter().filter(lists).flat_map(|check| literals(check)) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    Ok(LiveColumn {
        name: row.try_get("name")?,
        type_name: row.try_get("type_name")?,
        nullable: row.try_get("nullable")?,
        default,
        max_length: max_length.and_then(|length| usize::try_from(length).ok()),
        generated: numbered || row.try_get("generated")?,
        values,
        definition: None,
    })
}

fn shape(row: &PgRow) -> sqlx::Result<Shape> {
    Ok(match row.try_get("kind")? {
        "v" | "m" => Shape::Other("a view"),
        "f" => Shape::Other("a foreign table"),
        "p" => {
            let by: Vec<Option<String>> = row.try_get("partitioned_by")?;
            let by: Option<Vec<String>> = by.into_iter().collect();
            Shape::Partitioned {
                by: by.unwrap_or_default(),
            }
        }
        _ => Shape::Table,
    })
}

fn index(row: &PgRow) -> sqlx::Result<LiveIndex> {
    let columns: Vec<Option<String>> = row.try_get("columns")?;
    Ok(LiveIndex {
        name: row.try_get("name")?,
        columns: columns.into_iter().map_while(|column| column).collect(),
        unique: row.try_get("is_unique")?,
        partial: row.try_get("is_partial")?,
        primary: row.try_get("is_primary")?,
    })
}
