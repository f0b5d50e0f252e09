//! From messages to rows: everything about enqueueing that is the same for every database.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use thiserror::Error;

use crate::event::IntoMessage;
use crate::integrity::ContentHash;
use crate::message::{Message, MessageId, Text};
use crate::store::StoreError;
use crate::trace::Captured;
use crate::validate::{InvalidMessage, Limits, TypeNameRule, validate};

/// How an application's outbox accepts messages.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use posthaste_core::OutboxOptions;
/// use posthaste_core::validate::{Limits, TypeNameRule};
///
/// let options = OutboxOptions::new()
///     .source("urn:acme:shop")
///     .type_names(TypeNameRule::Any)
///     .limits(Limits::new().payload_bytes(256 << 10))
///     .dedupe_window(Duration::from_secs(24 * 3600));
/// assert_eq!(options.source.as_deref(), Some("urn:acme:shop"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutboxOptions {
    /// Namespace of messages that do not name one. Must match the relay's. Defaults to `default`.
    pub namespace: String,
    /// Source of messages that do not name one: your application's name or URI. Defaults to none.
    pub source: Option<String>,
    /// Sizes above which a message is refused.
    pub limits: Limits,
    /// Which type names are accepted. Defaults to the strict rule.
    pub type_names: TypeNameRule,
    /// How long a dedupe key is held at least. It is also held as long as its row exists, so this matters once
    /// delivered rows are purged. Defaults to 7 days.
    pub dedupe_window: Duration,
}

impl Default for OutboxOptions {
    fn default() -> Self {
        Self {
            namespace: crate::message::DEFAULT_NAMESPACE.to_owned(),
            source: None,
            limits: Limits::default(),
            type_names: TypeNameRule::default(),
            dedupe_window: Duration::from_hours(168),
        }
    }
}

impl OutboxOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`OutboxOptions::namespace`].
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets [`OutboxOptions::source`].
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Sets [`OutboxOptions::limits`].
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets [`OutboxOptions::type_names`].
    #[must_use]
    pub fn type_names(mut self, rule: TypeNameRule) -> Self {
        self.type_names = rule;
        self
    }

    /// Sets [`OutboxOptions::dedupe_window`].
    #[must_use]
    pub fn dedupe_window(mut self, window: Duration) -> Self {
        self.dedupe_window = window;
        self
    }
}

/// What became of an enqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// A row was written.
    Inserted(MessageId),
    /// A message with this dedupe key was there before; this is its id, and no row was written.
    Duplicate(MessageId),
}

impl Enqueued {
    /// The id under which the event is delivered.
    pub fn id(self) -> MessageId {
        match self {
            Self::Inserted(id) | Self::Duplicate(id) => id,
        }
    }

    /// Whether this call wrote the row.
    pub fn is_new(self) -> bool {
        matches!(self, Self::Inserted(_))
    }
}

