//! Verdicts on rows that are held under a lease, and their leases.
//!
//! A row that another transaction has locked is waited for a moment only, since the same relay may be renewing the leases.
//! Those that are not locked are written meanwhile, and the others are looked at to tell those that are lost from those
//! that are busy. If another transaction has locked the whole table, all of them are busy.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use posthaste_core::MessageId;
use posthaste_core::lifecycle::{LeaseToken, Settlement};
use posthaste_core::store::{BusyRow, Extended, Settled};
use posthaste_sql::RowChange;
use posthaste_sql::row_change::StatusLabel;
use posthaste_sql::table::{Role, SqlRow};
use sqlx::MySqlConnection;
use tokio::time::sleep;
use uuid::Uuid;

use crate::MySqlStore;
use crate::claim::MAX_IDS;
use crate::error::{TABLE_LOCK_HOLDER, is_table_locked, of_table};
use crate::retry::retrying;
use crate::rows::{ByRole, id, millis};
use crate::statement::{Statement, Value};
use crate::statements::Needed;

/// Equal changes are written together.
type Changes = BTreeMap<RowChange, Vec<MessageId>>;

/// The waits for rows that are locked; the server's own would be a second at least.
const LOCK_WAITS: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(40),
    Duration::from_millis(100),
    Duration::from_millis(100),
];

/// Rows under a token, each with its version.
type Held = HashMap<(MessageId, Uuid), Option<i64>>;

impl MySqlStore {
    pub(crate) async fn settle_under_lease(&self, settlements: &[Settlement]) -> sqlx::Result<Settled> {
        let mut waits = LOCK_WAITS.iter();
        let mut settled = Settled::default();
        let mut left: Vec<_> = settlements.iter().collect();
        loop {
            let (busy, lost) = match retrying!(self.settle_once(&left)) {
                Err(error) if is_table_locked(&error) => {
                    let left: Vec<_> = left.into_iter().cloned().collect();
                    settled.busy = Settled::busy(&left, TABLE_LOCK_HOLDER).busy;
                    return Ok(settled);
                }
                once => once?,
            };
            settled.lost.extend(lost.iter().map(|settlement| settlement.id));
            left = busy;
            match waits.next() {
                Some(wait) if !left.is_empty() => sleep(*wait).await,
                _ => break,
            }
        }
        let busy = |settlement: &Settlement| BusyRow {
            id: settlement.id,
            holder: Some(HOLDER.to_owned()),
        };
        settled.busy.extend(left.into_iter().map(busy));
        Ok(settled)
    }

    /// Returns what could not be written: because the row is locked, or because the lease was lost.
    async fn settle_once<'s>(
        &self,
        settlements: &[&'s Settlement],
    ) -> sqlx::Result<(Vec<&'s Settlement>, Vec<&'s Settlement>)> {
        let leases = self.statements.leases.needed()?;
        let mut tx = self.begin().await?;
        let mut by_token: BTreeMap<_, Vec<MessageId>> = BTreeMap::new();
        for settlement in settlements {
            by_token
                .entry(settlement.token.as_uuid())
                .or_default()
                .push(settlement.id);
        }
        let (mut free, mut busy) = (Held::new(), Held::new());
        for (token, ids) in by_token {
            let locked = self.held(&mut tx, &leases.lock_held, token, ids.clone()).await?;
            let others: Vec<_> = ids
                .into_iter()
                .filter(|id| !locked.contains_key(&(*id, token)))
                .collect();
            if !others.is_empty() {
                busy.extend(self.held(&mut tx, &leases.find_held, token, others).await?);
            }
            free.extend(locked);
        }
        // A row that was changed since it was claimed is not ours to settle.
        let is_in = |held: &Held, settlement: &Settlement| {
            let version = held.get(&(settlement.id, settlement.token.as_uuid()));
            version.is_some_and(|version| settlement.version.is_none() || *version == settlement.version)
        };
        let (ours, others): (Vec<_>, Vec<_>) = settlements.iter().copied().partition(|one| is_in(&free, one));
        self.write_verdicts(&mut tx, ours).await?;
        tx.commit().await?;
        Ok(others.into_iter().partition(|one| is_in(&busy, one)))
    }

