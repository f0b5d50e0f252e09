//! Figures from the start on: a counter that first appears with the event that moves it shows no increase, so that an alert
//! on one misses the event.

use metrics::{Counter, Gauge, counter, gauge, histogram};
use posthaste_core::breaker::CircuitState;
use posthaste_core::store::Scope;

use super::table::PURGED_TABLES;

/// What is counted by topic. Other topics than those of the scope are known once a message of theirs was settled.
pub(super) const BY_TOPIC: [&str; 4] = [
    "outbox_processed_count",
    "outbox_failure_count",
    "outbox_dlq_count",
    "outbox_integrity_failure_count",
];

/// What is counted by namespace alone.
const BY_NAMESPACE: [&str; 9] = [
    "outbox_claimed_count",
    "outbox_reclaimed_count",
    "outbox_slow_claim_count",
    "outbox_circuit_refused_count",
    "outbox_stalled_recovered_count",
    "outbox_lease_lost_count",
    "outbox_verdict_refused_count",
    "outbox_claim_refused_count",
    "outbox_throttled_count",
];

/// What is 0 while all is well, and set by what finds that it is not.
const GAUGES: [&str; 5] = [
    "outbox_destinations_away",
    "outbox_verdicts_refused",
    "outbox_verdicts_busy",
    "outbox_claims_refused",
    "outbox_upkeep_owner",
];

/// Shows a relay's figures before anything has happened. Failed calls of the database are shown by what makes the calls.
pub(crate) fn register(scope: &Scope) {
    let namespace = || scope.namespace.clone();
    for name in BY_NAMESPACE {
        show(&counter!(name, "namespace" => namespace()));
    }
    for topic in &scope.topics {
        for name in BY_TOPIC {
            show(&counter!(name, "namespace" => namespace(), "topic" => topic.clone()));
        }
    }
    for state in CircuitState::ALL {
        show(&counter!("outbox_circuit_transition_count", "namespace" => namespace(), "to" => state.as_str()));
    }
    show(&counter!("outbox_dlq_count", "reason" => "exhausted"));
    for table in PURGED_TABLES {
        show(&counter!("outbox_purged_count", "namespace" => namespace(), "table" => table));
    }
    for name in GAUGES {
        begin(&gauge!(name, "namespace" => namespace()), 0.0);
    }
    begin(&gauge!("outbox_healthy"), 1.0);
    drop(histogram!("outbox_process_latency", "namespace" => namespace()));
}

/// Several relays of one process may share a counter, which goes on where it is.
fn show(counter: &Counter) {
    counter.increment(0);
}

fn begin(gauge: &Gauge, value: f64) {
    gauge.set(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::observe;

    #[test]
    fn what_is_counted_is_there_before_anything_has_happened() {
        let scope = Scope {
            topics: vec!["orders".to_owned()],
            ..Scope::default()
        };
        let (counted, _) = observe(|| register(&scope));
        let counters = BY_NAMESPACE.iter().chain(&BY_TOPIC).chain(&GAUGES);
        for name in counters.chain(&["outbox_circuit_transition_count", "outbox_purged_count"]) {
            assert_eq!(counted.get(*name), Some(&0), "{name} in {counted:?}");
        }
        assert_eq!(counted["outbox_healthy"], 1);
    }

    #[test]
    fn topics_that_nobody_named_are_unknown_at_first() {
        let (counted, _) = observe(|| register(&Scope::default()));
        assert!(!counted.contains_key("outbox_processed_count"), "{counted:?}");
    }
}
