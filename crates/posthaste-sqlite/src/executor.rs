//! The connections on which an application may enqueue.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use chrono::{DateTime, Utc};
use posthaste_core::enqueue::{self as prepared, Prepared};
use posthaste_core::integrity::HashRecipe;
use posthaste_core::{Enqueued, MessageId, StoreError};
use posthaste_sql::table::{Kind, Property, Role};
use serde::Serialize;
use sqlx::pool::PoolConnection;
use sqlx::types::Json;
use sqlx::{Connection, Row, Sqlite, SqliteConnection, Transaction};

use crate::SqliteStore;
use crate::rows::{epoch_millis, id, millis};
use crate::statements::{Dedupe, Keys, TakenRows};

/// A connection that can write outbox rows: sqlx's `Transaction`, `SqliteConnection` and `PoolConnection`.
///
/// Sealed: its one method takes types of this crate.
pub trait EnqueueExecutor: Send {
    /// Writes the rows and returns one outcome per row.
    #[doc(hidden)]
    fn insert(
        &mut self,
        store: InsertStatements,
        rows: NewRows<'_>,
    ) -> impl Future<Output = Result<Vec<Enqueued>, StoreError>> + Send;
}

/// The store whose rows are written.
#[doc(hidden)]
#[derive(Debug)]
pub struct InsertStatements(pub(crate) SqliteStore);

/// New rows as JSON for `json_each`, with the payloads beside them as they are.
#[doc(hidden)]
#[derive(Debug)]
pub struct NewRows<'a> {
    rows: Vec<NewRow<'a>>,
    payloads: Vec<u8>,
    dedupe_window_ms: i64,
}

#[derive(Clone, Debug, Serialize)]
struct NewRow<'a> {
    id: MessageId,
    event_id: Option<Cow<'a, str>>,
    namespace: Option<Cow<'a, str>>,
    topic: Option<Cow<'a, str>>,
    ordering_key: Option<Cow<'a, str>>,
    tenant: Option<Cow<'a, str>>,
    dedupe_key: Option<Cow<'a, str>>,
    event_type: Option<Cow<'a, str>>,
    source: Option<Cow<'a, str>>,
    aggregate_type: Option<Cow<'a, str>>,
    aggregate_id: Option<Cow<'a, str>>,
    content_type: &'a str,
    headers: String,
    hash: String,
    not_before: Option<i64>,
    /// The id of the call's first row of the same key.
    first: MessageId,
    /// By how many milliseconds it is later than that one.
    later: u32,
    /// Milliseconds between two times that the table tells apart.
    tick: u32,
    /// Where its payload begins among the payloads; SQL counts from 1.
    start: usize,
    bytes: usize,
}

impl<'a> NewRow<'a> {
    fn new(row: &'a prepared::NewRow, store: &SqliteStore, start: usize) -> Self {
        let message = &row.message;
        let text = |role| store.map.new_text(row, role).map(Cow::Borrowed);
        let native_hash = *store.map.hash_recipe() == HashRecipe::default();
        let mut new = Self {
            id: message.id,
            event_id: text(Role::EventId),
            namespace: text(Role::Namespace),
            topic: text(Role::Topic),
            ordering_key: text(Role::OrderingKey),
            tenant: text(Role::Tenant),
            dedupe_key: text(Role::DedupeKey),
            event_type: text(Role::EventType),
            source: text(Role::Source),
            aggregate_type: text(Role::AggregateType),
            aggregate_id: text(Role::AggregateId),
            content_type: &message.content_type,
            headers: serde_json::json!(message.headers).to_string(),
            hash: if native_hash {
                row.hash
            } else {
                store.map.content_hash(message)
            }
            .to_string(),
            not_before: message.not_before.map(|time| store.not_before(time)),
            first: message.id,
            later: 0,
            tick: store.tick(),
            start,
            bytes: message.payload.len(),
        };
        if store.map.has(Role::EventId) {
            new.event_id.get_or_insert_with(|| message.effective_event_id());
        }
        new
    }
}

impl SqliteStore {
    /// How far apart two times must be for the column to tell them apart, in milliseconds.
    fn tick(&self) -> u32 {
        match self.map.column(Role::CreatedAt).map(|column| column.kind) {
            Some(Kind::EpochS) => 1000,
            _ => 1,
        }
    }

