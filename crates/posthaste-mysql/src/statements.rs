//! The finished SQL of every statement.

use posthaste_sql::TableMap;
use posthaste_sql::table::{Role, Table};
use posthaste_sql::template::{TemplateError, render};

use crate::dialect::MySqlDialect;
use crate::statement::Statement;

/// Puts a map's names into a statement or migration.
pub(crate) fn finish(sql: &str, map: &TableMap) -> Result<String, TemplateError> {
    render(sql, map, &MySqlDialect)
}

macro_rules! wanted {
    (has $map:ident, $part:expr) => {
        $map.has($part)
    };
    (lacks $map:ident, $part:expr) => {
        !$map.has($part)
    };
}

macro_rules! statements {
    ($($when:ident $part:expr => { $($name:ident),* $(,)? })*) => {
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
                    $($($name: if wanted!($when map, $part) {
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
    has Table::Outbox => {
        lock_claims, unlock_claims, find_claimable, find_lanes, count_open, lock_claimable, read_claimed, settle, stats, purgeable,
        list,
        find_dead, lock_dead, replay, discard, check, find_trial_row, lock_trial_row, find_delivered, purge_delivered,
    }
    has Role::LeaseToken => { probe, lease, lock_held, find_held, extend }
    has Role::Attempts => { find_exhausted, lock_exhausted, give_up }
    has Role::LockedAt => { find_stalled, lock_stalled, take_back }
    has Table::DeadLetter => { bury, check_dead_letter }
    lacks Table::Dedupe => { insert, find_by_dedupe_key, find_by_event_id, find_by_id }
    has Table::Dedupe => { hold_keys, find_holders, take_over_key, enqueue, find_free_keys, purge_dedupe }
    has Table::Inbox => { record_inbox, purge_inbox }
    has Table::Relays => { beat, forget_relays, leave, relays }
    has Table::Leaders => { leader, lead, resign }
}
