//! What the reader of a mapped log leaves to its successor, beyond the cursor.
//!
//! The mapped tables have a place for the cursor only, so the rest stands in a table of our own, written in the same
//! statement. It counts if it was written beside the cursor that is stored, of the same tables. A cursor that somebody else
//! moved overrules it. Where there is no such table, the reader stays near its cursor instead: that bounds what
//! a successor repeats.

use std::sync::Arc;
use std::time::Instant;

use posthaste_core::StoreError;
use posthaste_sql::TableMap;
use posthaste_sql::log::{HandedOut, ReaderState, SuspectedRetries, Suspects};
use posthaste_sql::table::{Identifier, Table};
use posthaste_sql::template::{TemplateError, render};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use uuid::Uuid;

use super::error::{LogError, LogResult};
use super::{Reader, Shard, of_shard};
use crate::dialect::PostgresDialect;
use crate::pooling;

/// The table's name within its schema.
const TABLE: &str = "log_readers";

/// For a look at what readers write, without their lock.
const BEGIN_SNAPSHOT: &str = "begin isolation level repeatable read, read only";

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
    /// The same where the table has no place for what may be handed out; shards always have one.
    checkpoint_state: Option<Arc<str>>,
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
    /// Whether it has a place for what may be handed out.
    pub(super) counts_crashes: bool,
    /// What the last reader left.
    pub(super) row: Option<SavedRow>,
}

#[derive(Clone, Debug)]
pub(super) struct SavedRow {
    tables: String,
    pub(super) state: String,
    handed_out: String,
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
    /// What the last reader may have been killed by.
    pub(super) suspects: Suspects,
    /// The same among failed rows.
    pub(super) retried: SuspectedRetries,
}

/// What a checkpoint writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checkpoint<'a> {
    pub(super) position: i64,
    pub(super) moved: bool,
    pub(super) state: &'a str,
    /// None where there is no place for it.
    pub(super) handed_out: Option<&'a str>,
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
            checkpoint_state: match map.table(Table::ReaderState) {
                Some(_) => None,
                None => Some(finish(include_str!("../../queries/log/readers/checkpoint_state.sql"))?),
            },
            name: map
                .table(Table::ReaderState)
                .map_or(TABLE, |table| table.name.as_str())
                .to_owned(),
            schema,
        })
    }

    /// For readers and for snapshots.
    pub(super) fn texts(&self) -> Vec<(&'static str, String)> {
        let mut texts = vec![
            ("readers/usable", self.usable.to_string()),
            ("readers/state", self.state.to_string()),
            ("readers/checkpoint", self.checkpoint.to_string()),
        ];
        let without = self.checkpoint_state.iter();
        texts.extend(without.map(|sql| ("readers/checkpoint_state", sql.to_string())));
        texts
    }

    /// Writes the position, if it moved, the state, and what may be handed out.
    pub(super) async fn checkpoint(
        &self,
        connection: &mut PgConnection,
        name: &LogName,
        shard: Option<&Shard>,
        checkpoint: Checkpoint<'_>,
    ) -> LogResult<()> {
        let Checkpoint {
            position,
            moved,
            state,
            handed_out,
        } = checkpoint;
        let sql = match (&self.checkpoint_state, handed_out) {
            (Some(sql), None) => sql,
            _ => &self.checkpoint,
        };
        let mut query = sqlx::query(AssertSqlSafe(Arc::clone(sql)))
            .bind(position)
            .bind(moved)
            .bind(&name.log)
            .bind(&name.tables)
            .bind(state);
        if handed_out.is_some() || self.checkpoint_state.is_none() {
            query = query.bind(handed_out.unwrap_or_default());
        }
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

    /// What the reader that wrote this may have been killed by, unless it is this one, which lives.
    fn suspects(&self, state: &ReaderState, reader: Uuid, now: Instant) -> (Suspects, SuspectedRetries) {
        let nothing = (Suspects::default(), SuspectedRetries::none(now));
        let Some((by, text)) = self.handed_out.split_once(' ') else {
            return nothing;
        };
        let mut handed_out: HandedOut = match text.parse() {
            Ok(handed_out) => handed_out,
            Err(error) => {
                tracing::warn!(%error, "no event is suspected of having killed the last reader");
                return nothing;
            }
        };
        let retried = if by == reader.to_string() {
            handed_out.reach = None;
            SuspectedRetries::of_survivor(&handed_out, now)
        } else {
            SuspectedRetries::after_crash(&handed_out, now)
        };
        (handed_out.suspects(state), retried)
    }
}

