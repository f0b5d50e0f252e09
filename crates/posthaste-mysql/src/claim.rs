//! Handing out rows under a lease.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use posthaste_core::MessageId;
use posthaste_core::reclaim::reclaim_limit;
use posthaste_core::store::{Claim, ClaimRequest, ClaimedMessage, DeadHead, KeyOrdering, Scope};
use posthaste_sql::RowChange;
use sqlx::{Connection, MySqlConnection, Row};

use crate::error::{ClaimsLocked, number, of_table};
use crate::inbox_store::DUPLICATE;
use crate::rows::{ByRole, id, ids, millis};
use crate::scan_window::ScanWindow;
use crate::session::Session;
use crate::statement::Value;
use crate::statements::Needed;
use crate::taking::{Taking, is_refusal};
use crate::{BEGIN, MySqlStore};

/// Most ids of one statement. From a thousand on MariaDB turns a list into a table of its own.
pub(crate) const MAX_IDS: usize = 512;

/// How often others may take all that was found.
const ROUNDS: usize = 3;

/// How many more statements than needed lock what was found, because others have some of it.
const LOCKS: usize = 8;

/// How long a claim waits for its turn.
const CLAIM_LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// A row that may be taken, and its lane if it must keep an order.
struct Found {
    id: MessageId,
    lane: Option<(Option<String>, String)>,
}

impl MySqlStore {
    pub(crate) async fn claim_once(&self, request: &ClaimRequest) -> sqlx::Result<Claim> {
        match self.claim_taking(request, Taking::on_trust(request)).await {
            // Some rows may have been leased before one was refused, so all is done again.
            Err(error) if is_refusal(&error) => self.claim_taking(request, Taking::with_care(request)).await,
            claim => claim,
        }
    }

    async fn claim_taking(&self, request: &ClaimRequest, taking: Taking<'_>) -> sqlx::Result<Claim> {
        if request.ordering == KeyOrdering::None {
            let mut tx = self.begin().await?;
            let claim = self.claim_on(&mut tx, request, taking).await;
            // Its locks must be gone before the rows are looked for again.
            match &claim {
                Ok(_) => tx.commit().await?,
                Err(error) if is_refusal(error) => tx.rollback().await?,
                Err(_) => {}
            }
            return claim;
        }
        let mut session = Session::open(self.pool.acquire().await?, CLAIM_LOCK_TIMEOUT * 2).await?;
        let claims = self.claims_of(&request.scope.namespace);
        let claim = if session.lock(&self.statements, claims, CLAIM_LOCK_TIMEOUT).await? {
            self.claim_in(&mut session, request, taking).await
        } else {
            Err(sqlx::Error::AnyDriverError(Box::new(ClaimsLocked)))
        };
        if let Err(error) = session.close(&self.statements).await {
            // What was claimed is claimed. The connection is cut, and with it goes the lock.
            tracing::debug!(%error, "the lock for ordered claims could not be released");
        }
        claim
    }

    /// If this is abandoned the session's connection is cut, and with it the transaction.
    async fn claim_in(&self, session: &mut Session, request: &ClaimRequest, taking: Taking<'_>) -> sqlx::Result<Claim> {
        let mut tx = session.connection().begin_with(BEGIN).await?;
        let claim = self.claim_on(&mut tx, request, taking).await;
        match &claim {
            Ok(_) => tx.commit().await?,
            Err(error) if is_refusal(error) => tx.rollback().await?,
            Err(_) => {}
        }
        claim
    }

