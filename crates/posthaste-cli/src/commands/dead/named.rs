//! Messages by whatever id an operator has read. A relay's log names one of a log by its row, or as `failed-7`, and
//! `dead list` by its event.

use posthaste_core::lifecycle::State;
use posthaste_core::store::{Filter, Store};
use posthaste_core::{MessageId, StoreError};

use super::PAGE;

/// A message that was asked for.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) asked: MessageId,
    /// Its rows as the outbox lists them; what was asked for where it lists none. Never empty: that would mean every message.
    pub(super) rows: Vec<MessageId>,
    /// What it was when it was looked for, if it was there.
    pub(super) state: Option<State>,
}

/// Looks for each of them: together among the dead by the ids that these are listed by, else one by one.
pub(super) async fn find(store: &dyn Store, asked: &[MessageId]) -> Result<Vec<Named>, StoreError> {
    let mut named = Vec::with_capacity(asked.len());
    for ids in asked.chunks(PAGE as usize) {
        let dead = dead(store, ids).await?;
        for asked in ids {
            let called = written(asked);
            let rows = dead.iter().filter(|row| row.is_called(&called));
            let rows: Vec<_> = rows.map(|row| row.id).collect();
            named.push(if rows.is_empty() {
                look_for(store, *asked).await?
            } else {
                Named {
                    asked: *asked,
                    rows,
                    state: Some(State::Dead),
                }
            });
        }
    }
    Ok(named)
}

/// The rows of all of them.
pub(super) fn rows(named: &[Named]) -> Vec<MessageId> {
    named.iter().flat_map(|named| named.rows.iter().copied()).collect()
}

/// As an id is written, in small letters: a table may keep as text, and in capitals, what was read as a UUID here.
pub(super) fn written(id: &MessageId) -> String {
    id.to_string().to_lowercase()
}

async fn look_for(store: &dyn Store, asked: MessageId) -> Result<Named, StoreError> {
    let found = store.show(asked).await?;
    Ok(Named {
        asked,
        rows: vec![found.as_ref().map_or(asked, |record| record.message.id)],
        state: found.map(|record| record.state),
    })
}

/// A dead row, without its payload.
struct DeadRow {
    id: MessageId,
    event: String,
}

impl DeadRow {
    fn is_called(&self, called: &str) -> bool {
        written(&self.id) == called || self.event.to_lowercase() == called
    }
}

/// In an existing log several rows may be of one event.
async fn dead(store: &dyn Store, ids: &[MessageId]) -> Result<Vec<DeadRow>, StoreError> {
    let filter = Filter {
        state: Some(State::Dead),
        ids: ids.to_vec(),
        ..Filter::default()
    };
    let mut found: Vec<DeadRow> = Vec::new();
    loop {
        let after = found.last().map(|row| row.id);
        let page = store.list(&filter, after, PAGE).await?;
        let is_last = page.len() < PAGE as usize;
        found.extend(page.iter().map(|record| DeadRow {
            id: record.message.id,
            event: record.message.effective_event_id().into_owned(),
        }));
        if is_last {
            return Ok(found);
        }
    }
}
