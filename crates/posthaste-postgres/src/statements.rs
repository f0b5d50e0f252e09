//! The finished SQL of every statement that a table needs, in groups by what the table has.

use std::collections::HashSet;
use std::sync::Arc;

use posthaste_sql::TableMap;
use posthaste_sql::table::{Role, Strategy, Table};
use posthaste_sql::template::{Choice, TemplateError, render};
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres};

use crate::dialect::PostgresDialect;
use crate::pooling::Sessions;

/// One finished statement.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    text: Arc<str>,
    /// The ids of the rows that it would change, where its file says how they are chosen.
    listing: Option<Arc<str>>,
    /// The same without the table of dead letters, where there is one: who may not write to it, or waits for its lock, can still
    /// do all else.
    unlettered: Option<Arc<str>>,
    sessions: Sessions,
}

impl Statement {
    fn finish(file: &str, map: &TableMap, sessions: &Sessions) -> Result<Self, TemplateError> {
        let finish = |sql: &str| render(sql, map, &PostgresDialect).map(Arc::from);
        let choice = Choice::of(file);
        let list = |rows: &str| {
            format!(r#"select "@o.id:text" as id from "@outbox" o where "@o.id" = any (array(select id from {rows}))"#)
        };
        let unlettered = || render(file, &map.clone().without_dead_letters(), &PostgresDialect).map(Arc::from);
        Ok(Self {
            unlettered: (choice.is_none() && map.has(Table::DeadLetter) && file.contains("/*if dead_letter*/"))
                .then(unlettered)
                .transpose()?,
            text: choice.map_or_else(|| finish(file), |choice| finish(&choice.statement()))?,
            listing: choice.map(|choice| finish(&choice.listing(list))).transpose()?,
            sessions: sessions.clone(),
        })
    }

    /// The statement that lists the rows which this one would change, and takes the same arguments.
    pub(crate) fn listing(&self) -> Option<Self> {
        Some(Self {
            text: Arc::clone(self.listing.as_ref()?),
            listing: None,
            unlettered: None,
            sessions: self.sessions.clone(),
        })
    }

    /// The same statement for rows of which none has a dead letter to be written.
    pub(crate) fn unlettered(&self) -> Self {
        Self {
            text: Arc::clone(self.unlettered.as_ref().unwrap_or(&self.text)),
            ..self.clone()
        }
    }

    /// For sqlx. Safe because the text is a file of this crate, finished with quoted identifiers only.
    pub(crate) fn sql(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(Arc::clone(&self.text))
    }

    /// The statement to bind arguments to; prepared under a name only where the session keeps it.
    pub(crate) fn query<'q>(&self) -> Query<'q, Postgres, PgArguments> {
        sqlx::query(self.sql()).persistent(self.is_kept())
    }

    /// Whether sessions keep it once it was prepared.
    pub(crate) fn is_kept(&self) -> bool {
        self.sessions.keep_statements()
    }

    /// For callers that run it otherwise.
    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }
}

posthaste_sql::statements! {
    Statement in "../queries/";
    /// What every table needs.
    common: Common => {
        check, purge_delivered, purgeable, stats, list, replay, discard, settle, notify, trial_rows,
    }
    /// For tables whose fresh and waiting rows have indexes of their own.
    split: Split if |map| map.strategy() == Strategy::Split => { claim_any, claim_per_key, reclaim }
    /// For any other table with leases.
    leased: Leased if |map| map.strategy() == Strategy::Leased => { claim_unordered }
    /// For such tables with keys.
    leased_in_order: LeasedInOrder
        if |map| map.strategy() == Strategy::Leased && map.has(Role::OrderingKey) => { claim_in_order }
    /// For tables without leases: locks are held while publishing.
    row_locks: RowLocks if |map| map.strategy() == Strategy::RowLocks => { lock_unordered }
    /// For such tables with keys.
    row_locks_in_order: RowLocksInOrder
        if |map| map.strategy() == Strategy::RowLocks && map.has(Role::OrderingKey) => { lock_in_order, try_lock_claims }
    /// For tables with leases.
    leases: Leases if |map| map.has(Role::LeaseToken) => { extend, lock_held, find_held, lock_claims, trial_claim }
    /// For tables that say when a row died.
    dying: Dying if |map| map.has(Role::UpdatedAt) => { purge_dead }
    /// For tables that have a column for the topic.
    topics: Topics if |map| map.has(Role::Topic) => { topic_gauges }
    /// For tables that count attempts.
    attempts: Attempts if |map| map.has(Role::Attempts) => { sweep }
    /// For tables that say until when a claim holds.
    until: Until if |map| map.has(Role::LockedUntil) => { probe_expired }
    /// For tables that only say since when a claim holds.
    since: Since if |map| map.has(Role::LeaseToken) && !map.has(Role::LockedUntil) => { recover }
    /// For those that have a table of what was given up.
    dead_letter: DeadLetter if |map| map.has(Table::DeadLetter) => { check_dead_letter }
    /// For outboxes that keep their dedupe keys apart.
    dedupe: Dedupe if |map| map.has(Table::Dedupe) => {
        enqueue, append, append_uniform, append_one, purge_dedupe,
    }
    /// For outboxes with an inbox beside them.
    inbox: Inbox if |map| map.has(Table::Inbox) => { purge_inbox, record_inbox }
    /// For outboxes that know who serves them.
    registry: Registry if |map| map.has(Table::Relays) => { heartbeat, deregister, leader, elect_leader, relays }
    /// For outboxes whose own indexes say what may be there once.
    plain: Plain if |map| !map.has(Table::Dedupe), each_column_once => { insert, find_enqueued }
    /// For the operator who brings back what was kept elsewhere.
    restoring: Restoring, each_column_once => { lock_dead, restore }
    /// And its letters.
    restoring_letters: RestoringLetters if |map| map.has(Table::DeadLetter) => { restore_dead_letter }
    /// For the operator, where the server lets the relay know.
    diagnosis: Diagnosis if |map| map.has(Role::LeaseToken) => { find_lock_holders }
}

impl Statements {
    pub(crate) fn finish(map: &TableMap, sessions: &Sessions) -> Result<Self, TemplateError> {
        Self::render(map, |file, map| Statement::finish(file, map, sessions))
    }

    /// All that a relay cannot do without.
    pub(crate) fn for_relays(&self) -> impl Iterator<Item = (&'static str, &Statement)> {
        let writing = self.plain.iter().flat_map(Plain::all);
        let other: HashSet<_> = writing
            .chain(self.diagnosis.iter().flat_map(Diagnosis::all))
            .chain(self.restoring.all())
            .chain(self.restoring_letters.iter().flat_map(RestoringLetters::all))
            .map(|(name, _)| name)
            .collect();
        self.all().into_iter().filter(move |(name, _)| !other.contains(name))
    }
}
