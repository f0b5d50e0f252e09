//! Rows of Posthaste's own log as `COPY` takes them (`copy.sql`), in PostgreSQL's binary format.

use posthaste_core::enqueue::NewRow;
use uuid::Uuid;

use crate::columns::{header_text, stored_content_type};

/// From so many rows on they are copied: below that the second round trip costs more than it saves.
pub(crate) const COPY_FROM: usize = 1_000;

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
const COLUMNS: i16 = 11;

/// All rows, or none if one of them is not what the log keeps.
pub(crate) fn encode(rows: &[NewRow]) -> Option<Vec<u8>> {
    let mut data = Vec::with_capacity(rows.iter().map(|row| row.message.payload.len() + 200).sum());
    data.extend_from_slice(SIGNATURE);
    // No flags, and no more header.
    data.extend_from_slice(&[0; 8]);
    for row in rows {
        let message = &row.message;
        let id: Uuid = match message.id.uuid() {
            Some(id) if message.event_id.is_none() => id,
            _ => message.effective_event_id().parse().ok()?,
        };
        data.extend_from_slice(&COLUMNS.to_be_bytes());
        put(&mut data, Some(id.as_bytes()))?;
        for text in [
            Some(message.topic.as_str()),
            message.ordering_key.as_deref(),
            message.tenant.as_deref(),
            message.event_type.as_deref(),
            message.source.as_deref(),
            message.aggregate_type.as_deref(),
            message.aggregate_id.as_deref(),
            stored_content_type(message),
        ] {
            put(&mut data, text.map(str::as_bytes))?;
        }
        put(&mut data, Some(&message.payload))?;
        put(&mut data, header_text(message).as_ref().map(String::as_bytes))?;
    }
    data.extend_from_slice(&(-1_i16).to_be_bytes());
    Some(data)
}

fn put(data: &mut Vec<u8>, value: Option<&[u8]>) -> Option<()> {
    let length = value.map_or(Some(-1), |value| i32::try_from(value.len()).ok())?;
    data.extend_from_slice(&length.to_be_bytes());
    data.extend_from_slice(value.unwrap_or_default());
    Some(())
}

#[cfg(test)]
mod tests {
    use posthaste_core::enqueue::Prepared;
    use posthaste_core::{Message, OutboxOptions};

    use super::*;

    #[test]
    fn a_row_is_its_columns_with_their_lengths() {
        let message = Message::new("t", "{}");
        let id = message.id.uuid().unwrap();
        let rows = Prepared::new([message], &OutboxOptions::default()).unwrap().rows;
        let data = encode(&rows).unwrap();
        let body = &data[SIGNATURE.len() + 8..];
        let mut expected = vec![0, 11, 0, 0, 0, 16];
        expected.extend_from_slice(id.as_bytes());
        expected.extend_from_slice(&[0, 0, 0, 1, b't']);
        expected.extend_from_slice(&[255; 4 * 7]);
        expected.extend_from_slice(&[0, 0, 0, 2, b'{', b'}', 255, 255, 255, 255, 255, 255]);
        assert_eq!(body, expected);
    }
}
