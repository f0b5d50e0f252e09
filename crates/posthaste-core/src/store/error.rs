//! What goes wrong with a database.

use thiserror::Error;

use super::OutboxStats;
use crate::message::MessageId;

/// A failure of the database, with the remedy where there is one.
#[derive(Debug, Error)]
#[error("{message}{}", .remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default())]
pub struct StoreError {
    /// What sort of failure it was.
    pub kind: StoreErrorKind,
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub remedy: Option<&'static str>,
    /// The driver's own error.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What sort of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The server cannot be reached, or the connection was lost. May pass.
    Unavailable,
    /// No connection became free in time. May pass.
    PoolExhausted,
    /// A deadlock, a serialisation failure or a busy lock. May pass.
    Contention,
    /// User, password or rights are wrong.
    Access,
    /// A table or column is missing.
    SchemaMissing,
    /// The database cannot be written. May pass: a standby may be promoted.
    ReadOnly,
    /// The table refuses what is to be written to some of its rows, and takes it for others.
    SomeRows,
    /// The table refuses dead messages, and takes everything else.
    DeathsRefused,
    /// The table, or its database, has no place for what was asked.
    Unsupported,
    /// Anything else.
    Other,
}

impl StoreError {
    /// A failure of which nothing is known but what the driver says.
    pub fn other(source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self {
            kind: StoreErrorKind::Other,
            message: source.to_string(),
            remedy: None,
            source: Some(Box::new(source)),
        }
    }

    /// What the table, or its database, has no place for.
    pub fn unsupported(message: impl Into<String>, remedy: Option<&'static str>) -> Self {
        Self {
            kind: StoreErrorKind::Unsupported,
            message: message.into(),
            remedy,
            source: None,
        }
    }

    /// There is no place where relays say that they are there.
    pub fn no_registry() -> Self {
        Self::unsupported(
            "this outbox has no list of relays",
            Some("use Posthaste's own tables, or do without"),
        )
    }

    /// Nothing is removed by an age that is not known.
    pub fn no_time_of_death(map: &str) -> Self {
        Self::unsupported(
            format!(
                "the table of the map `{map}` does not say when a message died, so dead messages cannot be removed by age"
            ),
            Some("remove them by hand (`posthaste dead discard`), or map a column as updated_at"),
        )
    }

    /// A relay of a log delivers everything that is in it, whatever namespace it is meant for.
    pub fn no_namespaces(namespace: &str) -> Self {
        Self::unsupported(
            format!("a log has no namespaces, so a relay cannot serve `{namespace}` alone"),
            Some("leave out scope.namespace, or give each namespace a schema or file of its own"),
        )
    }

    /// A log is not served while messages wait in the queue that it is to replace: nobody would deliver them, or not in order.
    ///
    /// # Errors
    /// If there are some.
    pub fn refuse_left_in_queue(queue: &OutboxStats) -> Result<(), Self> {
        let messages = match queue.undelivered() {
            0 => return Ok(()),
            1 => "1 message waits".to_owned(),
            more => format!("{more} messages wait"),
        };
        Err(Self {
            kind: StoreErrorKind::Other,
            message: format!("{messages} in the queue, which a relay of the log does not serve"),
            remedy: Some(
                "stop the relays of the log, then run `posthaste log move`, which moves what is there in its order",
            ),
            source: None,
        })
    }

    /// Messages are in a log beside the queue that is served, and nobody reads it.
    ///
    /// # Errors
    /// If there are some.
    pub fn refuse_left_in_log(log: &OutboxStats) -> Result<(), Self> {
        let messages = match log.undelivered() {
            0 => return Ok(()),
            1 => "1 message waits".to_owned(),
            more => format!("{more} messages wait"),
        };
        Err(Self {
            kind: StoreErrorKind::Other,
            message: format!("{messages} in the log beside this queue, which nobody reads"),
            remedy: Some(
                "run a relay with database.layout = \"log\", in place of this one if the queue is not used any more",
            ),
            source: None,
        })
    }

    /// A page cannot begin after a row that is gone.
    pub fn gone(after: MessageId) -> Self {
        Self {
            kind: StoreErrorKind::Other,
            message: format!("row {after}, after which the page was to begin, is gone"),
            remedy: Some("list again from the start"),
            source: None,
        }
    }
}

impl StoreErrorKind {
    /// Whether waiting may help.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            Self::Unavailable | Self::PoolExhausted | Self::Contention | Self::ReadOnly
        )
    }

    /// Whether it may be about single rows: a constraint or a trigger objects to what was to be written. Rights that are
    /// missing are missing for all of them.
    pub fn may_be_a_refusal(self) -> bool {
        matches!(self, Self::Other | Self::DeathsRefused)
    }
}
