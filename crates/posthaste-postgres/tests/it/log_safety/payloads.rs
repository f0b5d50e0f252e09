//! Events whose payload is missing.

use posthaste_core::lifecycle::Verdict;

use crate::support::log::{Log, Work, request};

#[tokio::test]
async fn events_without_a_payload_that_were_given_back_come_again() {
    let log = Log::fresh(4).await;
    log.run("alter table outbox alter payload drop not null").await;
    let mut events = Vec::new();
    for order in ["1", "2", "3", "4"] {
        events.push(log.append(&log.pool, order).await);
    }
    log.run("update outbox set payload = null where aggregate_id in ('1', '3')")
        .await;
    let store = log.store();
    let work = Work::claim(&store, &request(10)).await;
    assert_eq!(work.events(), events);
    let released: Vec<_> = (0..events.len()).map(|place| (place, Verdict::Released)).collect();
    assert_eq!(work.settle(&store, &released).await, []);
    let work = Work::claim(&store, &request(10)).await;
    assert_eq!(work.events(), events);
    assert_eq!(work.settle(&store, &[]).await, []);
}
