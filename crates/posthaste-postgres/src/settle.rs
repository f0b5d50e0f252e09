//! Verdicts on rows that are held under a lease, and their leases.
//!
//! A row that another transaction has locked is not waited for. All rows are written with one statement, which waits for
//! locks for a moment only: the same relay may be renewing the leases. If that was not enough, the rows that nobody has
//! locked are written, and the others are looked at to tell those that are lost from those that are busy. If another
//! transaction has locked the whole table, all of them are busy.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use posthaste_core::MessageId;
use posthaste_core::lifecycle::{LeaseToken, Settlement};
use posthaste_core::store::{BusyRow, Extended, Settled};
use posthaste_sql::row_change::StatusLabel;
use posthaste_sql::{RowChange, TableMap};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres, Row};
use tokio::time::sleep;

use crate::PostgresStore;
use crate::rows::{id, id_text, ids, millis};
use crate::statements::Leases;
use crate::table_locks::BEGIN_BRIEF;

/// The waits before rows that were locked are tried again.
const LOCK_WAITS: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(80)];

impl PostgresStore {
    pub(crate) async fn settle_under_lease(
        &self,
        leases: &Leases,
        settlements: &[Settlement],
    ) -> sqlx::Result<Settled> {
        let all = self.settling(settlements);
        let Some(rows) = self.fetch_unless_locked(all).await? else {
            return match self.find_table_lock().await {
                // If one was lost meanwhile, it is found out once the table is free.
                Some(holder) => Ok(Settled::busy(settlements, &holder)),
                None => self.settle_unlocked(leases, settlements).await,
            };
        };
        let settled: HashSet<_> = ids(&rows, &self.map)?.into_iter().collect();
        let ids = settlements.iter().map(|settlement| settlement.id);
        Ok(Settled::but(ids.filter(|id| !settled.contains(id)).collect()))
    }

    /// Writes what is not locked, a few times: a renewal may have been in the way, which is over soon.
    async fn settle_unlocked(&self, leases: &Leases, settlements: &[Settlement]) -> sqlx::Result<Settled> {
        let mut waits = LOCK_WAITS.iter();
        let mut settled = Settled::default();
        let mut left: Vec<_> = settlements.iter().collect();
        loop {
            let (busy, lost) = self.settle_free(leases, &left).await?;
            settled.lost.extend(lost.iter().map(|one| one.id));
            left = busy;
            match waits.next() {
                Some(wait) if !left.is_empty() => sleep(*wait).await,
                _ => break,
            }
        }
        let busy: HashSet<_> = left.iter().map(|one| one.id).collect();
        let mut holders = self.find_lock_holders(&busy).await;
        let row = |id| BusyRow {
            id,
            holder: holders.remove(&id),
        };
        settled.busy = busy.into_iter().map(row).collect();
        Ok(settled)
    }

    /// Returns what could not be written: because the row is locked, or because the lease was lost.
    async fn settle_free<'s>(
        &self,
        leases: &Leases,
        settlements: &[&'s Settlement],
    ) -> sqlx::Result<(Vec<&'s Settlement>, Vec<&'s Settlement>)> {
        let mut tx = self.begin().await?;
        let keys = settlements.iter().map(|one| (one.id, one.token));
        let free = self.lock_held(&mut tx, leases, keys).await?;
        let (free, locked): (Vec<_>, Vec<_>) = settlements.iter().copied().partition(|one| free.contains(&one.id));
        let rows = self.settling(free.iter().copied()).fetch_all(&mut *tx).await?;
        tx.commit().await?;
        let settled: HashSet<_> = ids(&rows, &self.map)?.into_iter().collect();
        let held = locked.iter().map(|one| (one.id, one.token, one.version));
        let held = self.find_held(leases, held).await?;
        let (busy, mut lost): (Vec<_>, Vec<_>) = locked.into_iter().partition(|one| held.contains(&one.id));
        lost.extend(free.into_iter().filter(|one| !settled.contains(&one.id)));
        Ok((busy, lost))
    }

