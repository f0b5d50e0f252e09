//! The connections on which an application may enqueue.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::enqueue::Prepared;
use posthaste_core::{EnqueueError, Enqueued, MessageId, StoreError};
use posthaste_sql::TableMap;
use posthaste_sql::table::Table;
use serde::Serialize;
use sqlx::mysql::MySqlRow;
use sqlx::pool::PoolConnection;
use sqlx::{Executor, MySql, MySqlConnection, Row, Transaction};
use uuid::Uuid;

use crate::claim::MAX_IDS;
use crate::error::{number, store_error};
use crate::inbox_store::DUPLICATE;
use crate::rows::{millis, undecodable};
use crate::statement::{Value, epoch_micros};
use crate::statements::{Needed, Statements};
use crate::{BEGIN, plain_insert};

/// A connection that can write outbox rows: sqlx's `Transaction`, `MySqlConnection` and `PoolConnection`.
///
/// Sealed: its one method takes types of this crate.
pub trait EnqueueExecutor: Send {
    /// Writes the rows and returns one outcome per row.
    #[doc(hidden)]
    fn insert(
        &mut self,
        statements: InsertStatements,
        rows: NewRows<'_>,
    ) -> impl Future<Output = Result<Vec<Enqueued>, StoreError>> + Send;
}

/// The finished statements.
#[doc(hidden)]
#[derive(Debug)]
pub struct InsertStatements(Arc<Statements>);

impl From<Arc<Statements>> for InsertStatements {
    fn from(statements: Arc<Statements>) -> Self {
        Self(statements)
    }
}

/// Bytes of one statement, about. A server takes 16 MiB or more unless it is told otherwise.
const MAX_STATEMENT_BYTES: usize = 8 << 20;

/// New rows, in the form that their table takes.
#[doc(hidden)]
#[derive(Debug)]
pub struct NewRows<'a>(Rows<'a>);

#[derive(Debug)]
enum Rows<'a> {
    Native(NativeRows<'a>),
    Plain(&'a TableMap, &'a Prepared, Vec<Vec<Value>>),
}

impl<'a> NewRows<'a> {
    pub(crate) fn new(
        prepared: &'a Prepared,
        map: &'a TableMap,
        dedupe_window: Duration,
    ) -> Result<Self, EnqueueError> {
        Ok(Self(if map.has(Table::Dedupe) {
            Rows::Native(NativeRows::new(prepared, dedupe_window))
        } else {
            Rows::Plain(map, prepared, plain_insert::rows(map, prepared)?)
        }))
    }

    fn is_one_statement(&self) -> bool {
        match &self.0 {
            Rows::Native(rows) => rows.is_one_statement(),
            Rows::Plain(_, _, rows) => rows.len() == 1,
        }
    }

    async fn write(&self, conn: &mut MySqlConnection, statements: &Statements) -> Result<Vec<Enqueued>, StoreError> {
        match &self.0 {
            Rows::Native(rows) => rows.write(conn, statements).await.map_err(store_error),
            Rows::Plain(map, prepared, rows) => {
                let mut outcomes = Vec::with_capacity(rows.len());
                for (row, values) in prepared.rows.iter().zip(rows) {
                    outcomes.push(plain_insert::write(conn, map, statements, row, values).await?);
                }
                Ok(outcomes)
            }
        }
    }
}

/// Rows of Posthaste's own table: for `json_table`, with the payloads beside them as they are.
#[derive(Debug)]
struct NativeRows<'a> {
    rows: Vec<NewRow<'a>>,
    dedupe_window_ms: i64,
}

#[derive(Clone, Debug, Serialize)]
struct NewRow<'a> {
    id: MessageId,
    namespace: &'a str,
    topic: &'a str,
    ordering_key: Option<&'a str>,
    tenant: Option<&'a str>,
    dedupe_key: Option<&'a str>,
    event_type: Option<&'a str>,
    source: Option<&'a str>,
    aggregate_type: Option<&'a str>,
    aggregate_id: Option<&'a str>,
    content_type: &'a str,
    headers: String,
    hash: String,
    not_before: Option<i64>,
    /// Where its payload begins among those of its statement; SQL counts from 1.
    start: usize,
    bytes: usize,
    #[serde(skip)]
    payload: &'a [u8],
}

