//! Columns that play several roles: an aggregate's id is often the ordering key too.

use posthaste_sql::TableMap;

/// Roles in the order in which a column that has several is written; the first one stands for all.
const WRITTEN: [&str; 9] = [
    "event_id",
    "dedupe_key",
    "ordering_key",
    "aggregate_id",
    "aggregate_type",
    "topic",
    "event_type",
    "tenant",
    "namespace",
];

/// For each role that shares its column with one that is written for both: the two of them.
#[derive(Debug, Default)]
pub(crate) struct SharedColumns(pub(crate) Vec<(&'static str, &'static str)>);

impl SharedColumns {
    pub(crate) fn of(map: &TableMap) -> Self {
        let mut shared = Vec::new();
        for (place, role) in WRITTEN.into_iter().enumerate() {
            let column = map.column(role);
            let first = WRITTEN[..place]
                .iter()
                .find(|first| column.is_some() && map.column(first).map(|c| &c.name) == column.map(|c| &c.name));
            if let Some(first) = first {
                shared.push((role, *first));
            }
        }
        Self(shared)
    }

    /// The map without the roles that others are written for: an insert names each column once.
    pub(crate) fn written_once(&self, map: &TableMap) -> TableMap {
        self.0.iter().fold(map.clone(), |map, (role, _)| map.without(role))
    }
}
