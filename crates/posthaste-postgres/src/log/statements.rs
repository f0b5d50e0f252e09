//! The finished SQL of every statement over a log.

use std::sync::Arc;

use posthaste_sql::TableMap;
use posthaste_sql::template::{TemplateError, render};
use sqlx::AssertSqlSafe;

use crate::dialect::PostgresDialect;

/// One finished statement.
#[derive(Clone, Debug)]
pub(crate) struct LogStatement(Arc<str>);

impl LogStatement {
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
    writing: Writing, each_column_once => { enqueue }
    /// For the reader of the log.
    reading: Reading => {
        lock, end_own, server, storage, sequence, missing, unseen, cursor, move_cursor, read, read_tail, holders, probe,
    }
    /// For what was not delivered at first.
    failures: Failures => { retry, fail, retried, delete_delivered, sweep }
    /// For its upkeep.
    upkeep: Upkeep => {
        newest, lengths, purge_cursor, purge_log, purgeable, stats, list_log, list_failed, replay, discard,
    }
}

impl Statements {
    pub(crate) fn finish(map: &TableMap) -> Result<Self, TemplateError> {
        Self::render(map, |file, map| {
            Ok(LogStatement(render(file, map, &PostgresDialect)?.into()))
        })
    }
}
