//! The statements that enqueue, for the owner of the transaction.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::enqueue::{NewRow, Prepared};
use posthaste_core::outbox::EnqueueOn;
use posthaste_core::retry::MAX_DURATION;
use posthaste_core::{EnqueueError, Enqueued, IntoMessage, MessageId, OutboxOptions, StoreError, StoreOutbox};
use posthaste_sql::TableMap;
use posthaste_sql::enqueue::{AnswerRow, Argument, EnqueueSteps, Query, outcomes};
use posthaste_sql::table::{BadIdentifier, Property, Role, Strategy};

use crate::columns::uniform;
use crate::executor::{EnqueueExecutor, NewRows};
use crate::log;
use crate::pooling::Sessions;
use crate::statements::Statements;
use crate::{DEFAULT_SCHEMA, columns};

/// Rows of one statement that appends to Posthaste's own log: it holds all of them in the server's memory.
const APPENDED_ROWS: usize = 10_000;

/// Enqueues on connections that are not this crate's: it validates messages, says which statements to run in your transaction
/// and with which arguments, and reads what they answer. Needs no pool, and opens no connection. Cheap to clone.
///
/// This is for ORMs and other drivers. With sqlx or tokio-postgres use [`PostgresOutbox`](crate::PostgresOutbox), which runs
/// the same statements.
///
/// # Examples
/// Implement [`EnqueueExecutor`] for the ORM's transaction, and it has an [`outbox`](Self::outbox):
///
/// ```
/// use posthaste_core::{EnqueueError, Message, OutboxOptions, StoreError};
/// use posthaste_postgres::{EnqueueExecutor, PostgresEnqueue};
/// use posthaste_sql::enqueue::{AnswerRow, Query};
///
/// # struct OrmTransaction;
/// # impl OrmTransaction {
/// #     async fn query(&mut self, _: Query<'_>) -> Result<Vec<AnswerRow>, std::io::Error> { Ok(Vec::new()) }
/// # }
/// struct Orm<'t>(&'t mut OrmTransaction);
///
/// impl EnqueueExecutor for Orm<'_> {
///     async fn fetch(&mut self, query: Query<'_>) -> Result<Vec<AnswerRow>, StoreError> {
///         self.0.query(query).await.map_err(StoreError::other)
///     }
/// }
///
/// async fn place_order(tx: &mut OrmTransaction) -> Result<(), EnqueueError> {
///     let outbox = PostgresEnqueue::new().outbox(OutboxOptions::default());
///     outbox.enqueue(&mut Orm(tx), Message::new("order-events", "{}").key("42")).await?;
///     Ok(())
/// }
/// ```
///
/// Or run the statements yourself. `run` is any way to run one and to read the columns `place`, `id` and `is_new`:
///
/// ```
/// use posthaste_core::{EnqueueError, Enqueued, Message, OutboxOptions};
/// use posthaste_postgres::PostgresEnqueue;
/// use posthaste_sql::enqueue::{AnswerRow, Query};
///
/// # fn run(query: &Query<'_>) -> Vec<AnswerRow> {
/// #     let posthaste_sql::enqueue::Argument::Text(Some(id)) = &query.arguments[0] else { unreachable!() };
/// #     vec![AnswerRow { place: 1, id: id.to_string(), is_new: true }]
/// # }
/// # fn main() -> Result<(), EnqueueError> {
/// let statements = PostgresEnqueue::new();
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
#[derive(Clone, Debug)]
pub struct PostgresEnqueue {
    map: Arc<TableMap>,
    statements: EnqueueStatements,
}

/// How a table is written to.
#[derive(Clone, Debug)]
enum EnqueueStatements {
    /// Posthaste's own tables: one statement in any case. Dedupe keys are looked up only where there are some.
    Native {
        append_one: Arc<str>,
        append_uniform: Arc<str>,
        append: Arc<str>,
        enqueue: Arc<str>,
    },
    /// A table whose own indexes say what may be there once.
    Mapped { insert: Arc<str>, find_enqueued: Arc<str> },
    /// A table that is only appended to.
    Log { append: Arc<str> },
    /// Posthaste's own log.
    NativeLog {
        append_one: Arc<str>,
        append_uniform: Arc<str>,
        append: Arc<str>,
        append_or_hold: Arc<str>,
    },
}

impl PostgresEnqueue {
    /// For the outbox in the schema `posthaste`.
    #[expect(clippy::missing_panics_doc, reason = "the default name is valid")]
    pub fn new() -> Self {
        Self::in_schema(DEFAULT_SCHEMA).expect("the default schema's name is valid")
    }

