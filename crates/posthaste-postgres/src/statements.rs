//! The finished SQL of every statement that a table needs, in groups by what the table has.

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
    sessions: Sessions,
}

impl Statement {
    fn finish(file: &str, map: &TableMap, sessions: &Sessions) -> Result<Self, TemplateError> {
        let finish = |sql: &str| render(sql, map, &PostgresDialect).map(Arc::from);
        let choice = Choice::of(file);
        let list = |rows: &str| {
            format!(r#"select "@o.id:text" as id from "@outbox" o where "@o.id" = any (array(select id from {rows}))"#)
        };
        Ok(Self {
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
            sessions: self.sessions.clone(),
        })
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

    /// For whoever runs it otherwise.
    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }
}

/// A statement's name and text.
type Named = (&'static str, String);

macro_rules! group {
    ($(#[$about:meta])* $group:ident { $($name:ident),* $(,)? }) => {
        $(#[$about])*
        #[derive(Debug)]
        pub(crate) struct $group {
            $(pub(crate) $name: Statement,)*
        }

        impl $group {
            fn render(map: &TableMap, sessions: &Sessions) -> Result<Self, TemplateError> {
                Ok(Self {
                    $($name: Statement::finish(
                        include_str!(concat!("../queries/", stringify!($name), ".sql")), map, sessions,
                    )?,)*
                })
            }

            fn named(&self) -> Vec<Named> {
                vec![$((stringify!($name), self.$name.text().to_string()),)*]
            }
        }
    };
}

group!(
    /// What every table needs.
    Common {
        check,
        purge_delivered,
        purgeable,
        stats,
        list,
        replay,
        discard,
        settle,
        ring,
        trial_rows
    }
);
group!(
    /// For tables with leases.
    Leases {
        extend,
        lock_held,
        find_held,
        lock_claims,
        trial_claim
    }
);
group!(
    /// For the operator, where the server lets the relay know.
    Diagnosis { find_lock_holders }
);
group!(
    /// For tables whose fresh and waiting rows have indexes of their own.
    Split {
        claim_any,
        claim_per_key,
        reclaim
    }
);
group!(
    /// For any other table with leases.
    Leased { claim_unordered }
);
group!(
    /// For tables with leases and keys.
    LeasedInOrder { claim_in_order }
);
group!(
    /// For tables without leases.
    RowLocks { lock_unordered }
);
group!(
    /// For tables without leases that have keys.
    RowLocksInOrder {
        lock_in_order,
        try_lock_claims
    }
);
group!(
    /// For tables that count attempts.
    Attempts { sweep }
);
group!(
    /// For tables that say until when a claim holds.
    Until { probe_expired }
);
group!(
    /// For tables that only say since when a claim holds.
    Since { recover }
);
group!(
    /// For outboxes whose own indexes say what may be there once.
    Plain { insert, find_enqueued }
);
group!(
    /// For those that have a table of what was given up.
    DeadLetter { check_dead_letter }
);
group!(
    /// For outboxes that keep their dedupe keys apart.
    Dedupe { enqueue, purge_dedupe }
);
group!(
    /// For outboxes with an inbox beside them.
    Inbox {
        purge_inbox,
        record_inbox
    }
);
group!(
    /// For outboxes that know who serves them.
    Registry {
        beat,
        leave,
        leader,
        lead,
        relays
    }
);

/// How rows are claimed.
#[derive(Debug)]
pub(crate) enum Claims {
    /// Under a lease, fresh and waiting rows apart.
    Split(Split),
    /// Under a lease, in the table's order.
    Leased(Leased, Option<LeasedInOrder>),
    /// By locks that are held while publishing.
    RowLocks(RowLocks, Option<RowLocksInOrder>),
}

#[derive(Debug)]
pub(crate) struct Statements {
    pub(crate) common: Common,
    pub(crate) claims: Claims,
    pub(crate) leases: Option<Leases>,
    pub(crate) diagnosis: Option<Diagnosis>,
    pub(crate) attempts: Option<Attempts>,
    pub(crate) until: Option<Until>,
    pub(crate) since: Option<Since>,
    pub(crate) plain: Option<Plain>,
    pub(crate) dead_letter: Option<DeadLetter>,
    pub(crate) dedupe: Option<Dedupe>,
    pub(crate) inbox: Option<Inbox>,
    pub(crate) registry: Option<Registry>,
}

/// Renders a group if the table has what it is for.
fn group<G>(
    wanted: bool,
    map: &TableMap,
    sessions: &Sessions,
    render: fn(&TableMap, &Sessions) -> Result<G, TemplateError>,
) -> Result<Option<G>, TemplateError> {
    wanted.then(|| render(map, sessions)).transpose()
}

impl Statements {
    pub(crate) fn render(map: &TableMap, sessions: &Sessions) -> Result<Self, TemplateError> {
        let keyed = map.has(Role::OrderingKey);
        let claims = match map.strategy() {
            Strategy::Split => Claims::Split(Split::render(map, sessions)?),
            Strategy::Leased => Claims::Leased(
                Leased::render(map, sessions)?,
                group(keyed, map, sessions, LeasedInOrder::render)?,
            ),
            // A log has no states, so it is refused by the first statement that names one.
            Strategy::RowLocks | Strategy::Log => Claims::RowLocks(
                RowLocks::render(map, sessions)?,
                group(keyed, map, sessions, RowLocksInOrder::render)?,
            ),
        };
        let leased = map.has(Role::LeaseToken);
        Ok(Self {
            common: Common::render(map, sessions)?,
            claims,
            leases: group(leased, map, sessions, Leases::render)?,
            diagnosis: group(leased, map, sessions, Diagnosis::render)?,
            attempts: group(map.has(Role::Attempts), map, sessions, Attempts::render)?,
            until: group(map.has(Role::LockedUntil), map, sessions, Until::render)?,
            since: group(leased && !map.has(Role::LockedUntil), map, sessions, Since::render)?,
            plain: group(
                !map.has(Table::Dedupe),
                &map.with_each_column_once(),
                sessions,
                Plain::render,
            )?,
            dead_letter: group(map.has(Table::DeadLetter), map, sessions, DeadLetter::render)?,
            dedupe: group(map.has(Table::Dedupe), map, sessions, Dedupe::render)?,
            inbox: group(map.has(Table::Inbox), map, sessions, Inbox::render)?,
            registry: group(map.has(Table::Relays), map, sessions, Registry::render)?,
        })
    }

    pub(crate) fn all(&self) -> Vec<Named> {
        let mut all = self.for_relays();
        all.extend(self.plain.iter().flat_map(Plain::named));
        all.extend(self.diagnosis.iter().flat_map(Diagnosis::named));
        all
    }

    /// All that a relay cannot do without.
    pub(crate) fn for_relays(&self) -> Vec<Named> {
        let mut all = self.common.named();
        match &self.claims {
            Claims::Split(split) => all.extend(split.named()),
            Claims::Leased(any, in_order) => {
                all.extend(any.named());
                all.extend(in_order.iter().flat_map(LeasedInOrder::named));
            }
            Claims::RowLocks(any, in_order) => {
                all.extend(any.named());
                all.extend(in_order.iter().flat_map(RowLocksInOrder::named));
            }
        }
        all.extend(self.leases.iter().flat_map(Leases::named));
        all.extend(self.attempts.iter().flat_map(Attempts::named));
        all.extend(self.until.iter().flat_map(Until::named));
        all.extend(self.since.iter().flat_map(Since::named));
        all.extend(self.dead_letter.iter().flat_map(DeadLetter::named));
        all.extend(self.dedupe.iter().flat_map(Dedupe::named));
        all.extend(self.inbox.iter().flat_map(Inbox::named));
        all.extend(self.registry.iter().flat_map(Registry::named));
        all
    }
}
