//! What became of dead letters, in figures and in the log.

use metrics::{counter, gauge};

/// Where dead letters are to be kept.
pub(crate) const NETS: [&str; 3] = ["table", "file", "webhook"];

/// Dead letters came to a net.
pub(crate) fn caught(namespace: &str, net: &'static str, outcome: &'static str, letters: u64) {
    counter!(
        "outbox_dead_letter_net_count", "namespace" => namespace.to_owned(), "net" => net, "outcome" => outcome
    )
    .increment(letters);
}

#[expect(clippy::cast_precision_loss, reason = "gauges are floats")]
pub(crate) fn spooled(namespace: &str, letters: usize, bytes: u64) {
    gauge!("outbox_spool_messages", "namespace" => namespace.to_owned()).set(letters as f64);
    gauge!("outbox_spool_bytes", "namespace" => namespace.to_owned()).set(bytes as f64);
}
