//! The finished SQL of every statement over a log.

use std::sync::Arc;

use posthaste_core::TableMap;
use posthaste_core::template::{TemplateError, render};
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
}

macro_rules! statements {
    ($($name:ident),* $(,)?) => {
        #[derive(Debug)]
        pub(super) struct LogStatements {
            $(pub(super) $name: LogStatement,)*
        }

        impl LogStatements {
            pub(super) fn render(map: &TableMap) -> Result<Self, TemplateError> {
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
    sequence,
    cursor,
    move_cursor,
    read,
    retry,
    fail,
    retried,
    retried_well,
    sweep,
    purge_cursor,
    purge_log,
    stats,
    list_log,
    list_failed,
    replay,
    discard,
);