impl<'a> NativeRows<'a> {
    fn new(prepared: &'a Prepared, dedupe_window: Duration) -> Self {
        let rows = prepared.rows.iter().map(|row| {
            let message = &row.message;
            NewRow {
                id: message.id,
                namespace: &row.namespace,
                topic: &message.topic,
                ordering_key: message.ordering_key.as_deref(),
                tenant: message.tenant.as_deref(),
                dedupe_key: message.dedupe_key.as_deref(),
                event_type: message.event_type.as_deref(),
                source: message.source.as_deref(),
                aggregate_type: message.aggregate_type.as_deref(),
                aggregate_id: message.aggregate_id.as_deref(),
                content_type: &message.content_type,
                headers: serde_json::json!(message.headers).to_string(),
                hash: row.hash.to_string(),
                not_before: message.not_before.map(epoch_micros),
                start: 1,
                bytes: message.payload.len(),
                payload: &message.payload,
            }
        });
        Self {
            rows: rows.collect(),
            dedupe_window_ms: millis(dedupe_window),
        }
    }

    fn is_one_statement(&self) -> bool {
        let keyed = self.rows.iter().any(|row| row.dedupe_key.is_some());
        !keyed && batches(&self.rows).len() <= 1
    }

    async fn write(&self, conn: &mut MySqlConnection, statements: &Statements) -> sqlx::Result<Vec<Enqueued>> {
        let held = self.hold_keys(conn, statements).await?;
        let free: Vec<_> = self
            .rows
            .iter()
            .filter(|row| !held.contains_key(&row.id))
            .cloned()
            .collect();
        let mut outcomes: HashMap<MessageId, Enqueued> = HashMap::new();
        for batch in batches(&free) {
            write_batch(conn, statements, batch, &mut outcomes).await?;
        }
        let outcome = |row: &NewRow<'_>| match held.get(&row.id) {
            Some(holder) => Enqueued::Duplicate(*holder),
            // Removed, because an id that is given twice is written once.
            None => outcomes.remove(&row.id).unwrap_or(Enqueued::Duplicate(row.id)),
        };
        Ok(self.rows.iter().map(outcome).collect())
    }

    /// Holds the dedupe keys that are free. Returns the rows whose key is not, and under which id the event is known.
    async fn hold_keys(
        &self,
        conn: &mut MySqlConnection,
        statements: &Statements,
    ) -> sqlx::Result<HashMap<MessageId, MessageId>> {
        let dedupe = statements.dedupe.needed()?;
        let keyed: Vec<_> = self.rows.iter().filter(|row| row.dedupe_key.is_some()).collect();
        let mut held = HashMap::new();
        if keyed.is_empty() {
            return Ok(held);
        }
        let caller = Uuid::now_v7().to_string();
        let wanted = [json(&keyed)?, caller.as_str().into(), self.dedupe_window_ms.into()];
        dedupe.hold_keys.execute(conn, &wanted).await?;
        let mut holders = HashMap::new();
        for rows in keyed.chunks(MAX_IDS) {
            let keys = Value::List(
                rows.iter()
                    .map(|row| Value::Row(row.key().map(Value::Bytes).to_vec()))
                    .collect(),
            );
            for row in dedupe.find_holders.fetch_all(conn, &[keys]).await? {
                let holder = Holder::read(&row)?;
                holders.insert(holder.key.clone(), holder);
            }
        }
        for row in keyed {
            let Some(holder) = holders.get_mut(&row.key()) else {
                continue;
            };
            if holder.expired && holder.held_by != caller {
                holder
                    .give_way_to(conn, statements, row, &caller, self.dedupe_window_ms)
                    .await?;
            }
            // Two rows of one call may have the same key, and only one of them holds it.
            if holder.held_by != caller || holder.message_id != row.id {
                held.insert(row.id, holder.message_id);
            }
        }
        Ok(held)
    }
}

