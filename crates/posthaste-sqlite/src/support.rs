//! What a table map must have to be served by SQLite, and what a table must have to be served by its map.

use std::collections::HashSet;

use posthaste_core::StoreError;
use posthaste_core::store::StoreErrorKind;
use posthaste_sql::TableMap;
use posthaste_sql::table::{Database, Kind, Role, Strategy, Table};

use crate::SqliteStore;
use crate::dialect::offset;
use crate::error::store_error;

/// Refuses a map that SQLite cannot serve, with what would have to be added.
pub(crate) fn ensure_supported(map: &TableMap) -> Result<(), StoreError> {
    let refuse = |problem: String| Err(map.not_served_by(Database::Sqlite, problem));
    let uses_zone = map.columns().any(|(_, column)| column.kind == Kind::Timestamp);
    if uses_zone && offset(map.zone()).is_none() {
        let zone = map.zone();
        return refuse(format!(
            "it has no list of time zones; write `{zone}` as an offset such as +09:00"
        ));
    }
    match map.strategy() {
        Strategy::Leased => Ok(()),
        Strategy::Split => ensure_split_supported(map).or_else(refuse),
        Strategy::RowLocks => refuse(without_leases(map)),
        Strategy::Log => map.check_database(Database::Sqlite),
    }
}

/// Split indexes are those of Posthaste's own migrations, and the statements for them know their columns.
fn ensure_split_supported(map: &TableMap) -> Result<(), String> {
    let native_times = map
        .columns()
        .all(|(_, column)| !column.kind.is_time() || column.kind == Kind::EpochMs);
    if map.has(Table::Migrations) && native_times && map.order() == [Role::Seq] {
        return Ok(());
    }
    Err("split_index belongs to the tables that Posthaste makes; leave it out".to_owned())
}

fn without_leases(map: &TableMap) -> String {
    let table = map
        .table(Table::Outbox)
        .map(|table| table.quoted('"'))
        .unwrap_or_default();
    let mut sql = vec![
        format!("alter table {table} add column locked_by text;"),
        format!("alter table {table} add column locked_until integer;"),
    ];
    if !map.has(Role::Attempts) {
        sql.push(format!(
            "alter table {table} add column attempts integer not null default 0;"
        ));
    }
    format!(
        "the table says neither who has a row nor until when, and SQLite has no row locks that could stand in. Add \
         columns for that ({}), map them (locked_by = {{ column = \"locked_by\", kind = \"text\" }}, locked_until = \
         {{ column = \"locked_until\", kind = \"epoch_ms\" }}{}), and give states.processing a label",
        sql.join(" "),
        if map.has(Role::Attempts) {
            ""
        } else {
            ", attempts = \"attempts\""
        },
    )
}

impl SqliteStore {
    /// Whether every mapped column is there. SQLite would not say: it takes a name in quotes that it does not know for a
    /// text.
    pub(crate) async fn check_columns(&self) -> Result<(), StoreError> {
        for table in [Table::Outbox, Table::DeadLetter] {
            self.check_table(table).await?;
        }
        Ok(())
    }

    async fn check_table(&self, of: Table) -> Result<(), StoreError> {
        let Some(table) = self.map.table(of) else {
            return Ok(());
        };
        let found: Vec<String> =
            sqlx::query_scalar("select lower(name) from pragma_table_xinfo(?1, ?2) where hidden <> 1")
                .bind(table.name.as_str().to_owned())
                .bind(
                    table
                        .schema
                        .as_ref()
                        .map_or("main", |schema| schema.as_str())
                        .to_owned(),
                )
                .fetch_all(&self.pool)
                .await
                .map_err(store_error)?;
        let found: HashSet<String> = found.into_iter().collect();
        let missing = |problem: String| StoreError {
            kind: StoreErrorKind::SchemaMissing,
            message: problem,
            remedy: Some(self.schema_remedy()),
            source: None,
        };
        if found.is_empty() {
            return Err(missing(format!("SQLite: there is no table `{table}`")));
        }
        for (role, column) in self.map.columns_of(of) {
            // SQLite compares names without regard to the case of plain letters.
            if !found.contains(&column.name.as_str().to_ascii_lowercase()) {
                let problem = format!("SQLite: table `{table}` has no column `{}` for {role}", column.name);
                return Err(missing(problem));
            }
        }
        Ok(())
    }
}
