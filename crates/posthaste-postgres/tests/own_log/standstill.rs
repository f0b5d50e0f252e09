//! Thousands of messages that wait are no reason for those behind them to wait.

use std::time::{Duration, Instant};

use posthaste_core::lifecycle::{LeaseToken, Settlement, Verdict};
use posthaste_core::store::ClaimedMessage;
use posthaste_core::{Message, RelayStore};

use crate::fixture::{Log, payloads};

/// More than a reader keeps in memory.
const MANY: usize = 12_000;

impl Log {
    async fn enqueue_many(&self, message: impl Fn(usize) -> Message) {
        for first in (0..MANY).step_by(4_000) {
            self.enqueue((first..first + 4_000).map(&message).collect()).await;
        }
    }

    /// What comes of a topic, while whatever else comes is dealt with by another.
    async fn wait_for(&self, topic: &str, deal_with_others: impl AsyncFn(&Self, LeaseToken, Vec<ClaimedMessage>)) {
        let begun = Instant::now();
        loop {
            let token = LeaseToken::new();
            let claimed = self.claim_as(token, 1_000).await;
            let (wanted, others): (Vec<_>, Vec<_>) =
                claimed.into_iter().partition(|claimed| claimed.message.topic == topic);
            deal_with_others(self, token, others).await;
            if !wanted.is_empty() {
                self.settle_all(token, &wanted).await;
                return;
            }
            self.store.pass_time(Duration::from_secs(2));
            assert!(
                begun.elapsed() < Duration::from_mins(1),
                "what waits holds up all others"
            );
        }
    }
}

/// Proves pitfall 18.
#[tokio::test]
async fn a_key_whose_receiver_is_slow_does_not_keep_others_waiting_and_stays_in_order() {
    let log = Log::fresh().await;
    log.enqueue_many(|n| Message::new("slow", n.to_string()).key("one"))
        .await;
    let first = LeaseToken::new();
    let in_flight = log.claim_as(first, 100).await;
    log.enqueue(vec![Message::new("quick", "0").key("another")]).await;
    log.wait_for("quick", async |_, _, others| {
        assert!(others.is_empty(), "they wait for those in flight");
    })
    .await;
    // One of those in flight fails after all; the others of its key have not passed it.
    log.settle_all(first, &in_flight[..50]).await;
    let failed = &in_flight[50..];
    let retry = |claimed: &ClaimedMessage| Settlement {
        id: claimed.message.id,
        token: first,
        verdict: Verdict::Retry {
            delay: Duration::ZERO,
            error: "no".to_owned(),
        },
        version: None,
        without_letter: false,
    };
    let settled = log
        .store
        .settle(&failed.iter().map(retry).collect::<Vec<_>>())
        .await
        .unwrap();
    assert!(settled.lost.is_empty() && settled.refused.is_empty(), "{settled:?}");
    let mut arrived = payloads(&in_flight[..50]);
    let begun = Instant::now();
    while arrived.len() < 2_000 {
        let token = LeaseToken::new();
        let claimed = log.claim_as(token, 1_000).await;
        arrived.extend(payloads(&claimed));
        log.settle_all(token, &claimed).await;
        assert!(begun.elapsed() < Duration::from_mins(2), "{} came", arrived.len());
    }
    let expected: Vec<_> = (0..arrived.len()).map(|n| n.to_string()).collect();
    assert_eq!(arrived, expected, "in order");
}

/// Each of them is put off again and again, as while one of several publishers is unavailable.
#[tokio::test]
async fn messages_of_an_unavailable_receiver_do_not_keep_others_waiting() {
    let log = Log::fresh().await;
    log.enqueue_many(|n| Message::new("unavailable", n.to_string()).key(format!("k{n}")))
        .await;
    log.enqueue(vec![Message::new("available", "0")]).await;
    let put_off = async |log: &Log, token, others: Vec<ClaimedMessage>| {
        let postponed = |claimed: &ClaimedMessage| Settlement {
            id: claimed.message.id,
            token,
            verdict: Verdict::Postponed {
                delay: Duration::from_secs(30),
                error: "unavailable".to_owned(),
            },
            version: None,
            without_letter: false,
        };
        let settlements: Vec<_> = others.iter().map(postponed).collect();
        let settled = log.store.settle(&settlements).await.unwrap();
        assert!(settled.lost.is_empty() && settled.refused.is_empty(), "{settled:?}");
    };
    log.wait_for("available", put_off).await;
    let attempts = log
        .count("select coalesce(max(attempts), 0)::bigint from log_failed")
        .await;
    assert_eq!(attempts, 0, "nothing was tried");
}

/// Those that cannot wait there are not stranded: they wait in memory, as before.
#[tokio::test]
async fn what_waits_is_delivered_though_the_table_of_failures_takes_nothing() {
    let log = Log::fresh().await;
    log.enqueue_many(|n| Message::new("unavailable", n.to_string())).await;
    let postponed = |claimed: &ClaimedMessage, token| Settlement {
        id: claimed.message.id,
        token,
        verdict: Verdict::Postponed {
            delay: Duration::from_secs(30),
            error: "unavailable".to_owned(),
        },
        version: None,
        without_letter: false,
    };
    log.run(
        "create function refuse() returns trigger language plpgsql as $$ begin raise exception 'nothing today'; end $$;
         create trigger refuse before insert on log_failed for each row execute function refuse()",
    )
    .await;
    for _ in 0..30 {
        let token = LeaseToken::new();
        let claimed = log.claim_as(token, 1_000).await;
        let settlements: Vec<_> = claimed.iter().map(|claimed| postponed(claimed, token)).collect();
        log.store.settle(&settlements).await.unwrap();
        log.store.pass_time(Duration::from_secs(1));
    }
    // The receiver is back.
    let begun = Instant::now();
    let mut arrived = 0;
    while arrived < MANY {
        let token = LeaseToken::new();
        let claimed = log.claim_as(token, 1_000).await;
        log.settle_all(token, &claimed).await;
        arrived += claimed.len();
        log.store.pass_time(Duration::from_secs(1));
        assert!(begun.elapsed() < Duration::from_mins(1), "{arrived} of {MANY} came");
    }
    assert_eq!(arrived, MANY);
}
