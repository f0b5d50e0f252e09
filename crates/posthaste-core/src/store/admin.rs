//! An operator's verbs.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

use super::{DeadLetter, PurgeRequest, Purgeable, Restored, StoreError};
#[cfg(doc)]
use super::{RelayStore, StoreErrorKind};
use crate::lifecycle::State;
use crate::message::{Message, MessageId};

/// Which rows an operator means. All given conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// In this namespace.
    pub namespace: Option<String>,
    /// In this state.
    pub state: Option<State>,
    /// With this topic.
    pub topic: Option<String>,
    /// With this ordering key.
    pub ordering_key: Option<String>,
    /// Of this tenant.
    pub tenant: Option<String>,
    /// With one of these ids; any if empty.
    pub ids: Vec<MessageId>,
}

/// A row as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What was enqueued.
    pub message: Message,
    /// Its number, where the table numbers its rows.
    pub sequence: Option<i64>,
    /// Where it stands.
    pub state: State,
    /// Claims so far.
    pub attempts: u32,
    /// Not to be claimed earlier. When it was enqueued, where the table does not say.
    pub next_attempt_at: DateTime<Utc>,
    /// Which worker has it.
    pub locked_by: Option<String>,
    /// Until when.
    pub locked_until: Option<DateTime<Utc>>,
    /// The last failure.
    pub last_error: Option<String>,
    /// When it was enqueued.
    pub created_at: DateTime<Utc>,
    /// When it last changed. When it was enqueued, where the table does not say.
    pub updated_at: DateTime<Utc>,
    /// When it was delivered.
    pub delivered_at: Option<DateTime<Utc>>,
}

/// A shard of a log as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShardStatus {
    /// Its number.
    pub shard: i32,
    /// Who reads it; `None` if nobody does.
    pub owner: Option<Uuid>,
    /// How often it was taken.
    pub epoch: i64,
    /// How many numbers are not settled.
    pub lag: u64,
    /// The number within it up to which everything is settled.
    pub position: i64,
    /// The generation that it belongs to: each raise of their number makes new ones.
    pub generation: i32,
    /// Whether it may be read: one of a later generation waits until those before are read to their end.
    pub readable: bool,
    /// Until when its reader has it.
    pub leased_until: Option<DateTime<Utc>>,
    /// The server's process that has the lock of its reader. One that is not its owner's keeps the owner from reading.
    pub process: Option<i32>,
}

/// An operator's verbs.
///
/// # Contract
/// - **replay** makes dead rows pending with a fresh count of attempts; **discard** removes dead rows. Both touch only
///   rows that are dead at that moment and return the ids they changed: of two operators who replay the same row one
///   gets an empty answer.
/// - **restore** brings back a letter that was kept outside the database. A row that is gone is inserted, dead and under the
///   id that it had; one that is dead gets its letter in the table of dead letters, where there is such a table and it has
///   none; any other is left alone: it was delivered, or is to be. The same letter may be restored any number of times, also
///   by two operators at once, and is there once.
///
/// # Errors
/// [`StoreErrorKind::Unsupported`] if a condition of the filter names what the table has no column for. Then nothing was
/// changed. [`StoreErrorKind::Contention`] if another transaction has a row that is meant; what was changed before it stays.
#[async_trait]
pub trait AdminStore: Send + Sync + 'static {
    /// Rows in the table's order, beginning after the row `after`. A row that is gone cannot be gone on from: that is an
    /// error, not an empty page.
    async fn list(&self, filter: &Filter, after: Option<MessageId>, limit: u32) -> Result<Vec<Record>, StoreError>;

    /// One row.
    async fn show(&self, id: MessageId) -> Result<Option<Record>, StoreError>;

    /// Makes dead rows pending again, at most `limit`.
    async fn replay(&self, filter: &Filter, limit: u32) -> Result<Vec<MessageId>, StoreError>;

    /// Removes dead rows, at most `limit`.
    async fn discard(&self, filter: &Filter, limit: u32) -> Result<Vec<MessageId>, StoreError>;

    /// Brings back a dead letter that was kept outside the database.
    async fn restore(&self, letter: &DeadLetter) -> Result<Restored, StoreError> {
        match self.show(letter.message.id).await? {
            Some(record) => Ok(Restored::There(record.state)),
            None => Err(StoreError::unsupported(
                "rows cannot be put back into this outbox, and this one is gone",
                Some("enqueue its message anew"),
            )),
        }
    }

    /// The shards of a log, by number; none where there are none.
    async fn shards(&self) -> Result<Vec<ShardStatus>, StoreError> {
        Ok(Vec::new())
    }

    /// How many rows [`RelayStore::purge`] would remove if it were called until nothing is left to remove. Removes nothing.
    async fn purgeable(&self, request: &PurgeRequest) -> Result<Purgeable, StoreError>;
}
