//! Messages that died, where the database cannot hold them.

use chrono::{DateTime, Utc};

use crate::enqueue::{EnqueueError, OutboxOptions, Prepared};
use crate::integrity::ContentHash;
use crate::lifecycle::State;
use crate::message::Message;
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
    /// The rules of enqueueing do not apply: the row was in the table, whoever wrote it, and breaking one of them may be what
    /// it died of. What its columns cannot hold the table refuses.
    pub fn prepare(&self) -> (Prepared, OutboxOptions) {
        let options = OutboxOptions::new()
            .limits(Limits::new().payload_bytes(usize::MAX).header_bytes(usize::MAX))
            .type_names(TypeNameRule::Any);
        let mut message = self.message.clone();
        message.dedupe_key = None;
        let hash = self.hash.unwrap_or_else(|| ContentHash::of_message(&message));
        (Prepared::unchecked(message, hash, &options), options)
    }
}

/// For stores that enqueue on their own account.
impl From<EnqueueError> for StoreError {
    fn from(error: EnqueueError) -> Self {
        match error {
            EnqueueError::Store(error) => error,
            // There is one message, so its place says nothing.
            EnqueueError::Invalid { reason, .. } => Self::unsupported(reason.to_string(), None),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::MessageId;

    #[test]
    fn a_letter_is_prepared_as_it_was_whatever_the_rules_of_enqueueing_say() {
        let mut message = Message::new("", "x")
            .key("")
            .tenant("")
            .header("a", "1\n2")
            .header("A", "\0");
        message.id = MessageId::Number(7);
        message.namespace = Some("shop".into());
        let letter = DeadLetter {
            message: message.clone(),
            hash: Some(ContentHash::of(&[b"another"])),
            attempts: 1,
            error: "no".to_owned(),
            created_at: Utc::now(),
            died_at: Utc::now(),
        };
        let (prepared, _) = letter.prepare();
        let [row] = prepared.rows.as_slice() else {
            panic!("{prepared:?}");
        };
        assert_eq!((&row.message, row.namespace.as_str()), (&message, "shop"));
        assert_eq!(Some(*row.hash()), letter.hash);
        assert_eq!(prepared.position(0), 0);
    }
}
