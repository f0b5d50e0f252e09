//! Being the one active relay.

use posthaste_core::breaker::CircuitState;
use posthaste_core::store::{LeadRequest, Leadership, RelayBeat, WorkerId};
use posthaste_core::{AdminStore, RelayStore};

use super::steps::{ALMOST_LEASE, LEASE, LEASE_AND_MORE};
use crate::backend::Backend;

async fn lead<B: Backend>(b: &B, namespace: &str, worker: WorkerId) -> Leadership {
    let request = LeadRequest {
        namespace: namespace.to_owned(),
        worker,
        lease: LEASE,
    };
    b.store().lead(&request).await.expect("lead works")
}

/// Whether somebody else was named, and who.
fn leader(leadership: Leadership) -> Option<WorkerId> {
    match leadership {
        Leadership::Held => None,
        Leadership::HeldBy { worker, left } => {
            assert!(left <= LEASE && !left.is_zero(), "{left:?}");
            Some(worker.into())
        }
    }
}

/// Whatever the timing.
pub async fn of_many_that_ask_at_the_same_time_one_leads<B: Backend>(b: &B) {
    for _ in 0..5 {
        let workers = [(); 16].map(|()| WorkerId::new());
        let answers = futures::future::join_all(workers.map(|worker| lead(b, "default", worker))).await;
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
        assert_eq!(lead(b, "default", first).await, Leadership::Held);
        b.pass_time(ALMOST_LEASE).await;
        assert_eq!(leader(lead(b, "default", second).await), Some(first));
    }
}

/// The one who lost it is told, also when it asks again at once.
pub async fn a_lead_that_ran_out_goes_to_the_next_who_asks<B: Backend>(b: &B) {
    let [first, second] = [WorkerId::new(), WorkerId::new()];
    assert_eq!(lead(b, "default", first).await, Leadership::Held);
    b.pass_time(LEASE_AND_MORE).await;
    assert_eq!(lead(b, "default", second).await, Leadership::Held);
    assert_eq!(leader(lead(b, "default", first).await), Some(second));
    b.pass_time(LEASE_AND_MORE).await;
    assert_eq!(lead(b, "default", first).await, Leadership::Held, "and back");
}

/// Nobody waits for a lease that nobody needs.
pub async fn a_leader_that_leaves_is_followed_at_once<B: Backend>(b: &B) {
    let [first, second] = [WorkerId::new(), WorkerId::new()];
    assert_eq!(lead(b, "default", first).await, Leadership::Held);
    b.store().leave(first).await.expect("leave works");
    assert_eq!(lead(b, "default", second).await, Leadership::Held);
}

/// A relay that stood by and stops must not depose anybody.
pub async fn only_the_leader_can_end_its_lead<B: Backend>(b: &B) {
    let [first, second, third] = [(); 3].map(|()| WorkerId::new());
    assert_eq!(lead(b, "default", first).await, Leadership::Held);
    b.store().leave(second).await.expect("leave works");
    assert_eq!(leader(lead(b, "default", third).await), Some(first));
}

/// One outbox may serve several applications.
pub async fn every_namespace_has_a_leader_of_its_own<B: Backend>(b: &B) {
    let [first, second] = [WorkerId::new(), WorkerId::new()];
    assert_eq!(lead(b, "one", first).await, Leadership::Held);
    assert_eq!(lead(b, "two", second).await, Leadership::Held);
    assert_eq!(leader(lead(b, "two", first).await), Some(second));
}

/// For as long as the lead holds, and not longer.
pub async fn the_list_shows_who_leads<B: Backend>(b: &B) {
    let workers = [WorkerId::new(), WorkerId::new()];
    for worker in workers {
        let beat = RelayBeat {
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
        b.store().beat(&beat).await.expect("beat works");
    }
    let leading = async || -> Vec<WorkerId> {
        let relays = b.store().relays("default").await.expect("relays works");
        let leading = relays.iter().filter(|relay| relay.leads);
        leading.map(|relay| relay.worker.into()).collect()
    };
    assert_eq!(leading().await, []);
    lead(b, "default", workers[1]).await;
    assert_eq!(leading().await, [workers[1]]);
    b.pass_time(LEASE_AND_MORE).await;
    assert_eq!(leading().await, []);
}
