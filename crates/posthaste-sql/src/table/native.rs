//! The map of Posthaste's own tables, which ships as default.

use std::collections::BTreeMap;

use super::{
    BadIdentifier, Column, Counts, Identifier, Kind, Layout, Role, StateLabel, Table, TableMap, TableName, TopicRule,
};
use posthaste_core::integrity::HashRecipe;
use posthaste_core::lifecycle::State;

/// Roles that Posthaste's own table does without.
const ABSENT: [Role; 4] = [Role::EventId, Role::MaxAttempts, Role::LockedAt, Role::Version];

/// Roles that rows of a log do without: what becomes of them stands elsewhere.
const ABSENT_FROM_LOGS: [Role; 10] = [
    Role::Namespace,
    Role::Status,
    Role::Attempts,
    Role::NextAttemptAt,
    Role::LockedBy,
    Role::LeaseToken,
    Role::LockedUntil,
    Role::LastError,
    Role::UpdatedAt,
    Role::DeliveredAt,
];

/// The columns of Posthaste's own log, and how they keep their values.
const LOG: [(Role, &str, Kind); 14] = [
    (Role::Id, "seq", Kind::Integer),
    (Role::Shard, "shard", Kind::Integer),
    (Role::EventId, "id", Kind::Uuid),
    (Role::Topic, "topic", Kind::Text),
    (Role::OrderingKey, "ordering_key", Kind::Text),
    (Role::Tenant, "tenant", Kind::Text),
    (Role::EventType, "event_type", Kind::Text),
    (Role::Source, "source", Kind::Text),
    (Role::AggregateType, "aggregate_type", Kind::Text),
    (Role::AggregateId, "aggregate_id", Kind::Text),
    (Role::ContentType, "content_type", Kind::Text),
    (Role::Payload, "payload", Kind::Bytes),
    (Role::Headers, "headers", Kind::Bytes),
    (Role::CreatedAt, "created_at", Kind::Timestamptz),
];

/// Those of the table beside it for what waits.
const LOG_FAILED: [(Role, &str, Kind); 19] = [
    (Role::Id, "id", Kind::Integer),
    (Role::Shard, "shard", Kind::Integer),
    (Role::LogId, "log_id", Kind::Integer),
    (Role::EventId, "event_id", Kind::Uuid),
    (Role::Topic, "topic", Kind::Text),
    (Role::OrderingKey, "ordering_key", Kind::Text),
    (Role::Tenant, "tenant", Kind::Text),
    (Role::EventType, "event_type", Kind::Text),
    (Role::Source, "source", Kind::Text),
    (Role::AggregateType, "aggregate_type", Kind::Text),
    (Role::AggregateId, "aggregate_id", Kind::Text),
    (Role::ContentType, "content_type", Kind::Text),
    (Role::Payload, "payload", Kind::Bytes),
    (Role::Headers, "headers", Kind::Bytes),
    (Role::Attempts, "attempts", Kind::Integer),
    (Role::LastError, "last_error", Kind::Text),
    (Role::NextAttemptAt, "next_attempt_at", Kind::Timestamptz),
    (Role::CreatedAt, "created_at", Kind::Timestamptz),
    (Role::DiedAt, "died_at", Kind::Timestamptz),
];

fn log_columns(columns: &[(Role, &str, Kind)]) -> Result<BTreeMap<Role, Column>, BadIdentifier> {
    let column = |(role, name, kind): &(Role, &str, Kind)| {
        let column = Column {
            name: Identifier::new(*name)?,
            kind: *kind,
            max: None,
            generated: *role == Role::Id,
        };
        Ok((*role, column))
    };
    columns.iter().map(column).collect()
}

impl TableMap {
    /// Posthaste's own tables in a schema of their own: `outbox`, `outbox_dedupe`, `inbox` and so on.
    pub fn in_schema(schema: &str) -> Result<Self, BadIdentifier> {
        Self::native(Some(Identifier::new(schema)?), "")
    }

