//! The map of Posthaste's own tables, which ships as default.

use std::collections::BTreeMap;

use super::{BadIdentifier, Column, Counts, Identifier, Kind, Layout, ROLES, TableMap, TableName, TopicRule, Word};
use posthaste_core::integrity::HashRecipe;
use posthaste_core::lifecycle::State;

/// Posthaste's own tables by their purpose.
pub(super) const TABLES: [(&str, &str); 6] = [
    ("outbox", "outbox"),
    ("dedupe", "outbox_dedupe"),
    ("inbox", "inbox"),
    ("relays", "relays"),
    ("leaders", "leaders"),
    ("migrations", "schema_version"),
];

/// Roles that Posthaste's own table does without.
const ABSENT: [&str; 4] = ["event_id", "max_attempts", "locked_at", "version"];

impl TableMap {
    /// Posthaste's own tables in a schema of their own: `outbox`, `outbox_dedupe`, `inbox` and so on.
    pub fn in_schema(schema: &str) -> Result<Self, BadIdentifier> {
        Self::own(Some(Identifier::new(schema)?), "")
    }

    /// Posthaste's own tables with a prefix, for databases without schemas: `posthaste_outbox` and so on.
    pub fn with_prefix(prefix: &str) -> Result<Self, BadIdentifier> {
        Self::own(None, prefix)
    }

    /// The same map with times that are kept in another way.
    #[must_use]
    pub fn with_times(mut self, kind: Kind) -> Self {
        for column in self.columns.values_mut().filter(|column| column.kind.is_time()) {
            column.kind = kind;
        }
        self
    }

    /// The same map for a table whose fresh and waiting rows share an index.
    #[must_use]
    pub fn without_split_index(mut self) -> Self {
        self.split_index = false;
        self
    }

    /// The same map for tables in a schema, except for those that name theirs.
    #[must_use]
    pub fn within(mut self, schema: &Identifier) -> Self {
        for table in self.tables.values_mut() {
            table.schema.get_or_insert_with(|| schema.clone());
        }
        self
    }

    fn own(schema: Option<Identifier>, prefix: &str) -> Result<Self, BadIdentifier> {
        let mut tables = BTreeMap::new();
        for (purpose, name) in TABLES {
            let table = TableName {
                schema: schema.clone(),
                name: Identifier::new(format!("{prefix}{name}"))?,
            };
            tables.insert(purpose.to_owned(), table);
        }
        let mut columns = BTreeMap::new();
        for role in ROLES.iter().filter(|role| !ABSENT.contains(&role.name)) {
            let column = Column {
                name: Identifier::new(role.name)?,
                kind: role.kind,
                max: None,
                generated: role.name == "seq",
            };
            columns.insert(role.name, column);
        }
        let mut words: BTreeMap<_, _> = State::ALL
            .into_iter()
            .map(|state| (state.word(), Word::Text(state.word().to_owned())))
            .collect();
        words.insert("waiting", Word::Text(State::Pending.word().to_owned()));
        Ok(Self {
            name: "posthaste".to_owned(),
            layout: Layout::Queue,
            schema,
            tables,
            columns,
            side_columns: BTreeMap::new(),
            words,
            order: vec!["seq"],
            topic: TopicRule::Column,
            constants: BTreeMap::new(),
            hash: HashRecipe::default(),
            counts: Counts::Attempts,
            split_index: true,
            trusted_ids: false,
            zone: "UTC".to_owned(),
            policy: serde_json::Map::new(),
        })
    }
}