/// Why nothing was enqueued.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// A message was refused before any SQL ran: the transaction is as it was.
    #[error("message {position} was refused: {reason}")]
    Invalid {
        /// Its place in the call, from 0.
        position: usize,
        /// What is wrong with it.
        reason: InvalidMessage,
    },
    /// An event could not be turned into bytes; no SQL ran.
    #[error("the event could not be serialised: {0}")]
    Encode(#[from] serde_json::Error),
    /// The database refused; the transaction may have to be rolled back.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Messages checked, completed and hashed, with repetitions of a dedupe key inside the call folded together: what a
/// store writes with one statement.
#[derive(Debug)]
pub struct Prepared {
    /// The rows to write, in order.
    pub rows: Vec<NewRow>,
    /// For each message of the call the place of its row, and whether it is that row's first mention.
    places: Vec<(usize, bool)>,
}

/// One row to write.
#[derive(Debug)]
pub struct NewRow {
    /// The message, with its source filled in.
    pub message: Message,
    /// Its namespace, or the outbox's.
    pub namespace: Text,
    /// Made when it is asked for: not every table keeps it.
    hash: OnceLock<ContentHash>,
    /// The names of its headers that were taken from the current trace. A table that has no place for them may lose them.
    pub captured: Vec<&'static str>,
}

impl NewRow {
    /// Hash over its bytes, by the recipe of Posthaste's own tables.
    pub fn hash(&self) -> &ContentHash {
        self.hash.get_or_init(|| ContentHash::of_message(&self.message))
    }

    /// Whether the message has headers that its caller gave it.
    pub fn has_own_headers(&self) -> bool {
        self.message.headers.len() > self.captured.len()
    }
}

impl Prepared {
    /// Checks and completes the messages of one call. Either all are good or none is written.
    ///
    /// # Errors
    /// [`EnqueueError::Encode`] if an event cannot be turned into bytes, [`EnqueueError::Invalid`] for the first message that
    /// breaks a rule.
    pub fn new<M: IntoMessage>(
        messages: impl IntoIterator<Item = M>,
        options: &OutboxOptions,
    ) -> Result<Self, EnqueueError> {
        let mut prepared = Self {
            rows: Vec::new(),
            places: Vec::new(),
        };
        let trace = Captured::current();
        let mut seen: HashMap<(Text, Text, Text), usize> = HashMap::new();
        let own_namespace = Text::from(options.namespace.as_str());
        let own_source = options.source.as_deref().map(Text::from);
        for (position, message) in messages.into_iter().enumerate() {
            let mut message = message.into_message()?;
            let captured = trace.add_to(&mut message, options.limits.header_bytes);
            validate(&message, &options.limits, options.type_names)
                .map_err(|reason| EnqueueError::Invalid { position, reason })?;
            message.source = message.source.or_else(|| own_source.clone());
            let namespace = message.namespace.clone().unwrap_or_else(|| own_namespace.clone());
            let next = prepared.rows.len();
            let first = match &message.dedupe_key {
                Some(key) => *seen
                    .entry((namespace.clone(), message.topic.clone(), key.clone()))
                    .or_insert(next),
                None => next,
            };
            prepared.places.push((first, first == next));
            if first == next {
                prepared.rows.push(NewRow {
                    hash: OnceLock::new(),
                    message,
                    namespace,
                    captured,
                });
            }
        }
        Ok(prepared)
    }

    /// A row that was in the table before, as it was.
    pub(crate) fn unchecked(message: Message, hash: ContentHash, options: &OutboxOptions) -> Self {
        let namespace = message.namespace.clone();
        Self {
            rows: vec![NewRow {
                message,
                namespace: namespace.unwrap_or_else(|| options.namespace.as_str().into()),
                hash: hash.into(),
                captured: Vec::new(),
            }],
            places: vec![(0, true)],
        }
    }

    /// Takes the trace that is current now in place of the one that was, if there is one now.
    pub(crate) fn recapture(&mut self, options: &OutboxOptions) {
        let trace = Captured::current();
        if trace.is_empty() {
            return;
        }
        for row in &mut self.rows {
            for name in row.captured.drain(..) {
                row.message.headers.remove(name);
            }
            row.captured = trace.add_to(&mut row.message, options.limits.header_bytes);
        }
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The place in the call of the message that became the row at this place of [`Prepared::rows`].
    pub fn position(&self, row: usize) -> usize {
        let first = |&(place, first): &(usize, bool)| first && place == row;
        self.places.iter().position(first).unwrap_or(row)
    }

    /// Answers the call, given what the store answered for each of [`Prepared::rows`].
    pub fn outcomes(&self, stored: &[Enqueued]) -> Vec<Enqueued> {
        self.places
            .iter()
            .map(|&(place, first)| {
                if first {
                    stored[place]
                } else {
                    Enqueued::Duplicate(stored[place].id())
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dedupe_key_repeated_within_a_call_is_one_row() {
        let messages = [
            Message::new("a", "1").dedupe_key("k"),
            Message::new("b", "2").dedupe_key("k"),
            Message::new("a", "3").dedupe_key("k"),
        ];
        let prepared = Prepared::new(messages, &OutboxOptions::default()).unwrap();
        assert_eq!(prepared.rows.len(), 2);
        let [first, second] = [0, 1].map(|row| prepared.rows[row].message.id);
        let outcomes = prepared.outcomes(&[Enqueued::Inserted(first), Enqueued::Inserted(second)]);
        assert_eq!(
            outcomes,
            [
                Enqueued::Inserted(first),
                Enqueued::Inserted(second),
                Enqueued::Duplicate(first)
            ]
        );
    }

    #[test]
    fn one_bad_message_refuses_the_call_and_is_named() {
        let messages = [Message::new("a", "1"), Message::new("", "2")];
        let error = Prepared::new(messages, &OutboxOptions::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "message 1 was refused: topic is empty; give it a value or leave it out"
        );
    }
}
