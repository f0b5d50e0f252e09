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
    pub(crate) fn finish(file: &str, map: &TableMap) -> Result<Self, TemplateError> {
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

    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
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

posthaste_sql::statements! {
    Statement in "../queries/";
    /// For producers. Roles may share a column, which is written once.
    writing: Writing, each_column_once => { enqueue }
    /// What every table needs.
    rows: Rows => {
        settle, extend, sweep, purge_delivered, purgeable, list, find, replay, discard, trial_rows, trial_claim,
    }
    /// For tables that say when a row died.
    dying: Dying if |map| map.has(Role::UpdatedAt) => { purge_dead }
    /// For tables that have a column for the topic.
    topics: Topics if |map| map.has(Role::Topic) => { topic_gauges }
    /// For tables whose fresh and waiting rows have indexes of their own.
    split: Split if |map| is_split(map) => { probe, claim_per_key, claim_any, reclaim, stats }
    /// For any other table.
    in_order: InOrder if |map| !is_split(map) => { probe_in_order, claim_in_order, has_more_pending, stats_in_order }
    /// For outboxes that keep their dedupe keys apart.
    keys: Keys if |map| map.has(Table::Dedupe) => { hold_keys, find_holders, purge_dedupe }
    /// For outboxes whose own indexes say what may be there once.
    taken_rows: TakenRows if |map| !map.has(Table::Dedupe), each_column_once => { find_duplicate }
    /// For tables that only say since when a claim holds.
    recovery: Recovery if |map| map.has(Role::LockedAt) && !map.has(Role::LockedUntil) => { recover }
    /// For those that have a table of what was given up.
    dead_letters: DeadLetters if |map| map.has(Table::DeadLetter) => { insert_dead_letter }
    /// For the operator who brings back what was kept elsewhere.
    restoring: Restoring, each_column_once => { restore }
    /// And its letters.
    restoring_letters: RestoringLetters if |map| map.has(Table::DeadLetter) => { restore_dead_letter }
    /// For outboxes with an inbox beside them.
    handled: Handled if |map| map.has(Table::Inbox) => { record_inbox, purge_inbox }
    /// For outboxes that know who serves them.
    registry: Registry if |map| map.has(Table::Relays) && map.has(Table::Leaders) => {
        heartbeat, deregister, leader, elect_leader, step_down, relays, forget_relays,
    }
}

fn is_split(map: &TableMap) -> bool {
    map.strategy() == Strategy::Split
}

/// How rows are claimed and counted.
#[derive(Debug)]
pub(crate) enum Claims<'s> {
    Split(&'s Split),
    InOrder(&'s InOrder),
}

/// How a row that was not written leads to the one that was there before.
#[derive(Debug)]
pub(crate) enum Dedupe<'s> {
    Keys(&'s Keys),
    Rows(&'s TakenRows),
}

impl Statements {
    pub(crate) fn finish(map: &TableMap) -> Result<Self, TemplateError> {
        Self::render(map, Statement::finish)
    }

    pub(crate) fn claims(&self) -> Claims<'_> {
        match (&self.split, &self.in_order) {
            (Some(split), _) => Claims::Split(split),
            (None, in_order) => Claims::InOrder(in_order.as_ref().expect("there are those or the others")),
        }
    }

    pub(crate) fn dedupe(&self) -> Dedupe<'_> {
        match (&self.keys, &self.taken_rows) {
            (Some(keys), _) => Dedupe::Keys(keys),
            (None, rows) => Dedupe::Rows(rows.as_ref().expect("there are those or the others")),
        }
    }
}
