//! The statements that enqueue, for whoever has the transaction.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::enqueue::{NewRow, Prepared};
use posthaste_core::{EnqueueError, Enqueued, IntoMessage, MessageId, OutboxOptions, StoreError};
use posthaste_sql::TableMap;
use posthaste_sql::enqueue::{AnswerRow, EnqueueSteps, PendingEnqueue, Query, Value, outcomes};
use posthaste_sql::table::{BadIdentifier, Kind, Property, Role};

use crate::log::statements as log;
use crate::rows::millis;
use crate::statements::{Dedupe, Statement, Statements};
use crate::{DEFAULT_PREFIX, columns, support};

/// Enqueues on connections that are not this crate's: it validates messages, says which statements to run in your transaction
/// and with which arguments, and reads what they answer. Needs no pool, and opens no connection. Cheap to clone.
///
/// This is for ORMs and other drivers. With sqlx use [`SqliteOutbox`](crate::SqliteOutbox), which runs the same statements.
///
/// # Examples
/// `run` is any way to run a statement and to read the columns `place`, `id` and `is_new`, where
/// [`returns_rows`](Query::returns_rows):
///
/// ```
/// use posthaste_core::{EnqueueError, Enqueued, Message, OutboxOptions};
/// use posthaste_sql::enqueue::{AnswerRow, Query, Value};
/// use posthaste_sqlite::SqliteEnqueue;
///
/// # fn run(query: &Query<'_, Value<'_>>) -> Vec<AnswerRow> {
/// #     let Value::Text(Some(rows)) = &query.arguments[0] else { unreachable!() };
/// #     let id = rows.split('"').nth(3).unwrap().to_owned();
/// #     vec![AnswerRow { place: 0, id, is_new: true }]
/// # }
/// # fn main() -> Result<(), EnqueueError> {
/// let statements = SqliteEnqueue::new();
/// let message = Message::new("order-events", r#"{"orderId":42}"#).key("42");
///
/// let mut pending = statements.prepare([message], &OutboxOptions::default())?;
/// while let Some(query) = pending.query() {
///     let rows = run(&query);
///     pending.answer(rows);
/// }
/// let outcomes = pending.finish()?;
/// assert!(matches!(outcomes[..], [Enqueued::Inserted(_)]));
/// # Ok(())
/// # }
/// ```
///
/// There may be several statements, so run them in a transaction, and one that was begun with `BEGIN IMMEDIATE`.
#[derive(Clone, Debug)]
pub struct SqliteEnqueue {
    map: Arc<TableMap>,
    statements: EnqueueStatements,
}

/// The statements that write rows. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct EnqueueStatements {
    insert: Arc<str>,
    /// Where messages with a time of their own stand elsewhere: how they are written, and the name of the log.
    schedule: Option<(Arc<str>, Arc<str>)>,
    dedupe: DedupeStatements,
}

/// How a row that was not written leads to the one that was there before.
#[derive(Clone, Debug)]
enum DedupeStatements {
    Keys { hold: Arc<str>, find: Arc<str> },
    Rows { find: Arc<str> },
}

impl EnqueueStatements {
    /// Those of a queue.
    pub(crate) fn of_queue(statements: &Statements) -> Self {
        let text = |statement: &Statement| Arc::clone(statement.text());
        Self {
            insert: text(&statements.writing.enqueue),
            schedule: None,
            dedupe: match statements.dedupe() {
                Dedupe::Keys(keys) => DedupeStatements::Keys {
                    hold: text(&keys.hold_keys),
                    find: text(&keys.find_holders),
                },
                Dedupe::Rows(rows) => DedupeStatements::Rows {
                    find: text(&rows.find_duplicate),
                },
            },
        }
    }

    /// Those of a log whose table has this name.
    pub(crate) fn of_log(writing: &log::Writing, table: &str) -> Self {
        let text = |statement: &Statement| Arc::clone(statement.text());
        Self {
            insert: text(&writing.enqueue),
            schedule: Some((text(&writing.schedule), table.into())),
            dedupe: DedupeStatements::Keys {
                hold: text(&writing.hold_keys),
                find: text(&writing.find_holders),
            },
        }
    }
}

impl SqliteEnqueue {
    /// For the outbox whose tables begin with `posthaste_`.
    #[expect(clippy::missing_panics_doc, reason = "the default prefix is valid")]
    pub fn new() -> Self {
        Self::with_prefix(DEFAULT_PREFIX).expect("the default prefix is valid")
    }

