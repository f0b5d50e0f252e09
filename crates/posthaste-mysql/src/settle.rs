//! Verdicts on rows that are held under a lease.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use posthaste_core::MessageId;
use posthaste_core::lifecycle::{LeaseToken, Settlement, Verdict};
use sqlx::{MySqlConnection, Row};

use crate::MySqlStore;
use crate::claim::MOST_IDS;
use crate::rows::{id, millis};
use crate::statement::{Statement, Value};

/// Equal verdicts are written together.
pub(crate) type Verdicts = BTreeMap<(&'static str, i64, Option<String>), Vec<MessageId>>;

impl MySqlStore {
    /// Returns the ids whose lease was lost.
    pub(crate) async fn settle_once(&self, settlements: &[Settlement]) -> sqlx::Result<Vec<MessageId>> {
        let mut tx = self.begin().await?;
        let mut by_token: BTreeMap<_, Vec<MessageId>> = BTreeMap::new();
        for settlement in settlements {
            by_token
                .entry(settlement.token.as_uuid())
                .or_default()
                .push(settlement.id);
        }
        let mut held = HashMap::new();
        for (token, ids) in by_token {
            for (id, version) in self.lock_held(&mut tx, token.into(), ids).await? {
                held.insert((id, token), version);
            }
        }
        let is_held = |settlement: &&Settlement| {
            let version = held.get(&(settlement.id, settlement.token.as_uuid()));
            // A row that somebody changed since it was claimed is not ours to settle.
            version.is_some_and(|version| settlement.version.is_none() || *version == settlement.version)
        };
        let (settled, lost): (Vec<_>, Vec<_>) = settlements.iter().partition(is_held);
        self.write_verdicts(&mut tx, &self.statements.settle, self.verdicts(settled))
            .await?;
        tx.commit().await?;
        Ok(lost.into_iter().map(|settlement| settlement.id).collect())
    }

    pub(crate) async fn extend_once(
        &self,
        token: LeaseToken,
        ids: &[MessageId],
        lease: Duration,
    ) -> sqlx::Result<Vec<MessageId>> {
        let mut tx = self.begin().await?;
        let held = self.lock_held(&mut tx, token, ids.to_vec()).await?;
        let held: Vec<_> = held.into_iter().map(|(id, _)| id).collect();
        for chunk in held.chunks(MOST_IDS) {
            let values = [Value::ids(chunk, &self.map), millis(lease).into()];
            self.statements.extend.execute(&mut tx, &values).await?;
        }
        tx.commit().await?;
        Ok(held)
    }

    /// Locks the rows that are still held under the token, and says which version each has.
    async fn lock_held(
        &self,
        conn: &mut MySqlConnection,
        token: LeaseToken,
        mut ids: Vec<MessageId>,
    ) -> sqlx::Result<Vec<(MessageId, Option<i64>)>> {
        ids.sort_unstable();
        let mut held = Vec::new();
        for chunk in ids.chunks(MOST_IDS) {
            let values = [Value::ids(chunk, &self.map), token.as_uuid().to_string().into()];
            for row in self.statements.lock_held.fetch_all(conn, &values).await? {
                held.push((id(&row, &self.map)?, row.try_get("version")?));
            }
        }
        Ok(held)
    }

    pub(crate) fn verdicts<'s>(&self, settlements: impl IntoIterator<Item = &'s Settlement>) -> Verdicts {
        let mut verdicts = Verdicts::new();
        for settlement in settlements {
            let text = |error: &str| Some(self.map.error_text(error));
            let verdict = match &settlement.verdict {
                Verdict::Delivered => ("delivered", 0, None),
                Verdict::Released => ("released", 0, None),
                Verdict::Retry { delay, error } => ("retry", millis(*delay), text(error)),
                Verdict::Postponed { delay, error } => ("postponed", millis(*delay), text(error)),
                Verdict::Dead { error } => ("dead", 0, text(error)),
            };
            verdicts.entry(verdict).or_default().push(settlement.id);
        }
        verdicts
    }

    /// Writes verdicts to rows that this transaction has locked.
    pub(crate) async fn write_verdicts(
        &self,
        conn: &mut MySqlConnection,
        settle: &Statement,
        verdicts: Verdicts,
    ) -> sqlx::Result<()> {
        for ((word, delay, error), ids) in verdicts {
            for chunk in ids.chunks(MOST_IDS) {
                let values = [
                    Value::ids(chunk, &self.map),
                    word.into(),
                    delay.into(),
                    Value::optional(error.as_deref()),
                ];
                settle.execute(conn, &values).await?;
            }
            if word == "dead" {
                self.bury(conn, &ids).await?;
            }
        }
        Ok(())
    }
}