    /// The statement that settles, with its arguments.
    pub(crate) fn settling<'a>(
        &self,
        settlements: impl IntoIterator<Item = &'a Settlement>,
    ) -> Query<'static, Postgres, PgArguments> {
        let changes = Changes::new(settlements, &self.map);
        let settle = &self.statements.common.settle;
        let query = if changes.dead_letters.contains(&true) {
            settle.query()
        } else {
            settle.unlettered().query()
        };
        let query = query.bind(changes.ids).bind(changes.tokens).bind(changes.states);
        let query = query.bind(changes.attempts).bind(changes.delays).bind(changes.errors);
        let query = query.bind(changes.delivered).bind(changes.dead_letters);
        query.bind(changes.versions)
    }

    pub(crate) async fn extend_under_lease(
        &self,
        leases: &Leases,
        token: LeaseToken,
        asked: &[MessageId],
        lease: Duration,
    ) -> sqlx::Result<Extended> {
        let all = self.extension(leases, token, asked, lease);
        if let Some(rows) = self.fetch_unless_locked(all).await? {
            return Ok(Extended::all(ids(&rows, &self.map)?));
        }
        if self.find_table_lock().await.is_some() {
            return Ok(Extended::busy(asked.to_vec()));
        }
        let mut tx = self.begin().await?;
        let free = self
            .lock_held(&mut tx, leases, asked.iter().map(|id| (*id, token)))
            .await?;
        let (free, locked): (Vec<_>, Vec<_>) = asked.iter().copied().partition(|id| free.contains(id));
        let query = self.extension(leases, token, &free, lease);
        let held = ids(&query.fetch_all(&mut *tx).await?, &self.map)?;
        tx.commit().await?;
        let busy = locked.into_iter().map(|id| (id, token, None));
        let busy = self.find_held(leases, busy).await?.into_iter().collect();
        Ok(Extended { held, busy })
    }

    /// None if another transaction's lock was in the way. What this statement had locked is free again then.
    async fn fetch_unless_locked(&self, query: Query<'_, Postgres, PgArguments>) -> sqlx::Result<Option<Vec<PgRow>>> {
        let mut tx = self.begin_with(BEGIN_BRIEF).await?;
        match self.named(query).fetch_all(&mut *tx).await {
            Ok(rows) => {
                tx.commit().await?;
                Ok(Some(rows))
            }
            // Its locks must be gone before the rows are tried again.
            Err(error) if is_contention(&error) => tx.rollback().await.map(|()| None),
            Err(error) => Err(error),
        }
    }

    fn extension(
        &self,
        leases: &Leases,
        token: LeaseToken,
        ids: &[MessageId],
        lease: Duration,
    ) -> Query<'static, Postgres, PgArguments> {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        let ids: Vec<_> = ids.into_iter().filter_map(|id| id_text(id, &self.map)).collect();
        let query = leases.extend.query().bind(ids).bind(token.as_uuid().to_string());
        query.bind(millis(lease))
    }

    /// Locks rows that are held under their tokens, as far as they are free.
    async fn lock_held(
        &self,
        conn: &mut PgConnection,
        leases: &Leases,
        keys: impl Iterator<Item = (MessageId, LeaseToken)>,
    ) -> sqlx::Result<HashSet<MessageId>> {
        let (held, tokens): (Vec<_>, Vec<_>) = keys.filter_map(|(id, token)| self.key(id, token)).unzip();
        let query = leases.lock_held.query().bind(held).bind(tokens);
        let rows = query.fetch_all(conn).await?;
        Ok(ids(&rows, &self.map)?.into_iter().collect())
    }

    async fn find_held(
        &self,
        leases: &Leases,
        keys: impl Iterator<Item = (MessageId, LeaseToken, Option<i64>)>,
    ) -> sqlx::Result<HashSet<MessageId>> {
        let keys = keys.filter_map(|(id, token, version)| Some((self.key(id, token)?, version)));
        let (keys, versions): (Vec<_>, Vec<_>) = keys.unzip();
        let (held, tokens): (Vec<_>, Vec<_>) = keys.into_iter().unzip();
        let query = leases.find_held.query().bind(held).bind(tokens).bind(versions);
        Ok(ids(&self.fetch_all(query).await?, &self.map)?.into_iter().collect())
    }

    /// A row that cannot be in the table is nobody's.
    fn key(&self, id: MessageId, token: LeaseToken) -> Option<(String, String)> {
        Some((id_text(id, &self.map)?, token.as_uuid().to_string()))
    }

    /// Who has locked these rows, as far as the server says.
    async fn find_lock_holders(&self, rows: &HashSet<MessageId>) -> HashMap<MessageId, String> {
        let texts: Vec<_> = rows.iter().filter_map(|id| id_text(*id, &self.map)).collect();
        let Some(diagnosis) = self.statements.diagnosis.as_ref().filter(|_| !texts.is_empty()) else {
            return HashMap::new();
        };
        let query = diagnosis.find_lock_holders.query().bind(texts);
        let found = self.fetch_all(query).await.and_then(|rows| {
            let holder = |row| Ok((id(row, &self.map)?, row.try_get("holder")?));
            rows.iter().map(holder).collect::<sqlx::Result<_>>()
        });
        found.unwrap_or_else(|error| {
            tracing::debug!(%error, "who has locked rows could not be found");
            HashMap::new()
        })
    }
}

/// Whether another transaction's lock was in the way.
fn is_contention(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| ["55P03", "40P01", "40001"].contains(&&*code))
}

/// Changes in one order for all statements: renewals and verdicts of one relay touch the same rows at the same time.
#[derive(Default)]
struct Changes {
    ids: Vec<String>,
    tokens: Vec<String>,
    states: Vec<Option<&'static str>>,
    attempts: Vec<i32>,
    delays: Vec<Option<i64>>,
    errors: Vec<Option<String>>,
    delivered: Vec<bool>,
    dead_letters: Vec<bool>,
    versions: Vec<Option<i64>>,
}

impl Changes {
    fn new<'a>(settlements: impl IntoIterator<Item = &'a Settlement>, map: &TableMap) -> Self {
        let mut settlements: Vec<_> = settlements.into_iter().collect();
        settlements.sort_unstable_by_key(|settlement| settlement.id);
        let mut all = Self::default();
        for settlement in settlements {
            // A row that cannot be in the table is lost.
            let Some(id) = id_text(settlement.id, map) else {
                continue;
            };
            let change = RowChange::settling(settlement, map);
            all.ids.push(id);
            all.tokens.push(settlement.token.as_uuid().to_string());
            all.states.push(change.status.map(StatusLabel::name));
            all.attempts.push(change.attempts);
            all.delays.push(change.delay.map(millis));
            all.errors.push(change.error);
            all.delivered.push(change.delivered);
            all.dead_letters.push(change.dead_letter);
            all.versions.push(settlement.version);
        }
        all
    }
}