    /// Posthaste's own tables with a prefix, for databases without schemas: `posthaste_outbox` and so on.
    pub fn with_prefix(prefix: &str) -> Result<Self, BadIdentifier> {
        Self::native(None, prefix)
    }

    /// Posthaste's own log with a prefix, for databases without schemas: `posthaste_log` and so on.
    pub fn log_with_prefix(prefix: &str) -> Result<Self, BadIdentifier> {
        let mut map = Self::native(None, prefix)?;
        let named = |name: &str| -> Result<_, BadIdentifier> {
            let name = Identifier::new(format!("{prefix}{name}"))?;
            Ok(TableName { schema: None, name })
        };
        "posthaste log".clone_into(&mut map.name);
        map.layout = Layout::Log;
        map.tables.insert(Table::Outbox, named("log")?);
        map.tables.insert(Table::Failed, named("log_failed")?);
        map.tables.insert(Table::Cursor, named("log_reader")?);
        for role in [Role::Attempts, Role::NextAttemptAt, Role::LogId, Role::LastError] {
            let column = Column {
                name: Identifier::new(role.name())?,
                kind: role.kind(),
                max: None,
                generated: false,
            };
            map.side_columns.insert((Table::Failed, role), column);
        }
        map.columns.retain(|role, _| !ABSENT_FROM_LOGS.contains(role));
        map.split_index = false;
        Ok(map)
    }

    /// Posthaste's own log in a schema of its own: `log`, `log_failed`, `log_shards`, and beside them what it shares with the
    /// queue. A row is known by its number within its shard; the id of the message is that of the event.
    pub fn native_log(schema: &str) -> Result<Self, BadIdentifier> {
        let schema = Identifier::new(schema)?;
        let mut map = Self::native(Some(schema.clone()), "")?;
        "posthaste log".clone_into(&mut map.name);
        map.layout = Layout::Log;
        for (table, name) in Table::ALL
            .into_iter()
            .filter_map(|table| Some((table, table.native_log_name()?)))
        {
            let (schema, name) = (Some(schema.clone()), Identifier::new(name)?);
            map.tables.insert(table, TableName { schema, name });
        }
        map.columns = log_columns(&LOG)?;
        for (role, column) in log_columns(&LOG_FAILED)? {
            map.side_columns.insert((Table::Failed, role), column);
        }
        map.labels.clear();
        map.order = vec![Role::Id];
        map.split_index = false;
        Ok(map)
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

    /// The same map for statements that do not touch the table of dead letters.
    #[must_use]
    pub fn without_dead_letters(mut self) -> Self {
        self.tables.remove(&Table::DeadLetter);
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

    fn native(schema: Option<Identifier>, prefix: &str) -> Result<Self, BadIdentifier> {
        let mut tables = BTreeMap::new();
        for (table, name) in Table::ALL
            .into_iter()
            .filter_map(|table| Some((table, table.native_name()?)))
        {
            let name = TableName {
                schema: schema.clone(),
                name: Identifier::new(format!("{prefix}{name}"))?,
            };
            tables.insert(table, name);
        }
        let mut columns = BTreeMap::new();
        for role in Role::of_outbox().iter().filter(|role| !ABSENT.contains(role)) {
            let column = Column {
                name: Identifier::new(role.name())?,
                kind: role.kind(),
                max: None,
                generated: *role == Role::Seq,
            };
            columns.insert(*role, column);
        }
        let mut labels: BTreeMap<_, _> = State::ALL
            .into_iter()
            .map(|state| (state.as_str(), StateLabel::Text(state.as_str().to_owned())))
            .collect();
        labels.insert("waiting", StateLabel::Text(State::Pending.as_str().to_owned()));
        Ok(Self {
            name: "posthaste".to_owned(),
            layout: Layout::Queue,
            schema,
            tables,
            columns,
            side_columns: BTreeMap::new(),
            labels,
            order: vec![Role::Seq],
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
