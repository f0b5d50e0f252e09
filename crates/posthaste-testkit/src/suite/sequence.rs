//! The number of a row in the order of inserts, from the table to the publisher.

use std::collections::HashMap;

use posthaste_core::store::ClaimedMessage;
use posthaste_core::{Message, MessageId};

use super::engine::{DUE_AGAIN, broker, config, drain};
use super::steps::{HOUR, LEASE_AND_MORE, MINUTE, Work, Worker, enqueue_new, keyed, plain, records, retry};
use crate::backend::Backend;

fn of_two_keys() -> impl Iterator<Item = Message> {
    (0..12).map(|n| keyed(if n % 3 == 0 { "a" } else { "b" }, &n.to_string()))
}

fn numbers(work: &Work) -> Vec<(MessageId, Option<i64>)> {
    let number = |claimed: &ClaimedMessage| (claimed.message.id, claimed.sequence);
    work.messages.iter().map(number).collect()
}

async fn listed<B: Backend>(b: &B) -> Vec<(MessageId, Option<i64>)> {
    let records = records(b).await.into_iter();
    records.map(|record| (record.message.id, record.sequence)).collect()
}

/// And with none where the table has none.
///
/// Proves B6.
pub async fn a_row_is_claimed_with_the_number_it_is_listed_with<B: Backend>(b: &B) {
    for worker in [Worker::new(), Worker::new().unordered()] {
        enqueue_new(b, (0..3).map(|n| plain(&n.to_string()))).await;
        let listed = listed(b).await;
        let work = worker.claim(b, 10).await;
        assert_eq!(numbers(&work), listed[listed.len() - 3..]);
        work.deliver(b).await;
    }
}

/// Proves B6.
pub async fn numbers_go_up_in_the_order_of_inserts<B: Backend>(b: &B) {
    for worker in [Worker::new(), Worker::new().unordered()] {
        let mut ids = enqueue_new(b, of_two_keys()).await;
        ids.extend(enqueue_new(b, of_two_keys()).await);
        let work = worker.claim(b, 100).await;
        assert_eq!(work.ids(), ids);
        let numbers: Vec<_> = numbers(&work).into_iter().map(|(_, number)| number).collect();
        assert!(numbers[0].is_some(), "the table has numbers");
        assert!(numbers.is_sorted_by(|before, after| before < after), "{numbers:?}");
        work.deliver(b).await;
    }
}

/// Proves B6.
pub async fn a_row_that_is_tried_again_keeps_its_number<B: Backend>(b: &B) {
    for worker in [Worker::new(), Worker::new().unordered()] {
        enqueue_new(b, [keyed("k", "1"), keyed("k", "2"), plain("3")]).await;
        let first = worker.claim(b, 10).await;
        assert_eq!(first.settle(b, retry(HOUR)).await, []);
        b.pass_time(HOUR + MINUTE).await;

        let of = |work: &Work| -> Vec<_> { work.messages.iter().map(|row| row.sequence).collect() };
        let mut again = Vec::new();
        let listed = listed(b).await;
        // The rows of a key come one after the other.
        while again.len() < 3 {
            let work = worker.claim(b, 10).await;
            assert!(!work.messages.is_empty(), "only {again:?} came again");
            assert!(numbers(&work).iter().all(|row| listed.contains(row)), "as it is listed");
            again.extend(of(&work));
            work.deliver(b).await;
        }
        again.sort_unstable();
        assert_eq!(again, of(&first));
    }
}

/// Proves B7.
pub async fn a_row_whose_worker_vanished_keeps_its_number<B: Backend>(b: &B) {
    for worker in [Worker::new(), Worker::new().unordered()] {
        enqueue_new(b, [keyed("k", "1"), plain("2")]).await;
        let mut left = numbers(&worker.claim(b, 10).await);
        b.pass_time(LEASE_AND_MORE).await;
        while !left.is_empty() {
            let work = worker.claim(b, 10).await;
            let taken = numbers(&work);
            assert!(!taken.is_empty(), "{left:?} is not given out again");
            assert!(
                taken.iter().all(|row| left.contains(row)),
                "{taken:?} is not of {left:?}"
            );
            left.retain(|row| !taken.contains(row));
            work.deliver(b).await;
        }
    }
}

/// Proves B13.
pub async fn a_publisher_is_told_the_number_also_when_it_is_asked_again<B: Backend>(b: &B) {
    enqueue_new(b, of_two_keys()).await;
    let payload = |message: &Message| message.payload.to_vec();
    // By payload: what failed in a log is a row of another table.
    let listed: HashMap<_, _> = (records(b).await.into_iter())
        .map(|record| (payload(&record.message), record.sequence))
        .collect();
    let broker = broker();
    broker.lose_acknowledgements(1);
    drain(b, broker.clone(), config()).await;
    b.pass_time(DUE_AGAIN).await;
    drain(b, broker.clone(), config()).await;
    let deliveries = broker.inner().deliveries();
    assert_eq!(deliveries.len(), listed.len() + 1, "one was sent twice");
    for delivery in deliveries {
        assert!(delivery.sequence.is_some(), "the table has numbers");
        assert_eq!(delivery.sequence, listed[&payload(&delivery.message)]);
    }
}
