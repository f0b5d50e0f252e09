//! Trying every verdict before the first publication.
//!
//! A verdict that the database refuses is found out about when its message has been published, and then nothing can
//! take that back. So [`RelayStore::check`](super::RelayStore::check) writes every verdict once, to rows that are there or
//! to one that it inserts, in a transaction that it rolls back: rights that are missing, constraints that do not know
//! a state's word, triggers that object and columns that are too short are said before anything is published.

use std::time::Duration;

use super::{Scope, StoreError, StoreErrorKind};
use crate::lifecycle::Verdict;
use crate::message::{Message, MessageId};
use crate::table::{Kind, TableMap};

/// How long the error of a tried verdict is. Brokers say much when they refuse something.
const ERROR_LENGTH: usize = 1_000;

impl Verdict {
    /// One of each kind, as they are tried.
    pub fn trials() -> [Self; 5] {
        let error = || {
            let text = "Posthaste tries whether the table takes its verdicts, and undoes it. ";
            text.chars().cycle().take(ERROR_LENGTH).collect::<String>()
        };
        let delay = Duration::from_secs(1);
        [
            Self::Delivered,
            Self::Dead { error: error() },
            Self::Retry { delay, error: error() },
            Self::Postponed { delay, error: error() },
            Self::Released,
        ]
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Retry { .. } => "retry",
            Self::Dead { .. } => "dead",
            Self::Postponed { .. } => "postponed",
            Self::Released => "released",
        }
    }
}

impl StoreError {
    /// What was tried was refused for some rows and taken for another: those that are not refused can be served.
    #[must_use]
    pub fn of_some_rows(self) -> Self {
        Self {
            kind: StoreErrorKind::SomeRows,
            message: format!("{}; it takes it for other rows", self.message),
            remedy: Some(
                "mend the rows, or let the table's constraints, triggers and unique indexes accept them; all others are served",
            ),
            ..self
        }
    }

    /// The database refused a step that was tried: a verdict's name, or what else a relay writes.
    #[must_use]
    pub fn in_trial(self, step: &str, remedy: &'static str) -> Self {
        Self {
            message: format!(
                "the table refuses the verdict `{step}` (tried and rolled back): {}",
                self.message
            ),
            remedy: Some(remedy),
            ..self
        }
    }
}

impl TableMap {
    /// A message for a row of a scope on which verdicts are tried, if one can be made that the table takes.
    pub fn trial_message(&self, scope: &Scope) -> Option<Message> {
        let id = MessageId::new();
        let text = |role: &str| match self.column(role)?.kind {
            Kind::Integer => Some("0".to_owned()),
            Kind::Uuid | Kind::UuidBytes => Some(id.to_string()),
            // What two roles share a column for must be equal, and short.
            _ => Some("posthaste-trial".to_owned()),
        };
        let topic = scope.topics.first().map_or("posthaste-trial", String::as_str);
        let mut message = Message::new(topic, "{}");
        message.ordering_key = text("ordering_key");
        message.aggregate_type = text("aggregate_type");
        message.aggregate_id = text("aggregate_id");
        message.event_type = text("event_type").map(|_| "posthaste.trial.tried.v1".to_owned());
        message.tenant = scope.tenant.clone().or_else(|| text("tenant"));
        message.source = text("source");
        message.topic = self.topic_for(&message).ok()?;
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use crate::enqueue::{OutboxOptions, Prepared};
    use crate::store::Scope;
    use crate::table::{SHIPPED, TableMap};

    #[test]
    fn the_message_that_is_tried_fits_every_table_that_ships() {
        let shipped = SHIPPED.iter().map(|shipped| shipped.map().unwrap());
        for map in shipped.chain([TableMap::in_schema("posthaste").unwrap()]) {
            let message = map.trial_message(&Scope::default()).expect("it has a topic");
            let prepared = Prepared::new([message], &OutboxOptions::default()).unwrap();
            map.fits(&prepared).unwrap();
        }
    }
}
