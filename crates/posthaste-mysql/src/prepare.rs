//! The statements that enqueue, for whoever has the transaction.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::enqueue::{NewRow, Prepared};
use posthaste_core::{EnqueueError, Enqueued, IntoMessage, MessageId, OutboxOptions, StoreError};
use posthaste_sql::TableMap;
use posthaste_sql::enqueue::{AnswerRow, EnqueueSteps, PendingEnqueue, Query, RefusableSteps, Value, hex, outcomes};
use posthaste_sql::table::{BadIdentifier, Database, Property};
use uuid::Uuid;

use crate::claim::MAX_IDS;
use crate::rows::millis;
use crate::statement::{self, Statement};
use crate::statements::{Dedupe, Plain, Statements, Writing};
use crate::{DEFAULT_PREFIX, columns, native_map};

/// Enqueues on connections that are not this crate's: it validates messages, says which statements to run in your transaction
/// and with which arguments, and reads what they answer. Needs no pool, and opens no connection. Cheap to clone.
///
/// This is for ORMs and other drivers. With sqlx use [`MySqlOutbox`](crate::MySqlOutbox), which runs the same statements.
///
/// # Examples
/// `run` is any way to run a statement and to read the columns `place`, `id` and `is_new`, where
/// [`returns_rows`](Query::returns_rows). An insert that fails because of a unique key (error 1062) is no failure: the server
/// undid that statement alone, and [`refused`](PendingEnqueue::refused) goes on to find what was there before.
///
/// ```
/// use posthaste_core::{EnqueueError, Enqueued, Message, OutboxOptions, StoreError};
/// use posthaste_mysql::MySqlEnqueue;
/// use posthaste_sql::enqueue::{AnswerRow, Query, Value};
///
/// # enum DriverError { UniqueKey, Other(StoreError) }
/// # fn run(query: &Query<'_, Value<'_>>) -> Result<Vec<AnswerRow>, DriverError> { Ok(Vec::new()) }
/// # fn main() -> Result<(), EnqueueError> {
/// let statements = MySqlEnqueue::new();
/// let message = Message::new("order-events", r#"{"orderId":42}"#).key("42");
///
/// let mut pending = statements.prepare([message], &OutboxOptions::default())?;
/// while let Some(query) = pending.query() {
///     match run(&query) {
///         Ok(rows) => pending.answer(rows),
///         Err(DriverError::UniqueKey) => pending.refused(),
///         Err(DriverError::Other(error)) => return Err(error.into()), // roll back
///     }
/// }
/// let outcomes = pending.finish()?;
/// assert!(matches!(outcomes[..], [Enqueued::Inserted(_)]));
/// # Ok(())
/// # }
/// ```
///
/// There may be several statements, so run them in a transaction.
#[derive(Clone, Debug)]
pub struct MySqlEnqueue {
    map: Arc<TableMap>,
    statements: Arc<Statements>,
}

/// How a table is written to.
enum EnqueueStatements<'s> {
    /// Posthaste's own tables, which keep dedupe keys apart.
    Native(&'s Dedupe),
    /// A table whose own indexes say what may be there once, row by row.
    Mapped(&'s Writing, &'s Plain),
}

impl MySqlEnqueue {
    /// For the outbox in the tables `posthaste_outbox` and so on.
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
        let map = native_map(prefix)?;
        Ok(Self::with_map(map).expect("Posthaste's own map has every role"))
    }

    /// For the outbox that a table map describes.
    ///
    /// # Errors
    /// [`StoreErrorKind::Unsupported`](posthaste_core::store::StoreErrorKind::Unsupported) says what the table lacks, or what the
    /// database cannot do.
    pub fn with_map(map: TableMap) -> Result<Self, StoreError> {
        map.check_database(Database::MySql)?;
        let statements = Statements::finish(&map)?;
        Ok(Self::of(&Arc::new(map), &Arc::new(statements)))
    }

    pub(crate) fn of(map: &Arc<TableMap>, statements: &Arc<Statements>) -> Self {
        Self {
            map: Arc::clone(map),
            statements: Arc::clone(statements),
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

    /// The first steps for messages that were validated, if the table can keep them.
    pub(crate) fn begin(&self, prepared: &Prepared, dedupe_window: Duration) -> Result<Progress, EnqueueError> {
        let mut progress = Progress {
            steps: VecDeque::new(),
            outcomes: vec![None; prepared.rows.len()],
            holders: HashMap::new(),
            has_taken_over: false,
            caller: Uuid::now_v7().to_string(),
            dedupe_window_ms: millis(dedupe_window),
        };
        match self.statements() {
            EnqueueStatements::Native(_) => progress.begin(prepared),
            EnqueueStatements::Mapped(..) => {
                self.map.validate_messages(prepared)?;
                progress.steps.extend((0..prepared.rows.len()).map(Step::InsertOne));
            }
        }
        Ok(progress)
    }

    fn statements(&self) -> EnqueueStatements<'_> {
        let own = self.statements.dedupe.as_ref().map(EnqueueStatements::Native);
        let mapped = || {
            Some(EnqueueStatements::Mapped(
                self.statements.writing.as_ref()?,
                self.statements.plain.as_ref()?,
            ))
        };
        own.or_else(mapped).expect("a table has dedupe keys apart or has not")
    }
}

