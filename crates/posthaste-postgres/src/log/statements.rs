//! The finished SQL of every statement over a log.

use std::sync::Arc;

use posthaste_sql::TableMap;
use posthaste_sql::template::{TemplateError, render};
use sqlx::AssertSqlSafe;

use crate::dialect::PostgresDialect;

/// One finished statement.
#[derive(Clone, Debug)]
pub(super) struct LogStatement(Arc<str>);

impl LogStatement {
    /// For sqlx. Safe because the text is a file of this crate, finished with quoted identifiers only.
    pub(super) fn sql(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(Arc::clone(&self.0))
    }

    pub(super) fn text(&self) -> &Arc<str> {
        &self.0
    }
}

macro_rules! statements {
    ($($name:ident),* $(,)?) => {
        #[derive(Debug)]
        pub(super) struct LogStatements {
            $(pub(super) $name: LogStatement,)*
        }

        impl LogStatements {
            fn render_all(map: &TableMap) -> Result<Self, TemplateError> {
                Ok(Self {
                    $($name: LogStatement(render(
                        include_str!(concat!("../../queries/log/", stringify!($name), ".sql")), map, &PostgresDialect,
                    )?.into()),)*
                })
            }

            pub(super) fn all(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($name), self.$name.0.to_string()),)*]
            }
        }
    };
}

statements!(
    enqueue,
    lock,
    end_own,
    server,
    storage,
    sequence,
    missing,
    unseen,
    cursor,
    move_cursor,
    read,
    probe,
    retry,
    fail,
    retried,
    retried_well,
    sweep,
    newest,
    lengths,
    purge_cursor,
    purge_log,
    purgeable,
    stats,
    list_log,
    list_failed,
    replay,
    discard,
);

impl LogStatements {
    pub(super) fn render(map: &TableMap) -> Result<Self, TemplateError> {
        Ok(Self {
            // Roles may share a column, which is written once.
            enqueue: LogStatement(
                render(
                    include_str!("../../queries/log/enqueue.sql"),
                    &map.with_each_column_once(),
                    &PostgresDialect,
                )?
                .into(),
            ),
            ..Self::render_all(map)?
        })
    }
}
