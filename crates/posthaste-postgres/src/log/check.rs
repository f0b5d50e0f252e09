//! Whether a log can be read without losing rows, and whether the database would take everything that is written of it.

use posthaste_core::StoreError;
use posthaste_core::store::StoreErrorKind;
use posthaste_sql::table::{Property, Role, Table};
use sqlx::{Connection, Executor, PgConnection, Row};

use super::{PostgresLogStore, of_segments, of_shard};
use crate::error::store_error;
use crate::rights::explained;
use crate::taking::is_refusal;

/// What is copied from the log into the table of failures, by role.
const COPIED: [Role; 7] = [
    Role::EventId,
    Role::EventType,
    Role::Source,
    Role::AggregateType,
    Role::AggregateId,
    Role::OrderingKey,
    Role::Tenant,
];

/// A lock that is held elsewhere must not keep a relay from starting without a word.
const TRIAL_LIMIT: &str = "set local lock_timeout = '5s'";

/// What is tried of the table of failures.
const FAILURE: &str = "an event that failed";
const DEATH: &str = "an event that is given up";

/// Which events are tried until one can be written down as failed: so many before the newest.
const STEPS_BACK: [i64; 12] = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// What was tried, and what the database said.
type Trial = (&'static str, sqlx::Error);

fn refuse(message: String, remedy: &'static str) -> StoreError {
    StoreError {
        kind: StoreErrorKind::Other,
        message,
        remedy: Some(remedy),
        source: None,
    }
}

impl PostgresLogStore {
    /// The proof needs ids that are given out in order, in the transaction that inserts the row.
    pub(super) async fn check_ids(&self) -> Result<(), StoreError> {
        let log = &*self.log;
        let Some(id) = log.map.column(Role::Id) else {
            return Ok(());
        };
        let first = self.readers.onlooker(0);
        let rows = first.sequences(&log.pool, id).await.map_err(store_error)?;
        for row in &rows {
            let kind: String = row.try_get("kind").map_err(store_error)?;
            if kind != "r" && kind != "p" {
                return Err(refuse(
                    format!(
                        "{} is not a table, so it is not known who may still insert into it",
                        log.table
                    ),
                    "name the table itself in the map, not a view or a foreign table",
                ));
            }
            let sequence: Option<String> = row.try_get("sequence").map_err(store_error)?;
            if log.map.has(Property::TrustedIds) {
                continue;
            }
            let Some(sequence) = sequence else {
                return Err(refuse(
                    format!(
                        "the ids of {} come from no sequence of its own, so rows that commit late could be overlooked",
                        log.table
                    ),
                    "if they come from a sequence, run `alter sequence … owned by <table>.<id column>`; if they come from \
                     elsewhere, go up and are used in the transaction that took them, write `ids = \"trusted\"` into the map",
                ));
            };
            let cache: i64 = row.try_get("cache").map_err(store_error)?;
            let increment: i64 = row.try_get("increment").map_err(store_error)?;
            if cache != 1 || increment != 1 {
                return Err(refuse(
                    format!(
                        "the sequence {sequence} has cache {cache} and increment {increment}: ids are given out ahead of \
                         the inserts that use them, and rows could be overlooked"
                    ),
                    "run `alter sequence … cache 1 increment 1`, and let the application take one id at a time, in the \
                     transaction of the insert (allocationSize = 1, or IDENTITY); `ids = \"trusted\"` in the map \
                     overrules this",
                ));
            }
        }
        if log.is_native() {
            return match self.sequences_set_back().await?.into_iter().next() {
                Some(refusal) => Err(refusal),
                None => Ok(()),
            };
        }
        let cursor = self.stored_cursor().await?;
        let mut connection = log.pool.acquire().await.map_err(store_error)?;
        Ok(first.compare_sequence(&mut connection, cursor).await?)
    }

    /// Whether what is copied into the table of failures always fits there.
    pub(super) async fn check_lengths(&self) -> Result<(), StoreError> {
        let log = &*self.log;
        let map = &log.map;
        let mut columns: Vec<(String, String)> = COPIED
            .iter()
            .filter_map(|role| {
                let failed = map.side_column(Table::Failed, *role)?.name.as_str().to_owned();
                let log = map
                    .column(*role)
                    .or_else(|| map.column(Role::Id))?
                    .name
                    .as_str()
                    .to_owned();
                Some((log, failed))
            })
            .collect();
        let error = map.side_column(Table::Failed, Role::LastError);
        if let Some(error) = error {
            columns.push((String::new(), error.name.as_str().to_owned()));
        }
        let failed_table = map
            .table(Table::Failed)
            .map(|table| table.quoted('"'))
            .unwrap_or_default();
        let (copied, failed): (Vec<String>, Vec<String>) = columns.into_iter().unzip();
        let rows = sqlx::query(log.statements.upkeep.lengths.sql())
            .bind(&log.table)
            .bind(&failed_table)
            .bind(copied)
            .bind(failed)
            .fetch_all(&log.pool)
            .await
            .map_err(store_error)?;
        for row in &rows {
            let column: String = row.try_get("failed_column").map_err(store_error)?;
            let length: i32 = row.try_get("failed_length").map_err(store_error)?;
            let source: Option<String> = row.try_get("log_column").map_err(store_error)?;
            let source_length: Option<i32> = row.try_get("log_length").map_err(store_error)?;
            let Some(source) = source else {
                let max = error.and_then(|error| error.max);
                if max.is_some_and(|max| max <= usize::try_from(length).unwrap_or(0)) {
                    continue;
                }
                return Err(refuse(
                    format!(
                        "{failed_table}.{column} takes {length} characters, and errors may be longer, so failed events \
                         could not be written down"
                    ),
                    "say in the map how long it is (`last_error = { column = …, max = … }`), or make it text",
                ));
            };
            if source_length.is_none_or(|source_length| source_length > length) {
                return Err(refuse(
                    format!(
                        "{failed_table}.{column} takes {length} characters, and {}.{source} more, so an event that fails \
                         could not be written down",
                        log.table
                    ),
                    "make the column of the table of failures as long as the log's, or text",
                ));
            }
        }
        Ok(())
    }

    /// Writes everything that a relay writes, once, and takes it back: rights, constraints and triggers show here and not
    /// after the first event was sent.
    pub(super) async fn try_writes(&self) -> Result<(), StoreError> {
        let mut tx = self.log.pool.begin().await.map_err(store_error)?;
        tx.execute(TRIAL_LIMIT).await.map_err(store_error)?;
        let tried = self.write_all(&mut tx).await;
        tx.rollback().await.map_err(store_error)?;
        let (some, (what, error)) = match tried {
            Ok(None) => return Ok(()),
            Ok(Some(refused)) => (true, refused),
            Err(refused) => (false, refused),
        };
        let error = store_error(error);
        // Where there is another place for them, a relay starts all the same.
        let error = if what == DEATH { error.of_deaths() } else { error };
        Err(StoreError {
            kind: if some { StoreErrorKind::SomeRows } else { error.kind },
            message: format!(
                "the database would not take what a relay writes ({what}): {}",
                error.message
            ),
            remedy: match error.kind {
                // It says what to grant.
                StoreErrorKind::Access => error.remedy,
                _ => error
                    .remedy
                    .or(Some("look at the constraints and triggers of that table")),
            },
            source: error.source,
        })
    }

    async fn write_all(&self, tx: &mut PgConnection) -> Result<Option<Trial>, Trial> {
        let statements = &self.log.statements;
        // Posthaste's own tables take of every shard what they take of the first.
        let first = self.readers.onlooker(0);
        let newest = sqlx::query(statements.upkeep.newest.sql());
        let segment = self.log.ask_first_segment(&mut *tx, true).await;
        let segment = segment.map_err(|error| ("reading the log", error))?;
        let newest: Option<i64> = of_segments(newest, first.shard.as_ref(), segment)
            .fetch_optional(&mut *tx)
            .await
            .and_then(|row| row.map(|row| row.try_get("id")).transpose())
            .map_err(|error| ("reading the log", explained(error, statements.upkeep.newest.text())))?;
        let mut refused = self.try_failures(&mut *tx, newest, FAILURE).await?;
        // What else is refused is told first.
        let died = self.try_failures(&mut *tx, newest, DEATH).await;
        let moved = sqlx::query(statements.reading.move_cursor.sql()).bind(newest.unwrap_or(0));
        let moved = of_shard(moved, first.shard.as_ref()).execute(&mut *tx).await;
        match moved {
            // At rest the newest position is stored already; a relay never writes one twice.
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {}
            Err(error) => return Err(("the cursor", explained(error, statements.reading.move_cursor.text()))),
            Ok(_) => {}
        }
        refused = refused.or(died?);
        Ok(refused)
    }

    /// Writes the failure of an event, of the newest one first. If the table of failures refuses it, it may take that of
    /// others: whether a relay starts must not hang on which event is the newest. Returns what it refused then.
    async fn try_failures(
        &self,
        tx: &mut PgConnection,
        newest: Option<i64>,
        what: &'static str,
    ) -> Result<Option<Trial>, Trial> {
        let mut refused = None;
        for back in STEPS_BACK {
            // Without a row the statements say at least whether they are allowed.
            let ids: Vec<i64> = newest.map(|newest| newest - back).into_iter().collect();
            let began = |error| ("a trial", error);
            let mut trial = tx.begin().await.map_err(began)?;
            let written = self.write_failures(&mut trial, &ids, what).await;
            trial.rollback().await.map_err(began)?;
            match written {
                Ok(any) if any || newest.is_none() => return Ok(refused),
                // There is no such event.
                Ok(_) => {}
                Err((what, error)) if is_refusal(&error) => drop(refused.get_or_insert((what, error))),
                Err(trial) => return Err(trial),
            }
        }
        refused.map_or(Ok(None), Err)
    }

    async fn write_failures(&self, tx: &mut PgConnection, ids: &[i64], what: &'static str) -> Result<bool, Trial> {
        let statements = &self.log.statements;
        let limit = i64::from(self.log.options.max_retries);
        let all = |n: i64| vec![n; ids.len()];
        let text = self.log.map.error_text("a trial that is rolled back");
        let fail = sqlx::query(statements.failures.fail.sql())
            .bind(ids)
            .bind(all(if what == DEATH { limit } else { 1 }))
            .bind(vec![Some(text.as_str()); ids.len()])
            .bind(all(1_000))
            .bind(vec![what == DEATH; ids.len()]);
        let segment = self.log.ask_first_segment(&mut *tx, true).await;
        let segment = segment.map_err(|error| ("reading the log", error))?;
        let failed: Vec<i64> = of_segments(fail, self.readers.onlooker(0).shard.as_ref(), segment)
            .fetch_all(&mut *tx)
            .await
            .and_then(|rows| rows.iter().map(|row| row.try_get("id")).collect())
            .map_err(|error| (what, explained(error, statements.failures.fail.text())))?;
        sqlx::query(statements.failures.retried.sql())
            .bind(&failed)
            .bind(vec![false; failed.len()])
            .bind(vec![1_i64; failed.len()])
            .bind(vec![1_000_i64; failed.len()])
            .bind(vec![text.as_str(); failed.len()])
            .bind(limit)
            .execute(&mut *tx)
            .await
            .map_err(|error| {
                (
                    "a retry that failed",
                    explained(error, statements.failures.retried.text()),
                )
            })?;
        sqlx::query(statements.failures.delete_delivered.sql())
            .bind(&failed)
            .execute(&mut *tx)
            .await
            .map_err(|error| {
                (
                    "a retry that was delivered",
                    explained(error, statements.failures.delete_delivered.text()),
                )
            })?;
        Ok(!failed.is_empty())
    }
}
