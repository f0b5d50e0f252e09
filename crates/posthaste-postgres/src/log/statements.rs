//! The finished SQL of every statement over a log.

use std::sync::Arc;

use posthaste_sql::TableMap;
use posthaste_sql::table::{Role, Table};
use posthaste_sql::template::{TemplateError, render};
use sqlx::AssertSqlSafe;

use crate::dialect::PostgresDialect;

/// One finished statement.
#[derive(Clone, Debug)]
pub(crate) struct LogStatement(Arc<str>);

impl LogStatement {
    /// From a text that is safe as below.
    pub(super) fn new(text: String) -> Self {
        Self(text.into())
    }

    /// For sqlx. Safe because the text is a file of this crate, finished with quoted identifiers only.
    pub(crate) fn sql(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(Arc::clone(&self.0))
    }

    pub(crate) fn text(&self) -> &Arc<str> {
        &self.0
    }
}

posthaste_sql::statements! {
    LogStatement in "../../queries/log/";
    /// For producers. Roles may share a column, which is written once.
    writing: Writing if |map| !map.is_native(), each_column_once => { enqueue }
    /// For producers of Posthaste's own log.
    appending: Appending if TableMap::is_native => { append_one, append_uniform, append, append_or_hold }
    /// For the reader of the log.
    reading: Reading => { lock, end_own, server, storage, sequence, cursor, move_cursor, read, read_tail, holders, probe }
    /// For logs whose cursor is a table of its own, and whose ids may come from elsewhere.
    cursors: Cursors if |map| map.has(Table::Cursor) => { missing, unseen, purge_cursor, purge_log, purgeable }
    /// For what was not delivered at first.
    failures: Failures => { retry, suspected, fail, retried, delete_delivered, sweep }
    /// For its upkeep.
    upkeep: Upkeep => {
        newest, lengths, stats, list_log, list_failed, find_dead, replay, discard,
    }
    /// For logs that say when a message was given up.
    dying: Dying if |map| map.has((Table::Failed, Role::DiedAt)) => { purge_dead, purgeable_dead }
    /// For logs of several shards, whose rows have their topic in a column.
    sharding: Sharding if TableMap::is_native => { shards, topic_gauges }
    /// For dead letters that were kept elsewhere.
    restoring: Restoring if TableMap::is_native => { restore }
}

impl Statements {
    pub(crate) fn finish(map: &TableMap) -> Result<Self, TemplateError> {
        Self::render(map, |file, map| {
            Ok(LogStatement(render(file, map, &PostgresDialect)?.into()))
        })
    }
}