    /// For the outbox in a schema of your choice.
    ///
    /// # Errors
    /// If it is no name that PostgreSQL could have.
    #[expect(
        clippy::missing_panics_doc,
        reason = "Posthaste's own map has every role that its statements need"
    )]
    pub fn in_schema(schema: &str) -> Result<Self, BadIdentifier> {
        let map = TableMap::in_schema(schema)?;
        Ok(Self::with_map(map).expect("Posthaste's own map has every role"))
    }

    /// For the outbox that a table map describes, a queue or a log.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unsupported`](posthaste_core::store::StoreErrorKind::Unsupported) if the table lacks what its statements need; the error says what.
    pub fn with_map(map: TableMap) -> Result<Self, StoreError> {
        let map = Arc::new(map);
        if map.strategy() == Strategy::Log {
            let statements = log::Statements::finish(&map)?;
            return Ok(Self::of_log(&map, &statements));
        }
        let statements = Statements::finish(&map, &Sessions::default())?;
        Ok(Self::of(&map, &statements))
    }

    pub(crate) fn of(map: &Arc<TableMap>, statements: &Statements) -> Self {
        let native = statements.dedupe.as_ref().map(|dedupe| EnqueueStatements::Native {
            append_one: Arc::clone(dedupe.append_one.text()),
            append_uniform: Arc::clone(dedupe.append_uniform.text()),
            append: Arc::clone(dedupe.append.text()),
            enqueue: Arc::clone(dedupe.enqueue.text()),
        });
        let mapped = statements.plain.as_ref().map(|plain| EnqueueStatements::Mapped {
            insert: Arc::clone(plain.insert.text()),
            find_enqueued: Arc::clone(plain.find_enqueued.text()),
        });
        Self {
            map: Arc::clone(map),
            statements: native.or(mapped).expect("a table has dedupe keys apart or has not"),
        }
    }

    pub(crate) fn of_log(map: &Arc<TableMap>, statements: &log::Statements) -> Self {
        let own = statements.appending.as_ref().map(|own| EnqueueStatements::NativeLog {
            append_one: Arc::clone(own.append_one.text()),
            append_uniform: Arc::clone(own.append_uniform.text()),
            append: Arc::clone(own.append.text()),
            append_or_hold: Arc::clone(own.append_or_hold.text()),
        });
        let mapped = statements.writing.as_ref().map(|writing| EnqueueStatements::Log {
            append: Arc::clone(writing.enqueue.text()),
        });
        Self {
            map: Arc::clone(map),
            statements: own.or(mapped).expect("a log is Posthaste's own or is not"),
        }
    }

    /// An outbox on connections that are not this crate's.
    pub fn outbox(&self, options: OutboxOptions) -> StoreOutbox<Self> {
        StoreOutbox::new(self.clone(), options)
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
    ) -> Result<PendingEnqueue, EnqueueError> {
        let prepared = Prepared::new(messages, options)?;
        let progress = self.begin(&prepared, options.dedupe_window)?;
        Ok(PendingEnqueue::new(self.clone(), prepared, progress))
    }

    /// The first step for messages that were validated, if the table can keep them.
    pub(crate) fn begin(&self, prepared: &Prepared, dedupe_window: Duration) -> Result<Progress, EnqueueError> {
        if !matches!(self.statements, EnqueueStatements::Native { .. }) {
            self.map.validate_messages(prepared)?;
        }
        Ok(Progress {
            outcomes: Vec::with_capacity(prepared.rows.len()),
            missing: Vec::new(),
            is_done: prepared.is_empty(),
            dedupe_window: dedupe_window.min(MAX_DURATION),
        })
    }

    /// Whether one insert writes all.
    pub(crate) fn is_one_insert(&self, progress: &Progress, prepared: &Prepared) -> bool {
        self.unwritten(progress, prepared).len() == prepared.rows.len()
    }

    /// The rows of the next insert.
    fn unwritten<'a>(&self, progress: &Progress, prepared: &'a Prepared) -> &'a [NewRow] {
        let rows = &prepared.rows[progress.outcomes.len()..];
        match self.statements {
            // Where the database gives the ids, one row at a time: nothing else says which id is whose.
            EnqueueStatements::Mapped { .. } if self.map.has(Property::GeneratedId) => &rows[..rows.len().min(1)],
            // All dedupe keys of a call are taken in one order, and by one statement therefore.
            EnqueueStatements::NativeLog { .. } if !may_not_append(rows) => &rows[..rows.len().min(APPENDED_ROWS)],
            _ => rows,
        }
    }
}