impl NewRow<'_> {
    /// About how many bytes of a statement it takes: what may be long, and names and numbers as JSON has them.
    fn size(&self) -> usize {
        const REST: usize = 512;
        let texts = [
            Some(self.namespace),
            Some(self.topic),
            self.ordering_key,
            self.tenant,
            self.dedupe_key,
            self.event_type,
            self.source,
            self.aggregate_type,
            self.aggregate_id,
            Some(self.content_type),
        ];
        let texts: usize = texts.into_iter().flatten().map(str::len).sum();
        // The headers are JSON inside JSON: their quotes and backslashes are escaped once more.
        self.bytes + 2 * self.headers.len() + texts + REST
    }

    /// What its dedupe key is unique in, and the key.
    fn key(&self) -> [Vec<u8>; 3] {
        [self.namespace, self.topic, self.dedupe_key.unwrap_or_default()].map(|text| text.as_bytes().to_vec())
    }
}

/// Who holds a dedupe key.
#[derive(Debug)]
struct Holder {
    key: [Vec<u8>; 3],
    message_id: MessageId,
    held_by: String,
    /// Whether the window is over. The key is free only if the row is gone too.
    expired: bool,
}

impl Holder {
    fn read(row: &MySqlRow) -> sqlx::Result<Self> {
        let message_id: String = row.try_get("message_id")?;
        Ok(Self {
            key: [
                row.try_get("namespace")?,
                row.try_get("topic")?,
                row.try_get("dedupe_key")?,
            ],
            message_id: message_id
                .parse()
                .map_err(|_| undecodable("message_id", format!("`{message_id}` is no id")))?,
            held_by: row.try_get("held_by")?,
            expired: row.try_get("expired")?,
        })
    }

    /// Lets a new row have the key, unless the holder's own is still there.
    async fn give_way_to(
        &mut self,
        conn: &mut MySqlConnection,
        statements: &Statements,
        row: &NewRow<'_>,
        caller: &str,
        window_ms: i64,
    ) -> sqlx::Result<()> {
        let dedupe = statements.dedupe.needed()?;
        let mut values = self.key.clone().map(Value::Bytes).to_vec();
        values.extend([
            self.held_by.as_str().into(),
            row.id.to_string().into(),
            caller.into(),
            window_ms.into(),
        ]);
        self.expired = false;
        if dedupe.take_over_key.execute(conn, &values).await? > 0 {
            self.message_id = row.id;
            caller.clone_into(&mut self.held_by);
        }
        Ok(())
    }
}

/// Rows that go into one statement.
fn batches<'r, 'a>(rows: &'r [NewRow<'a>]) -> Vec<&'r [NewRow<'a>]> {
    let mut batches = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (place, row) in rows.iter().enumerate() {
        bytes += row.size();
        if bytes > MAX_STATEMENT_BYTES && place > start {
            batches.push(&rows[start..place]);
            (start, bytes) = (place, row.size());
        }
    }
    if start < rows.len() {
        batches.push(&rows[start..]);
    }
    batches
}

