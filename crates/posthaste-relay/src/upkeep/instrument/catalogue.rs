//! Every metric of a relay: the one place where its name, kind, unit, labels and meaning stand.
//!
//! From this table metrics are described and shown at the start, and `docs/metrics.md` and what a real relay exports are
//! held against it by tests. A new metric is a line here and a line there.

use posthaste_core::metric::{Metric, MetricLabel};

use super::table::PURGED_TABLES;
use crate::net::instrument::NETS;
use crate::reported::NotSent;
use crate::upkeep::pulse::TASKS;

pub(super) const NAMESPACE: MetricLabel = MetricLabel::open("namespace");
/// Bounded by [`super::topics`].
pub(super) const TOPIC: MetricLabel = MetricLabel::open("topic");
/// Bounded by [`crate::upkeep::shards`].
const SHARD: MetricLabel = MetricLabel::open("shard");
/// Bounded by the destinations that are known.
const DESTINATION: MetricLabel = MetricLabel::open("destination");

/// Why messages became dead.
pub(super) const EXHAUSTED: &str = "exhausted";
pub(super) const REFUSED: &str = "refused";
pub(super) const INTEGRITY: &str = "integrity";
pub(super) const DEATHS: [&str; 3] = [EXHAUSTED, REFUSED, INTEGRITY];

/// Why messages go out twice.
pub(super) const LEASE_LOST: &str = "lease_lost";
pub(super) const RECLAIMED: &str = "reclaimed";
pub(super) const ABANDONED: &str = "abandoned";

/// Seconds from enqueue to delivery, from a wake-up in the same process to an outage over lunch.
const LATENCY_SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0];
/// Seconds of one call of a database or a broker, from a file on the same disk to a timeout.
const CALL_SECONDS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];
/// Messages of one call.
const BATCH_SIZES: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 10_000.0,
];

