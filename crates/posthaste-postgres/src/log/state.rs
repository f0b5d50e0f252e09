//! What the reader of a mapped log leaves to its successor, beyond the cursor.
//!
//! The mapped tables have a place for the cursor only, so the rest stands in a table of our own, written in the same
//! statement. It counts if it was written beside the cursor that is stored, of the same tables. A cursor that somebody else
//! moved overrules it. Where there is no such table, the reader stays near its cursor instead: that bounds what
//! a successor repeats.

use std::sync::Arc;

use posthaste_core::StoreError;
use posthaste_sql::TableMap;
use posthaste_sql::log::ReaderState;
use posthaste_sql::table::{Identifier, Table};
use posthaste_sql::template::{TemplateError, render};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use super::error::{LogError, LogResult};
use super::{Reader, Shard, of_shard};
use crate::dialect::PostgresDialect;

/// The table's name within its schema.
const TABLE: &str = "log_readers";

/// How the files write the schema.
const SCHEMA_IN_FILES: &str = "\"posthaste\"";

/// The statements over the table of readers.
#[derive(Debug)]
pub(super) struct StateTable {
    schema: Identifier,
    create: Arc<str>,
    usable: Arc<str>,
    state: Arc<str>,
    checkpoint: Arc<str>,
    /// The table, within its schema.
    name: String,
}

/// This log as the table of readers knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogName {
    log: String,
    tables: String,
}

/// What a connection finds of the table of readers.
#[derive(Debug, Default)]
pub(super) struct Saved {
    /// None if there is no table that this user may write.
    pub(super) name: Option<LogName>,
    /// What the last reader left.
    pub(super) row: Option<SavedRow>,
}

#[derive(Clone, Debug)]
pub(super) struct SavedRow {
    tables: String,
    pub(super) state: String,
    position: i64,
    /// The transaction that wrote it.
    pub(super) written_by: String,
}

/// Where a reader begins.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) state: ReaderState,
    /// The transaction that wrote the state, if there was one that counts.
    pub(super) written_by: Option<String>,
}

impl StateTable {
    pub(super) fn finish(map: &TableMap, schema: Identifier) -> Result<Self, TemplateError> {
        let finish = |file: &str| -> Result<Arc<str>, TemplateError> {
            let file = render(file, map, &PostgresDialect)?;
            Ok(file.replace(SCHEMA_IN_FILES, &schema.quoted('"')).into())
        };
        Ok(Self {
            create: finish(include_str!("../../queries/log/readers/create.sql"))?,
            usable: finish(include_str!("../../queries/log/readers/usable.sql"))?,
            state: finish(include_str!("../../queries/log/readers/state.sql"))?,
            checkpoint: finish(include_str!("../../queries/log/readers/checkpoint.sql"))?,
            name: map
                .table(Table::ReaderState)
                .map_or(TABLE, |table| table.name.as_str())
                .to_owned(),
            schema,
        })
    }