async fn write_batch(
    conn: &mut MySqlConnection,
    statements: &Statements,
    batch: &[NewRow<'_>],
    outcomes: &mut HashMap<MessageId, Enqueued>,
) -> sqlx::Result<()> {
    match insert_rows(conn, statements, batch).await {
        Err(error) if number(&error) == Some(DUPLICATE) => {}
        done => {
            outcomes.extend(batch.iter().map(|row| (row.id, Enqueued::Inserted(row.id))));
            return done;
        }
    }
    // An id exists already. The server undid the whole statement, and one by one it says which.
    for row in batch {
        match insert_rows(conn, statements, std::slice::from_ref(row)).await {
            Err(error) if number(&error) == Some(DUPLICATE) => {}
            done => {
                done?;
                outcomes.insert(row.id, Enqueued::Inserted(row.id));
            }
        }
    }
    Ok(())
}

async fn insert_rows(conn: &mut MySqlConnection, statements: &Statements, rows: &[NewRow<'_>]) -> sqlx::Result<()> {
    let dedupe = statements.dedupe.needed()?;
    let mut payloads = Vec::with_capacity(rows.iter().map(|row| row.bytes).sum());
    let mut placed = rows.to_vec();
    for row in &mut placed {
        row.start = payloads.len() + 1;
        payloads.extend_from_slice(row.payload);
    }
    let values = [json(&placed)?, Value::Bytes(payloads)];
    dedupe.enqueue.execute(conn, &values).await.map(drop)
}

fn json(rows: &impl Serialize) -> sqlx::Result<Value> {
    let json = serde_json::to_string(rows).map_err(|error| sqlx::Error::Encode(error.into()))?;
    Ok(json.into())
}

/// Marks where the enqueue began, so that it can be undone alone.
const MARK: &str = "savepoint posthaste_enqueue";

/// Writes all or nothing inside a transaction.
async fn insert_in_transaction(
    conn: &mut MySqlConnection,
    statements: &Statements,
    rows: &NewRows<'_>,
) -> Result<Vec<Enqueued>, StoreError> {
    if rows.is_one_statement() {
        return rows.write(conn, statements).await;
    }
    conn.execute(MARK).await.map_err(store_error)?;
    let written = rows.write(conn, statements).await;
    if written.is_err() {
        // After a deadlock the server has undone everything, the mark with it.
        let _ = conn.execute("rollback to savepoint posthaste_enqueue").await;
    }
    written
}

/// The same on a connection of which it is not known whether it is in a transaction. It must not be asked to begin one if
/// it is: that would commit what the caller has done so far.
async fn insert_anywhere(
    conn: &mut MySqlConnection,
    statements: &Statements,
    rows: &NewRows<'_>,
) -> Result<Vec<Enqueued>, StoreError> {
    if rows.is_one_statement() {
        return rows.write(conn, statements).await;
    }
    conn.execute(MARK).await.map_err(store_error)?;
    // Outside a transaction a mark is forgotten at once.
    if conn.execute("release savepoint posthaste_enqueue").await.is_ok() {
        return insert_in_transaction(conn, statements, rows).await;
    }
    let mut tx = sqlx::Connection::begin_with(conn, BEGIN).await.map_err(store_error)?;
    let outcomes = rows.write(&mut tx, statements).await?;
    tx.commit().await.map_err(store_error)?;
    Ok(outcomes)
}

impl EnqueueExecutor for MySqlConnection {
    async fn insert(&mut self, statements: InsertStatements, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
        insert_anywhere(self, &statements.0, &rows).await
    }
}

impl EnqueueExecutor for Transaction<'_, MySql> {
    async fn insert(&mut self, statements: InsertStatements, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
        insert_in_transaction(self, &statements.0, &rows).await
    }
}

impl EnqueueExecutor for PoolConnection<MySql> {
    async fn insert(&mut self, statements: InsertStatements, rows: NewRows<'_>) -> Result<Vec<Enqueued>, StoreError> {
        (**self).insert(statements, rows).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server takes 16 MiB unless it is told otherwise.
    #[test]
    fn a_statement_fits_into_a_packet_with_its_headers() {
        let row = |_| NewRow {
            id: MessageId::Number(1),
            namespace: "default",
            topic: "t",
            ordering_key: None,
            tenant: None,
            dedupe_key: None,
            event_type: None,
            source: None,
            aggregate_type: None,
            aggregate_id: None,
            content_type: "text/plain",
            headers: format!("{{\"long\":\"{}\"}}", "\\\"".repeat(8_000)),
            hash: String::new(),
            not_before: None,
            start: 1,
            bytes: 1,
            payload: b"x",
        };
        let rows: Vec<_> = (0..1_000).map(row).collect();
        let batches = batches(&rows);
        let one = serde_json::to_string(&rows[0]).unwrap().len();
        assert!(batches.iter().all(|rows| rows.len() * one < 16 << 20), "{one}");
        assert_eq!(batches.iter().map(|rows| rows.len()).sum::<usize>(), 1_000);
    }
}
