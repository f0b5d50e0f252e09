//! Every metric of a consumer: the one place where its name, kind, unit, labels and meaning stand. `docs/metrics.md` is held
//! against it by a test.

use posthaste_core::metric::{Metric, MetricLabel};

/// Of events that have a handler.
pub(super) const TYPE: MetricLabel = MetricLabel::open("type");
/// Of those that the consumer reads.
pub(super) const TOPIC: MetricLabel = MetricLabel::open("topic");
const PARTITION: MetricLabel = MetricLabel::open("partition");

/// Seconds of one attempt, from a row in a table on the same machine to a handler that calls others and waits.
const HANDLE_SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// Every metric of a consumer.
pub const METRICS: &[Metric] = &[
    Metric::gauge(
        "posthaste_build_info",
        &[MetricLabel::one_of("version", &[env!("CARGO_PKG_VERSION")])],
        "Always 1; its label says which version runs.",
    )
    .initially(1.0),
    Metric::counter("consumer_handled_count", &[TYPE], "Events handled."),
    Metric::counter(
        "consumer_duplicate_count",
        &[TYPE],
        "Events skipped because they had been handled before.",
    ),
    Metric::counter(
        "consumer_retry_count",
        &[TYPE],
        "Failed attempts that were followed by another.",
    ),
    Metric::counter(
        "consumer_commit_failed_count",
        &[TYPE],
        "Transactions of handlers that could not be committed.",
    ),
    Metric::histogram(
        "consumer_handle_latency",
        &[TYPE],
        HANDLE_SECONDS,
        "From the beginning of an attempt to its commit.",
    )
    .in_seconds(),
    Metric::counter(
        "consumer_skipped_count",
        &[TOPIC],
        "Records passed over because no handler is registered for them or they have no value.",
    ),
    Metric::counter(
        "consumer_dead_letter_count",
        &[TOPIC],
        "Events sent to the dead-letter topic.",
    ),
    Metric::gauge(
        "consumer_lag",
        &[TOPIC, PARTITION],
        "Events of a partition whose offset is not committed yet.",
    ),
    Metric::gauge(
        "consumer_partition_seconds",
        &[TOPIC, PARTITION],
        "How long the record that a partition is working on has been in hand; 0 if there is none.",
    )
    .in_seconds(),
    Metric::gauge(
        "consumer_queued_count",
        &[],
        "Events that were read and wait for their handler.",
    )
    .initially(0.0),
    Metric::gauge(
        "consumer_paused_partitions",
        &[],
        "Partitions that are not read, because their queue is full.",
    )
    .initially(0.0),
    Metric::counter(
        "consumer_inbox_purged_count",
        &[],
        "Inbox records removed after their retention.",
    ),
];
