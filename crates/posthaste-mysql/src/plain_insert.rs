//! Enqueueing into a table whose own indexes say what may be there once.

use posthaste_core::enqueue::{NewRow, Prepared};
use posthaste_core::store::StoreErrorKind;
use posthaste_core::{EnqueueError, Enqueued, MessageId, StoreError};
use posthaste_sql::TableMap;
use posthaste_sql::table::{Kind, Property, Role};
use sqlx::MySqlConnection;

use crate::error::{number, store_error};
use crate::inbox_store::DUPLICATE;
use crate::rows::id;
use crate::statement::{Value, epoch_micros};
use crate::statements::{Needed, Statements};

/// New rows as the table takes them, or which of the messages it cannot take.
pub(crate) fn rows(map: &TableMap, prepared: &Prepared) -> Result<Vec<Vec<Value>>, EnqueueError> {
    map.validate_messages(prepared)?;
    Ok(prepared.rows.iter().map(|row| values(map, row)).collect())
}

fn values(map: &TableMap, row: &NewRow) -> Vec<Value> {
    let mut values = vec![Value::id(row.message.id, map)];
    values.extend(Role::TEXTS.map(|role| text(map, row, role)));
    values.push(match map.column(Role::Payload).map(|column| column.kind) {
        Some(Kind::Bytes) | None => Value::Bytes(row.message.payload.to_vec()),
        // Checked to be text before.
        Some(_) => String::from_utf8_lossy(&row.message.payload).as_ref().into(),
    });
    values.push(serde_json::json!(row.message.headers).to_string().into());
    let hash = map.hash_recipe().hash(&row.message);
    values.push(match map.column(Role::ContentHash).map(|column| column.kind) {
        Some(Kind::Bytes) => Value::Bytes(hash.as_bytes().to_vec()),
        _ => hash.to_string().into(),
    });
    values.push(Value::Number(row.message.not_before.map(epoch_micros)));
    values
}

fn text(map: &TableMap, row: &NewRow, role: Role) -> Value {
    let own_id = || (role == Role::EventId).then(|| row.message.id.to_string());
    let text = map.new_text(row, role).map(str::to_owned).or_else(own_id);
    let uuid = || text.as_deref().and_then(|text| text.parse::<uuid::Uuid>().ok());
    match (map.column(role).map(|column| column.kind), uuid()) {
        (Some(Kind::UuidBytes), Some(uuid)) => Value::Bytes(uuid.as_bytes().to_vec()),
        _ => Value::Text(text),
    }
}

/// Writes a row, or says under which id it was there before. The server undoes a refused statement alone.
pub(crate) async fn write(
    conn: &mut MySqlConnection,
    map: &TableMap,
    statements: &Statements,
    row: &NewRow,
    values: &[Value],
) -> Result<Enqueued, StoreError> {
    let writing = statements.writing.needed().map_err(store_error)?;
    let refused = match writing.insert.insert(conn, values).await {
        Ok(given) if map.has(Property::GeneratedId) => return Ok(Enqueued::Inserted(given.into())),
        Ok(_) => return Ok(Enqueued::Inserted(row.message.id)),
        Err(error) => error,
    };
    if number(&refused) != Some(DUPLICATE) {
        return Err(store_error(refused));
    }
    match find_before(conn, map, statements, values).await.map_err(store_error)? {
        Some(before) => Ok(Enqueued::Duplicate(before)),
        None => Err(StoreError {
            kind: StoreErrorKind::Other,
            message: format!("MySQL: {refused}"),
            remedy: Some("look at the table's unique indexes: one forbids what the table map allows"),
            source: Some(Box::new(refused)),
        }),
    }
}

/// The row that was there before, by whatever may be there once.
async fn find_before(
    conn: &mut MySqlConnection,
    map: &TableMap,
    statements: &Statements,
    values: &[Value],
) -> sqlx::Result<Option<MessageId>> {
    let plain = statements.plain.needed()?;
    for lookup in [&plain.find_by_dedupe_key, &plain.find_by_event_id, &plain.find_by_id] {
        if let Some(row) = lookup.fetch_all(conn, values).await?.first() {
            return Ok(Some(id(row, map)?));
        }
    }
    Ok(None)
}