impl EnqueueSteps for PostgresEnqueue {
    type Argument<'a> = Argument<'a>;
    type Progress = Progress;

    fn query<'a>(&self, progress: &Progress, prepared: &'a Prepared) -> Option<Query<'a>> {
        if progress.is_done {
            return None;
        }
        let rows = self.unwritten(progress, prepared);
        Some(match &self.statements {
            EnqueueStatements::Native {
                append_one,
                append_uniform,
                append,
                enqueue,
            } => match rows {
                _ if any_deduped(rows) => Query::new(enqueue, columns::native(rows, progress.dedupe_window)),
                [row] => Query::new(append_one, columns::unique_one(row)),
                _ => match uniform::unique(rows) {
                    Some(arguments) => Query::new(append_uniform, arguments),
                    None => Query::new(append, columns::unique(rows)),
                },
            },
            EnqueueStatements::Log { append } => Query::new(append, columns::log(&self.map, rows)),
            EnqueueStatements::NativeLog { append_or_hold, .. } if may_not_append(rows) => {
                Query::new(append_or_hold, columns::held_log(rows, progress.dedupe_window))
            }
            EnqueueStatements::NativeLog {
                append_one,
                append_uniform,
                append,
                ..
            } => match rows {
                [row] => Query::new(append_one, columns::native_log_one(row)).without_rows(),
                _ => match uniform::native_log(rows) {
                    Some(arguments) => Query::new(append_uniform, arguments).without_rows(),
                    None => Query::new(append, columns::native_log(rows)).without_rows(),
                },
            },
            EnqueueStatements::Mapped { insert, .. } if !rows.is_empty() => {
                Query::new(insert, columns::mapped(&self.map, rows))
            }
            // In a statement of its own: the ones before do not see what was committed while they waited.
            EnqueueStatements::Mapped { find_enqueued, .. } => {
                let rows: Vec<_> = progress.missing.iter().map(|place| &prepared.rows[*place]).collect();
                Query::new(find_enqueued, columns::keys(&self.map, &rows))
            }
        })
    }

    fn answer(&self, progress: &mut Progress, prepared: &Prepared, answer: Vec<AnswerRow>) {
        let rows = self.unwritten(progress, prepared);
        match &self.statements {
            _ if rows.is_empty() => {
                progress.find(&self.map, &answer);
                progress.is_done = true;
                return;
            }
            EnqueueStatements::Native { .. } if any_deduped(rows) => {
                progress.outcomes.extend(native_outcomes(rows, &answer));
            }
            EnqueueStatements::Native { .. } => progress.outcomes.extend(unique_outcomes(rows, &answer)),
            // Nothing can be in its way, so that nothing is asked.
            EnqueueStatements::NativeLog { .. } if !may_not_append(rows) => {
                let written = rows.iter().map(|row| Some(Enqueued::Inserted(row.message.id)));
                progress.outcomes.extend(written);
            }
            EnqueueStatements::NativeLog { .. } => {
                progress.outcomes.extend(native_outcomes(rows, &answer));
            }
            EnqueueStatements::Log { .. } => progress.outcomes.extend(log_outcomes(&self.map, rows, answer)),
            EnqueueStatements::Mapped { .. } => {
                progress.outcomes.extend(mapped_outcomes(&self.map, rows, &answer));
            }
        }
        if progress.outcomes.len() == prepared.rows.len() {
            let missing = |place: &usize| progress.outcomes[*place].is_none();
            progress.missing = (0..progress.outcomes.len()).filter(missing).collect();
            let can_find = matches!(self.statements, EnqueueStatements::Mapped { .. });
            progress.is_done = progress.missing.is_empty() || !can_find;
        }
    }

    fn finish(&self, progress: Progress) -> Result<Vec<Enqueued>, StoreError> {
        outcomes(progress.is_done, progress.outcomes)
    }
}

impl PostgresEnqueue {
    /// Runs all statements for messages that were validated.
    pub(crate) async fn run<C: EnqueueExecutor + ?Sized>(
        &self,
        conn: &mut C,
        messages: &Prepared,
        options: &OutboxOptions,
        is_kept: bool,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let rows = NewRows {
            steps: self,
            prepared: messages,
            progress: self.begin(messages, options.dedupe_window)?,
            is_kept,
        };
        Ok(conn.insert(rows).await?)
    }
}

