//! Rows of one kind: what they have in common goes over once and without arrays, which the server would ask for each row.

use posthaste_core::enqueue::NewRow;
use posthaste_sql::enqueue::Argument;
use uuid::Uuid;

use super::{brief, header_text, headers_of, stored_content_type};

/// For rows of Posthaste's own tables without dedupe keys (`append_uniform.sql`), if they are of one kind and none of them waits
/// for a time of its own.
pub(crate) fn unique(rows: &[NewRow]) -> Option<Vec<Argument<'_>>> {
    if rows.iter().any(|row| row.message.not_before.is_some()) {
        return None;
    }
    let ids = rows.iter().map(|row| row.message.id.uuid()).collect::<Option<_>>()?;
    let mut columns = vec![Argument::Uuids(ids)];
    columns.extend(common_kind(rows)?.map(text));
    columns.extend([
        brief(rows, |row| row.message.ordering_key.as_deref().map(Into::into)),
        brief(rows, |row| row.message.aggregate_id.as_deref().map(Into::into)),
        Argument::Bytes(rows.iter().map(|row| row.message.payload.as_ref()).collect()),
        brief(rows, |row| Some(headers_of(row))),
        Argument::Bytes(rows.iter().map(|row| row.hash().as_bytes().as_slice()).collect()),
    ]);
    Some(columns)
}

/// For rows of Posthaste's own log (`log/append_uniform.sql`), if they are of one kind.
pub(crate) fn native_log(rows: &[NewRow]) -> Option<Vec<Argument<'_>>> {
    let ids = rows.iter().map(event_id).collect::<Option<_>>()?;
    // A log has no namespaces.
    let [_, topic, tenant, event_type, source, aggregate_type, _] = common_kind(rows)?;
    let content_type = rows.first().and_then(|row| stored_content_type(&row.message));
    let mut columns = vec![Argument::Uuids(ids)];
    columns.extend([topic, tenant, event_type, source, aggregate_type, content_type].map(text));
    columns.extend([
        brief(rows, |row| row.message.ordering_key.as_deref().map(Into::into)),
        brief(rows, |row| row.message.aggregate_id.as_deref().map(Into::into)),
        Argument::Bytes(rows.iter().map(|row| row.message.payload.as_ref()).collect()),
        brief(rows, |row| header_text(&row.message)),
    ]);
    Some(columns)
}

/// What rows of one kind have in common; none if they differ in it.
fn common_kind(rows: &[NewRow]) -> Option<[Option<&str>; 7]> {
    let (first, others) = rows.split_first()?;
    let common = kind(first);
    others.iter().all(|row| kind(row) == common).then_some(common)
}

fn kind(row: &NewRow) -> [Option<&str>; 7] {
    let message = &row.message;
    [
        Some(&row.namespace),
        Some(&message.topic),
        message.tenant.as_deref(),
        message.event_type.as_deref(),
        message.source.as_deref(),
        message.aggregate_type.as_deref(),
        Some(&message.content_type),
    ]
}

/// The id under which the log keeps the event; none if it is no UUID.
fn event_id(row: &NewRow) -> Option<Uuid> {
    match &row.message.event_id {
        Some(id) => id.parse().ok(),
        None => row.message.id.uuid(),
    }
}

fn text(value: Option<&str>) -> Argument<'_> {
    Argument::Text(value.map(Into::into))
}