/// Every metric of a relay.
///
/// ```
/// use posthaste_core::metric::MetricKind;
///
/// // Some exporters have to be told the buckets of histograms.
/// let buckets = posthaste_relay::METRICS.iter().filter_map(|metric| match metric.kind {
///     MetricKind::Histogram { buckets } => Some((metric.name, buckets)),
///     _ => None,
/// });
/// assert!(buckets.map(|(name, _)| name).any(|name| name == "outbox_process_latency"));
/// ```
pub const METRICS: &[Metric] = &[
    // The program.
    Metric::gauge(
        "posthaste_build_info",
        &[MetricLabel::one_of("version", &[env!("CARGO_PKG_VERSION")])],
        "Always 1; its label says which version runs.",
    )
    .initially(1.0),
    // Claiming.
    Metric::counter("outbox_claimed_count", &[NAMESPACE], "Messages claimed."),
    Metric::counter(
        "outbox_reclaimed_count",
        &[NAMESPACE],
        "Messages claimed again after the lease of their worker expired.",
    ),
    Metric::counter(
        "outbox_stalled_recovered_count",
        &[NAMESPACE],
        "Messages taken back from workers that crashed, where claims cannot do that.",
    ),
    Metric::counter(
        "outbox_slow_claim_count",
        &[NAMESPACE],
        "Claims that took more than a third of their lease.",
    ),
    Metric::histogram(
        "outbox_claim_seconds",
        &[NAMESPACE],
        CALL_SECONDS,
        "How long the database took to answer a claim, also one that found nothing.",
    )
    .in_seconds(),
    Metric::histogram(
        "outbox_claim_messages",
        &[NAMESPACE],
        BATCH_SIZES,
        "Messages of a claim that found any.",
    ),
    Metric::gauge(
        "outbox_seconds_since_claim",
        &[NAMESPACE],
        "Since the database last answered a claim, or since the relay started.",
    )
    .in_seconds()
    .initially(0.0),
    // Publishing.
    Metric::counter("outbox_processed_count", &[NAMESPACE, TOPIC], "Messages delivered."),
    Metric::counter(
        "outbox_failure_count",
        &[NAMESPACE, TOPIC],
        "Delivery attempts that failed.",
    ),
    Metric::counter(
        "outbox_failed_count",
        &[NAMESPACE, TOPIC],
        "Delivery attempts that failed; another name of outbox_failure_count.",
    ),
    Metric::counter(
        "outbox_dlq_count",
        &[NAMESPACE, TOPIC, MetricLabel::one_of("reason", &DEATHS)],
        "Messages that became dead.",
    ),
    Metric::counter(
        "outbox_integrity_failure_count",
        &[NAMESPACE, TOPIC],
        "Messages whose bytes did not match their hash.",
    ),
    Metric::histogram(
        "outbox_process_latency",
        &[NAMESPACE],
        LATENCY_SECONDS,
        "From enqueue to acknowledged delivery.",
    )
    .in_seconds(),
    Metric::histogram(
        "outbox_publish_seconds",
        &[NAMESPACE],
        CALL_SECONDS,
        "How long the publisher took to answer for a batch.",
    )
    .in_seconds(),
    Metric::histogram(
        "outbox_publish_messages",
        &[NAMESPACE],
        BATCH_SIZES,
        "Messages of a batch that was handed to the publisher.",
    ),
    Metric::gauge(
        "outbox_in_flight_messages",
        &[NAMESPACE],
        "Messages that this relay has claimed and not settled.",
    )
    .initially(0.0),
    Metric::gauge(
        "outbox_in_flight_bytes",
        &[NAMESPACE],
        "Payload bytes of the messages that this relay has claimed and not settled.",
    )
    .in_bytes()
    .initially(0.0),
    // Settling.
    Metric::histogram(
        "outbox_settle_seconds",
        &[NAMESPACE],
        CALL_SECONDS,
        "How long the database took to write what became of messages.",
    )
    .in_seconds(),
    Metric::histogram(
        "outbox_settle_messages",
        &[NAMESPACE],
        BATCH_SIZES,
        "Messages whose outcome was written by one call.",
    ),
    Metric::counter(
        "outbox_lease_lost_count",
        &[NAMESPACE],
        "Messages whose lease was lost before they were settled.",
    ),
    Metric::counter(
        "outbox_released_count",
        &[NAMESPACE, MetricLabel::one_of("reason", &NotSent::ALL)],
        "Messages that were claimed and given back without having been tried.",
    ),
    Metric::counter(
        "outbox_repeated_count",
        &[
            NAMESPACE,
            MetricLabel::one_of("reason", &[LEASE_LOST, RECLAIMED, ABANDONED]),
        ],
        "Messages that go out twice, or may: because a lease was lost, or a worker ended in the middle.",
    ),
    Metric::counter(
        "outbox_verdict_refused_count",
        &[NAMESPACE],
        "Messages whose outcome the database refused to write.",
    ),
    Metric::gauge(
        "outbox_verdicts_refused",
        &[NAMESPACE],
        "Messages whose outcome the database refuses to write at present.",
    )
    .initially(0.0),
    Metric::gauge(
        "outbox_verdicts_busy",
        &[NAMESPACE],
        "Messages whose outcome waits for a lock that another transaction holds.",
    )
    .initially(0.0),
    Metric::counter(
        "outbox_claim_refused_count",
        &[NAMESPACE],
        "Messages that the database refused to have claimed, or taken back from a worker that crashed.",
    ),
    Metric::gauge(
        "outbox_claims_refused",
        &[NAMESPACE],
        "Messages that the database refuses to have claimed at present.",
    )
    .initially(0.0),
    // The broker and its destinations.
    Metric::gauge(
        "outbox_circuit_state",
        &[NAMESPACE],
        "0 while the circuit to the broker is closed, 1 while it is half-open, 2 while it is open.",
    )
    .initially(0.0),
    Metric::counter(
        "outbox_circuit_transition_count",
        &[NAMESPACE, MetricLabel::one_of("to", &["closed", "open", "half-open"])],
        "Changes of the circuit.",
    ),
    Metric::counter(
        "outbox_circuit_refused_count",
        &[NAMESPACE],
        "Messages that were claimed and then given back because the circuit opened.",
    ),
    Metric::gauge(
        "outbox_destination_circuit_state",
        &[NAMESPACE, DESTINATION],
        "0 while the circuit to a destination is closed, 1 while it is half-open, 2 while it is open.",
    ),
    Metric::gauge(
        "outbox_destinations_unavailable",
        &[NAMESPACE],
        "Destinations that are unavailable, while the broker is not.",
    )
    .initially(0.0),
    Metric::counter(
        "outbox_throttled_count",
        &[NAMESPACE],
        "Pauses because the broker throttles.",
    ),
    // The database.
    Metric::gauge(
        "outbox_healthy",
        &[NAMESPACE],
        "0 while calls of the database fail that messages wait for, 1 once they work again.",
    )
    .initially(1.0),
    Metric::gauge(
        "outbox_task_stalled",
        &[NAMESPACE, MetricLabel::one_of("task", &TASKS)],
        "1 while a task gives no sign of life though it should: the relay is unhealthy.",
    )
    .initially(0.0),
    Metric::counter(
        "outbox_store_error_count",
        &[NAMESPACE, MetricLabel::open("doing")],
        "Failed calls of the database.",
    ),
    // The only one without a namespace: the store that counts it serves any.
    Metric::counter(
        "outbox_store_retry_count",
        &[MetricLabel::open("reason")],
        "Transactions that MySQL ended in favour of another one and that were begun again.",
    ),
    // The table, as the janitor finds it.
    Metric::gauge("outbox_pending_count", &[NAMESPACE], "Messages waiting to be claimed."),
    Metric::gauge(
        "outbox_waiting_count",
        &[NAMESPACE],
        "Pending messages that are not due yet.",
    ),
    Metric::gauge("outbox_processing_count", &[NAMESPACE], "Messages under a lease."),
    Metric::gauge(
        "outbox_dead_count",
        &[NAMESPACE],
        "Dead messages that wait for an operator.",
    ),
    Metric::gauge(
        "outbox_oldest_age_seconds",
        &[NAMESPACE],
        "Age of the oldest undelivered message.",
    )
    .in_seconds(),
    Metric::counter(
        "outbox_purged_count",
        &[NAMESPACE, MetricLabel::one_of("table", &PURGED_TABLES)],
        "Rows removed after their retention.",
    ),
    Metric::gauge(
        "outbox_topic_pending_count",
        &[NAMESPACE, TOPIC],
        "Messages of a topic waiting to be claimed, of the oldest 10,000.",
    ),
    Metric::gauge(
        "outbox_topic_oldest_age_seconds",
        &[NAMESPACE, TOPIC],
        "Age of the oldest message of a topic that waits to be claimed.",
    )
    .in_seconds(),
    Metric::gauge(
        "outbox_upkeep_owner",
        &[NAMESPACE],
        "1 on the relay that shows the figures of the table and removes old rows, 0 on the others.",
    )
    .initially(0.0),
    // The shards of Posthaste's own log on PostgreSQL.
    Metric::gauge(
        "outbox_log_generation_waiting_seconds",
        &[NAMESPACE],
        "How long the newest shards of a log have waited for those before to be read to their end.",
    )
    .in_seconds()
    .initially(0.0),
    Metric::gauge(
        "outbox_log_notices",
        &[NAMESPACE],
        "What keeps messages of a log waiting and only an operator can mend.",
    )
    .initially(0.0),
    Metric::gauge(
        "outbox_log_shard_read",
        &[NAMESPACE, SHARD],
        "1 on the relay that reads this shard of a log.",
    ),
    Metric::gauge(
        "outbox_log_shard_lag",
        &[NAMESPACE, SHARD],
        "Numbers of a shard of a log that are not settled.",
    ),
    Metric::gauge(
        "outbox_log_shard_readable",
        &[NAMESPACE, SHARD],
        "0 while a shard of a log waits for those before to be read to their end.",
    ),
    // The safety net under dead letters.
    Metric::counter(
        "outbox_dead_letter_net_count",
        &[
            NAMESPACE,
            MetricLabel::one_of("net", &NETS),
            MetricLabel::one_of("outcome", &["ok", "failed"]),
        ],
        "Dead letters by where they were to be kept, and whether that worked.",
    ),
    Metric::gauge(
        "outbox_spool_messages",
        &[NAMESPACE],
        "Dead letters that are in the file and in no other place.",
    )
    .initially(0.0),
    Metric::gauge(
        "outbox_spool_bytes",
        &[NAMESPACE],
        "The size of the file with dead letters.",
    )
    .initially(0.0)
    .in_bytes(),
    Metric::counter(
        "outbox_alert_count",
        &[
            NAMESPACE,
            MetricLabel::one_of("outcome", &["sent", "failed", "suppressed"]),
        ],
        "Alerts that were sent or could not be, and messages that were held back for a summary.",
    ),
];
