//! The finished SQL of every statement.

use std::sync::Arc;

use posthaste_core::TableMap;
use posthaste_core::template::{TemplateError, render};
use sqlx::AssertSqlSafe;

use crate::dialect::SqliteDialect;

/// One finished statement.
#[derive(Clone, Debug)]
pub(crate) struct Statement(Arc<str>);

impl Statement {
    /// For sqlx. Safe because the text is a file of this crate, finished with quoted identifiers only.
    pub(crate) fn sql(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(Arc::clone(&self.0))
    }
}

/// Puts a map's names into a statement or migration.
///
/// SQLite's indexes share one space of names, so each is named after its table: `"@outbox+fresh"` becomes
/// `"posthaste_outbox_fresh"`. Only tables with split indexes are sure to have them; for others `indexed by` is left out.
pub(crate) fn finish(sql: &str, map: &TableMap) -> Result<String, TemplateError> {
    let mut named = sql.to_owned();
    for role in ["outbox", "dedupe", "inbox"] {
        let table = map.table(role).map_or(role, |table| table.name.as_str());
        if !map.has("split_index") {
            named = without_hints(&named, &format!(" indexed by \"@{role}+"));
        }
        named = named.replace(&format!("\"@{role}+"), &format!("\"{}_", table.replace('"', "\"\"")));
    }
    render(&named, map, &SqliteDialect)
}

fn without_hints(sql: &str, hint: &str) -> String {
    let mut parts = sql.split(hint);
    let first = parts.next().unwrap_or_default().to_owned();
    // Each further part begins with the rest of an index's name.
    parts.fold(first, |sql, part| {
        sql + part.split_once('"').map_or("", |(_, after)| after)
    })
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
                        finish(include_str!(concat!("../queries/", stringify!($name), ".sql")), map)?.into()
                    ),)*
                })
            }

            pub(crate) fn all(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($name), self.$name.0.to_string()),)*]
            }
        }
    };
}

statements!(
    enqueue,
    hold_keys,
    find_holders,
    probe,
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
    find,
    replay,
    discard,
    beat,
    leave,
    leader,
    lead,
    resign,
    relays,
    forget_relays,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_named_after_their_table_and_only_where_they_are() {
        let sql = r#"select 1 from "@outbox" o indexed by "@outbox+fresh" where "@status" = '@pending'"#;
        let own = TableMap::with_prefix("p_").expect("a good prefix");
        assert_eq!(
            finish(sql, &own).expect("it has every role"),
            r#"select 1 from "p_outbox" o indexed by "p_outbox_fresh" where "status" = 'pending'"#
        );
        assert_eq!(
            finish(sql, &own.without_split_index()).expect("it has the roles needed"),
            r#"select 1 from "p_outbox" o where "status" = 'pending'"#
        );
    }
}