impl EnqueueSteps for MySqlEnqueue {
    type Argument<'a> = Value<'a>;
    type Progress = Progress;

    fn query<'a>(&self, progress: &Progress, prepared: &'a Prepared) -> Option<Query<'a, Value<'a>>> {
        let step = progress.steps.front()?;
        Some(match self.statements() {
            EnqueueStatements::Native(own) => step.native_query(own, progress, &prepared.rows),
            EnqueueStatements::Mapped(writing, plain) => step.mapped_query(writing, plain, &self.map, &prepared.rows),
        })
    }

    fn answer(&self, progress: &mut Progress, prepared: &Prepared, answer: Vec<AnswerRow>) {
        let given = |row: &AnswerRow| self.map.id(&row.id);
        let first = answer.first().map(given);
        let own = |place: usize| Some(Enqueued::Inserted(prepared.rows[place].message.id));
        let Some(step) = progress.steps.pop_front() else { return };
        match step {
            Step::HoldKeys(_) | Step::TakeOver(_) => {}
            Step::FindHolders(_) => {
                progress.holders.extend(answer.iter().filter_map(Holder::read));
                if !matches!(progress.steps.front(), Some(Step::FindHolders(_))) {
                    progress.judge_holders(prepared);
                }
            }
            Step::Insert(places) => places
                .into_iter()
                .for_each(|place| progress.outcomes[place] = own(place)),
            Step::InsertOne(place) if !self.map.has(Property::GeneratedId) => progress.outcomes[place] = own(place),
            Step::InsertOne(place) if first.is_none() => progress.steps.push_front(Step::FindLastId(place)),
            Step::InsertOne(place) | Step::FindLastId(place) => {
                progress.outcomes[place] = first.map(Enqueued::Inserted);
            }
            Step::FindBefore(place, lookup) => match first {
                Some(before) => progress.outcomes[place] = Some(Enqueued::Duplicate(before)),
                None if lookup + 1 < LOOKUPS => progress.steps.push_front(Step::FindBefore(place, lookup + 1)),
                // It has no outcome then, and that is an error.
                None => progress.steps.clear(),
            },
        }
    }

    fn finish(&self, progress: Progress) -> Result<Vec<Enqueued>, StoreError> {
        outcomes(progress.steps.is_empty(), progress.outcomes)
    }
}

impl RefusableSteps for MySqlEnqueue {
    fn refused(&self, progress: &mut Progress, prepared: &Prepared) {
        match progress.steps.pop_front() {
            Some(Step::InsertOne(place)) => progress.steps.push_front(Step::FindBefore(place, 0)),
            Some(Step::Insert(places)) => match places[..] {
                [place] => progress.outcomes[place] = Some(Enqueued::Duplicate(prepared.rows[place].message.id)),
                // An id exists already. The server undid the whole statement, and one by one it says which.
                _ => places
                    .into_iter()
                    .rev()
                    .for_each(|place| progress.steps.push_front(Step::Insert(vec![place]))),
            },
            // No other statement can be refused.
            _ => progress.steps.clear(),
        }
    }
}

impl Default for MySqlEnqueue {
    fn default() -> Self {
        Self::new()
    }
}

/// By how many things a row of an existing table may be there already.
const LOOKUPS: usize = 3;

/// One statement, for the rows at these places of the call.
#[derive(Clone, Debug)]
enum Step {
    /// Holds the dedupe keys that are free.
    HoldKeys(Vec<usize>),
    FindHolders(Vec<usize>),
    /// Lets a row have its key, whose window is over, unless the holder's row is still there.
    TakeOver(usize),
    Insert(Vec<usize>),
    InsertOne(usize),
    /// Asks for the id that the server gave.
    FindLastId(usize),
    /// Asks for the row that was there before, by one thing after the other.
    FindBefore(usize, usize),
}

impl Step {
    fn find_holders(places: &[usize]) -> impl Iterator<Item = Self> {
        places.chunks(MAX_IDS).map(|places| Self::FindHolders(places.to_vec()))
    }

    fn native_query(&self, own: &Dedupe, progress: &Progress, rows: &[NewRow]) -> Query<'static, Value<'static>> {
        let (caller, window_ms) = (progress.caller.as_str(), progress.dedupe_window_ms);
        match self {
            Self::HoldKeys(places) => {
                let rows = places.iter().map(|place| &rows[*place]);
                own.hold_keys
                    .for_any_driver(&columns::held_keys(rows, caller, window_ms))
                    .without_rows()
            }
            Self::FindHolders(places) => {
                let keys = places.iter().map(|place| key(&rows[*place]));
                let keys = keys.map(statement::Value::Row).collect();
                own.find_holders
                    .for_any_driver(&[statement::Value::List(keys), caller.into()])
            }
            Self::TakeOver(place) => {
                let row = &rows[*place];
                let mut values = key(row);
                values.extend([row.message.id.to_string().into(), caller.into(), window_ms.into()]);
                own.take_over_key.for_any_driver(&values).without_rows()
            }
            Self::Insert(places) => {
                let rows = places.iter().map(|place| &rows[*place]);
                own.enqueue.for_any_driver(&columns::native(rows)).without_rows()
            }
            Self::InsertOne(_) | Self::FindLastId(_) | Self::FindBefore(..) => {
                unreachable!("Posthaste's own tables are written in batches")
            }
        }
    }

