//! Failed publications: what sort of failure, and how far it reaches.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// A failed publication, classified by the publisher that knows its broker.
///
/// # Examples
///
/// ```
/// use posthaste_core::publisher::{ErrorScope, PublishError};
///
/// let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
/// let error = PublishError::transport("hooks.example.com refused the connection")
///     .at("hooks.example.com")
///     .caused_by(refused);
/// assert_eq!(error.scope, ErrorScope::Destination("hooks.example.com".into()));
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct PublishError {
    /// What sort of failure it was.
    pub kind: ErrorKind,
    /// How far it reaches.
    pub scope: ErrorScope,
    /// What the operator will read.
    pub message: String,
    /// The error of the client library, where there was one.
    pub source: Option<Arc<dyn Error + Send + Sync>>,
    /// Whether it is the failure of a request that had other messages as well.
    pub shared: Shared,
}

/// Whether a failure is that of a request with several messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shared {
    /// The message was alone.
    #[default]
    No,
    /// There were others; this one counts for all of them.
    Counted,
    /// There were others, one of which counts.
    Beside,
}

/// What an operator and the engine make of it; the sources of two errors cannot be compared.
impl PartialEq for PublishError {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.scope == other.scope && self.message == other.message
    }
}

impl Eq for PublishError {}

/// How far a failure reaches: what else would fail the same way now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorScope {
    /// Every message: the broker cannot be reached.
    Broker,
    /// Every message to this destination: a topic without a leader, a host that is down, a tenant over its quota.
    Destination(Arc<str>),
    /// Some of the messages to this destination, while others get through: a partition without a leader. Which ones is
    /// known to the publisher alone, so none is held back for it; but it is not the message either, which loses no attempt.
    Partition(Arc<str>),
    /// This message only.
    Message,
}

/// What sort of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The broker, or a destination, could not be reached or did not answer: connection lost, leader election, time-out;
    /// or it takes nothing from us at all, for want of rights or because it does not exist. May pass, and says something
    /// about every message within the error's [`ErrorScope`], so the circuit breakers count these and no others.
    Transport,
    /// May pass, but says something about this message or its topic only.
    Transient,
    /// Will not pass for this message: too large, refused by the schema.
    Permanent,
    /// The broker throttles. Costs no attempt; the relay pauses for everything within the error's
    /// [`ErrorScope`].
    Throttled {
        /// How much of it.
        retry_after: Duration,
    },
    /// It is not known whether it was sent.
    Unknown,
}

impl PublishError {
    /// A failure of this sort that reaches so far.
    pub fn new(kind: ErrorKind, scope: ErrorScope, message: impl Into<String>) -> Self {
        Self {
            kind,
            scope,
            message: message.into(),
            source: None,
            shared: Shared::No,
        }
    }

    /// A broker that could not be reached or did not answer.
    pub fn transport(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Transport, ErrorScope::Broker, message)
    }

    /// A failure that may pass.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Transient, ErrorScope::Message, message)
    }

    /// A failure that will not pass for this message.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Permanent, ErrorScope::Message, message)
    }

    /// A message of which it is not known whether it was sent.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unknown, ErrorScope::Message, message)
    }

    /// A broker, or a destination, that asks to be sent nothing for a while.
    pub fn throttled(retry_after: Duration, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Throttled { retry_after }, ErrorScope::Broker, message)
    }

    /// The same failure, of one destination only.
    #[must_use]
    pub fn at(self, destination: impl Into<Arc<str>>) -> Self {
        self.within(ErrorScope::Destination(destination.into()))
    }

    /// The same failure, reaching so far.
    #[must_use]
    pub fn within(mut self, scope: ErrorScope) -> Self {
        self.scope = scope;
        self
    }

    /// The same failure, of a request with several messages. It may be another message that is at fault, so this one uses no
    /// attempt. A request that fails is one failure, however many messages it has: breakers count one of them.
    #[must_use]
    pub fn shared(mut self, is_counted: bool) -> Self {
        self.shared = if is_counted { Shared::Counted } else { Shared::Beside };
        self
    }

    /// The same failure, with the error that it came from.
    #[must_use]
    pub fn caused_by(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }
}