    pub(crate) async fn extend_under_lease(
        &self,
        token: LeaseToken,
        ids: &[MessageId],
        lease: Duration,
    ) -> sqlx::Result<Extended> {
        let mut waits = LOCK_WAITS.iter();
        let mut extended = Extended {
            held: Vec::new(),
            busy: ids.to_vec(),
        };
        loop {
            let once = match retrying!(self.extend_once(token, &extended.busy, lease)) {
                Err(error) if is_table_locked(&error) => return Ok(extended),
                once => once?,
            };
            extended.held.extend(once.held);
            extended.busy = once.busy;
            match waits.next() {
                Some(wait) if !extended.busy.is_empty() => sleep(*wait).await,
                _ => return Ok(extended),
            }
        }
    }

    async fn extend_once(&self, token: LeaseToken, ids: &[MessageId], lease: Duration) -> sqlx::Result<Extended> {
        let leases = self.statements.leases.needed()?;
        let mut tx = self.begin().await?;
        let ids_of = |held: Held| held.into_keys().map(|(id, _)| id);
        let lock = &leases.lock_held;
        let held: HashSet<_> = ids_of(self.held(&mut tx, lock, token.as_uuid(), ids.to_vec()).await?).collect();
        let others: Vec<_> = ids.iter().copied().filter(|id| !held.contains(id)).collect();
        let mut busy = Vec::new();
        if !others.is_empty() {
            let find = &leases.find_held;
            busy.extend(ids_of(self.held(&mut tx, find, token.as_uuid(), others).await?));
        }
        let held: Vec<_> = ids.iter().copied().filter(|id| held.contains(id)).collect();
        for chunk in held.chunks(MAX_IDS) {
            let values = [Value::ids(chunk, &self.map), millis(lease).into()];
            leases.extend.execute(&mut tx, &values).await?;
        }
        tx.commit().await?;
        Ok(Extended { held, busy })
    }

    /// The rows that are held under the token, as the statement finds or locks them.
    async fn held(
        &self,
        conn: &mut MySqlConnection,
        statement: &Statement,
        token: Uuid,
        mut ids: Vec<MessageId>,
    ) -> sqlx::Result<Held> {
        ids.sort_unstable();
        let mut held = Held::new();
        for chunk in ids.chunks(MAX_IDS) {
            let values = [Value::ids(chunk, &self.map), token.to_string().into()];
            for row in statement.fetch_all(conn, &values).await.map_err(of_table)? {
                held.insert((id(&row, &self.map)?, token), ByRole(&row).number(Role::Version)?);
            }
        }
        Ok(held)
    }

    /// Writes verdicts to rows that this transaction has locked.
    pub(crate) async fn write_verdicts<'s>(
        &self,
        conn: &mut MySqlConnection,
        settlements: impl IntoIterator<Item = &'s Settlement>,
    ) -> sqlx::Result<()> {
        let mut changes = Changes::new();
        for settlement in settlements {
            let change = RowChange::settling(settlement, &self.map);
            changes.entry(change).or_default().push(settlement.id);
        }
        for (change, ids) in changes {
            for chunk in ids.chunks(MAX_IDS) {
                let values = [
                    Value::ids(chunk, &self.map),
                    Value::optional(change.status.map(StatusLabel::name)),
                    i64::from(change.attempts).into(),
                    Value::Number(change.delay.map(millis)),
                    Value::optional(change.error.as_deref()),
                    Value::flag(change.delivered),
                ];
                self.statements.common.settle.execute(conn, &values).await?;
            }
            if change.dead_letter {
                self.insert_dead_letters(conn, &ids).await?;
            }
        }
        Ok(())
    }
}

/// The server tells only users who may see all its transactions.
const HOLDER: &str = "information_schema.innodb_trx shows the transactions that are open";
