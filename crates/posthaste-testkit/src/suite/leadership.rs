//! Being the one active relay.

use posthaste_core::RelayStore;
use posthaste_core::breaker::CircuitState;
use posthaste_core::store::{LeadRequest, LeaderRole, Leadership, RelayHeartbeat, WorkerId};
use posthaste_relay::{Relay, RelayConfig, RelayError};
use tokio::time::sleep;

use super::engine::{config, drain, eventually, start};
use super::steps::{ALMOST_LEASE, HOUR, LEASE, LEASE_AND_MORE, SECOND, enqueue_new, plain, record, registry};
use crate::RecordingPublisher;
use crate::backend::Backend;

/// One of many, with a limit that no case waits for.
fn exclusive() -> RelayConfig {
    RelayConfig {
        exclusive: true,
        exclusive_lease: HOUR,
        poll_interval: SECOND / 100,
        max_poll_interval: SECOND / 50,
        ..config()
    }
}

async fn elect<B: Backend>(b: &B, namespace: &str, worker: WorkerId) -> Leadership {
    let request = LeadRequest {
        role: LeaderRole::Relay,
        namespace: namespace.to_owned(),
        worker,
        lease: LEASE,
    };
    registry(b).elect_leader(&request).await.expect("elect_leader works")
}

/// Whether another relay was named, and who.
fn leader(leadership: Leadership) -> Option<WorkerId> {
    match leadership {
        Leadership::Held => None,
        Leadership::HeldBy { worker, left } => {
            // One that asked a moment before the leader was granted its time sees a little more than all of it.
            assert!(left <= LEASE + SECOND && !left.is_zero(), "{left:?}");
            Some(worker.into())
        }
    }
}

/// Whatever the timing.
pub async fn of_many_that_ask_at_the_same_time_one_leads<B: Backend>(b: &B) {
    for _ in 0..5 {
        let workers = [(); 16].map(|()| WorkerId::new());
        let answers = futures::future::join_all(workers.map(|worker| elect(b, "default", worker))).await;
        let held: Vec<_> = (0..16).filter(|n| answers[*n] == Leadership::Held).collect();
        assert_eq!(held.len(), 1, "{answers:?}");
        let others = answers.into_iter().filter_map(leader);
        assert!(others.clone().all(|named| named == workers[held[0]]));
        assert_eq!(others.count(), 15);
        b.pass_time(LEASE_AND_MORE).await;
    }
}

/// And keeps others away for as long as it asks.
pub async fn a_leader_that_asks_again_in_time_goes_on<B: Backend>(b: &B) {
    let [first, second] = [WorkerId::new(), WorkerId::new()];
    for _ in 0..4 {
        assert_eq!(elect(b, "default", first).await, Leadership::Held);
        b.pass_time(ALMOST_LEASE).await;
        assert_eq!(leader(elect(b, "default", second).await), Some(first));
    }
}

/// The one who lost it is told, also when it asks again at once.
pub async fn a_lead_that_ran_out_goes_to_the_next_who_asks<B: Backend>(b: &B) {
    let [first, second] = [WorkerId::new(), WorkerId::new()];
    assert_eq!(elect(b, "default", first).await, Leadership::Held);
    b.pass_time(LEASE_AND_MORE).await;
    assert_eq!(elect(b, "default", second).await, Leadership::Held);
    assert_eq!(leader(elect(b, "default", first).await), Some(second));
    b.pass_time(LEASE_AND_MORE).await;
    assert_eq!(elect(b, "default", first).await, Leadership::Held, "and back");
}

/// Nobody waits for a lease that nobody needs.
pub async fn a_leader_that_leaves_is_followed_at_once<B: Backend>(b: &B) {
    let [first, second] = [WorkerId::new(), WorkerId::new()];
    assert_eq!(elect(b, "default", first).await, Leadership::Held);
    registry(b).deregister(first).await.expect("deregister works");
    assert_eq!(elect(b, "default", second).await, Leadership::Held);
}

/// A relay that stood by and stops must not depose anybody.
pub async fn only_the_leader_can_end_its_lead<B: Backend>(b: &B) {
    let [first, second, third] = [(); 3].map(|()| WorkerId::new());
    assert_eq!(elect(b, "default", first).await, Leadership::Held);
    registry(b).deregister(second).await.expect("deregister works");
    assert_eq!(leader(elect(b, "default", third).await), Some(first));
}

/// One outbox may serve several applications.
pub async fn every_namespace_has_a_leader_of_its_own<B: Backend>(b: &B) {
    let [first, second] = [WorkerId::new(), WorkerId::new()];
    assert_eq!(elect(b, "one", first).await, Leadership::Held);
    assert_eq!(elect(b, "two", second).await, Leadership::Held);
    assert_eq!(leader(elect(b, "two", first).await), Some(second));
}

