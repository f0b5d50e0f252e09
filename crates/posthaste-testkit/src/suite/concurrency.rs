//! Many relays and producers at once.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use posthaste_core::lifecycle::{State, Verdict};
use posthaste_core::store::Record;
use posthaste_core::{Message, MessageId, OutboxOptions, Text};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::steps::{MINUTE, Work, Worker, enqueue_new, keyed, plain, records, settle, state, try_enqueue};
use crate::backend::Backend;

const WORKERS: u64 = 8;

/// What the outside world sees of the workers: who holds which row, and what was delivered in which order.
#[derive(Default)]
struct World {
    held: HashSet<MessageId>,
    delivered: Vec<Message>,
}

impl World {
    /// Every row of the claim must be in nobody else's hands.
    fn take(world: &Mutex<Self>, work: &Work) {
        let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
        for id in work.ids() {
            assert!(world.held.insert(id), "{id} is under two live leases");
        }
    }

    /// To be called before settling: as soon as the store knows, others may have the row.
    fn give_back(world: &Mutex<Self>, work: &Work, delivered: &[Message]) {
        let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
        for id in work.ids() {
            world.held.remove(&id);
        }
        world.delivered.extend_from_slice(delivered);
    }
}

/// Works until the outbox gives nothing more several times in a row. Reports a random outcome for each message, and
/// stops the lane of a message that failed, as a relay does.
async fn work<B: Backend>(b: &B, seed: u64, ordered: bool, world: &Mutex<World>) {
    let mut random = StdRng::seed_from_u64(seed);
    let worker = if ordered {
        Worker::new()
    } else {
        Worker::new().unordered()
    };
    let worker = worker.max_attempts(1_000);
    let mut idle = 0;
    while idle < 20 {
        let work = worker.claim(b, random.random_range(1..=10)).await;
        idle = if work.ids().is_empty() { idle + 1 } else { 0 };
        World::take(world, &work);
        tokio::task::yield_now().await;
        let mut stopped = HashSet::new();
        let mut delivered = Vec::new();
        let mut settlements = Vec::new();
        for claimed in &work.messages {
            let message = &claimed.message;
            let lane = message.ordering_key.clone().filter(|_| ordered);
            let blocked = lane.as_ref().is_some_and(|lane| stopped.contains(lane));
            let verdict = match random.random_range(0..10) {
                _ if blocked => Verdict::Released,
                0 => Verdict::Released,
                // A row may say itself how often it is tried, and nobody here says that it is dead.
                1 | 2 if claimed.attempts < 4 => Verdict::Retry {
                    delay: Duration::ZERO,
                    error: "by chance".into(),
                },
                _ => Verdict::Delivered,
            };
            match verdict {
                Verdict::Delivered => delivered.push(message.clone()),
                _ => stopped.extend(lane),
            }
            settlements.push(work.verdict(message.id, verdict));
        }
        World::give_back(world, &work, &delivered);
        assert_eq!(settle(b, settlements).await, [], "no lease was lost");
    }
}

async fn work_off<B: Backend>(b: &B, ordered: bool, ids: &[MessageId]) -> Vec<Message> {
    let world = Mutex::new(World::default());
    for round in 0..10 {
        join_all((0..WORKERS).map(|worker| work(b, round * WORKERS + worker, ordered, &world))).await;
        if records(b).await.iter().all(|row| row.state == State::Delivered) {
            break;
        }
        b.pass_time(MINUTE).await;
    }
    let delivered = |row: &Record| row.state == State::Delivered;
    assert!(records(b).await.iter().all(delivered), "nothing is left behind");
    for id in ids {
        assert_eq!(state(b, *id).await, State::Delivered);
    }
    world.into_inner().unwrap_or_else(PoisonError::into_inner).delivered
}

/// Messages by the keys that they were enqueued with; a table may keep others.
fn by_key(messages: &[Message], enqueued: &[Message]) -> HashMap<Option<Text>, Vec<MessageId>> {
    let key_of: HashMap<_, _> = enqueued
        .iter()
        .map(|message| (message.id, &message.ordering_key))
        .collect();
    let mut keys: HashMap<_, Vec<_>> = HashMap::new();
    for message in messages {
        let key = key_of[&message.id].clone();
        keys.entry(key).or_default().push(message.id);
    }
    keys
}

