//! Many messages wait beside the log, for their turn or for an operator.

use std::time::{Duration, Instant};

use posthaste_core::RelayStore;
use posthaste_core::lifecycle::LeaseToken;

use crate::beside_failures::blocking;
use crate::fixture::{Log, payloads};

impl Log {
    /// Messages that stand behind others and were never tried, of keys by their numbers, all due.
    async fn waiting(&self, keys: u32, count: u32) {
        self.run(&format!(
            "insert into log_failed (shard, log_id, event_id, topic, ordering_key, payload)
             select 0, n, gen_random_uuid(), 'orders', 'k' || n % {keys}, convert_to(n::text, 'UTF8') from generate_series(1, {count}) n"
        ))
        .await;
    }
}

/// Proves pitfall 18.
#[tokio::test]
async fn messages_that_a_dead_one_blocks_hide_no_others() {
    let log = Log::fresh().await;
    log.waiting(1, 6_000).await;
    log.run(
        "update log_failed set died_at = now() where log_id = 1;
         insert into log_failed (shard, log_id, event_id, topic, ordering_key, payload)
         values (0, 7000, gen_random_uuid(), 'orders', 'free', 'free')",
    )
    .await;
    let claimed = log.store.claim(&blocking(LeaseToken::new())).await.unwrap().messages;
    assert_eq!(payloads(&claimed), ["free"]);
}

/// As after an hour without a broker.
#[tokio::test]
async fn thousands_that_are_due_are_handed_out_in_order_and_without_a_look_at_each_for_each() {
    const COUNT: u32 = 20_000;
    let log = Log::fresh().await;
    log.waiting(4, COUNT).await;
    let begun = Instant::now();
    let mut next = [4, 1, 2, 3];
    let mut count = 0;
    while count < COUNT {
        let token = LeaseToken::new();
        let claimed = log.claim_as(token, 2_000).await;
        for number in payloads(&claimed) {
            let number: u32 = number.parse().unwrap();
            let expected = &mut next[(number % 4) as usize];
            assert_eq!(number, *expected, "in the order of its key");
            *expected += 4;
            count += 1;
        }
        log.settle_all(token, &claimed).await;
        assert!(
            begun.elapsed() < Duration::from_mins(1),
            "{count} in {:?}",
            begun.elapsed()
        );
    }
}
