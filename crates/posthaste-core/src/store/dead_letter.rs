//! Messages that died, where the database cannot hold them.

use chrono::{DateTime, Utc};

use crate::enqueue::{EnqueueError, OutboxOptions, Prepared};
use crate::integrity::ContentHash;
use crate::lifecycle::State;
use crate::message::{Message, MessageId};
use crate::store::StoreError;
use crate::validate::{Limits, TypeNameRule};

/// A message that died, whole: what its row holds, for a place outside the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// What was enqueued.
    pub message: Message,
    /// The hash made at enqueue, where the table keeps one. Not made anew: it may be a wrong one that the message died of.
    pub hash: Option<ContentHash>,
    /// How often it was claimed.
    pub attempts: u32,
    /// What it died of.
    pub error: String,
    /// When it was enqueued.
    pub created_at: DateTime<Utc>,
    /// When it died.
    pub died_at: DateTime<Utc>,
}

impl DeadLetter {
    /// Its message as a new row, for stores that restore it. Without its dedupe key, which may be held by itself.
    ///
    /// # Errors
    /// If it could not have been enqueued, as a letter that was changed by hand.
    pub fn prepare(&self) -> Result<(Prepared, OutboxOptions), StoreError> {
        let options = OutboxOptions::new()
            .limits(Limits::new().payload_bytes(usize::MAX).header_bytes(usize::MAX))
            .type_names(TypeNameRule::Any);
        let mut message = self.message.clone();
        message.dedupe_key = None;
        // New messages have UUIDs; rows of existing tables need not.
        message.id = MessageId::new();
        let mut prepared = Prepared::new([message], &options)?;
        for row in &mut prepared.rows {
            row.message.id = self.message.id;
            row.hash = self.hash.unwrap_or_else(|| ContentHash::of_message(&row.message));
        }
        Ok((prepared, options))
    }
}

/// For stores that enqueue on their own account.
impl From<EnqueueError> for StoreError {
    fn from(error: EnqueueError) -> Self {
        match error {
            EnqueueError::Store(error) => error,
            error => Self::unsupported(error.to_string(), None),
        }
    }
}

/// What became of a letter that was to be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// Its row was gone and is there again, dead.
    Inserted,
    /// Its row was dead, and has its letter in the table of dead letters from now on.
    LetterAdded,
    /// Its row was there, in this state, and nothing was to be done.
    There(State),
}
