//! The finished SQL of every statement.

use posthaste_core::TableMap;
use posthaste_core::template::{TemplateError, render};

use crate::dialect::MySqlDialect;
use crate::statement::Statement;

/// Puts a map's names into a statement or migration.
pub(crate) fn finish(sql: &str, map: &TableMap) -> Result<String, TemplateError> {
    render(sql, map, &MySqlDialect)
}

macro_rules! statements {
    ($(if $needs:literal { $($name:ident),* $(,)? })*) => {
        /// Every statement; those that the table has no use for are absent.
        #[derive(Debug)]
        pub(crate) struct Statements {
            $($(pub(crate) $name: Statement,)*)*
        }

        impl Statements {
            pub(crate) fn render(map: &TableMap) -> Result<Self, TemplateError> {
                Ok(Self {
                    $($($name: if map.has($needs) {
                        let sql = include_str!(concat!("../queries/", stringify!($name), ".sql"));
                        Statement::new(stringify!($name), &finish(sql, map)?)
                    } else {
                        Statement::absent(stringify!($name))
                    },)*)*
                })
            }

            pub(crate) fn all(&self) -> Vec<(&'static str, String)> {
                let all = [$($((stringify!($name), &self.$name),)*)*];
                let there = all.into_iter().filter(|(_, statement)| !statement.is_absent());
                there.map(|(name, statement)| (name, statement.text())).collect()
            }
        }
    };
}

statements! {
    if "outbox" { lock_claims, unlock_claims, read_claimed, stats, list, find_dead, lock_dead, replay, discard }
    if "lease_token" {
        probe, find_claimable, count_open, lock_claimable, lease, lock_held, settle, extend, find_exhausted, lock_exhausted, give_up,
    }
    if "delivered_at" { find_delivered, purge_delivered }
    if "dead_letter" { bury }
    if "dedupe" { hold_keys, find_holders, enqueue, find_free_keys, purge_dedupe }
    if "inbox" { record_inbox, purge_inbox }
    if "relays" { beat, forget_relays, leave, relays }
    if "leaders" { leader, lead, resign }
}