impl<C: EnqueueExecutor + ?Sized> EnqueueOn<C> for PostgresEnqueue {
    async fn insert(
        &self,
        conn: &mut C,
        messages: &Prepared,
        options: &OutboxOptions,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        self.run(conn, messages, options, false).await
    }
}

impl Default for PostgresEnqueue {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether one of them may have been enqueued before, or waits for a time of its own.
fn may_not_append(rows: &[NewRow]) -> bool {
    let message = |row: &NewRow| row.message.dedupe_key.is_some() || row.message.not_before.is_some();
    rows.iter().any(message)
}

fn native_outcomes(rows: &[NewRow], answer: &[AnswerRow]) -> Vec<Option<Enqueued>> {
    let mut outcomes = vec![None; rows.len()];
    for row in answer {
        // The server made this text of a UUID.
        let id = MessageId::guess(&row.id);
        let place = usize::try_from(row.place - 1).ok();
        if let Some(outcome) = place.and_then(|place| outcomes.get_mut(place)) {
            *outcome = Some(if row.is_new {
                Enqueued::Inserted(id)
            } else {
                Enqueued::Duplicate(id)
            });
        }
    }
    outcomes
}

fn any_deduped(rows: &[NewRow]) -> bool {
    rows.iter().any(|row| row.message.dedupe_key.is_some())
}

/// Of rows without dedupe keys, which have no id but their own. One row comes back if it was written, which is said by the
/// insert itself; of many come back those that were not, which are mostly none.
fn unique_outcomes(rows: &[NewRow], answer: &[AnswerRow]) -> Vec<Option<Enqueued>> {
    let mut new: HashSet<_> = match rows {
        [_] if answer.is_empty() => HashSet::new(),
        _ => rows.iter().map(|row| row.message.id).collect(),
    };
    for row in answer.iter().filter(|row| !row.is_new) {
        let place = usize::try_from(row.place - 1).ok();
        if let Some(existed) = place.and_then(|place| rows.get(place)) {
            new.remove(&existed.message.id);
        }
    }
    // Removed, because an id that is given twice is written once.
    let outcome = |row: &NewRow| {
        let id = row.message.id;
        Some(if new.remove(&id) {
            Enqueued::Inserted(id)
        } else {
            Enqueued::Duplicate(id)
        })
    };
    rows.iter().map(outcome).collect()
}

fn mapped_outcomes(map: &TableMap, rows: &[NewRow], answer: &[AnswerRow]) -> Vec<Option<Enqueued>> {
    let mut written: HashSet<_> = answer.iter().map(|row| map.id(&row.id)).collect();
    let outcome = |row: &NewRow| match map.has(Property::GeneratedId).then(|| written.iter().next()) {
        Some(given) => given.copied().map(Enqueued::Inserted),
        // As the table reads it: a text that looks like a UUID is a text there. Removed, because an id that is given twice is
        // written once.
        None => written
            .remove(&map.id(&row.message.id.to_string()))
            .then_some(Enqueued::Inserted(row.message.id)),
    };
    rows.iter().map(outcome).collect()
}

fn log_outcomes(map: &TableMap, rows: &[NewRow], answer: Vec<AnswerRow>) -> Vec<Option<Enqueued>> {
    let mut numbers: Vec<_> = answer.into_iter().map(|row| row.place).collect();
    // Ids go up in the order of the call.
    numbers.sort_unstable();
    // Where the table keeps no event id, the number is what the event is known by.
    let has_event_id = map.has(Role::EventId);
    let id = |row: &NewRow, number: i64| if has_event_id { row.message.id } else { number.into() };
    let outcome = |(place, row)| numbers.get(place).map(|number| Enqueued::Inserted(id(row, *number)));
    rows.iter().enumerate().map(outcome).collect()
}

/// Validated messages on their way into a transaction. See [`PostgresEnqueue`].
///
/// Into Posthaste's own tables one statement writes everything; into an existing table it may take another to find out what was
/// there before.
pub type PendingEnqueue = posthaste_sql::enqueue::PendingEnqueue<PostgresEnqueue>;

/// How far the statements of one call are run.
#[doc(hidden)]
#[derive(Debug)]
pub struct Progress {
    /// Of the rows for which an insert was run; none where another row was in the way.
    outcomes: Vec<Option<Enqueued>>,
    /// The places of those without an outcome, once all inserts were run.
    missing: Vec<usize>,
    is_done: bool,
    dedupe_window: Duration,
}

impl Progress {
    /// Takes the rows that kept others from being written.
    fn find(&mut self, map: &TableMap, answer: &[AnswerRow]) {
        for row in answer {
            let place = usize::try_from(row.place - 1).ok();
            if let Some(place) = place.and_then(|place| self.missing.get(place)) {
                self.outcomes[*place] = Some(Enqueued::Duplicate(map.id(&row.id)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::Message;
    use posthaste_sql::table::BuiltinMap;

    use super::*;

    fn usage() -> PostgresEnqueue {
        let map = BuiltinMap::find("usage").unwrap().map().unwrap();
        PostgresEnqueue::with_map(map).unwrap()
    }

    fn row(place: i64, id: MessageId, is_new: bool) -> AnswerRow {
        let id = id.to_string();
        AnswerRow { place, id, is_new }
    }

    #[test]
    fn native_tables_take_one_statement_whatever_the_order_of_its_answer() {
        let messages = [Message::new("t", "1"), Message::new("t", "2").dedupe_key("k")];
        let [first, holder] = [messages[0].id, MessageId::new()];
        let mut pending = PostgresEnqueue::new()
            .prepare(messages, &OutboxOptions::default())
            .unwrap();
        let arguments = pending.query().unwrap().arguments;
        assert_eq!(arguments.len(), 16);
        assert_eq!(arguments[11], Argument::Bytes(vec![b"1", b"2"]));
        pending.answer(vec![row(2, holder, false), row(1, first, true)]);
        assert!(pending.query().is_none());
        assert_eq!(
            pending.finish().unwrap(),
            [Enqueued::Inserted(first), Enqueued::Duplicate(holder)]
        );
    }

    #[test]
    fn without_dedupe_keys_only_what_existed_is_answered_of_many() {
        let messages = [Message::new("t", "1"), Message::new("t", "2")];
        let [first, second] = [0, 1].map(|place: usize| messages[place].id);
        let mut pending = PostgresEnqueue::new()
            .prepare(messages, &OutboxOptions::default())
            .unwrap();
        let query = pending.query().unwrap();
        assert_eq!(query.arguments.len(), 13);
        assert_eq!(
            query.arguments[0],
            Argument::Uuids(vec![first.uuid().unwrap(), second.uuid().unwrap()])
        );
        pending.answer(vec![row(2, second, false)]);
        assert!(pending.query().is_none());
        assert_eq!(
            pending.finish().unwrap(),
            [Enqueued::Inserted(first), Enqueued::Duplicate(second)]
        );
    }

    #[test]
    fn one_message_goes_without_arrays_and_is_new_if_its_row_comes_back() {
        let prepare = || {
            let message = Message::new("t", "1").header("a", "b");
            let id = message.id;
            let pending = PostgresEnqueue::new().prepare([message], &OutboxOptions::default());
            (pending.unwrap(), id)
        };
        let (mut pending, id) = prepare();
        let arguments = pending.query().unwrap().arguments;
        assert_eq!(arguments[0], Argument::Text(Some(id.to_string().into())));
        assert_eq!(
            arguments[10..12],
            [Argument::Blob(b"1"), Argument::Text(Some(r#"{"a":"b"}"#.into()))]
        );
        pending.answer(vec![row(1, id, true)]);
        assert_eq!(pending.finish().unwrap(), [Enqueued::Inserted(id)]);

        let (mut pending, id) = prepare();
        pending.answer(Vec::new());
        assert_eq!(pending.finish().unwrap(), [Enqueued::Duplicate(id)]);
    }

    #[test]
    fn what_messages_of_one_kind_have_in_common_goes_without_arrays() {
        let goes_once = |statements: &PostgresEnqueue, topic: usize, second: Message| {
            let messages = [Message::new("t", "1"), second];
            let pending = statements.prepare(messages, &OutboxOptions::default()).unwrap();
            let arguments = pending.query().unwrap().arguments;
            match (&arguments[0], &arguments[topic]) {
                (Argument::Uuids(_), Argument::Text(_)) => true,
                (Argument::Texts(_), Argument::Texts(_)) => false,
                other => panic!("{other:?}"),
            }
        };
        let queue = PostgresEnqueue::new();
        let log = PostgresEnqueue::with_map(TableMap::native_log("s").unwrap()).unwrap();
        for (statements, topic) in [(&queue, 2), (&log, 1)] {
            let same_kind = Message::new("t", "2").key("k").header("a", "b");
            assert!(goes_once(statements, topic, same_kind));
            for other_kind in [Message::new("u", "2"), Message::new("t", "2").event_type("a.b.c.v1")] {
                assert!(!goes_once(statements, topic, other_kind));
            }
        }
        let scheduled = Message::new("t", "2").not_before(chrono::Utc::now());
        assert!(!goes_once(&queue, 2, scheduled));
    }

    fn rows_by_statement(mut pending: PendingEnqueue) -> Vec<usize> {
        let mut rows = Vec::new();
        while let Some(query) = pending.query() {
            rows.push(match &query.arguments[0] {
                Argument::Texts(ids) => ids.len(),
                Argument::Uuids(ids) => ids.len(),
                _ => 1,
            });
            pending.answer(Vec::new());
        }
        rows
    }

    #[test]
    fn what_is_only_appended_to_the_log_is_not_asked_for() {
        let log = PostgresEnqueue::with_map(TableMap::native_log("s").unwrap()).unwrap();
        let prepare = |messages: Vec<Message>| log.prepare(messages, &OutboxOptions::default()).unwrap();
        for count in [1, 2] {
            let messages: Vec<_> = (0..count).map(|n| Message::new("t", n.to_string())).collect();
            let ids: Vec<_> = messages.iter().map(|message| Enqueued::Inserted(message.id)).collect();
            let mut pending = prepare(messages);
            let query = pending.query().unwrap();
            assert!(!query.returns_rows && !query.sql.contains("returning"), "{}", query.sql);
            assert_eq!(query.sql.contains("unnest"), count > 1);
            pending.answer(Vec::new());
            assert_eq!(pending.finish().unwrap(), ids);
        }
        let many = prepare((0..=APPENDED_ROWS).map(|n| Message::new("t", n.to_string())).collect());
        assert_eq!(rows_by_statement(many), [APPENDED_ROWS, 1]);
        let held = (0..=APPENDED_ROWS).map(|n| Message::new("t", "1").dedupe_key(n.to_string()));
        assert_eq!(rows_by_statement(prepare(held.collect())), [APPENDED_ROWS + 1]);

        let held = Message::new("t", "1").dedupe_key("k");
        let holder = MessageId::new();
        let mut pending = prepare(vec![held]);
        assert!(pending.query().unwrap().returns_rows);
        pending.answer(vec![row(1, holder, false)]);
        assert_eq!(pending.finish().unwrap(), [Enqueued::Duplicate(holder)]);
    }

    #[test]
    fn what_was_in_the_way_in_an_existing_table_is_looked_up() {
        let messages = [Message::new("t", "1"), Message::new("t", "2"), Message::new("t", "3")];
        let [first, _, third] = [0, 1, 2].map(|place: usize| messages[place].id);
        let holder = MessageId::new();
        let mut pending = usage().prepare(messages, &OutboxOptions::default()).unwrap();
        pending.answer(vec![row(0, third, true), row(0, first, true)]);
        let lookup = pending.query().expect("one was not written");
        assert!(
            lookup.sql.contains("is_new") && lookup.arguments.len() == 5,
            "{}",
            lookup.sql
        );
        pending.answer(vec![row(1, holder, false)]);
        let outcomes = pending.finish().unwrap();
        let expected = [
            Enqueued::Inserted(first),
            Enqueued::Duplicate(holder),
            Enqueued::Inserted(third),
        ];
        assert_eq!(outcomes, expected);
    }

    #[test]
    fn nothing_counts_as_enqueued_whose_statements_were_not_run() {
        let pending = usage().prepare([Message::new("t", "1")], &OutboxOptions::default());
        let error = pending.unwrap().finish().unwrap_err().to_string();
        assert!(error.contains("statements left to run"), "{error}");

        let mut pending = usage()
            .prepare([Message::new("t", "1")], &OutboxOptions::default())
            .unwrap();
        pending.answer(Vec::new());
        pending.answer(Vec::new());
        let error = pending.finish().unwrap_err().to_string();
        assert!(error.contains("not to be found"), "{error}");
    }

    #[test]
    fn a_table_that_cannot_keep_a_message_is_asked_before_anything_runs() {
        let keyed = Message::new("t", "{}").key("k");
        let refused = usage().prepare([keyed], &OutboxOptions::default()).unwrap_err();
        assert!(
            matches!(refused, EnqueueError::Invalid { position: 0, .. }),
            "{refused}"
        );
    }
}
