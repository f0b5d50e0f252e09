//! Many workers on few keys, with every kind of verdict, schedules and replays: no key is ever delivered out of order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::Utc;
use posthaste_core::lifecycle::{LeaseToken, Settlement, Verdict};
use posthaste_core::store::{ClaimRequest, DeadHead, Filter, KeyOrdering, Scope, WorkerId};
use posthaste_core::{AdminStore, Message, MessageId, OutboxOptions, RelayStore};
use posthaste_postgres::PostgresStore;

use crate::support;

const KEYS: u64 = 7;
const MESSAGES: u64 = 900;

/// A small generator of its own, so that a failure can be run again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn request(dice: &mut Dice) -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit: u32::try_from(dice.below(12) + 1).unwrap(),
        max_bytes: if dice.below(4) == 0 { 4 } else { 1 << 20 },
        scan_limit: (dice.below(3) == 0).then_some(5),
        lease: Duration::from_mins(1),
        max_attempts: 1_000,
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Skip,
            except: Vec::new(),
        },
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    }
}

fn verdict(dice: &mut Dice) -> Verdict {
    let delay = Duration::from_millis(dice.below(40));
    let error = "dice".to_owned();
    match dice.below(10) {
        0 => Verdict::Retry { delay, error },
        1 => Verdict::Postponed { delay, error },
        2 => Verdict::Released,
        _ => Verdict::Delivered,
    }
}

async fn work(store: PostgresStore, mut dice: Dice, delivered: Arc<Mutex<Vec<MessageId>>>) {
    while delivered.lock().unwrap().len() < usize::try_from(MESSAGES).unwrap() {
        let request = request(&mut dice);
        let claim = store.claim(&request).await.unwrap();
        let bytes: usize = claim.messages.iter().map(|claimed| claimed.message.payload.len()).sum();
        assert!(claim.messages.len() <= request.limit as usize);
        assert!(claim.messages.len() <= 1 || bytes as u64 <= request.max_bytes);
        // As the engine does: what follows one that was not delivered is given back untouched.
        let mut stopped = Vec::new();
        let mut settlements = Vec::new();
        for claimed in &claim.messages {
            let key = claimed.message.ordering_key.clone().unwrap_or_default();
            let mut settlement = Settlement::delivered(claimed.message.id, request.token);
            settlement.verdict = if stopped.contains(&key) {
                Verdict::Released
            } else {
                verdict(&mut dice)
            };
            if settlement.verdict == Verdict::Delivered {
                delivered.lock().unwrap().push(claimed.message.id);
            } else {
                stopped.push(key);
            }
            settlements.push(settlement);
        }
        assert_eq!(store.settle(&settlements).await.unwrap().lost, []);
        if claim.messages.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Proves B14 and pitfalls 4, 5.
#[tokio::test(flavor = "multi_thread")]
async fn no_key_is_delivered_out_of_order_by_many_workers() {
    let seed = std::env::var("POSTHASTE_SEED").map_or_else(
        |_| u64::from(uuid::Uuid::new_v4().as_fields().0),
        |seed| seed.parse().unwrap(),
    );
    println!("POSTHASTE_SEED={seed}");
    let store = support::store(10).await;
    let delivered = Arc::new(Mutex::new(Vec::new()));
    let workers: Vec<_> = (1..=6)
        .map(|n| tokio::spawn(work(store.clone(), Dice(seed.wrapping_mul(n)), Arc::clone(&delivered))))
        .collect();
    let mut dice = Dice(seed);
    for n in 0..MESSAGES / 30 {
        let message = |_| {
            let message = Message::new("t", "xx").key(format!("k{}", dice.below(KEYS)));
            match dice.below(4) {
                0 => message.not_before(Utc::now() + Duration::from_millis(dice.below(300))),
                _ => message,
            }
        };
        let messages: Vec<_> = (0..30).map(message).collect();
        let mut tx = store.pool().begin().await.unwrap();
        let outbox = store.outbox(OutboxOptions::default());
        outbox.enqueue_all(&mut tx, messages).await.unwrap();
        tx.commit().await.unwrap();
        if n % 3 == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    for worker in workers {
        worker.await.unwrap();
    }
    let all = store.list(&Filter::default(), None, 10_000).await.unwrap();
    let place: HashMap<_, _> = all
        .iter()
        .map(|row| (row.message.id, (row.message.ordering_key.clone(), row.sequence)))
        .collect();
    let mut last = HashMap::new();
    for id in delivered.lock().unwrap().iter() {
        let (key, sequence) = &place[id];
        let before = last.insert(key.clone(), *sequence);
        assert!(
            before.is_none_or(|before| before < *sequence),
            "{key:?}: {sequence:?} after {before:?}"
        );
    }
}
