//! New rows as the statements take them: column by column, one array each.

pub(crate) mod uniform;

use std::borrow::Cow;
use std::time::Duration;

use posthaste_core::Message;
use posthaste_core::enqueue::NewRow;
use posthaste_sql::TableMap;
use posthaste_sql::enqueue::{Argument, hex, moment};
use posthaste_sql::table::{Kind, Role};

use crate::rows::{bytes_of_uuid, id_text, millis};

/// For rows of Posthaste's own tables of which some have dedupe keys (`enqueue.sql`).
pub(crate) fn native(rows: &[NewRow], dedupe_window: Duration) -> Vec<Argument<'_>> {
    let mut columns = native_columns(rows, sparse);
    let dedupe_keys = texts(rows, |row| row.message.dedupe_key.as_deref().map(Cow::Borrowed));
    columns.insert(TEXTS_BEFORE_DEDUPE_KEY, dedupe_keys);
    columns.push(Argument::Integer(millis(dedupe_window)));
    columns
}

/// For rows of Posthaste's own tables that have none (`append.sql`).
pub(crate) fn unique(rows: &[NewRow]) -> Vec<Argument<'_>> {
    native_columns(rows, brief)
}

fn native_columns(rows: &[NewRow], column: Column) -> Vec<Argument<'_>> {
    let mut columns: Vec<_> = NATIVE_TEXTS.iter().map(|text| column(rows, *text)).collect();
    columns.extend([
        Argument::Bytes(rows.iter().map(|row| row.message.payload.as_ref()).collect()),
        column(rows, |row| Some(headers_of(row))),
        Argument::Bytes(rows.iter().map(|row| row.hash().as_bytes().as_slice()).collect()),
        times(rows),
    ]);
    columns
}

/// For one such row (`append_one.sql`): the same columns, of which none is an array.
pub(crate) fn unique_one(row: &NewRow) -> Vec<Argument<'_>> {
    let mut columns: Vec<_> = NATIVE_TEXTS.iter().map(|text| Argument::Text(text(row))).collect();
    columns.extend([
        Argument::Blob(&row.message.payload),
        Argument::Text(Some(headers_of(row))),
        Argument::Blob(row.hash().as_bytes()),
        Argument::Time(row.message.not_before),
    ]);
    columns
}

type TextOf = fn(&NewRow) -> Option<Cow<'_, str>>;

/// How a column of texts is sent: [`sparse`] or [`brief`].
type Column = for<'a> fn(&'a [NewRow], TextOf) -> Argument<'a>;

/// The columns of Posthaste's own tables that are texts, in the order of its statements.
const NATIVE_TEXTS: [TextOf; 10] = [
    |row| Some(row.message.id.to_string().into()),
    |row| Some(Cow::Borrowed(&row.namespace)),
    |row| Some(Cow::Borrowed(&row.message.topic)),
    |row| row.message.ordering_key.as_deref().map(Cow::Borrowed),
    |row| row.message.tenant.as_deref().map(Cow::Borrowed),
    |row| row.message.event_type.as_deref().map(Cow::Borrowed),
    |row| row.message.source.as_deref().map(Cow::Borrowed),
    |row| row.message.aggregate_type.as_deref().map(Cow::Borrowed),
    |row| row.message.aggregate_id.as_deref().map(Cow::Borrowed),
    |row| Some(Cow::Borrowed(&row.message.content_type)),
];

/// After the tenant.
const TEXTS_BEFORE_DEDUPE_KEY: usize = 5;

/// For a table whose own indexes say what may be there once (`insert.sql`): texts that are cast to the columns' types.
pub(crate) fn mapped<'a>(map: &TableMap, rows: &'a [NewRow]) -> Vec<Argument<'a>> {
    let mut columns = vec![ids(map, rows)];
    columns.extend(Role::TEXTS.map(|role| texts(rows, |row| text(map, row, role))));
    columns.push(texts(rows, |row| Some(payload(map, row))));
    columns.push(headers(rows));
    columns.push(texts(rows, |row| Some(hash(map, row).into())));
    columns.push(texts(rows, |row| {
        row.message.not_before.map(|time| moment(time).into())
    }));
    columns
}

/// By what a row may be there already (`find_enqueued.sql`).
pub(crate) fn keys<'a>(map: &TableMap, rows: &[&'a NewRow]) -> Vec<Argument<'a>> {
    let mut columns = vec![ids(map, rows.iter().copied())];
    for role in [Role::EventId, Role::Namespace, Role::Topic, Role::DedupeKey] {
        columns.push(texts(rows.iter().copied(), |row| text(map, row, role)));
    }
    columns
}

/// For a log (`log/enqueue.sql`), whose rows have no keys of their own.
pub(crate) fn log<'a>(map: &TableMap, rows: &'a [NewRow]) -> Vec<Argument<'a>> {
    let roles = Role::TEXTS.into_iter().filter(|role| *role != Role::DedupeKey);
    let mut columns: Vec<_> = roles.map(|role| texts(rows, |row| text(map, row, role))).collect();
    columns.push(texts(rows, |row| Some(payload(map, row))));
    columns.push(headers(rows));
    columns
}

/// For Posthaste's own log (`log/append.sql`): columns of known types.
pub(crate) fn native_log(rows: &[NewRow]) -> Vec<Argument<'_>> {
    native_log_columns(rows, brief)
}

fn native_log_columns(rows: &[NewRow], column: Column) -> Vec<Argument<'_>> {
    let mut columns: Vec<_> = NATIVE_LOG_TEXTS.iter().map(|text| column(rows, *text)).collect();
    columns.extend([
        Argument::Bytes(rows.iter().map(|row| row.message.payload.as_ref()).collect()),
        column(rows, |row| header_text(&row.message)),
    ]);
    columns
}

