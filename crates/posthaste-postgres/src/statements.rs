//! The finished SQL of every statement.

use std::sync::Arc;

use posthaste_core::TableMap;
use posthaste_core::template::{TemplateError, render};
use sqlx::AssertSqlSafe;

use crate::dialect::PostgresDialect;

/// One finished statement.
#[derive(Clone, Debug)]
pub(crate) struct Statement(Arc<str>);

impl Statement {
    /// For sqlx. Safe because the text is a file of this crate, finished with quoted identifiers only.
    pub(crate) fn sql(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(Arc::clone(&self.0))
    }

    /// For other drivers.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

macro_rules! statements {
    ($($name:ident),* $(,)?) => {
        #[derive(Debug)]
        pub(crate) struct Statements {
            $(pub(crate) $name: Statement,)*
        }

        impl Statements {
            pub(crate) fn render(map: &TableMap) -> Result<Self, TemplateError> {
                Ok(Self {
                    $($name: Statement(
                        render(include_str!(concat!("../queries/", stringify!($name), ".sql")), map, &PostgresDialect)?.into()
                    ),)*
                })
            }

            pub(crate) fn all(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($name), self.$name.text().to_owned()),)*]
            }
        }
    };
}

statements!(
    enqueue,
    lock_claims,
    probe_expired,
    claim_per_key,
    claim_any,
    reclaim,
    settle,
    extend,
    sweep,
    purge_delivered,
    purge_dedupe,
    purge_inbox,
    record_inbox,
    stats,
    list,
    replay,
    discard,
    beat,
    leave,
    leader,
    lead,
    relays,
    ring,
);