    /// For the outbox in tables with a prefix of your choice.
    ///
    /// # Errors
    /// If it cannot be the beginning of a name.
    #[expect(
        clippy::missing_panics_doc,
        reason = "Posthaste's own map has every role that its statements need"
    )]
    pub fn with_prefix(prefix: &str) -> Result<Self, BadIdentifier> {
        let map = TableMap::with_prefix(prefix)?.with_times(Kind::EpochMs);
        Ok(Self::with_map(map).expect("Posthaste's own map has every role"))
    }

    /// For the outbox that a table map describes.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unsupported`](posthaste_core::store::StoreErrorKind::Unsupported) says what the table lacks.
    pub fn with_map(map: TableMap) -> Result<Self, StoreError> {
        support::ensure_supported(&map)?;
        let statements = Statements::finish(&map)?;
        Ok(Self::of(&Arc::new(map), EnqueueStatements::of_queue(&statements)))
    }

    pub(crate) fn of(map: &Arc<TableMap>, statements: EnqueueStatements) -> Self {
        Self {
            map: Arc::clone(map),
            statements,
        }
    }

    /// Validates messages or events, and says what to run.
    ///
    /// # Errors
    /// [`EnqueueError::Invalid`] and [`EnqueueError::Encode`] if one of them is refused. There is nothing to run then, and your
    /// transaction stays as it is.
    pub fn prepare<M: IntoMessage>(
        &self,
        messages: impl IntoIterator<Item = M>,
        options: &OutboxOptions,
    ) -> Result<PendingEnqueue<Self>, EnqueueError> {
        let prepared = Prepared::new(messages, options)?;
        let progress = self.begin(&prepared, options.dedupe_window)?;
        Ok(PendingEnqueue::new(self.clone(), prepared, progress))
    }

    /// The first step for messages that were validated, if the table can keep them.
    pub(crate) fn begin(&self, prepared: &Prepared, dedupe_window: Duration) -> Result<Progress, EnqueueError> {
        self.map.validate_messages(prepared)?;
        Ok(Progress {
            step: if prepared.is_empty() { Step::Done } else { Step::Insert },
            written: Vec::with_capacity(prepared.rows.len()),
            holders: vec![None; prepared.rows.len()],
            dedupe_window_ms: millis(dedupe_window),
        })
    }

    /// Whether one statement writes all, so that it succeeds or fails as a whole.
    pub(crate) fn is_one_statement(&self, prepared: &Prepared) -> bool {
        !self.has_keys(prepared) && self.next_rows(&prepared.rows).len() == prepared.rows.len()
    }

    fn has_keys(&self, prepared: &Prepared) -> bool {
        let key = |row| self.map.new_text(row, Role::DedupeKey);
        prepared.rows.iter().any(|row| key(row).is_some())
    }

    /// The rows of the next insert.
    fn unwritten<'a>(&self, progress: &Progress, prepared: &'a Prepared) -> &'a [NewRow] {
        self.next_rows(&prepared.rows[progress.written.len()..])
    }

    /// Those of the rows that one statement writes.
    fn next_rows<'a>(&self, rows: &'a [NewRow]) -> &'a [NewRow] {
        // Where the database gives the ids, one row at a time: nothing else says which id is whose.
        if self.map.has(Property::GeneratedId) {
            return &rows[..rows.len().min(1)];
        }
        // One after the other where they stand in two tables, so that rows of one key stay in order.
        let first = rows.first().is_some_and(|row| self.is_scheduled(row));
        let alike = rows.iter().take_while(|row| self.is_scheduled(row) == first).count();
        &rows[..alike]
    }

    /// Whether a row waits for its time in a table of its own.
    fn is_scheduled(&self, row: &NewRow) -> bool {
        self.statements.schedule.is_some() && row.message.not_before.is_some()
    }

    /// Under which id each row was written, if it was.
    fn written(&self, rows: &[NewRow], answer: &[AnswerRow]) -> Vec<Option<MessageId>> {
        let mut found: HashSet<_> = answer.iter().map(|row| self.map.id(&row.id)).collect();
        if self.map.has(Property::GeneratedId) {
            return vec![found.into_iter().next()];
        }
        // Removed, because an id that is given twice is written once.
        // As the table reads them: a text that looks like a UUID is a text there.
        let mut written = |id: MessageId| found.take(&self.map.id(&id.to_string())).map(|_| id);
        rows.iter().map(|row| written(row.message.id)).collect()
    }

    /// What follows once all inserts were run.
    fn after_insert(&self, progress: &Progress, prepared: &Prepared) -> Step {
        match &self.statements.dedupe {
            DedupeStatements::Keys { .. } if self.has_keys(prepared) => Step::HoldKeys,
            DedupeStatements::Rows { .. } if progress.missing().next().is_some() => Step::FindTaken,
            DedupeStatements::Keys { .. } | DedupeStatements::Rows { .. } => Step::Done,
        }
    }
}

