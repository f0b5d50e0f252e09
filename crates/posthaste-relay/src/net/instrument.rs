//! What became of dead letters, in figures and in the log.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

const NETS: [&str; 3] = ["table", "file", "webhook"];

/// Shows the figures before anything has happened.
pub(crate) fn register(namespace: &str) {
    for net in NETS {
        for outcome in ["ok", "failed"] {
            caught(namespace, net, outcome, 0);
        }
    }
    for outcome in ["sent", "failed", "suppressed"] {
        counter!("outbox_alert_count", "namespace" => namespace.to_owned(), "outcome" => outcome).increment(0);
    }
    spooled(namespace, 0, 0);
}

pub(crate) fn describe() {
    describe_counter!(
        "outbox_dead_letter_net_count",
        Unit::Count,
        "Dead letters by where they were to be kept (table, file, webhook), and whether that worked."
    );
    describe_counter!(
        "outbox_alert_count",
        Unit::Count,
        "Alerts that were sent or could not be, and messages that were held back for a summary."
    );
    describe_gauge!(
        "outbox_spool_messages",
        Unit::Count,
        "Dead letters that are in the file and in no other place."
    );
    describe_gauge!(
        "outbox_spool_bytes",
        Unit::Bytes,
        "The size of the file with dead letters."
    );
}

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