/// Proves B14 and pitfalls 4, 5.
pub async fn many_ordered_workers_keep_the_order_of_every_key<B: Backend>(b: &B) {
    let mut random = StdRng::seed_from_u64(7);
    let messages: Vec<_> = (0..300)
        .map(|n| keyed(&random.random_range(0..12).to_string(), &n.to_string()))
        .collect();
    let mut ids = Vec::new();
    for part in messages.chunks(25) {
        ids.extend(enqueue_new(b, part.to_vec()).await);
    }
    let delivered = work_off(b, true, &ids).await;
    assert_eq!(
        by_key(&delivered, &messages),
        by_key(&messages, &messages),
        "each once, in order"
    );
}

/// Proves B14.
pub async fn many_unordered_workers_never_hold_a_row_twice<B: Backend>(b: &B) {
    let messages: Vec<_> = (0..300).map(|n| plain(&n.to_string())).collect();
    let ids = enqueue_new(b, messages.clone()).await;
    let delivered = work_off(b, false, &ids).await;
    let once: HashSet<_> = delivered.iter().map(|message| message.id).collect();
    assert_eq!((delivered.len(), once.len()), (messages.len(), messages.len()));
}

/// Proves B14.
pub async fn concurrent_claims_do_not_wait_for_each_other<B: Backend>(b: &B) {
    enqueue_new(b, (0..80).map(|n| plain(&n.to_string()))).await;
    let workers: Vec<_> = (0..WORKERS).map(|_| Worker::new().unordered()).collect();
    let claims = join_all(workers.iter().map(|worker| worker.claim(b, 10))).await;
    let ids: HashSet<_> = claims.iter().flat_map(Work::ids).collect();
    let total: usize = claims.iter().map(|work| work.ids().len()).sum();
    assert_eq!(ids.len(), total, "no row twice");
    // One that meets rows which others are just looking at may take fewer, and finds the rest next time.
    let each: Vec<_> = claims.iter().map(|work| work.ids().len()).collect();
    assert!(total >= 40, "each skips what the others hold: {each:?}");
    let rest = Worker::new().unordered().claim(b, 80).await.ids();
    assert_eq!(total + rest.len(), 80, "none is held by nobody: {each:?}");
}

/// Proves B9, B14 and pitfall 6.
pub async fn of_many_workers_that_want_an_expired_row_one_gets_it<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [keyed("k", "1")]).await;
    Worker::new().claim(b, 10).await;
    b.pass_time(MINUTE).await;
    let workers: Vec<_> = (0..WORKERS).map(|_| Worker::new()).collect();
    let claims = join_all(workers.iter().map(|worker| worker.claim(b, 10))).await;
    let got: Vec<_> = claims.iter().flat_map(Work::ids).collect();
    assert_eq!(got, ids);
}

/// Proves A2, B14 and pitfall 1.
pub async fn producers_and_relays_at_once_lose_nothing<B: Backend>(b: &B) {
    let produce = |producer: u64| async move {
        let mut committed = Vec::new();
        for n in 0..10 {
            let message = keyed(&producer.to_string(), &n.to_string());
            if n % 3 == 2 {
                let mut tx = b.begin().await;
                b.enqueue(&mut tx, vec![message], &OutboxOptions::default())
                    .await
                    .expect("the message is good");
                b.rollback(tx).await;
            } else {
                let messages = vec![message.clone()];
                try_enqueue(b, messages, &OutboxOptions::default())
                    .await
                    .expect("the message is good");
                committed.push(message);
            }
        }
        committed
    };
    let world = Mutex::new(World::default());
    let (committed, _) = tokio::join!(
        join_all((0..6).map(produce)),
        join_all((0..4).map(|worker| work(b, 100 + worker, true, &world)))
    );
    let mut delivered = world.into_inner().unwrap_or_else(PoisonError::into_inner).delivered;
    let committed = committed.concat();
    let ids: Vec<_> = committed.iter().map(|message| message.id).collect();
    delivered.extend(work_off(b, true, &ids).await);
    assert_eq!(by_key(&delivered, &committed), by_key(&committed, &committed));
}