/// For one such row (`log/append_one.sql`): the same columns, of which none is an array.
pub(crate) fn native_log_one(row: &NewRow) -> Vec<Argument<'_>> {
    let mut columns: Vec<_> = NATIVE_LOG_TEXTS.iter().map(|text| Argument::Text(text(row))).collect();
    columns.extend([
        Argument::Blob(&row.message.payload),
        Argument::Text(header_text(&row.message)),
    ]);
    columns
}

/// The columns of Posthaste's own log that are texts, in the order of its statements.
const NATIVE_LOG_TEXTS: [TextOf; 9] = [
    |row| Some(row.message.effective_event_id()),
    |row| Some(Cow::Borrowed(&row.message.topic)),
    |row| row.message.ordering_key.as_deref().map(Cow::Borrowed),
    |row| row.message.tenant.as_deref().map(Cow::Borrowed),
    |row| row.message.event_type.as_deref().map(Cow::Borrowed),
    |row| row.message.source.as_deref().map(Cow::Borrowed),
    |row| row.message.aggregate_type.as_deref().map(Cow::Borrowed),
    |row| row.message.aggregate_id.as_deref().map(Cow::Borrowed),
    |row| stored_content_type(&row.message).map(Cow::Borrowed),
];

/// The same where some have dedupe keys or a time of their own (`log/append_or_hold.sql`).
pub(crate) fn held_log(rows: &[NewRow], dedupe_window: Duration) -> Vec<Argument<'_>> {
    let mut columns = native_log_columns(rows, sparse);
    columns.push(texts(rows, |row| row.message.dedupe_key.as_deref().map(Cow::Borrowed)));
    columns.push(Argument::Times(rows.iter().map(|row| row.message.not_before).collect()));
    columns.push(Argument::Integer(millis(dedupe_window)));
    columns
}

/// What Posthaste's own log keeps of a content type: nothing for the usual one.
pub(crate) fn stored_content_type(message: &Message) -> Option<&str> {
    (message.content_type != "application/json").then_some(&message.content_type)
}

/// The headers as Posthaste's own log keeps them: nothing if there are none.
pub(crate) fn header_text(message: &Message) -> Option<Cow<'_, str>> {
    (!message.headers.is_empty()).then(|| serde_json::json!(message.headers).to_string().into())
}

fn texts<'a>(
    rows: impl IntoIterator<Item = &'a NewRow>,
    value: impl Fn(&'a NewRow) -> Option<Cow<'a, str>>,
) -> Argument<'a> {
    Argument::Texts(rows.into_iter().map(value).collect())
}

/// When they may be delivered, where some of them say so.
fn times(rows: &[NewRow]) -> Argument<'_> {
    let mut times: Vec<_> = rows.iter().map(|row| row.message.not_before).collect();
    if times.iter().all(Option::is_none) {
        times.clear();
    }
    Argument::Times(times)
}

/// A column that is often empty: without an element where no row has a value, which the statements take as nulls.
fn sparse(rows: &[NewRow], value: TextOf) -> Argument<'_> {
    let mut values: Vec<_> = rows.iter().map(value).collect();
    if values.iter().all(Option::is_none) {
        values.clear();
    }
    Argument::Texts(values)
}

/// A column that is often the same for all: with one element then, which the statements take for each of them. Of a thousand
/// messages of one type the type goes over once.
fn brief(rows: &[NewRow], value: TextOf) -> Argument<'_> {
    let mut values = rows.iter().map(value);
    let Some(first) = values.next() else {
        return Argument::Texts(Vec::new());
    };
    let same = values.clone().take_while(|value| *value == first).count();
    if same + 1 == rows.len() {
        let alike = first.is_some().then_some(first);
        return Argument::Texts(alike.into_iter().collect());
    }
    let mut all = Vec::with_capacity(rows.len());
    all.push(first);
    all.extend(values);
    Argument::Texts(all)
}

fn ids<'a>(map: &TableMap, rows: impl IntoIterator<Item = &'a NewRow>) -> Argument<'a> {
    texts(rows, |row| id_text(row.message.id, map).map(Cow::Owned))
}

fn headers(rows: &[NewRow]) -> Argument<'_> {
    texts(rows, |row| Some(headers_of(row)))
}

fn headers_of(row: &NewRow) -> Cow<'_, str> {
    if row.message.headers.is_empty() {
        return Cow::Borrowed("{}");
    }
    serde_json::json!(row.message.headers).to_string().into()
}

fn text<'a>(map: &TableMap, row: &'a NewRow, role: Role) -> Option<Cow<'a, str>> {
    let own_id = || (role == Role::EventId).then(|| Cow::Owned(row.message.id.to_string()));
    let text = map.new_text(row, role).map(Cow::Borrowed).or_else(own_id)?;
    Some(match map.column(role).map(|column| column.kind) {
        Some(Kind::UuidBytes) => text.parse().map_or(text, |uuid| bytes_of_uuid(uuid).into()),
        _ => text,
    })
}

fn payload<'a>(map: &TableMap, row: &'a NewRow) -> Cow<'a, str> {
    let bytes = &row.message.payload;
    match map.column(Role::Payload).map(|column| column.kind) {
        Some(Kind::Bytes) | None => hex(bytes).into(),
        // Checked to be text before.
        Some(_) => String::from_utf8_lossy(bytes),
    }
}

fn hash(map: &TableMap, row: &NewRow) -> String {
    let hash = map.hash_recipe().hash(&row.message);
    match map.column(Role::ContentHash).map(|column| column.kind) {
        Some(Kind::Bytes) => hex(hash.as_bytes()),
        _ => hash.to_string(),
    }
}