impl EnqueueSteps for SqliteEnqueue {
    type Argument<'a> = Value<'a>;
    type Progress = Progress;

    fn query<'a>(&self, progress: &Progress, prepared: &'a Prepared) -> Option<Query<'a, Value<'a>>> {
        let map = &self.map;
        Some(match (progress.step, &self.statements.dedupe) {
            (Step::Insert, _) => {
                let rows = self.unwritten(progress, prepared);
                let mut arguments = columns::rows_and_payloads(map, rows);
                let scheduled = rows.first().is_some_and(|row| self.is_scheduled(row));
                match &self.statements.schedule {
                    Some((schedule, table)) if scheduled => {
                        arguments.push(Value::Text(Some(table.to_string().into())));
                        Query::new(schedule, arguments)
                    }
                    _ => Query::new(&self.statements.insert, arguments),
                }
            }
            (Step::HoldKeys, DedupeStatements::Keys { hold, .. }) => {
                let written: Vec<_> = progress.written.iter().flatten().copied().collect();
                let window = Value::Integer(Some(progress.dedupe_window_ms));
                let arguments = vec![columns::rows(map, &prepared.rows), columns::ids(&written), window];
                Query::new(hold, arguments).without_rows()
            }
            (Step::FindHolders, DedupeStatements::Keys { find, .. }) => {
                Query::new(find, vec![columns::rows(map, &prepared.rows)])
            }
            (Step::FindTaken, DedupeStatements::Rows { find }) => {
                let rows = progress.missing().map(|place| &prepared.rows[place]);
                Query::new(find, vec![columns::rows(map, rows)])
            }
            (Step::HoldKeys | Step::FindHolders | Step::FindTaken | Step::Done, _) => return None,
        })
    }

    fn answer(&self, progress: &mut Progress, prepared: &Prepared, answer: Vec<AnswerRow>) {
        progress.step = match progress.step {
            Step::Insert => {
                let rows = self.unwritten(progress, prepared);
                progress.written.extend(self.written(rows, &answer));
                if progress.written.len() < prepared.rows.len() {
                    return;
                }
                self.after_insert(progress, prepared)
            }
            Step::HoldKeys if progress.missing().next().is_some() => Step::FindHolders,
            Step::FindHolders => {
                progress.find(&self.map, &answer, |place| place);
                Step::Done
            }
            Step::FindTaken => {
                let missing: Vec<_> = progress.missing().collect();
                progress.find(&self.map, &answer, |place| {
                    missing.get(place).copied().unwrap_or(usize::MAX)
                });
                Step::Done
            }
            Step::HoldKeys | Step::Done => Step::Done,
        };
        if progress.step == Step::Done && matches!(self.statements.dedupe, DedupeStatements::Keys { .. }) {
            // What no key kept out was there under its own id.
            for (holder, row) in progress.holders.iter_mut().zip(&prepared.rows) {
                holder.get_or_insert(row.message.id);
            }
        }
    }

    fn finish(&self, progress: Progress) -> Result<Vec<Enqueued>, StoreError> {
        let rows = progress.written.into_iter().zip(progress.holders);
        let outcome = |(written, holder): (Option<_>, Option<_>)| {
            let before = || holder.map(Enqueued::Duplicate);
            written.map(Enqueued::Inserted).or_else(before)
        };
        outcomes(progress.step == Step::Done, rows.map(outcome))
    }
}

impl Default for SqliteEnqueue {
    fn default() -> Self {
        Self::new()
    }
}

/// How far the statements of one call are run.
#[doc(hidden)]
#[derive(Debug)]
pub struct Progress {
    step: Step,
    /// Of the rows for which an insert was run: under which id, if it was written.
    written: Vec<Option<MessageId>>,
    /// Of each row: what was there before, once that is known.
    holders: Vec<Option<MessageId>>,
    dedupe_window_ms: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Insert,
    /// Takes the keys of what was written. Rows come before their keys, so what a failure leaves half done can only be
    /// delivered twice, never lost.
    HoldKeys,
    FindHolders,
    FindTaken,
    Done,
}

impl Progress {
    /// The places of rows that were not written.
    fn missing(&self) -> impl Iterator<Item = usize> {
        let places = self.written.iter().enumerate();
        places.filter(|(_, id)| id.is_none()).map(|(place, _)| place)
    }

    /// Takes the rows that kept others from being written. The first counts: several may be in the way.
    fn find(&mut self, map: &TableMap, answer: &[AnswerRow], row_of: impl Fn(usize) -> usize) {
        for row in answer {
            let place = usize::try_from(row.place).ok();
            if let Some(holder) = place.and_then(|place| self.holders.get_mut(row_of(place))) {
                holder.get_or_insert_with(|| map.id(&row.id));
            }
        }
    }
}
