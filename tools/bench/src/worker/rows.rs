//! Rows as hand-written loops read them.

use uuid::Uuid;

/// Id, key, payload.
pub(super) type Row = (Uuid, String, Vec<u8>);

/// The ids of rows.
pub(super) fn ids(rows: &[Row]) -> Vec<Uuid> {
    rows.iter().map(|(id, ..)| *id).collect()
}
