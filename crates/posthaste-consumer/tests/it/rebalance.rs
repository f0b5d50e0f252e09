//! Partitions change hands under load: every effect once, in the order of its key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use posthaste_consumer::{Assignment, Consumer, HandlerError, Once, Received};
use posthaste_postgres::PostgresInbox;
use sqlx::PgConnection;
use tokio::sync::Semaphore;

use crate::support;
use crate::support::{BRIEF_SESSION_TIMEOUT, Running, SOLD, Sale, World, logs};

const PARTITIONS: i32 = 6;
const KEYS: i64 = 24;
const EVENTS: i64 = 4_200;

/// More than a handler here needs.
const ENOUGH: Duration = Duration::from_secs(5);

/// A consumer of the group that takes its time, so that handlers are at work when partitions go.
fn counting(world: &World, settings: (Assignment, Duration)) -> Consumer<PostgresInbox> {
    counting_in(world, settings, Arc::default())
}

/// The same, and tells how many events came to it.
fn counting_in(
    world: &World,
    (assignment, revoke_grace): (Assignment, Duration),
    share: Arc<AtomicU64>,
) -> Consumer<PostgresInbox> {
    let config = world
        .config()
        .assignment(assignment)
        .revoke_grace(revoke_grace)
        .max_poll_records(10)
        .queue_size(20);
    let effects = world.clone();
    Consumer::new(config, world.inbox()).on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| -> Result<(), HandlerError> {
            share.fetch_add(1, Ordering::Relaxed);
            let key = event.aggregate_id.unwrap_or_default();
            effects.effect(tx, &key, event.payload.n).await?;
            tokio::time::sleep(Duration::from_millis(2)).await;
            Ok(())
        },
    )
}

/// Each key's numbers, in the order in which they took effect.
fn by_key(effects: Vec<(String, i64)>) -> BTreeMap<String, Vec<i64>> {
    let mut keys: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for (key, n) in effects {
        keys.entry(key).or_default().push(n);
    }
    keys
}

