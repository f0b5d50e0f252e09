//! The finished SQL of every statement, by what a table map has.

use std::sync::Arc;

use posthaste_sql::TableMap;
use posthaste_sql::table::{Role, Strategy, Table};
use posthaste_sql::template::{Choice, TemplateError, render};
use sqlx::AssertSqlSafe;

use crate::dialect::SqliteDialect;

/// One finished statement.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    text: Arc<str>,
    /// The ids of the rows that it would change, where its file says how they are chosen.
    listing: Option<Arc<str>>,
}

impl Statement {
    fn finish(file: &str, map: &TableMap) -> Result<Self, TemplateError> {
        let finish = |sql: &str| finish(sql, map).map(Arc::from);
        let choice = Choice::of(file);
        let list =
            |rows: &str| format!(r#"select "@id:text" as id from "@outbox" where "@id" in (select id from {rows})"#);
        Ok(Self {
            text: choice.map_or_else(|| finish(file), |choice| finish(&choice.statement()))?,
            listing: choice.map(|choice| finish(&choice.listing(list))).transpose()?,
        })
    }

    /// For sqlx. Safe because the text is a file of this crate, finished with quoted identifiers only.
    pub(crate) fn sql(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(Arc::clone(&self.text))
    }

    /// The statement that lists the rows which this one would change, and takes the same arguments.
    pub(crate) fn listing(&self) -> Option<Self> {
        Some(Self {
            text: Arc::clone(self.listing.as_ref()?),
            listing: None,
        })
    }
}

/// Puts a map's names into a statement or migration. Only tables with split indexes are sure to have indexes of known names:
/// statements for others hint at none.
pub(crate) fn finish(sql: &str, map: &TableMap) -> Result<String, TemplateError> {
    render(sql, map, &SqliteDialect)
}

/// Statements that go together, each in a file of its name.
macro_rules! statements {
    ($group:ident { $($name:ident),* $(,)? }) => {
        #[derive(Debug)]
        #[allow(clippy::struct_field_names, reason = "a field is named as its file")]
        pub(crate) struct $group {
            $(pub(crate) $name: Statement,)*
        }

        impl $group {
            fn render(map: &TableMap) -> Result<Self, TemplateError> {
                Ok(Self {
                    $($name: Statement::finish(
                        include_str!(concat!("../queries/", stringify!($name), ".sql")), map,
                    )?,)*
                })
            }

            fn list(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($name), self.$name.text.to_string()),)*]
            }
        }
    };
}

statements!(Writing { enqueue });
statements!(Rows {
    settle,
    extend,
    sweep,
    purge_delivered,
    purgeable,
    list,
    find,
    replay,
    discard,
    trial_rows,
    trial_claim,
});
statements!(Split {
    probe,
    claim_per_key,
    claim_any,
    reclaim,
    stats,
});
statements!(InOrder {
    probe_in_order,
    claim_in_order,
    more_open,
    stats_in_order,
});
statements!(Recovery { recover });
statements!(DeadLetters { bury });
statements!(Keys {
    hold_keys,
    find_holders,
    purge_dedupe,
});
statements!(TakenRows { find_taken });
statements!(Handled {
    record_inbox,
    purge_inbox,
});
statements!(Registry {
    beat,
    leave,
    leader,
    lead,
    resign,
    relays,
    forget_relays,
});

/// How rows are claimed and counted.
#[derive(Debug)]
pub(crate) enum Claims {
    /// Fresh and waiting rows have indexes of their own.
    Split(Split),
    /// In the table's order.
    InOrder(InOrder),
}

/// How a row that was not written leads to the one that was there before.
#[derive(Debug)]
pub(crate) enum Dedupe {
    /// Keys are kept in a table of their own.
    Keys(Keys),
    /// Keys are kept in the rows.
    Rows(TakenRows),
}

/// Every statement that a map needs, and none that it has no tables for.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) writing: Writing,
    pub(crate) rows: Rows,
    pub(crate) claims: Claims,
    pub(crate) dedupe: Dedupe,
    pub(crate) recovery: Option<Recovery>,
    pub(crate) dead_letters: Option<DeadLetters>,
    pub(crate) handled: Option<Handled>,
    pub(crate) registry: Option<Registry>,
}

impl Statements {
    pub(crate) fn render(map: &TableMap) -> Result<Self, TemplateError> {
        // Reading a column for two roles is fine, writing it twice is not.
        let written = map.with_each_column_once();
        Ok(Self {
            writing: Writing::render(&written)?,
            rows: Rows::render(map)?,
            claims: match map.strategy() {
                Strategy::Split => Claims::Split(Split::render(map)?),
                _ => Claims::InOrder(InOrder::render(map)?),
            },
            dedupe: if map.has(Table::Dedupe) {
                Dedupe::Keys(Keys::render(map)?)
            } else {
                Dedupe::Rows(TakenRows::render(&written)?)
            },
            recovery: where_needed(map.has(Role::LockedAt) && !map.has(Role::LockedUntil), || {
                Recovery::render(map)
            })?,
            dead_letters: where_needed(map.has(Table::DeadLetter), || DeadLetters::render(map))?,
            handled: where_needed(map.has(Table::Inbox), || Handled::render(map))?,
            registry: where_needed(map.has(Table::Relays) && map.has(Table::Leaders), || {
                Registry::render(map)
            })?,
        })
    }

    pub(crate) fn all(&self) -> Vec<(&'static str, String)> {
        let mut all = self.writing.list();
        all.extend(self.rows.list());
        all.extend(match &self.claims {
            Claims::Split(claims) => claims.list(),
            Claims::InOrder(claims) => claims.list(),
        });
        all.extend(match &self.dedupe {
            Dedupe::Keys(keys) => keys.list(),
            Dedupe::Rows(rows) => rows.list(),
        });
        all.extend(self.recovery.iter().flat_map(Recovery::list));
        all.extend(self.dead_letters.iter().flat_map(DeadLetters::list));
        all.extend(self.handled.iter().flat_map(Handled::list));
        all.extend(self.registry.iter().flat_map(Registry::list));
        all
    }
}

fn where_needed<T>(
    needed: bool,
    render: impl FnOnce() -> Result<T, TemplateError>,
) -> Result<Option<T>, TemplateError> {
    needed.then(render).transpose()
}
