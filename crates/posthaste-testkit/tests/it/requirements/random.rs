//! Whatever fails, in whatever order, the engine's promises hold on such tables too.

use std::collections::HashMap;
use std::time::Duration;

use posthaste_core::lifecycle::State;
use posthaste_core::store::Filter;
use posthaste_core::{AdminStore, Outcome, PublishError};
use posthaste_relay::RelayConfig;
use posthaste_testkit::{MemoryLease, MemoryTable};
use proptest::prelude::*;

use super::broker::{Broker, busy};
use super::{config, drain, enqueue, store};

const PAYLOADS: [&str; 12] = ["a1", "1", "b1", "a2", "a3", "b2", "2", "c1", "b3", "a4", "3", "c2"];

/// What the broker says each time it is asked for a message; then it takes it.
type Script = HashMap<&'static str, Vec<(u64, Outcome)>>;

fn script() -> impl Strategy<Value = Script> {
    let outcome = prop_oneof![
        4 => Just(Outcome::DELIVERED),
        4 => Just(busy()),
        2 => Just(Outcome::Failed(PublishError::unknown("no answer"))),
        2 => Just(Outcome::Failed(PublishError::transport("connection refused"))),
        1 => Just(Outcome::Failed(PublishError::permanent("too large"))),
    ];
    let answers = prop::collection::vec((prop_oneof![2 => Just(0), 1 => 1_u64..3_000], outcome), 0..6);
    prop::collection::hash_map(prop::sample::select(PAYLOADS.to_vec()), answers, 0..12)
}

fn table() -> impl Strategy<Value = MemoryTable> {
    let lease = prop::sample::select(vec![MemoryLease::Until, MemoryLease::Since, MemoryLease::RowLocks]);
    (lease, any::<bool>(), any::<bool>()).prop_map(|(lease, without_attempts, versioned)| {
        MemoryTable::new()
            .lease(lease)
            .without_attempts(without_attempts)
            .versioned(versioned)
    })
}

/// Delivers as the script has it, until nothing is left.
async fn deliver(table: MemoryTable, script: Script, batch_size: u32) {
    let store = store(table);
    enqueue(&store, PAYLOADS).await;
    let asked = std::sync::Mutex::new(HashMap::<String, usize>::new());
    let broker = Broker::slow(move |payload, _| {
        let mut asked = asked.lock().unwrap();
        let times = asked.entry(payload.to_owned()).or_default();
        *times += 1;
        let answer = script.get(payload).and_then(|answers| answers.get(*times - 1));
        let (delay, outcome) = answer.cloned().unwrap_or((0, Outcome::DELIVERED));
        (Duration::from_millis(delay), outcome)
    });
    let mut config = RelayConfig { batch_size, ..config() };
    config.breaker.enabled = false;
    // Where attempts are counted in the table a retry waits there, and everything behind it: at worst a round for each
    // attempt at each message of a key.
    for _ in 0..4 * 5 {
        let report = drain(&store, broker.clone(), config.clone()).await;
        assert_eq!((report.lease_lost, report.abandoned), (0, 0));
        store.clock().advance(Duration::from_secs(5));
    }
    for row in store.list(&Filter::default(), None, 100).await.unwrap() {
        assert!(matches!(row.state, State::Delivered | State::Dead), "{row:?}");
    }
    for key in ["a", "b", "c"] {
        let tried: Vec<_> = broker
            .tried()
            .into_iter()
            .filter(|payload| payload.starts_with(key))
            .collect();
        assert!(tried.is_sorted(), "key {key} was sent as {tried:?}");
    }
    for payload in PAYLOADS {
        let attempts = broker.attempts_of(payload);
        assert!(attempts.len() <= 5, "{payload} was sent at {attempts:?}");
        assert!(
            attempts.is_sorted_by(|earlier, later| earlier.1 < later.1),
            "{payload}: {attempts:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Proves pitfall 5.
    #[test]
    fn every_message_has_an_end_within_its_attempts_and_no_key_is_reordered(
        table in table(), script in script(), batch_size in 1_u32..20,
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(deliver(table, script, batch_size));
    }
}