impl Saved {
    /// Where a reader begins, given the cursor.
    pub(super) fn start(&self, cursor: i64, reader: Uuid, now: Instant) -> Start {
        let found = self.name.as_ref().zip(self.row.as_ref());
        let state = found.and_then(|(name, row)| Some((row.state_beside(name, cursor)?, row)));
        match state {
            Some((state, row)) => {
                let (suspects, retried) = row.suspects(&state, reader, now);
                Start {
                    state,
                    written_by: Some(row.written_by.clone()),
                    suspects,
                    retried,
                }
            }
            None => Start {
                state: ReaderState::at(cursor),
                written_by: None,
                suspects: Suspects::default(),
                retried: SuspectedRetries::none(now),
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
        let (name, mut found) = self.find_state_table(connection, table).await?;
        if matches!(found, Found::Missing | Found::CountsNoCrashes) {
            match create(connection, table).await {
                Ok(()) => found = Found::Usable,
                Err(error) if error.is_refusal() || error.is_contention() => {
                    let error = StoreError::from(error);
                    tracing::debug!(%error, "the table of readers cannot be made, or not be brought up to date");
                }
                Err(error) => return Err(error),
            }
        }
        self.read_state(connection, table, name, found).await
    }

    async fn read_state(
        &self,
        connection: &mut PgConnection,
        table: &StateTable,
        name: LogName,
        found: Found,
    ) -> LogResult<Saved> {
        if matches!(found, Found::Missing | Found::Forbidden) {
            return Ok(Saved::default());
        }
        let query = sqlx::query(AssertSqlSafe(Arc::clone(&table.state)))
            .persistent(false)
            .bind(&name.log);
        let row = of_shard(query, self.shard.as_ref()).fetch_optional(connection).await?;
        let row = row.map(|row| -> sqlx::Result<SavedRow> {
            Ok(SavedRow {
                // Posthaste's own are made together with what is kept of them.
                tables: row
                    .try_get::<Option<_>, _>("tables")?
                    .unwrap_or_else(|| name.tables.clone()),
                state: row.try_get("state")?,
                handed_out: row.try_get("handed_out")?,
                position: row.try_get("position")?,
                written_by: row.try_get("written_by")?,
            })
        });
        Ok(Saved {
            row: row.transpose()?,
            counts_crashes: found == Found::Usable,
            name: Some(name),
        })
    }

    /// What is settled, as far as that is stored. For those that do not read.
    pub(super) async fn stored_state(&self) -> LogResult<ReaderState> {
        // As one snapshot has both: the reader goes on writing them meanwhile.
        let mut tx = pooling::begin(&self.pool, BEGIN_SNAPSHOT).await?;
        let cursor = self.stored_cursor(&mut *tx).await?;
        let Some(table) = &self.state_table else {
            return Ok(ReaderState::at(cursor));
        };
        let (name, found) = self.find_state_table(&mut tx, table).await?;
        let saved = self.read_state(&mut tx, table, name, found).await?;
        Ok(saved.start(cursor, self.id, self.now()).state)
    }

    async fn find_state_table(&self, connection: &mut PgConnection, table: &StateTable) -> LogResult<(LogName, Found)> {
        let row = sqlx::query(AssertSqlSafe(Arc::clone(&table.usable)))
            .persistent(false)
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
            (true, true) if row.try_get("counts_crashes")? => Found::Usable,
            (true, true) => Found::CountsNoCrashes,
            (true, false) => Found::Forbidden,
        };
        Ok((name, found))
    }

    /// Makes the table of readers if it is missing, or of an earlier version.
    pub(super) async fn create_state_table(&self) -> LogResult<()> {
        let Some(table) = &self.state_table else { return Ok(()) };
        let mut connection = self.pool.acquire().await?;
        match self.find_state_table(&mut connection, table).await? {
            (_, Found::Missing | Found::CountsNoCrashes) => create(&mut connection, table).await,
            (_, Found::Usable | Found::Forbidden) => Ok(()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Missing,
    Usable,
    /// It was made by an earlier version, and has no place for what may be handed out.
    CountsNoCrashes,
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
