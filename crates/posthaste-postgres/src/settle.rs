//! Verdicts, column by column, as `unnest` takes them.

use posthaste_core::TableMap;
use posthaste_core::lifecycle::{Settlement, Verdict};
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;

use crate::rows::{id_text, millis};
use crate::statements::Statement;

/// Verdicts in one order for all statements: renewals and verdicts of one relay touch the same rows at the same time.
#[derive(Default)]
pub(crate) struct Verdicts {
    ids: Vec<String>,
    tokens: Vec<String>,
    words: Vec<&'static str>,
    delays: Vec<i64>,
    errors: Vec<Option<String>>,
    versions: Vec<Option<i64>>,
}

impl Verdicts {
    pub(crate) fn new<'a>(settlements: impl IntoIterator<Item = &'a Settlement>, map: &TableMap) -> Self {
        let mut settlements: Vec<_> = settlements.into_iter().collect();
        settlements.sort_unstable_by_key(|settlement| settlement.id);
        let mut all = Self::default();
        for settlement in settlements {
            let (delay, error) = match &settlement.verdict {
                Verdict::Delivered | Verdict::Released => (0, None),
                Verdict::Retry { delay, error } | Verdict::Postponed { delay, error } => (millis(*delay), Some(error)),
                Verdict::Dead { error } => (0, Some(error)),
            };
            // A row that cannot be in the table is lost.
            let Some(id) = id_text(settlement.id, map) else {
                continue;
            };
            all.ids.push(id);
            all.tokens.push(settlement.token.as_uuid().to_string());
            all.words.push(settlement.verdict.name());
            all.delays.push(delay);
            all.errors.push(error.map(|error| map.error_text(error)));
            all.versions.push(settlement.version);
        }
        all
    }

    /// For rows under a lease.
    pub(crate) fn fenced(self, statement: &Statement) -> Query<'static, Postgres, PgArguments> {
        let query = statement.query().bind(self.ids).bind(self.tokens);
        query
            .bind(self.words)
            .bind(self.delays)
            .bind(self.errors)
            .bind(self.versions)
    }

    /// For rows that the transaction has locked.
    pub(crate) fn locked(self, statement: &Statement) -> Query<'static, Postgres, PgArguments> {
        let query = statement.query().bind(self.ids);
        query
            .bind(self.words)
            .bind(self.delays)
            .bind(self.errors)
            .bind(self.versions)
    }
}
