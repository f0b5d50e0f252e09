//! The finished SQL of every statement.

use posthaste_sql::TableMap;
use posthaste_sql::template::{TemplateError, render};

use crate::dialect::MySqlDialect;
use crate::statement::Statement;

/// Whether a table has use for statements that need something, or need that something is not there.
fn wanted(map: &TableMap, needs: &str) -> bool {
    match needs.strip_prefix("no ") {
        Some(absent) => !map.has(absent),
        None => map.has(needs),
    }
}

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
                // Reading a column for two roles is fine, writing it twice is not.
                let once = map.with_each_column_once();
                let map_for = |name: &str| if name == "insert" { &once } else { map };
                Ok(Self {
                    $($($name: if wanted(map, $needs) {
                        let sql = include_str!(concat!("../queries/", stringify!($name), ".sql"));
                        Statement::new(stringify!($name), &finish(sql, map_for(stringify!($name)))?)
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
    if "outbox" {
        lock_claims, unlock_claims, find_claimable, find_lanes, count_open, lock_claimable, read_claimed, settle, stats, purgeable,
        list,
        find_dead, lock_dead, replay, discard, check, find_trial_row, lock_trial_row,
    }
    if "lease_token" { probe, lease, lock_held, find_held, extend }
    if "attempts" { find_exhausted, lock_exhausted, give_up }
    if "locked_at" { find_stalled, lock_stalled, take_back }
    if "delivered_at" { find_delivered, purge_delivered }
    if "dead_letter" { bury, check_dead_letter }
    if "no dedupe" { insert, find_enqueued }
    if "dedupe" { hold_keys, find_holders, take_over_key, enqueue, find_free_keys, purge_dedupe }
    if "inbox" { record_inbox, purge_inbox }
    if "relays" { beat, forget_relays, leave, relays }
    if "leaders" { leader, lead, resign }
}