    /// Claims in a transaction that the caller commits.
    async fn claim_on(
        &self,
        tx: &mut MySqlConnection,
        request: &ClaimRequest,
        mut taking: Taking<'_>,
    ) -> sqlx::Result<Claim> {
        let leases = self.statements.leases.needed()?;
        let scope = scope(&request.scope, request.max_attempts);
        let expired = leases.probe.fetch_one(tx, &scope).await.map_err(of_table)?;
        let died = if expired.try_get::<i64, _>("exhausted")? > 0 {
            self.sweep_apart(tx, request).await?
        } else {
            Vec::new()
        };
        let mut messages = Vec::new();
        if let Some(most_tried) = expired.try_get::<Option<i64>, _>("most_tried")? {
            let most_tried = u32::try_from(most_tried).unwrap_or(0);
            let limit = reclaim_limit(most_tried, request.max_attempts, request.limit);
            messages = taking.messages(self, tx, limit, true).await?;
        }
        // What crashed workers left may be held back by its keys; that must not hold up all others.
        let reclaimed = !messages.is_empty();
        if !reclaimed {
            messages = taking.messages(self, tx, request.limit, false).await?;
        }
        Ok(Claim {
            messages,
            reclaimed,
            died,
            refused: taking.refused,
        })
    }

    /// Locks rows to take: those that crashed workers left, or else pending ones. In order.
    pub(crate) async fn take(
        &self,
        conn: &mut MySqlConnection,
        request: &ClaimRequest,
        limit: u32,
        expired: bool,
        left_out: &[MessageId],
    ) -> sqlx::Result<Vec<MessageId>> {
        let ordered = request.ordering != KeyOrdering::None;
        // Others may be faster with what they find too, unless they have to wait for their turn.
        let mut wanted = if ordered { limit } else { limit.saturating_mul(4) };
        let mut window = ScanWindow::first(request, wanted);
        let mut rounds = 0;
        loop {
            let found = self.find(conn, request, wanted, expired, left_out, &window).await?;
            if found.is_empty() {
                let all_read =
                    window.is_deep_enough() || self.open_rows(conn, &request.scope, window.read).await? < window.read;
                if expired {
                    // Pending rows before what crashed workers left may be more than were looked at. No lane is passed over
                    // here: its pending rows are what keeps back a later row of it.
                    if all_read {
                        return Ok(Vec::new());
                    }
                    window.go_further();
                    continue;
                }
                let all_seen = !ordered || self.pass_over(conn, request, &mut window).await?;
                if all_read && all_seen {
                    return Ok(Vec::new());
                }
                window.go_further();
                continue;
            }
            let chosen = self.lock(conn, request, &found, limit, expired).await?;
            rounds += 1;
            if !chosen.is_empty() || rounds == ROUNDS {
                return Ok(chosen);
            }
            wanted = wanted.saturating_mul(4);
            window.see_at_least(wanted);
        }
    }

    async fn find(
        &self,
        conn: &mut MySqlConnection,
        request: &ClaimRequest,
        limit: u32,
        expired: bool,
        left_out: &[MessageId],
        window: &ScanWindow,
    ) -> sqlx::Result<Vec<Found>> {
        let (ordered, dead_blocks, except) = match &request.ordering {
            KeyOrdering::None => (false, false, &[][..]),
            KeyOrdering::PerKey { dead_head, except } => (true, *dead_head == DeadHead::Block, except.as_slice()),
        };
        let mut values = scope(&request.scope, request.max_attempts);
        values.extend([
            limit.into(),
            Value::flag(expired),
            Value::flag(ordered),
            window.see.into(),
            Value::flag(dead_blocks || !except.is_empty()),
            Value::flag(dead_blocks),
            topics(except),
            window.read.into(),
            Value::flag(window.passed_over.is_empty()),
            window.lanes(),
            Value::ids(left_out, &self.map),
        ]);
        let rows = self.statements.common.find_claimable.fetch_all(conn, &values).await;
        let rows = rows.map_err(of_table)?;
        let found = rows.iter().map(|row| {
            let key: Option<String> = row.try_get("ordering_key")?;
            let topic: Option<String> = row.try_get("topic")?;
            Ok(Found {
                id: id(row, &self.map)?,
                lane: key.filter(|_| ordered).map(|key| (topic, key)),
            })
        });
        found.collect()
    }

