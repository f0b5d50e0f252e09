//! Thousands of messages that wait are no reason for those behind them to wait.

use std::time::{Duration, Instant};

use posthaste_core::lifecycle::{LeaseToken, Settlement, Verdict};
use posthaste_core::store::ClaimedMessage;
use posthaste_core::{Message, RelayStore};
use tokio::time::timeout;

use crate::fixture::{Log, payloads, request};

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

/// Postpones all of these for half a minute.
async fn postpone(log: &Log, token: LeaseToken, claimed: &[ClaimedMessage]) {
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
    let settlements: Vec<_> = claimed.iter().map(postponed).collect();
    log.store.settle(&settlements).await.unwrap();
}

/// Those that cannot wait there are not stranded: they wait in memory, as before. Without keys, or with so many.
async fn what_waits_is_delivered_though_the_table_takes_nothing(keys: Option<usize>) {
    let log = Log::fresh().await;
    log.enqueue_many(|n| {
        let message = Message::new("unavailable", n.to_string());
        match keys {
            Some(keys) => message.key(format!("k{}", n % keys)),
            None => message,
        }
    })
    .await;
    log.run(
        "create function refuse() returns trigger language plpgsql as $$ begin raise exception 'nothing today'; end $$;
         create trigger refuse before insert on log_failed for each row execute function refuse()",
    )
    .await;
    for _ in 0..30 {
        let token = LeaseToken::new();
        let claimed = log.claim_as(token, 1_000).await;
        postpone(&log, token, &claimed).await;
        log.store.pass_time(Duration::from_secs(1));
    }
    // The receiver is back.
    let begun = Instant::now();
    let mut arrived: Vec<usize> = Vec::new();
    while arrived.len() < MANY {
        let token = LeaseToken::new();
        let claimed = log.claim_as(token, 1_000).await;
        log.settle_all(token, &claimed).await;
        arrived.extend(
            payloads(&claimed)
                .iter()
                .map(|payload| payload.parse::<usize>().unwrap()),
        );
        log.store.pass_time(Duration::from_secs(1));
        assert!(
            begun.elapsed() < Duration::from_mins(1),
            "{} of {MANY} came",
            arrived.len()
        );
    }
    assert_eq!(arrived.len(), MANY);
    let Some(keys) = keys else { return };
    for key in 0..keys {
        let of_key = arrived.iter().filter(|number| *number % keys == key);
        assert!(of_key.is_sorted(), "in the order of their keys");
    }
}

#[tokio::test]
async fn what_waits_is_delivered_though_the_table_of_failures_takes_nothing() {
    what_waits_is_delivered_though_the_table_takes_nothing(None).await;
}

#[tokio::test]
async fn what_waits_with_one_key_is_delivered_though_the_table_of_failures_takes_nothing() {
    what_waits_is_delivered_though_the_table_takes_nothing(Some(1)).await;
}

#[tokio::test]
async fn what_waits_with_few_keys_is_delivered_though_the_table_of_failures_takes_nothing() {
    what_waits_is_delivered_though_the_table_takes_nothing(Some(10)).await;
}

impl Log {
    /// Each row that is written to the table of failures takes so long.
    async fn slow_down(&self, seconds: &str) {
        self.run(&format!(
            "create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep({seconds}); return new; end $$;
             create trigger slow before insert on log_failed for each row execute function slow()"
        ))
        .await;
    }
}

#[tokio::test]
async fn what_takes_longer_to_write_than_a_statement_may_is_written_piece_by_piece() {
    let log = Log::fresh().await;
    log.enqueue_many(|n| Message::new("slow", n.to_string()).key("one"))
        .await;
    log.enqueue(vec![Message::new("quick", "0").key("another")]).await;
    log.slow_down("0.001").await;
    let limited = log.with_statement_timeout("2s").await;
    let in_flight = limited.claim(100).await;
    assert_eq!(in_flight.len(), 100);
    limited
        .wait_for("quick", async |_, _, others| {
            assert!(others.is_empty(), "they wait for those in flight");
        })
        .await;
}

/// Not even a piece of them is written within the time limit of a call.
#[tokio::test]
async fn what_is_never_written_in_time_goes_on_waiting_in_memory() {
    const LIMIT: Duration = Duration::from_millis(500);
    let log = Log::fresh().await;
    log.enqueue_many(|n| Message::new("slow", n.to_string()).key("one"))
        .await;
    log.slow_down("0.02").await;
    let (begun, mut delivered) = (Instant::now(), 0);
    let (mut token, mut in_flight) = (LeaseToken::new(), Vec::new());
    while delivered < 300 {
        // Its receiver is so slow that all others stand still.
        log.store.pass_time(Duration::from_secs(6));
        let next = LeaseToken::new();
        let claim = timeout(LIMIT, log.store.claim(&request(next, 100))).await;
        let claimed = claim.map_or_else(|_| Vec::new(), |claim| claim.unwrap().messages);
        if claimed.is_empty() {
            let settlement = |claimed: &ClaimedMessage| Settlement::delivered(claimed.message.id, token);
            let settlements: Vec<_> = in_flight.iter().map(settlement).collect();
            let settled = timeout(LIMIT, log.store.settle(&settlements)).await;
            delivered += settled.map_or(0, |settled| settlements.len() - settled.unwrap().lost.len());
            in_flight.clear();
        } else {
            (token, in_flight) = (next, claimed);
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "{delivered} were delivered");
    }
}
