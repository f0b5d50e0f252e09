//! Figures of the table as a whole, which one relay of a fleet shows.

use metrics::{counter, gauge};
use posthaste_core::store::Purged;

/// Whether this relay is the one that shows the figures of its table.
pub(crate) fn upkeep_owner(namespace: &str, is_owner: bool) {
    gauge!("outbox_upkeep_owner", "namespace" => namespace.to_owned()).set(f64::from(u8::from(is_owner)));
}

#[expect(
    clippy::cast_precision_loss,
    reason = "gauges are floats; counts beyond 2^52 rows are out of reach"
)]
pub(crate) fn topic_counted(namespace: &str, topic: &str, pending: u64, oldest_seconds: f64) {
    for (name, value) in [
        ("outbox_topic_pending_count", pending as f64),
        ("outbox_topic_oldest_age_seconds", oldest_seconds),
    ] {
        gauge!(name, "namespace" => namespace.to_owned(), "topic" => topic.to_owned()).set(value);
    }
}

/// What rows were removed from.
pub(super) const PURGED_TABLES: [&str; 4] = ["outbox", "dead", "cursor", "dedupe"];

/// Rows were removed after their retention. That events are gone that nobody got is never done without a word.
pub(crate) fn purged(namespace: &str, purged: &Purged) {
    let Purged {
        delivered,
        dead,
        cursor,
        dedupe,
    } = purged;
    for id in dead {
        tracing::warn!(namespace, %id, "removed a dead message after relay.dead_retention; its event was never delivered");
    }
    for (table, rows) in PURGED_TABLES
        .into_iter()
        .zip([*delivered, dead.len() as u64, *cursor, *dedupe])
    {
        counter!("outbox_purged_count", "namespace" => namespace.to_owned(), "table" => table).increment(rows);
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::MessageId;

    use super::*;
    use crate::observed::observe;

    #[test]
    fn every_dead_message_that_is_removed_is_named() {
        let dead: Vec<_> = [(); 2].map(|()| MessageId::new()).into();
        let removed = Purged {
            dead: dead.clone(),
            ..Purged::default()
        };
        let (_, log) = observe(|| purged("default", &removed));
        assert!(dead.iter().all(|id| log.contains(&id.to_string())), "{log}");
        assert_eq!(log.matches("WARN").count(), 2, "{log}");
        let (_, log) = observe(|| purged("default", &Purged::default()));
        assert_eq!(log, "");
    }
}
