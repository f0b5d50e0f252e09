//! Figures that nothing moves but time, or that move too often to be told each time: looked at every second.

use std::sync::Arc;
use std::time::Duration;

use metrics::gauge;
use posthaste_core::store::Reading;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::guard::in_flight::Load;
use crate::upkeep::shards::ShownShards;

const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Shows what is in flight and how long ago the last claim was, every second until the end.
pub(crate) async fn run(engine: Arc<Engine>, stop: CancellationToken) {
    let namespace = &engine.config.scope.namespace;
    let mut shards = ShownShards::new(namespace);
    let mut ticks = interval(SAMPLE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        show(namespace, engine.in_flight.load(), engine.health.since_claim());
        shards.show(engine.store.reading(), &engine.health);
    }
    shards.show(Reading::default(), &engine.health);
    // A relay that has ended has nothing in flight, and does not claim late.
    show(namespace, Load::default(), Duration::ZERO);
}

#[expect(clippy::cast_precision_loss, reason = "gauges are floats")]
fn show(namespace: &str, in_flight: Load, since_claim: Duration) {
    for (name, value) in [
        ("outbox_in_flight_messages", f64::from(in_flight.messages)),
        ("outbox_in_flight_bytes", in_flight.bytes as f64),
        ("outbox_seconds_since_claim", since_claim.as_secs_f64()),
    ] {
        gauge!(name, "namespace" => namespace.to_owned()).set(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::observe;

    #[test]
    fn what_is_in_flight_is_shown_in_messages_and_bytes() {
        let load = Load {
            messages: 3,
            bytes: 700,
        };
        let (counted, _) = observe(|| show("default", load, Duration::from_secs(9)));
        assert_eq!(counted["outbox_in_flight_messages"], 3);
        assert_eq!(counted["outbox_in_flight_bytes"], 700);
        assert_eq!(counted["outbox_seconds_since_claim"], 9);
    }
}