async fn a_third_joins_and_leaves_and_a_fourth_vanishes(settings: (Assignment, Duration)) {
    let Some(world) = World::new(PARTITIONS).await else {
        return;
    };
    let sales: Vec<_> = (0..EVENTS)
        .map(|n| {
            let key = n % KEYS;
            (
                world.sale(&key.to_string(), n),
                i32::try_from(key).unwrap() % PARTITIONS,
            )
        })
        .collect();
    let sender = world.clone();
    let sending = tokio::spawn(async move {
        for part in sales.chunks(250) {
            sender.send_all(part).await;
        }
    });
    let first = Running::start(counting(&world, settings));
    let second = Running::start(counting(&world, settings));
    world.until_effects(400).await;
    let share = Arc::<AtomicU64>::default();
    let third = Running::start(counting_in(&world, settings, Arc::clone(&share)));
    support::until("the third has a share", async || share.load(Ordering::Relaxed) > 50).await;
    let left = third.stop().await;
    let share = Arc::<AtomicU64>::default();
    let dying = World {
        session_timeout: BRIEF_SESSION_TIMEOUT,
        ..world.clone()
    };
    let fourth = Running::start(counting_in(&dying, settings, Arc::clone(&share)));
    support::until("the fourth has a share", async || share.load(Ordering::Relaxed) > 50).await;
    // Not stopped but dropped, in the middle of whatever it is doing.
    fourth.vanish();
    sending.await.unwrap();
    let effects = world.until_effects(usize::try_from(EVENTS).unwrap()).await;
    let expected: BTreeMap<String, Vec<i64>> = (0..KEYS)
        .map(|key| (key.to_string(), (0..EVENTS).filter(|n| n % KEYS == key).collect()))
        .collect();
    assert_eq!(by_key(effects), expected, "every effect once, in the order of its key");
    for partition in 0..PARTITIONS {
        world.until_committed(partition, EVENTS / i64::from(PARTITIONS)).await;
    }
    let (first, second) = (first.stop().await, second.stop().await);
    assert!(first.handled > 0 && second.handled > 0, "both had a share");
    assert_eq!(first.dead_letters + second.dead_letters + left.dead_letters, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_effect_happens_once_and_in_order_while_a_third_joins_and_leaves() {
    a_third_joins_and_leaves_and_a_fourth_vanishes((Assignment::Range, ENOUGH)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_effect_happens_once_and_in_order_in_cooperative_rebalances() {
    a_third_joins_and_leaves_and_a_fourth_vanishes((Assignment::CooperativeSticky, ENOUGH)).await;
}

/// Handlers get no time at all, so that they are dropped in the middle of statements and commits.
#[tokio::test(flavor = "multi_thread")]
async fn every_effect_happens_once_and_in_order_when_handlers_are_abandoned() {
    a_third_joins_and_leaves_and_a_fourth_vanishes((Assignment::CooperativeSticky, Duration::ZERO)).await;
}

/// A partition that goes away takes no half-handled event with it: the handler in hand is waited for, what it did is
/// committed, and the next owner begins after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_partition_is_given_up_after_the_event_in_hand() {
    let Some(world) = World::new(2).await else { return };
    world
        .send_all(&[
            (world.sale("0", 1), 0),
            (world.sale("0", 2), 0),
            (world.sale("1", 1), 1),
            (world.sale("1", 2), 1),
        ])
        .await;
    let (gate, entered) = (Arc::new(Semaphore::new(0)), support::shared(Vec::new()));
    let consumer = || {
        let (effects, gate, entered) = (world.clone(), Arc::clone(&gate), Arc::clone(&entered));
        world.consumer().on(
            SOLD,
            Once::per_event(),
            async move |tx: &mut PgConnection, event: Received<Sale>| {
                entered.lock().unwrap().push((event.partition, event.offset));
                gate.acquire().await?.forget();
                Ok(effects
                    .effect(tx, &event.partition.to_string(), event.payload.n)
                    .await?)
            },
        )
    };
    let first = Running::start(consumer());
    support::until("both partitions are at work", async || {
        entered.lock().unwrap().len() == 2
    })
    .await;
    let second = Running::start(consumer());
    // The first is asked to give everything up, and waits for its handlers.
    support::until("a revocation waits", async || {
        !logs::with(&["giving up partitions", &world.group]).is_empty()
    })
    .await;
    assert_eq!(world.effects().await, []);
    gate.add_permits(2);
    support::until("the rest is begun", async || entered.lock().unwrap().len() == 4).await;
    gate.add_permits(2);
    for partition in 0..2 {
        world.until_committed(partition, 2).await;
    }
    let reports = [first.stop().await, second.stop().await];
    assert_eq!(reports.iter().map(|report| report.handled).sum::<u64>(), 4);
    assert_eq!(
        reports.iter().map(|report| report.duplicates).sum::<u64>(),
        0,
        "nothing came twice: {reports:?}"
    );
    let mut entered = entered.lock().unwrap().clone();
    entered.sort_unstable();
    assert_eq!(entered, [(0, 0), (0, 1), (1, 0), (1, 1)]);
}

/// A handler that outlasts the grace of a revocation is abandoned: its transaction is rolled back and the event handled
/// by the next owner, once.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_outlasts_the_grace_of_a_revocation_is_rolled_back() {
    let Some(world) = World::new(1).await else { return };
    world.send(&world.sale("0", 1), Some(0)).await;
    let hanging = Arc::new(Semaphore::new(0));
    let (effects, gate) = (world.clone(), Arc::clone(&hanging));
    let config = world.config().revoke_grace(Duration::from_millis(300));
    let first = Running::start(Consumer::new(config, world.inbox()).on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            effects.effect(tx, "hangs", event.payload.n).await?;
            gate.add_permits(1);
            std::future::pending::<()>().await;
            Ok(())
        },
    ));
    hanging.acquire().await.unwrap().forget();
    let effects = world.clone();
    let second = Running::start(world.consumer().on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            Ok(effects.effect(tx, "second", event.payload.n).await?)
        },
    ));
    // The group may give the only partition back to the first, which hangs again; so it leaves.
    support::until("the first abandoned it", async || {
        !logs::with(&["abandoned an event", &world.topic]).is_empty()
    })
    .await;
    first.stop().await;
    world.until_committed(0, 1).await;
    second.stop().await;
    assert_eq!(world.effects().await, [("second".to_owned(), 1)]);
}