    /// Passes over the lanes of the rows that were looked at, none of which can be taken. Says whether all rows that
    /// were read were looked at.
    async fn pass_over(
        &self,
        conn: &mut MySqlConnection,
        request: &ClaimRequest,
        window: &mut ScanWindow,
    ) -> sqlx::Result<bool> {
        let mut values = scope(&request.scope, 0);
        values.extend([
            window.room().max(1).into(),
            window.see.into(),
            window.read.into(),
            Value::flag(window.passed_over.is_empty()),
            window.lanes(),
        ]);
        let mut seen = 0;
        for row in self.statements.common.find_lanes.fetch_all(conn, &values).await? {
            seen = row.try_get("seen")?;
            if let Some(key) = row.try_get("ordering_key")? {
                window.pass_over(row.try_get("topic")?, key);
            }
        }
        // A scan that may see as many rows as are read has seen them all.
        Ok(seen < window.see || window.see >= window.read)
    }

    async fn open_rows(&self, conn: &mut MySqlConnection, wanted: &Scope, most: i64) -> sqlx::Result<i64> {
        let mut values = scope(wanted, 0);
        values.push(most.into());
        self.statements
            .common
            .count_open
            .fetch_one(conn, &values)
            .await?
            .try_get("open")
    }

    /// Locks what was found and says which of it to take: in order, within the limits, and nothing that follows a row of
    /// its lane that another transaction has.
    async fn lock(
        &self,
        conn: &mut MySqlConnection,
        request: &ClaimRequest,
        found: &[Found],
        limit: u32,
        expired: bool,
    ) -> sqlx::Result<Vec<MessageId>> {
        let limit = limit as usize;
        let mut ours = HashMap::new();
        let mut rest = found;
        for _ in 0..LOCKS + limit / MAX_IDS {
            // No more than are wanted: where locks are held while publishing, a row too many would be kept from all others.
            let (chunk, later) = rest.split_at(rest.len().min(limit.saturating_sub(ours.len()).min(MAX_IDS)));
            if chunk.is_empty() {
                break;
            }
            rest = later;
            let mut ids: Vec<_> = chunk.iter().map(|row| row.id).collect();
            ids.sort_unstable();
            let values = [
                Value::ids(&ids, &self.map),
                request.max_attempts.into(),
                Value::flag(expired),
            ];
            let rows = self.statements.common.lock_claimable.fetch_all(conn, &values).await;
            for row in rows.map_err(of_table)? {
                let bytes: i64 = row.try_get("bytes")?;
                ours.insert(id(&row, &self.map)?, u64::try_from(bytes).unwrap_or(0));
            }
        }
        let mut chosen = Vec::new();
        let mut bytes = 0;
        let mut broken = HashSet::new();
        for row in found {
            let Some(size) = ours.get(&row.id) else {
                broken.extend(row.lane.as_ref());
                continue;
            };
            if row.lane.as_ref().is_some_and(|lane| broken.contains(lane)) {
                continue;
            }
            bytes += size;
            // A row that does not fit ends the claim: to skip it would starve large messages.
            if chosen.len() == limit || (bytes > request.max_bytes && !chosen.is_empty()) {
                break;
            }
            chosen.push(row.id);
        }
        Ok(chosen)
    }

    pub(crate) async fn lease(
        &self,
        conn: &mut MySqlConnection,
        request: &ClaimRequest,
        chosen: &[MessageId],
    ) -> sqlx::Result<()> {
        let leases = self.statements.leases.needed()?;
        let fence = self.map.fence(request.worker, request.token);
        for chunk in chosen.chunks(MAX_IDS) {
            let values = [
                Value::ids(chunk, &self.map),
                request.worker.as_uuid().to_string().into(),
                fence.as_str().into(),
                millis(request.lease).into(),
            ];
            leases.lease.execute(conn, &values).await?;
        }
        Ok(())
    }

    pub(crate) async fn read_claimed(
        &self,
        conn: &mut MySqlConnection,
        chosen: &[MessageId],
    ) -> sqlx::Result<Vec<ClaimedMessage>> {
        let mut messages = Vec::new();
        for chunk in chosen.chunks(MAX_IDS) {
            let values = [Value::ids(chunk, &self.map)];
            for row in self.statements.common.read_claimed.fetch_all(conn, &values).await? {
                messages.push(self.map.claimed(&ByRole(&row))?);
            }
        }
        Ok(messages)
    }

