//! What relays say of themselves.

use posthaste_core::BreakerConfig;
use posthaste_core::breaker::CircuitState;
use posthaste_core::store::{RelayHeartbeat, RelayRecord, WorkerId};

use posthaste_relay::RelayConfig;

use super::engine::{OneByOne, broker, eventually, retrying_after, start};
use super::steps::{HOUR, MINUTE, SECOND, enqueue_new, plain, registry};
use crate::backend::Backend;

fn heartbeat(namespace: &str) -> RelayHeartbeat {
    RelayHeartbeat {
        worker: WorkerId::new(),
        namespace: namespace.to_owned(),
        publisher: "kafka".into(),
        host: "relay-7f9".into(),
        pid: u32::MAX,
        version: "1.2.3".into(),
        circuit: CircuitState::Closed,
        circuit_lasted: MINUTE,
        circuit_reason: None,
    }
}

async fn send<B: Backend>(b: &B, heartbeat: &RelayHeartbeat) {
    registry(b).heartbeat(heartbeat).await.expect("heartbeat works");
}

async fn relays<B: Backend>(b: &B, namespace: &str) -> Vec<RelayRecord> {
    registry(b).relays(namespace).await.expect("relays works")
}

/// Every field comes back, and the times are the database's.
pub async fn a_beat_puts_a_relay_on_the_list<B: Backend>(b: &B) {
    assert_eq!(relays(b, "default").await, []);
    let heartbeat = heartbeat("default");
    send(b, &heartbeat).await;
    let [relay] = &relays(b, "default").await[..] else {
        panic!("one relay")
    };
    assert_eq!(
        (relay.worker, &relay.namespace),
        (heartbeat.worker.as_uuid(), &heartbeat.namespace)
    );
    assert_eq!((&relay.publisher, &relay.host), (&heartbeat.publisher, &heartbeat.host));
    assert_eq!((relay.pid, &relay.version), (heartbeat.pid, &heartbeat.version));
    assert_eq!((relay.circuit, &relay.circuit_reason), (CircuitState::Closed, &None));
    assert_eq!(relay.started_at, relay.seen_at);
    assert_eq!(relay.circuit_since, relay.seen_at - MINUTE);
    assert!(relay.silent_seconds < 60.0 && !relay.leads, "{relay:?}");
}

/// The circuit of a running relay is what operators look for.
pub async fn a_later_beat_keeps_the_start_and_brings_the_rest_up_to_date<B: Backend>(b: &B) {
    let mut heartbeat = heartbeat("default");
    send(b, &heartbeat).await;
    b.pass_time(SECOND * 5).await;
    for circuit in [CircuitState::Open, CircuitState::HalfOpen] {
        heartbeat.circuit = circuit;
        heartbeat.circuit_lasted = SECOND;
        heartbeat.circuit_reason = Some("connection\0refused".into());
        send(b, &heartbeat).await;
        let relay = relays(b, "default").await.remove(0);
        assert_eq!(relay.circuit, circuit);
        assert!(
            relay
                .circuit_reason
                .as_ref()
                .is_some_and(|reason| reason.ends_with("refused"))
        );
        assert_eq!(relay.circuit_since, relay.seen_at - SECOND);
        assert!(
            relay.seen_at - relay.started_at >= chrono::TimeDelta::seconds(5),
            "{relay:?}"
        );
    }
}

/// A namespace is an outbox of its own, also here.
pub async fn relays_are_listed_by_namespace_oldest_first<B: Backend>(b: &B) {
    let heartbeats = ["default", "other", "default"].map(heartbeat);
    for heartbeat in &heartbeats {
        send(b, heartbeat).await;
        b.pass_time(SECOND).await;
    }
    send(b, &heartbeats[0]).await;
    let listed = relays(b, "default").await.into_iter().map(|relay| relay.worker);
    assert!(listed.eq([&heartbeats[0], &heartbeats[2]].map(|heartbeat| heartbeat.worker.as_uuid())));
    assert_eq!(relays(b, "other").await.len(), 1);
    assert_eq!(relays(b, "nowhere").await, []);
}

/// So that an operator's clock does not matter.
pub async fn silence_is_measured_by_the_databases_clock<B: Backend>(b: &B) {
    send(b, &heartbeat("default")).await;
    b.pass_time(SECOND * 20).await;
    let silent = relays(b, "default").await[0].silent_seconds;
    assert!((20.0..50.0).contains(&silent), "{silent}");
}

/// A relay that stops cleanly is not missed.
pub async fn a_relay_that_leaves_is_off_the_list<B: Backend>(b: &B) {
    let heartbeats = [heartbeat("default"), heartbeat("default")];
    for heartbeat in &heartbeats {
        send(b, heartbeat).await;
    }
    registry(b)
        .deregister(heartbeats[0].worker)
        .await
        .expect("deregister works");
    registry(b)
        .deregister(heartbeats[0].worker)
        .await
        .expect("leaving twice is nothing");
    let listed: Vec<_> = relays(b, "default").await.iter().map(|relay| relay.worker).collect();
    assert_eq!(listed, [heartbeats[1].worker.as_uuid()]);
}

/// A relay that died cannot leave.
pub async fn a_relay_not_heard_for_a_day_is_forgotten<B: Backend>(b: &B) {
    let (dead, alive) = (heartbeat("default"), heartbeat("default"));
    send(b, &dead).await;
    b.pass_time(HOUR * 23).await;
    send(b, &alive).await;
    assert_eq!(relays(b, "default").await.len(), 2);
    b.pass_time(HOUR * 2).await;
    send(b, &alive).await;
    let listed: Vec<_> = relays(b, "default").await.iter().map(|relay| relay.worker).collect();
    assert_eq!(listed, [alive.worker.as_uuid()]);
}

/// A change of the circuit shows at once, not with the next heartbeat.
pub async fn a_running_relay_is_on_the_list_with_its_circuit_until_it_stops<B: Backend>(b: &B) {
    let broker = broker();
    broker.vanish();
    let breaker = BreakerConfig {
        open_for: SECOND * 3,
        ..BreakerConfig::default()
    };
    let (shutdown, relay) = start(
        b,
        OneByOne::new(&broker),
        RelayConfig {
            breaker,
            ..retrying_after(SECOND)
        },
    );
    let shows = async |circuit: CircuitState, reason: Option<&str>| {
        let told = async || {
            let relays = relays(b, "default").await;
            let told = relays
                .first()
                .map(|relay| (relay.circuit, relay.circuit_reason.as_deref()));
            told == Some((circuit, reason))
        };
        eventually("the list to show the circuit", told).await;
        relays(b, "default").await.remove(0)
    };
    let first = shows(CircuitState::Closed, None).await;
    assert_eq!(
        (first.pid, first.publisher.as_str()),
        (std::process::id(), "one-by-one")
    );
    assert!(!first.host.is_empty() && !first.version.is_empty());
    enqueue_new(b, (0..8).map(|n| plain(&n.to_string()))).await;
    let open = shows(CircuitState::Open, Some("the broker cannot be reached, as scripted")).await;
    assert!(open.circuit_since > first.circuit_since && open.started_at == first.started_at);
    assert!(
        open.seen_at - first.seen_at < chrono::TimeDelta::seconds(4),
        "before the next heartbeat"
    );
    broker.heal();
    shows(CircuitState::Closed, None).await;
    shutdown.cancel();
    relay.await.expect("the relay does not panic");
    assert_eq!(relays(b, "default").await, []);
}