    /// For readers and for snapshots.
    pub(super) fn texts(&self) -> [(&'static str, String); 3] {
        [
            ("readers/usable", self.usable.to_string()),
            ("readers/state", self.state.to_string()),
            ("readers/checkpoint", self.checkpoint.to_string()),
        ]
    }

    /// Writes the position, if it moved, and the state.
    pub(super) async fn checkpoint(
        &self,
        connection: &mut PgConnection,
        name: &LogName,
        shard: Option<&Shard>,
        (position, moved): (i64, bool),
        state: &str,
    ) -> LogResult<()> {
        let query = sqlx::query(AssertSqlSafe(Arc::clone(&self.checkpoint)))
            .bind(position)
            .bind(moved)
            .bind(&name.log)
            .bind(&name.tables)
            .bind(state);
        let query = match shard {
            Some(shard) => of_shard(query, Some(shard)).bind(shard.epoch),
            None => query,
        };
        let row = query.fetch_one(connection).await?;
        if shard.is_some() && row.try_get::<i64, _>("written")? == 0 {
            return Err(LogError::Fenced);
        }
        if moved && row.try_get::<i64, _>("moved")? == 0 {
            return Err(super::session::cursor_swallowed());
        }
        Ok(())
    }
}

impl SavedRow {
    /// The state, if it is one of these tables, beside this cursor.
    fn state_beside(&self, name: &LogName, cursor: i64) -> Option<ReaderState> {
        if self.tables != name.tables {
            tracing::warn!(
                log = name.log,
                "the tables were made anew since the state of their reader was written; it begins at the cursor"
            );
            return None;
        }
        if self.position != cursor {
            tracing::warn!(
                log = name.log,
                cursor,
                known = self.position,
                "the cursor was moved by somebody else, so the log is read from there"
            );
            return None;
        }
        match self.state.parse::<ReaderState>() {
            Ok(state) if state.hi >= cursor => Some(state),
            Ok(_) => None,
            Err(error) => {
                tracing::warn!(log = name.log, %error, "the log is read from the cursor");
                None
            }
        }
    }
}

impl Saved {
    /// Where to begin, given the cursor.
    pub(super) fn start(&self, cursor: i64) -> Start {
        let found = self.name.as_ref().zip(self.row.as_ref());
        let state = found.and_then(|(name, row)| Some((row.state_beside(name, cursor)?, row.written_by.clone())));
        match state {
            Some((state, written_by)) => Start {
                state,
                written_by: Some(written_by),
            },
            None => Start {
                state: ReaderState::at(cursor),
                written_by: None,
            },
        }
    }
}

impl Reader {
    /// What is in the table of readers; makes that table if it is missing and this user may.
    pub(super) async fn saved_state(&self, connection: &mut PgConnection) -> LogResult<Saved> {
        let Some(table) = &self.state_table else {
            return Ok(Saved::default());
        };
        let (name, usable) = match self.find_state_table(connection, table).await? {
            (name, Found::Missing) => match create(connection, table).await {
                Ok(()) => (name, true),
                Err(error) if error.is_refusal() => {
                    let error = StoreError::from(error);
                    tracing::debug!(%error, "the table of readers cannot be made");
                    (name, false)
                }
                Err(error) => return Err(error),
            },
            (name, found) => (name, found == Found::Usable),
        };
        if !usable {
            return Ok(Saved::default());
        }
        let query = sqlx::query(AssertSqlSafe(Arc::clone(&table.state))).bind(&name.log);
        let row = of_shard(query, self.shard.as_ref()).fetch_optional(connection).await?;
        let row = row.map(|row| -> sqlx::Result<SavedRow> {
            Ok(SavedRow {
                // Posthaste's own are made together with what is kept of them.
                tables: row
                    .try_get::<Option<_>, _>("tables")?
                    .unwrap_or_else(|| name.tables.clone()),
                state: row.try_get("state")?,
                position: row.try_get("position")?,
                written_by: row.try_get("written_by")?,
            })
        });
        Ok(Saved {
            row: row.transpose()?,
            name: Some(name),
        })
    }

    /// What is settled, as far as that is stored. For those that do not read.
    pub(super) async fn stored_state(&self) -> LogResult<ReaderState> {
        let mut connection = self.pool.acquire().await?;
        let cursor = self.stored_cursor(&mut *connection).await?;
        let Some(table) = &self.state_table else {
            return Ok(ReaderState::at(cursor));
        };
        match self.find_state_table(&mut connection, table).await? {
            (_, Found::Usable) => Ok(self.saved_state(&mut connection).await?.start(cursor).state),
            _ => Ok(ReaderState::at(cursor)),
        }
    }

    async fn find_state_table(&self, connection: &mut PgConnection, table: &StateTable) -> LogResult<(LogName, Found)> {
        let row = sqlx::query(AssertSqlSafe(Arc::clone(&table.usable)))
            .bind(&self.cursor_table)
            .bind(&self.table)
            .bind(&table.name)
            .bind(table.schema.as_str())
            .fetch_one(connection)
            .await?;
        let name = LogName {
            log: row.try_get("log")?,
            tables: row.try_get("tables")?,
        };
        let found = match (row.try_get("exists")?, row.try_get("usable")?) {
            (false, _) => Found::Missing,
            (true, true) => Found::Usable,
            (true, false) => Found::Forbidden,
        };
        Ok((name, found))
    }

    /// Makes the table of readers if it is missing.
    pub(super) async fn create_state_table(&self) -> LogResult<()> {
        let Some(table) = &self.state_table else { return Ok(()) };
        let mut connection = self.pool.acquire().await?;
        match self.find_state_table(&mut connection, table).await? {
            (_, Found::Missing) => create(&mut connection, table).await,
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Missing,
    Usable,
    /// This user may not write it.
    Forbidden,
}

async fn create(connection: &mut PgConnection, table: &StateTable) -> LogResult<()> {
    let mut tx = connection.begin().await.map_err(LogError::from)?;
    // Two that create the same at one moment are in each other's way, whatever they say of what exists.
    sqlx::query("select pg_advisory_xact_lock(hashtextextended('posthaste:migrate', 0))")
        .persistent(false)
        .execute(&mut *tx)
        .await?;
    sqlx::raw_sql(AssertSqlSafe(Arc::clone(&table.create)))
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}
