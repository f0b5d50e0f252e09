//! The history of Posthaste's own log, which goes on from that of the queue: they share the tables of dedupe keys, relays and
//! consumers.

use async_trait::async_trait;
use posthaste_core::StoreError;
use posthaste_core::store::{Migration, SchemaStore};
use posthaste_sql::migrate::{File, steps_from};
use posthaste_sql::template::render;

use super::state::StateTable;
use super::{LogTables, PostgresLogStore};
use crate::dialect::PostgresDialect;

/// Far above the queue's, which goes on being counted from 1. A step there that makes the SQL function `enqueue` anew has to call
/// `use_log` again where the log has taken it over.
pub const FIRST: i64 = 1001;

const MIGRATIONS: [File; 11] = [
    ("log", include_str!("../../migrations/log/0001_log.sql")),
    ("segments", include_str!("../../migrations/log/0002_segments.sql")),
    ("move", include_str!("../../migrations/log/0003_move.sql")),
    ("shards", include_str!("../../migrations/log/0004_shards.sql")),
    ("discarded", include_str!("../../migrations/log/0005_discarded.sql")),
    ("waiting", include_str!("../../migrations/log/0006_waiting.sql")),
    ("dead_order", include_str!("../../migrations/log/0007_dead_order.sql")),
    (
        "readable_shards",
        include_str!("../../migrations/log/0008_readable_shards.sql"),
    ),
    ("unfit", include_str!("../../migrations/log/0009_unfit.sql")),
    ("taken_back", include_str!("../../migrations/log/0010_taken_back.sql")),
    ("same_event", include_str!("../../migrations/log/0011_same_event.sql")),
];

/// Existing tables are their owner's: there is nothing to migrate.
#[async_trait]
impl SchemaStore for PostgresLogStore {
    fn migrations(&self) -> Vec<Migration> {
        let Some(beside) = &self.log.beside else {
            return Vec::new();
        };
        let finish = |sql: &str| {
            render(sql, &self.log.map, &PostgresDialect).expect("migrations name only what Posthaste's own map has")
        };
        let mut steps = beside.migrations();
        steps.extend(steps_from(FIRST, &MIGRATIONS, finish));
        steps
    }

    async fn applied(&self) -> Result<Vec<i64>, StoreError> {
        match &self.log.beside {
            Some(beside) => beside.applied().await,
            None => Ok(Vec::new()),
        }
    }

    async fn migrate(&self) -> Result<Vec<Migration>, StoreError> {
        if let Some(beside) = &self.log.beside {
            return beside.take_steps(self.migrations()).await;
        }
        self.readers.onlooker(0).create_state_table().await?;
        Ok(Vec::new())
    }

    fn statements(&self) -> Vec<(&'static str, String)> {
        let mut texts = self.log.statements.texts();
        texts.extend(self.log.state_table.iter().flat_map(StateTable::texts));
        texts.extend(self.log.tables.iter().flat_map(LogTables::texts));
        texts
    }
}
