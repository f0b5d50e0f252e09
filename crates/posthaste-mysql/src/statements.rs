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

posthaste_sql::statements! {
    Statement in "../queries/";
    /// What every table needs.
    common: Common => {
        lock_claims, unlock_claims, find_claimable, find_lanes, count_open, lock_claimable, read_claimed, settle, stats,
        purgeable, list, find_dead, lock_dead, replay, discard, check, find_trial_row, lock_trial_row, find_delivered,
        purge_delivered,
    }
    /// For tables with leases.
    leases: Leases if |map| map.has(Role::LeaseToken) => { probe, lease, lock_held, find_held, extend }
    /// For tables that say when a row died.
    dying: Dying if |map| map.has(Role::UpdatedAt) => { find_old_dead }
    /// For tables that have a column for the topic.
    topics: Topics if |map| map.has(Role::Topic) => { topic_gauges }
    /// For tables that count attempts.
    attempts: Attempts if |map| map.has(Role::Attempts) => { find_exhausted, lock_exhausted, mark_dead }
    /// For tables that only say since when a claim holds.
    since: Since if |map| map.has(Role::LockedAt) && !map.has(Role::LockedUntil) => { find_stalled, lock_stalled, release_stalled }
    /// For those that have a table of what was given up.
    dead_letter: DeadLetter if |map| map.has(Table::DeadLetter) => { insert_dead_letter, check_dead_letter }
    /// For the operator who brings back what was kept elsewhere.
    restoring: Restoring, each_column_once => { restore }
    /// And its letters.
    restoring_letters: RestoringLetters if |map| map.has(Table::DeadLetter) => { restore_dead_letter }
    /// For producers, where the table's own indexes say what may be there once. Roles may share a column, which is written
    /// once.
    writing: Writing if |map| !map.has(Table::Dedupe), each_column_once => { insert }
    /// For finding what such an index kept out, and the ids that the server gives.
    plain: Plain if |map| !map.has(Table::Dedupe) => { find_by_dedupe_key, find_by_event_id, find_by_id, last_id }
    /// For outboxes that keep their dedupe keys apart.
    dedupe: Dedupe if |map| map.has(Table::Dedupe) => {
        hold_keys, find_holders, take_over_key, enqueue, find_free_keys, purge_dedupe,
    }
    /// For outboxes with an inbox beside them.
    inbox: Inbox if |map| map.has(Table::Inbox) => { record_inbox, purge_inbox }
    /// For outboxes that know who serves them.
    registry: Registry if |map| map.has(Table::Relays) => { heartbeat, forget_relays, deregister, relays }
    /// For those that also know who leads.
    leaders: Leaders if |map| map.has(Table::Leaders) => { leader, elect_leader, step_down }
}

impl Statements {
    pub(crate) fn finish(map: &TableMap) -> Result<Self, TemplateError> {
        Self::render(map, |file, map| Ok(Statement::new(&finish(file, map)?)))
    }
}

/// A group in a place to which no table comes that lacks it.
pub(crate) trait Needed {
    type Group;

    fn needed(&self) -> sqlx::Result<&Self::Group>;
}

impl<G> Needed for Option<G> {
    type Group = G;

    fn needed(&self) -> sqlx::Result<&G> {
        let group = std::any::type_name::<G>().rsplit("::").next().unwrap_or_default();
        let problem =
            || sqlx::Error::Configuration(format!("the table map has not what statements of {group} need").into());
        self.as_ref().ok_or_else(problem)
    }
}