    fn mapped_query(
        &self,
        writing: &Writing,
        plain: &Plain,
        map: &TableMap,
        rows: &[NewRow],
    ) -> Query<'static, Value<'static>> {
        let values = |place: &usize| columns::mapped(map, &rows[*place]);
        match self {
            Self::InsertOne(place) => writing.insert.for_any_driver(&values(place)).without_rows(),
            Self::FindLastId(_) => plain.last_id.for_any_driver(&[]),
            Self::FindBefore(place, lookup) => {
                let lookups: [&Statement; LOOKUPS] =
                    [&plain.find_by_dedupe_key, &plain.find_by_event_id, &plain.find_by_id];
                lookups[*lookup].for_any_driver(&values(place))
            }
            Self::HoldKeys(_) | Self::FindHolders(_) | Self::TakeOver(_) | Self::Insert(_) => {
                unreachable!("an existing table is written row by row")
            }
        }
    }
}

/// How far the statements of one call are run.
#[doc(hidden)]
#[derive(Debug)]
pub struct Progress {
    /// What is left to run, as far as that is known.
    steps: VecDeque<Step>,
    /// Of each row.
    outcomes: Vec<Option<Enqueued>>,
    holders: HashMap<String, Holder>,
    has_taken_over: bool,
    /// Who holds the keys of this call.
    caller: String,
    dedupe_window_ms: i64,
}

impl Progress {
    /// Whether one statement writes all, so that it succeeds or fails as a whole.
    pub(crate) fn is_one_statement(&self) -> bool {
        self.steps.len() <= 1
    }

    fn begin(&mut self, prepared: &Prepared) {
        let is_keyed = |place: &usize| prepared.rows[*place].message.dedupe_key.is_some();
        let keyed: Vec<_> = (0..prepared.rows.len()).filter(is_keyed).collect();
        if keyed.is_empty() {
            self.write_free(prepared);
            return;
        }
        self.steps.extend(Step::find_holders(&keyed));
        self.steps.push_front(Step::HoldKeys(keyed));
    }

    /// Once all holders are known.
    fn judge_holders(&mut self, prepared: &Prepared) {
        let mut expired = Vec::new();
        let keyed = prepared.rows.iter().enumerate();
        for (place, row) in keyed.filter(|(_, row)| row.message.dedupe_key.is_some()) {
            let Some(holder) = self.holders.get(&key_digits(row)) else {
                continue;
            };
            if !holder.is_caller && holder.is_expired && !self.has_taken_over {
                expired.push(place);
            } else if !holder.is_caller || holder.id != row.message.id {
                self.outcomes[place] = Some(Enqueued::Duplicate(holder.id));
            }
        }
        if expired.is_empty() {
            self.write_free(prepared);
            return;
        }
        self.has_taken_over = true;
        self.steps.extend(expired.iter().copied().map(Step::TakeOver));
        self.steps.extend(Step::find_holders(&expired));
    }

    /// Writes what has no outcome yet.
    fn write_free(&mut self, prepared: &Prepared) {
        let is_free = |place: &usize| self.outcomes[*place].is_none();
        let free: Vec<_> = (0..prepared.rows.len()).filter(is_free).collect();
        let rows: Vec<_> = free.iter().map(|place| &prepared.rows[*place]).collect();
        let batches = columns::batches(&rows).into_iter();
        self.steps
            .extend(batches.map(|batch| Step::Insert(free[batch].to_vec())));
    }
}

/// Who holds a dedupe key.
#[derive(Debug)]
struct Holder {
    id: MessageId,
    /// Whether this call holds it.
    is_caller: bool,
    /// Whether the window is over. The key is free only if the row is gone too.
    is_expired: bool,
}

impl Holder {
    /// What `find_holders.sql` says, by key.
    fn read(row: &AnswerRow) -> Option<(String, Self)> {
        let (id, key) = row.id.split_once(' ')?;
        let holder = Self {
            id: MessageId::guess(id),
            is_caller: row.is_new,
            is_expired: row.place != 0,
        };
        Some((key.to_owned(), holder))
    }
}

fn key(row: &NewRow) -> Vec<statement::Value> {
    columns::key(row).map(statement::Value::Bytes).to_vec()
}

/// A key as `find_holders.sql` spells it.
fn key_digits(row: &NewRow) -> String {
    let digits = |bytes: Vec<u8>| hex(&bytes).trim_start_matches("\\x").to_ascii_uppercase();
    columns::key(row).map(digits).join(" ")
}