    /// A time as its column keeps it, rounded up: nothing is delivered too early.
    fn not_before(&self, time: DateTime<Utc>) -> i64 {
        epoch_millis(time).saturating_add(self.kept_until(Role::NextAttemptAt, Duration::ZERO))
    }
}

/// Where a table is ordered by time and id, rows of one moment would be taken by their ids, not as they were given.
/// `enqueue.sql` puts the first row of a key behind what its key has already.
fn keep_order(rows: &mut [NewRow<'_>]) {
    let mut lanes: HashMap<_, (MessageId, MessageId, u32)> = HashMap::new();
    for row in rows {
        let Some(key) = &row.ordering_key else { continue };
        let lane = (row.topic.clone(), key.clone());
        let (first, last, later) = lanes.entry(lane).or_insert((row.id, row.id, 0));
        if row.id != *first && !is_behind(row.id, *last) {
            *later += row.tick;
        }
        *last = row.id;
        (row.first, row.later) = (*first, *later);
    }
}

/// Whether an id is greater both as a number and as a text: the column may be either.
fn is_behind(id: MessageId, last: MessageId) -> bool {
    id > last && id.to_string() > last.to_string()
}

impl<'a> NewRows<'a> {
    pub(crate) fn new(prepared: &'a Prepared, store: &SqliteStore, dedupe_window: Duration) -> Self {
        let mut payloads = Vec::with_capacity(prepared.rows.iter().map(|row| row.message.payload.len()).sum());
        let mut rows: Vec<_> = prepared
            .rows
            .iter()
            .map(|row| {
                let start = payloads.len() + 1;
                payloads.extend_from_slice(&row.message.payload);
                NewRow::new(row, store, start)
            })
            .collect();
        if store.map.has(Property::OrderedByTime) && !store.map.has(Property::GeneratedId) {
            keep_order(&mut rows);
        }
        Self {
            rows,
            payloads,
            dedupe_window_ms: millis(dedupe_window),
        }
    }

    fn has_keys(&self) -> bool {
        self.rows.iter().any(|row| row.dedupe_key.is_some())
    }

    /// Whether one statement writes all, so that it succeeds or fails as a whole.
    fn is_one_statement(&self, store: &SqliteStore) -> bool {
        !self.has_keys() && (self.rows.len() == 1 || !store.map.has(Property::GeneratedId))
    }

    async fn write(self, conn: &mut SqliteConnection, store: &SqliteStore) -> sqlx::Result<Vec<Enqueued>> {
        let written = self.insert(conn, store).await?;
        let taken: Vec<&NewRow> = (self.rows.iter().zip(&written))
            .filter_map(|(row, id)| id.is_none().then_some(row))
            .collect();
        let holders = match store.statements.dedupe() {
            Dedupe::Keys(keys) => self.hold_keys(conn, store, keys, &written).await?,
            Dedupe::Rows(_) if taken.is_empty() => Vec::new(),
            Dedupe::Rows(rows) => find_duplicates(conn, store, rows, &taken).await?,
        };
        let mut holders = holders.into_iter();
        Ok(written
            .into_iter()
            .map(|id| match id {
                Some(id) => Enqueued::Inserted(id),
                None => Enqueued::Duplicate(holders.next().expect("one for each that was not written")),
            })
            .collect())
    }

    /// Writes the rows and says under which id each was written, if it was.
    async fn insert(&self, conn: &mut SqliteConnection, store: &SqliteStore) -> sqlx::Result<Vec<Option<MessageId>>> {
        if store.map.has(Property::GeneratedId) {
            // One at a time: otherwise nothing would say which id is whose.
            let mut written = Vec::with_capacity(self.rows.len());
            for row in &self.rows {
                written.push(self.insert_some(conn, store, std::slice::from_ref(row)).await?.pop());
            }
            return Ok(written);
        }
        let found = self.insert_some(conn, store, &self.rows).await?;
        let mut found: HashSet<_> = found.into_iter().collect();
        // Removed, because an id that is given twice is written once.
        // As the table reads them: a text that looks like a UUID is a text there.
        let read = |row: &NewRow<'_>| store.map.id(&row.id.to_string());
        Ok(self
            .rows
            .iter()
            .map(|row| found.take(&read(row)).map(|_| row.id))
            .collect())
    }

    async fn insert_some(
        &self,
        conn: &mut SqliteConnection,
        store: &SqliteStore,
        rows: &[NewRow<'_>],
    ) -> sqlx::Result<Vec<MessageId>> {
        let found = sqlx::query(store.statements.writing.enqueue.sql())
            .bind(Json(rows))
            .bind(&self.payloads)
            .fetch_all(conn)
            .await?;
        found.iter().map(|row| id(row, "id", &store.map)).collect()
    }

    /// Takes the keys of what was written, and finds the holders of the others.
    async fn hold_keys(
        &self,
        conn: &mut SqliteConnection,
        store: &SqliteStore,
        keys: &Keys,
        written: &[Option<MessageId>],
    ) -> sqlx::Result<Vec<MessageId>> {
        let mut holders = HashMap::new();
        let rows = Json(&self.rows);
        if self.has_keys() {
            let ids: Vec<_> = written.iter().flatten().collect();
            sqlx::query(keys.hold_keys.sql())
                .bind(rows)
                .bind(Json(&ids))
                .bind(self.dedupe_window_ms)
                .execute(&mut *conn)
                .await?;
            if ids.len() < written.len() {
                let found = sqlx::query(keys.find_holders.sql()).bind(rows).fetch_all(conn).await?;
                for row in &found {
                    holders.insert(id(row, "id", &store.map)?, id(row, "holder", &store.map)?);
                }
            }
        }
        let taken = self.rows.iter().zip(written).filter(|(_, id)| id.is_none());
        Ok(taken
            .map(|(row, _)| {
                let read = store.map.id(&row.id.to_string());
                holders.get(&read).copied().unwrap_or(row.id)
            })
            .collect())
    }
}

/// Finds the rows that were there before, in the order of those that were not written.
async fn find_duplicates(
    conn: &mut SqliteConnection,
    store: &SqliteStore,
    statements: &TakenRows,
    taken: &[&NewRow<'_>],
) -> sqlx::Result<Vec<MessageId>> {
    let found = sqlx::query(statements.find_duplicate.sql())
        .bind(Json(taken))
        .fetch_all(conn)
        .await?;
    let mut holders = HashMap::new();
    for row in &found {
        let place: i64 = row.try_get("place")?;
        holders.entry(place).or_insert(id(row, "holder", &store.map)?);
    }
    (0..)
        .zip(taken)
        .map(|(place, row)| {
            holders.get(&place).copied().ok_or_else(|| {
                let reason = format!(
                    "a unique index that the table map does not know refused message {}",
                    row.id
                );
                sqlx::Error::Protocol(reason)
            })
        })
        .collect()
}

impl EnqueueExecutor for SqliteConnection {
    async fn insert(&mut self, store: InsertStatements, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
        insert(self, &store.0, rows).await.map_err(|error| store.0.error(error))
    }
}

/// Rows without dedupe keys are one statement. Keys and generated ids take more, and all must hold or none: a savepoint
/// inside the caller's transaction, or a transaction where the caller has none.
async fn insert(conn: &mut SqliteConnection, store: &SqliteStore, rows: NewRows<'_>) -> sqlx::Result<Vec<Enqueued>> {
    if rows.is_one_statement(store) {
        return rows.write(conn, store).await;
    }
    let refused = match conn.begin().await {
        Ok(mut tx) => {
            let outcomes = rows.write(&mut tx, store).await?;
            tx.commit().await?;
            return Ok(outcomes);
        }
        Err(error) => error,
    };
    if is_nested_begin(&refused) {
        // Begun with a `BEGIN` of the caller's own, of which sqlx does not know. Rows come before their keys, so what a
        // failure leaves half done can only be delivered twice, never lost.
        return rows.write(conn, store).await;
    }
    Err(refused)
}

fn is_nested_begin(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| error.message().contains("within a transaction"))
}

impl EnqueueExecutor for Transaction<'_, Sqlite> {
    async fn insert(&mut self, store: InsertStatements, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
        (**self).insert(store, rows).await
    }
}

impl EnqueueExecutor for PoolConnection<Sqlite> {
    async fn insert(&mut self, store: InsertStatements, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
        (**self).insert(store, rows).await
    }
}
