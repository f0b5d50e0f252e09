//! Tables without columns for leases: the rows of a claim stay locked, by a transaction that is kept while they are
//! published, and what became of them is written and committed there. Each claim in flight takes a connection.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use posthaste_core::MessageId;
use posthaste_core::lifecycle::{LeaseToken, Settlement};
use posthaste_core::store::{Claim, ClaimRequest, KeyOrdering, RefusedVerdict, Settled, StoreErrorKind};
use sqlx::{Executor, MySqlConnection};
use tokio::time::sleep_until;
use uuid::Uuid;

use crate::error::{by_number, number, store_error};
use crate::retry::{DEADLOCK, lost_against_another};
use crate::session::Session;
use crate::{BEGIN, MySqlStore};

/// The claims in flight, by token.
#[derive(Debug, Default)]
pub(crate) struct HeldClaims(Mutex<HashMap<Uuid, Arc<Slot>>>);

/// Waited for when the claim is settled, extended or ended; empty once that is done.
type Slot = tokio::sync::Mutex<Option<HeldClaim>>;

struct HeldClaim {
    session: Session,
    ids: HashSet<MessageId>,
    until: Instant,
}

impl std::fmt::Debug for HeldClaim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldClaim")
            .field("ids", &self.ids)
            .finish_non_exhaustive()
    }
}

impl HeldClaims {
    fn map(&self) -> std::sync::MutexGuard<'_, HashMap<Uuid, Arc<Slot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, token: LeaseToken) -> Option<Arc<Slot>> {
        self.map().get(&token.as_uuid()).cloned()
    }

    fn forget(&self, token: LeaseToken) -> Option<Arc<Slot>> {
        self.map().remove(&token.as_uuid())
    }

    /// Keeps a claim until it is settled or its time is over without renewal: then the connection is cut, and the server
    /// frees the rows.
    fn keep(self: &Arc<Self>, token: LeaseToken, claim: HeldClaim) {
        let mut until = claim.until;
        let slot = Arc::new(Slot::new(Some(claim)));
        let watched = Arc::downgrade(&slot);
        self.map().insert(token.as_uuid(), slot);
        let claims = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                sleep_until(until.into()).await;
                // Dropping the store frees the rows.
                let Some(slot) = watched.upgrade() else { return };
                let mut held = slot.lock().await;
                match &*held {
                    Some(claim) if claim.until > Instant::now() => until = claim.until,
                    _ => {
                        drop(held.take());
                        break;
                    }
                }
            }
            if let Some(claims) = claims.upgrade() {
                claims.forget(token);
            }
        });
    }
}

/// Whether nothing is left to go on with: the connection is broken, the server takes no writes at all, or it has undone the
/// whole transaction, its marks included, as after a deadlock.
fn ended_the_transaction(error: &sqlx::Error) -> bool {
    number(error).is_none_or(|number| {
        let kind = by_number(number).0;
        number == DEADLOCK || matches!(kind, StoreErrorKind::Unavailable | StoreErrorKind::ReadOnly)
    })
}

impl MySqlStore {
    pub(crate) async fn claim_by_locks(&self, request: &ClaimRequest) -> sqlx::Result<Claim> {
        let asked = Instant::now();
        let mut session = Session::open(self.pool.acquire().await?, request.lease).await?;
        if request.ordering != KeyOrdering::None {
            // A relay that has rows keeps their order alone, for as long as it takes.
            let claims = self.claims_of(&request.scope.namespace);
            if !session.lock(&self.statements, claims, Duration::ZERO).await? {
                session.close(&self.statements).await?;
                return Ok(Claim::default());
            }
        }
        let conn = session.connection();
        conn.execute(BEGIN).await?;
        let taken = self
            .take(conn, request, request.limit, false, &request.left_out)
            .await?;
        if taken.is_empty() {
            conn.execute("commit").await?;
            session.close(&self.statements).await?;
            return Ok(Claim::default());
        }
        let mut messages = self.read_claimed(conn, &taken).await?;
        for claimed in &mut messages {
            // Written down with the verdict.
            claimed.attempts = claimed.attempts.saturating_add(1);
        }
        let claim = HeldClaim {
            session,
            ids: taken.into_iter().collect(),
            until: asked + request.lease,
        };
        self.held.keep(request.token, claim);
        Ok(Claim {
            messages,
            ..Claim::default()
        })
    }

    /// Writes what became of the rows, and commits it. A verdict that the database refuses is left out, alone: its
    /// neighbours were published too, and would be again.
    pub(crate) async fn settle_locked(&self, settlements: &[Settlement]) -> sqlx::Result<Settled> {
        let mut by_token: HashMap<Uuid, Vec<&Settlement>> = HashMap::new();
        for settlement in settlements {
            by_token.entry(settlement.token.as_uuid()).or_default().push(settlement);
        }
        let mut settled = Settled::default();
        for (token, settlements) in by_token {
            let claim = match self.held.forget(token.into()) {
                Some(slot) => slot.lock().await.take(),
                None => None,
            };
            let Some(mut claim) = claim else {
                settled.lost.extend(settlements.iter().map(|settlement| settlement.id));
                continue;
            };
            let (ours, others): (Vec<_>, Vec<_>) = settlements
                .into_iter()
                .partition(|settlement| claim.ids.contains(&settlement.id));
            settled.lost.extend(others.iter().map(|settlement| settlement.id));
            let conn = claim.session.connection();
            self.write_what_is_taken(conn, &ours, &mut settled).await?;
            conn.execute("commit").await?;
            claim.session.close(&self.statements).await?;
        }
        Ok(settled)
    }

    /// Writes verdicts together, and those that are refused by halves, until each culprit is alone.
    async fn write_what_is_taken(
        &self,
        conn: &mut MySqlConnection,
        settlements: &[&Settlement],
        settled: &mut Settled,
    ) -> sqlx::Result<()> {
        let mut parts = vec![settlements];
        while let Some(part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            conn.execute("savepoint posthaste_verdicts").await?;
            let Err(error) = self.write_verdicts(conn, part.iter().copied()).await else {
                continue;
            };
            if ended_the_transaction(&error) {
                return Err(error);
            }
            conn.execute("rollback to savepoint posthaste_verdicts").await?;
            match part {
                // It waited too long for another transaction's lock, in another table: the next time it may be free.
                [one] if lost_against_another(&error).is_some() => settled.lost.push(one.id),
                [one] => settled.refused.push(RefusedVerdict {
                    id: one.id,
                    error: store_error(error),
                }),
                several => {
                    let (earlier, later) = several.split_at(several.len() / 2);
                    parts.extend([later, earlier]);
                }
            }
        }
        Ok(())
    }

    /// Asks the server whether the claim still stands, and goes on holding it.
    pub(crate) async fn extend_locked(
        &self,
        token: LeaseToken,
        ids: &[MessageId],
        lease: Duration,
    ) -> sqlx::Result<Vec<MessageId>> {
        let Some(slot) = self.held.slot(token) else {
            return Ok(Vec::new());
        };
        let asked = Instant::now();
        let mut held = slot.lock().await;
        let Some(claim) = held.as_mut() else {
            return Ok(Vec::new());
        };
        if let Err(error) = claim.session.connection().execute("do 0").await {
            drop(held.take());
            return Err(error);
        }
        claim.until = asked + lease;
        Ok(ids.iter().copied().filter(|id| claim.ids.contains(id)).collect())
    }
}
