//! The operator's verbs, and the ones that only a test may have.

use async_trait::async_trait;
use posthaste_core::lifecycle::State;
use posthaste_core::store::{Filter, PurgeRequest, Purgeable, Record, StoreErrorKind};
use posthaste_core::{AdminStore, MessageId, StoreError, Text};

use super::MemoryStore;
use super::rows::{Dedupe, Row, Rows};

#[async_trait]
impl AdminStore for MemoryStore {
    async fn list(&self, filter: &Filter, after: Option<MessageId>, limit: u32) -> Result<Vec<Record>, StoreError> {
        let rows = self.shared.rows();
        let after = match after {
            None => None,
            Some(id) => Some(rows.row(id).ok_or_else(|| StoreError::gone(id))?.0),
        };
        Ok(rows
            .outbox
            .iter()
            .filter(|(sequence, _)| after.is_none_or(|after| **sequence > after))
            .filter(|(_, row)| matches(filter, row))
            .map(|(sequence, row)| row.record(*sequence))
            .take(limit as usize)
            .collect())
    }

    async fn show(&self, id: MessageId) -> Result<Option<Record>, StoreError> {
        Ok(self.shared.rows().row(id).map(|(sequence, row)| row.record(sequence)))
    }

    async fn replay(&self, filter: &Filter, limit: u32) -> Result<Vec<MessageId>, StoreError> {
        // A database's clock has moved on since the row was written; a replayed row is due after that moment.
        self.clock.advance(std::time::Duration::from_micros(1));
        let now = self.clock.now();
        let mut rows = self.shared.rows();
        let mut replayed = Vec::new();
        for sequence in free(&rows, dead(&rows, filter, limit))? {
            let Some(row) = rows.outbox.get_mut(&sequence) else {
                continue;
            };
            if row.model.replay(now).is_ok() {
                replayed.push(row.message.id);
            }
        }
        drop(rows);
        self.shared.notifier.send_modify(|notifications| *notifications += 1);
        Ok(replayed)
    }

    async fn discard(&self, filter: &Filter, limit: u32) -> Result<Vec<MessageId>, StoreError> {
        let mut rows = self.shared.rows();
        let doomed = free(&rows, dead(&rows, filter, limit))?;
        let ids = doomed.iter().filter_map(|sequence| rows.outbox.get(sequence));
        let ids = ids.map(|row| row.message.id).collect();
        for sequence in doomed {
            rows.remove(sequence);
        }
        Ok(ids)
    }

    async fn purgeable(&self, request: &PurgeRequest) -> Result<Purgeable, StoreError> {
        let now = self.clock.now();
        let rows = self.shared.rows();
        let of_namespace = |row: &Row| request.namespace.as_ref().is_none_or(|asked| *asked == row.namespace);
        let is_old = |row: &Row| of_namespace(row) && row.is_purgeable(request, now);
        let count = |state| {
            let rows = rows.outbox.values().filter(|row| row.model.state == state);
            rows.filter(|row| is_old(row)).count() as u64
        };
        let is_free = |dedupe: &&Dedupe| dedupe.until <= now && rows.row(dedupe.id).is_none_or(|(_, row)| is_old(row));
        let free = rows.dedupe.values().filter(is_free).count() as u64;
        Ok(Purgeable {
            delivered: count(State::Delivered),
            dead: count(State::Dead),
            dedupe: if request.dedupe { free } else { 0 },
            cursor: 0,
        })
    }
}

impl MemoryStore {
    /// Changes a stored payload behind the outbox's back, as a failing disk would, and leaves its hash.
    pub fn corrupt_payload(&self, id: MessageId) {
        if let Some(row) = self.shared.rows().row_mut(id) {
            row.message.payload = [b"corrupt: ", &row.message.payload[..]].concat().into();
        }
    }
}

/// The same rows, unless one of them is locked: nothing is done past it.
fn free(rows: &Rows, wanted: Vec<i64>) -> Result<Vec<i64>, StoreError> {
    let is_locked = |row: &Row| rows.locked.contains(&row.message.id);
    if wanted
        .iter()
        .filter_map(|sequence| rows.outbox.get(sequence))
        .any(is_locked)
    {
        return Err(StoreError {
            kind: StoreErrorKind::Contention,
            message: "another transaction has locked one of the rows".to_owned(),
            remedy: None,
            source: None,
        });
    }
    Ok(wanted)
}

fn dead(rows: &Rows, filter: &Filter, limit: u32) -> Vec<i64> {
    rows.outbox
        .iter()
        .filter(|(_, row)| row.model.state == State::Dead && matches(filter, row))
        .map(|(sequence, _)| *sequence)
        .take(limit as usize)
        .collect()
}

fn matches(filter: &Filter, row: &Row) -> bool {
    let message = &row.message;
    let is = |wanted: &Option<String>, value: &Option<Text>| wanted.is_none() || wanted.as_deref() == value.as_deref();
    is(&filter.namespace, &message.namespace)
        && filter.state.is_none_or(|state| state == row.model.state)
        && filter.topic.as_ref().is_none_or(|topic| *topic == message.topic)
        && is(&filter.ordering_key, &message.ordering_key)
        && is(&filter.tenant, &message.tenant)
        && (filter.ids.is_empty() || filter.ids.contains(&message.id))
}
