//! Counting and cleaning up, by one relay of many.

use posthaste_core::RelayStore;
use posthaste_core::lifecycle::Verdict;
use posthaste_core::store::{LeadRequest, LeaderRole, Leadership, WorkerId};

use super::steps::{DAY, HOUR, MINUTE, Worker, enqueue_new, plain, settle};
use crate::backend::Backend;

async fn elect<B: Backend>(b: &B, worker: WorkerId) -> Leadership {
    let request = LeadRequest {
        role: LeaderRole::Upkeep,
        namespace: "default".to_owned(),
        worker,
        lease: HOUR,
    };
    b.store().elect_janitor(&request).await.expect("elect_janitor works")
}

/// Whatever the timing, and whoever is the one active relay.
pub async fn of_many_relays_one_looks_after_the_table<B: Backend>(b: &B) {
    let workers = [(); 8].map(|()| WorkerId::new());
    let answers = futures::future::join_all(workers.map(|worker| elect(b, worker))).await;
    let held: Vec<_> = (0..8).filter(|n| answers[*n] == Leadership::Held).collect();
    assert_eq!(held.len(), 1, "{answers:?}");
    for (n, worker) in workers.into_iter().enumerate() {
        let is_held = elect(b, worker).await == Leadership::Held;
        assert_eq!(is_held, n == held[0], "it stays the same one");
    }
    if let Some(registry) = b.store().registry() {
        let request = LeadRequest {
            role: LeaderRole::Relay,
            namespace: "default".to_owned(),
            worker: WorkerId::new(),
            lease: HOUR,
        };
        let active = registry.elect_leader(&request).await.expect("elect_leader works");
        assert_eq!(active, Leadership::Held, "delivering is another matter");
    }
}

/// Nobody waits for a lease that nobody needs.
pub async fn a_janitor_that_leaves_is_followed_at_once<B: Backend>(b: &B) {
    let [first, second] = [WorkerId::new(), WorkerId::new()];
    assert_eq!(elect(b, first).await, Leadership::Held);
    assert_ne!(elect(b, second).await, Leadership::Held);
    let leave = async |worker| {
        b.store().resign_janitor(worker).await.expect("resigning works");
        if let Some(registry) = b.store().registry() {
            registry.deregister(worker).await.expect("deregister works");
        }
    };
    leave(second).await;
    assert_eq!(
        elect(b, first).await,
        Leadership::Held,
        "another one leaving changes nothing"
    );
    leave(first).await;
    assert_eq!(elect(b, second).await, Leadership::Held);
}

/// Up to the bound they are as exact as those for operators.
pub async fn gauges_are_what_is_there<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..6).map(|n| plain(&n.to_string()))).await;
    b.pass_time(HOUR).await;
    let work = Worker::new().claim(b, 3).await;
    let verdicts = [
        Verdict::Delivered,
        Verdict::Dead {
            error: "refused".into(),
        },
    ];
    let settlements = ids.iter().zip(verdicts).map(|(id, verdict)| work.verdict(*id, verdict));
    assert_eq!(settle(b, settlements.collect()).await, []);
    let gauges = b.store().table_gauges("default").await.expect("counting works").stats;
    assert_eq!(
        (gauges.pending, gauges.processing, gauges.dead),
        (3, 1, 1),
        "{gauges:?}"
    );
    let age = gauges.oldest_seconds;
    assert!((HOUR.as_secs_f64() - 2.0..DAY.as_secs_f64()).contains(&age), "{age}");
}

/// Of those that are pending.
pub async fn gauges_name_the_topics_with_the_most_first<B: Backend>(b: &B) {
    let message = |topic: &str| posthaste_core::Message::new(topic, "x");
    enqueue_new(b, [message("few")]).await;
    b.pass_time(HOUR).await;
    enqueue_new(b, (0..3).map(|_| message("many"))).await;
    b.pass_time(MINUTE).await;
    let topics = b.store().table_gauges("default").await.expect("counting works").topics;
    let counts: Vec<_> = topics
        .iter()
        .map(|topic| (topic.topic.as_str(), topic.pending))
        .collect();
    assert_eq!(counts, [("many", 3), ("few", 1)]);
    let ages: Vec<_> = topics
        .iter()
        .map(|topic| topic.oldest_seconds / MINUTE.as_secs_f64())
        .collect();
    assert!(
        (0.9..5.0).contains(&ages[0]) && (60.0..70.0).contains(&ages[1]),
        "{ages:?}"
    );
    Worker::new().claim(b, 10).await.deliver(b).await;
    let topics = b.store().table_gauges("default").await.expect("counting works").topics;
    assert_eq!(topics, [], "nothing is pending");
}