/// For as long as the lead holds, and not longer.
pub async fn the_list_shows_who_leads<B: Backend>(b: &B) {
    let workers = [WorkerId::new(), WorkerId::new()];
    for worker in workers {
        let heartbeat = RelayHeartbeat {
            worker,
            namespace: "default".into(),
            publisher: "kafka".into(),
            host: "h".into(),
            pid: 1,
            version: "1".into(),
            circuit: CircuitState::Closed,
            circuit_lasted: LEASE,
            circuit_reason: None,
        };
        registry(b).heartbeat(&heartbeat).await.expect("heartbeat works");
    }
    let leading = async || -> Vec<WorkerId> {
        let relays = registry(b).relays("default").await.expect("relays works");
        let leading = relays.iter().filter(|relay| relay.leads);
        leading.map(|relay| relay.worker.into()).collect()
    };
    assert_eq!(leading().await, []);
    elect(b, "default", workers[1]).await;
    assert_eq!(leading().await, [workers[1]]);
    b.pass_time(LEASE_AND_MORE).await;
    assert_eq!(leading().await, []);
}

/// A leader that stops is followed at once; one that dies, when its time is over and not before.
///
/// Proves C8.
pub async fn of_many_relays_one_is_active_and_the_next_takes_over<B: Backend>(b: &B) {
    let brokers = [(); 3].map(|()| RecordingPublisher::new());
    let mut relays: Vec<_> = brokers
        .iter()
        .map(|broker| Some(start(b, broker.clone(), exclusive())))
        .collect();
    let mut total = 0;
    // Delivers through whoever is active, and says who that was.
    let mut deliver = async || -> usize {
        let before = brokers.each_ref().map(|broker| broker.ids().len());
        enqueue_new(b, (0..30).map(|n| plain(&n.to_string()))).await;
        total += 30;
        let count = || brokers.iter().map(|broker| broker.ids().len()).sum::<usize>();
        // And written: the next one would deliver again what was not.
        let written = async || {
            let stats = b.store().stats("default").await.expect("stats work");
            stats.pending + stats.processing == 0
        };
        eventually("everything to be delivered", async || {
            count() == total && written().await
        })
        .await;
        let mut active = (0..3).filter(|n| brokers[*n].ids().len() > before[*n]);
        let first = active.next().expect("a relay delivered");
        assert_eq!(active.next(), None, "one delivered all of it");
        first
    };

    let leader = deliver().await;
    assert_eq!(deliver().await, leader, "it goes on");
    let (shutdown, relay) = relays[leader].take().expect("it runs");
    shutdown.cancel();
    relay.await.expect("the relay does not panic");
    let successor = deliver().await;
    assert_ne!(successor, leader);

    let (_, relay) = relays[successor].take().expect("it runs");
    relay.abort();
    assert!(relay.await.expect_err("it was aborted").is_cancelled());
    let ids = enqueue_new(b, [plain("late")]).await;
    let untouched = record(b, ids[0]).await;
    // Twenty-five polls of the one that stands by.
    sleep(SECOND / 2).await;
    let last = 3 - leader - successor;
    assert_eq!(brokers[last].ids(), [], "not before the limit");
    assert_eq!(record(b, ids[0]).await, untouched, "nor claimed and given back");
    b.pass_time(HOUR).await;
    eventually("the last one to take over", async || brokers[last].ids() == ids).await;
    let (shutdown, relay) = relays[last].take().expect("it runs");
    shutdown.cancel();
    let report = relay.await.expect("the relay does not panic");
    assert_eq!(
        (report.delivered, report.released),
        (1, 0),
        "standing by is not claiming"
    );
}

/// By its own clock, also if it is not told.
pub async fn a_relay_that_lost_the_lead_claims_nothing_more<B: Backend>(b: &B) {
    let broker = RecordingPublisher::new();
    let lease = SECOND;
    let (shutdown, relay) = start(
        b,
        broker.clone(),
        RelayConfig {
            exclusive_lease: lease,
            ..exclusive()
        },
    );
    enqueue_new(b, [plain("1")]).await;
    eventually("the relay to lead", async || broker.ids().len() == 1).await;
    let usurper = WorkerId::new();
    let taken = async || {
        b.pass_time(lease).await;
        elect(b, "default", usurper).await == Leadership::Held
    };
    eventually("the lead to be taken", taken).await;
    sleep(lease).await;
    let ids = enqueue_new(b, [plain("2")]).await;
    sleep(SECOND / 2).await;
    assert_eq!(broker.ids().len(), 1, "it stands by");
    registry(b).deregister(usurper).await.expect("deregister works");
    eventually("the relay to lead again", async || broker.ids()[1..] == ids).await;
    shutdown.cancel();
    relay.await.expect("the relay does not panic");
}

/// A drain says who leads, and leaves no lead behind.
pub async fn a_relay_that_may_not_be_active_does_not_drain<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1"), plain("2")]).await;
    let (other, broker) = (WorkerId::new(), RecordingPublisher::new());
    assert_eq!(elect(b, "default", other).await, Leadership::Held);
    let relay = Relay::new(b.store().clone(), broker.clone()).config(exclusive());
    let error = relay.drain().await.expect_err("another one leads");
    assert!(matches!(error, RelayError::StandingBy { .. }), "{error}");
    assert!(error.to_string().contains(&other.as_uuid().to_string()), "{error}");
    assert_eq!(broker.ids(), []);
    registry(b).deregister(other).await.expect("deregister works");
    drain(b, broker.clone(), exclusive()).await;
    broker.assert_delivered_once(&ids);
    assert_eq!(elect(b, "default", other).await, Leadership::Held, "the drain is over");
}
