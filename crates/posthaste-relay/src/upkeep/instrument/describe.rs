//! What each metric means.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Describes every metric to the installed recorder. Call it once, after installing one.
pub fn describe_metrics() {
    describe_counter!("outbox_claimed_count", Unit::Count, "Messages claimed.");
    describe_counter!(
        "outbox_reclaimed_count",
        Unit::Count,
        "Messages claimed again after the lease of their worker expired."
    );
    describe_counter!(
        "outbox_stalled_recovered_count",
        Unit::Count,
        "Messages taken back from workers that crashed, where claims cannot do that."
    );
    describe_counter!("outbox_processed_count", Unit::Count, "Messages delivered.");
    describe_counter!("outbox_failure_count", Unit::Count, "Delivery attempts that failed.");
    describe_counter!("outbox_dlq_count", Unit::Count, "Messages that became dead.");
    describe_counter!(
        "outbox_integrity_failure_count",
        Unit::Count,
        "Messages whose bytes did not match their hash."
    );
    describe_counter!(
        "outbox_lease_lost_count",
        Unit::Count,
        "Messages whose lease was lost before they were settled."
    );
    describe_refusals();
    describe_counter!(
        "outbox_slow_claim_count",
        Unit::Count,
        "Claims that took more than a third of their lease."
    );
    describe_gauge!(
        "outbox_healthy",
        Unit::Count,
        "0 while calls of the database fail that messages wait for, 1 once they work again."
    );
    describe_counter!(
        "outbox_throttled_count",
        Unit::Count,
        "Pauses because the broker throttles."
    );
    describe_gauge!(
        "outbox_destinations_away",
        Unit::Count,
        "Destinations that are unavailable, while the broker is not."
    );
    describe_counter!("outbox_store_error_count", Unit::Count, "Failed calls of the database.");
    describe_counter!(
        "outbox_purged_count",
        Unit::Count,
        "Rows removed after their retention."
    );
    describe_gauge!(
        "outbox_circuit_state",
        Unit::Count,
        "0 while the circuit to the broker is closed, 1 while it is half-open, 2 while it is open."
    );
    describe_counter!(
        "outbox_circuit_transition_count",
        Unit::Count,
        "Changes of the circuit."
    );
    describe_counter!(
        "outbox_circuit_refused_count",
        Unit::Count,
        "Messages that were claimed and then given back because the circuit opened."
    );
    describe_histogram!(
        "outbox_process_latency",
        Unit::Seconds,
        "From enqueue to acknowledged delivery."
    );
    describe_gauge!("outbox_pending_count", Unit::Count, "Messages waiting to be claimed.");
    describe_gauge!(
        "outbox_waiting_count",
        Unit::Count,
        "Pending messages that are not due yet."
    );
    describe_gauge!("outbox_processing_count", Unit::Count, "Messages under a lease.");
    describe_gauge!(
        "outbox_dead_count",
        Unit::Count,
        "Dead messages that wait for an operator."
    );
    describe_gauge!(
        "outbox_oldest_age_seconds",
        Unit::Seconds,
        "Age of the oldest undelivered message."
    );
    describe_upkeep();
}

fn describe_refusals() {
    describe_counter!(
        "outbox_verdict_refused_count",
        Unit::Count,
        "Messages whose outcome the database refused to write."
    );
    describe_gauge!(
        "outbox_verdicts_refused",
        Unit::Count,
        "Messages whose outcome the database refuses to write at present."
    );
    describe_gauge!(
        "outbox_verdicts_busy",
        Unit::Count,
        "Messages whose outcome waits for a lock that another transaction holds."
    );
    describe_counter!(
        "outbox_claim_refused_count",
        Unit::Count,
        "Messages that the database refused to have claimed, or taken back from a worker that crashed."
    );
    describe_gauge!(
        "outbox_claims_refused",
        Unit::Count,
        "Messages that the database refuses to have claimed at present."
    );
}

fn describe_upkeep() {
    describe_gauge!(
        "outbox_topic_pending_count",
        Unit::Count,
        "Messages of a topic waiting to be claimed, of the oldest 10,000."
    );
    describe_gauge!(
        "outbox_topic_oldest_age_seconds",
        Unit::Seconds,
        "Age of the oldest message of a topic that waits to be claimed."
    );
    describe_gauge!(
        "outbox_upkeep_owner",
        Unit::Count,
        "1 on the relay that shows the figures of the table and removes old rows, 0 on the others."
    );
}