    /// A death that the table refuses must not keep all others from being claimed. The janitor sweeps too, and says why.
    async fn sweep_apart(&self, conn: &mut MySqlConnection, request: &ClaimRequest) -> sqlx::Result<Vec<MessageId>> {
        let mut apart = conn.begin().await?;
        match self.sweep_on(&mut apart, &request.scope, request.max_attempts).await {
            Ok(died) => {
                apart.commit().await?;
                Ok(died)
            }
            Err(error @ sqlx::Error::Database(_)) => {
                apart.rollback().await?;
                tracing::debug!(%error, "rows whose attempts are used up could not be swept");
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn sweep_on(
        &self,
        conn: &mut MySqlConnection,
        wanted: &Scope,
        max_attempts: u32,
    ) -> sqlx::Result<Vec<MessageId>> {
        let Some(attempts) = &self.statements.attempts else {
            return Ok(Vec::new());
        };
        let mut values = scope(wanted, max_attempts);
        values.push(Value::Number(i64::try_from(MAX_IDS).ok()));
        let mut died = Vec::new();
        loop {
            let mut found = ids(&attempts.find_exhausted.fetch_all(conn, &values).await?, &self.map)?;
            found.sort_unstable();
            if found.is_empty() {
                return Ok(died);
            }
            let wanted = [Value::ids(&found, &self.map), max_attempts.into()];
            let locked = ids(&attempts.lock_exhausted.fetch_all(conn, &wanted).await?, &self.map)?;
            if !locked.is_empty() {
                self.mark_dead(conn, &locked).await?;
            }
            let some_left = locked.len() == found.len() && found.len() == MAX_IDS;
            died.extend(locked);
            if !some_left {
                return Ok(died);
            }
        }
    }

    /// Gives up locked rows that have used all their attempts.
    pub(crate) async fn mark_dead(&self, conn: &mut MySqlConnection, exhausted: &[MessageId]) -> sqlx::Result<()> {
        let attempts = self.statements.attempts.needed()?;
        let change = RowChange::exhausted(&self.map);
        let values = [
            Value::ids(exhausted, &self.map),
            Value::optional(change.error.as_deref()),
            i64::from(change.attempts).into(),
        ];
        attempts.mark_dead.execute(conn, &values).await?;
        self.insert_dead_letters(conn, exhausted).await
    }

    /// Copies rows that died to the dead-letter table, where there is one.
    pub(crate) async fn insert_dead_letters(&self, conn: &mut MySqlConnection, dead: &[MessageId]) -> sqlx::Result<()> {
        if self.statements.dead_letter.is_none() {
            return Ok(());
        }
        for chunk in dead.chunks(MAX_IDS) {
            match self.insert_dead_letter_chunk(conn, chunk).await {
                Err(error) if number(&error) == Some(DUPLICATE) => {}
                inserted => {
                    inserted?;
                    continue;
                }
            }
            // One that was replayed and died again has its letter already.
            for id in chunk {
                match self.insert_dead_letter_chunk(conn, std::slice::from_ref(id)).await {
                    Err(error) if number(&error) == Some(DUPLICATE) => {}
                    inserted => inserted?,
                }
            }
        }
        Ok(())
    }

    async fn insert_dead_letter_chunk(&self, conn: &mut MySqlConnection, dead: &[MessageId]) -> sqlx::Result<()> {
        let dead_letter = self.statements.dead_letter.needed()?;
        let values = [Value::ids(dead, &self.map)];
        dead_letter.insert_dead_letter.execute(conn, &values).await.map(drop)
    }
}

/// The first five parameters of all statements that look for rows of a relay.
pub(crate) fn scope(scope: &Scope, max_attempts: u32) -> Vec<Value> {
    vec![
        scope.namespace.as_str().into(),
        max_attempts.into(),
        Value::flag(scope.topics.is_empty()),
        topics(&scope.topics),
        Value::optional(scope.tenant.as_deref()),
    ]
}

/// No topic is the empty text, so a list without any can be written as one.
fn topics(topics: &[String]) -> Value {
    if topics.is_empty() {
        Value::texts(&[""])
    } else {
        Value::texts(topics)
    }
}
