//! Offsets are committed by hand, after the batch, and never past what was handled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use posthaste_consumer::{Consumer, OffsetReset, Once, Received};
use rdkafka::admin::AdminOptions;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use sqlx::PgConnection;
use tokio::sync::Semaphore;

use crate::support;
use crate::support::{Running, SOLD, Sale, World, logs, until};

/// While an event is being handled, the brokers know of no offset past it, and of few others than the ends of batches.
#[tokio::test(flavor = "multi_thread")]
async fn offsets_are_committed_after_each_batch_and_never_past_what_is_handled() {
    let Some(world) = World::new(1).await else { return };
    let sales: Vec<_> = (0..40).map(|n| (world.sale("a", n), 0)).collect();
    world.send_all(&sales).await;
    let config = world.config().max_poll_records(10).queue_size(10);
    let seen = support::shared(Vec::new());
    let (effects, sink) = (world.clone(), Arc::clone(&seen));
    let running = Running::start(Consumer::new(config, world.inbox()).on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            // Slow enough that the queue is full and every batch after the first is whole.
            let committed = effects.committed(0).await.unwrap_or_default();
            sink.lock().unwrap().push((event.offset, committed));
            Ok(effects.effect(tx, "a", event.payload.n).await?)
        },
    ));
    world.until_committed(0, 40).await;
    assert_eq!(running.stop().await.handled, 40);
    let seen = seen.lock().unwrap();
    assert_eq!(
        seen.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(),
        (0..40).collect::<Vec<_>>()
    );
    assert!(seen.iter().all(|(offset, committed)| committed <= offset), "{seen:?}");
    let ends: BTreeSet<i64> = seen.iter().map(|(_, committed)| *committed).collect();
    assert!((2..=8).contains(&ends.len()), "{ends:?}");
}

/// After an orderly stop the offset is exactly that of what was handled, in the middle of a batch, too.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_stop_the_committed_offset_is_what_was_handled() {
    let Some(world) = World::new(2).await else { return };
    let sales: Vec<_> = (0..200).map(|n| (world.sale("a", n), i32::from(n % 2 == 1))).collect();
    world.send_all(&sales).await;
    let effects = world.clone();
    let running = Running::start(world.consumer().on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok(effects
                .effect(tx, &event.partition.to_string(), event.payload.n)
                .await?)
        },
    ));
    world.until_effects(25).await;
    let report = running.stop().await;
    let effects = world.effects().await;
    assert_eq!(report.handled, effects.len() as u64);
    assert!(effects.len() < 200, "it stopped on the way");
    for partition in 0..2 {
        let handled = effects.iter().filter(|(key, _)| *key == partition.to_string()).count();
        assert_eq!(
            world.committed(partition).await.unwrap_or_default(),
            i64::try_from(handled).unwrap()
        );
    }
}

/// A handler that does not come to an end is abandoned after the grace: no effect, no offset, and the next consumer
/// handles the event.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_hangs_is_abandoned_when_the_grace_is_over() {
    let Some(world) = World::new(1).await else { return };
    world
        .send_all(&[(world.sale("a", 1), 0), (world.sale("a", 2), 0)])
        .await;
    let config = world.config().shutdown_grace(Duration::from_millis(200));
    let gate = Arc::new(Semaphore::new(1));
    let (effects, entry) = (world.clone(), Arc::clone(&gate));
    let handler = async move |tx: &mut PgConnection, event: Received<Sale>| {
        effects.effect(tx, "a", event.payload.n).await?;
        entry.acquire().await?.forget();
        Ok(())
    };
    let running =
        Running::start(Consumer::new(config.clone(), world.inbox()).on(SOLD, Once::per_event(), handler.clone()));
    world.until_effects(1).await;
    let stopping = tokio::time::Instant::now();
    assert_eq!(running.stop().await.handled, 1);
    assert!(stopping.elapsed() < Duration::from_secs(15), "{:?}", stopping.elapsed());
    assert_eq!(logs::with(&["WARN", "stopped in the middle", &world.group]).len(), 1);
    assert_eq!(world.effects().await.len(), 1, "rolled back");
    assert_eq!(world.committed(0).await, Some(1));

    gate.add_permits(10);
    let running = Running::start(Consumer::new(config, world.inbox()).on(SOLD, Once::per_event(), handler));
    world.until_committed(0, 2).await;
    running.stop().await;
    assert_eq!(world.effects().await, [("a".to_owned(), 1), ("a".to_owned(), 2)]);
}

/// "Latest" is the moment of the group's first assignment: a consumer that dies with its very first event in hand has
/// committed nothing, and the next one must not begin behind it.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_group_does_not_pass_over_what_came_before_its_first_commit() {
    let Some(world) = World::new(1).await else { return };
    world.send_all(&[(world.sale("a", 1), 0)]).await;
    let config = world
        .config()
        .auto_offset_reset(OffsetReset::Latest)
        .shutdown_grace(Duration::from_millis(200));
    let consumer = |entry: Arc<Semaphore>| {
        let effects = world.clone();
        let handler = async move |tx: &mut PgConnection, event: Received<Sale>| {
            entry.acquire().await?.forget();
            Ok(effects.effect(tx, "a", event.payload.n).await?)
        };
        Consumer::new(config.clone(), world.inbox()).on(SOLD, Once::per_event(), handler)
    };
    let running = Running::start(consumer(Arc::new(Semaphore::new(0))));
    world.until_committed(0, 1).await;
    world.send_all(&[(world.sale("a", 2), 0)]).await;
    running.stop().await;

    let running = Running::start(consumer(Arc::new(Semaphore::new(10))));
    world.until_committed(0, 2).await;
    running.stop().await;
    assert_eq!(
        world.effects().await,
        [("a".to_owned(), 2)],
        "from now on, and all of it"
    );
}

/// A group that was stopped for longer than its topic keeps events goes on with the oldest that is there, also if a new
/// group would begin at the end, and says how many it has missed.
#[tokio::test(flavor = "multi_thread")]
async fn an_offset_that_is_no_longer_there_costs_only_what_was_deleted() {
    let Some(world) = World::new(1).await else { return };
    let config = world.config().auto_offset_reset(OffsetReset::Latest);
    let consumer = || {
        let effects = world.clone();
        Consumer::new(config.clone(), world.inbox()).on(
            SOLD,
            Once::per_event(),
            async move |tx: &mut PgConnection, event: Received<Sale>| {
                Ok(effects.effect(tx, "a", event.payload.n).await?)
            },
        )
    };
    let running = Running::start(consumer());
    world.until_committed(0, 0).await;
    let send = async |from: i64, to: i64| {
        let sales: Vec<_> = (from..to).map(|n| (world.sale("a", n), 0)).collect();
        world.send_all(&sales).await;
    };
    send(0, 5).await;
    world.until_committed(0, 5).await;
    running.stop().await;

    send(5, 30).await;
    let mut before = TopicPartitionList::new();
    before
        .add_partition_offset(&world.topic, 0, Offset::Offset(20))
        .unwrap();
    let deleted = world.admin().delete_records(&before, &AdminOptions::new()).await;
    deleted.unwrap().elements()[0].error().unwrap();
    let running = Running::start(consumer());
    world.until_committed(0, 30).await;
    until("the log says what was missed", async || {
        !logs::with(&["WARN", "events were deleted", &world.topic, "lost=15"]).is_empty()
    })
    .await;
    assert_eq!(running.stop().await.handled, 10);
    let handled: Vec<i64> = world.effects().await.into_iter().map(|(_, n)| n).collect();
    assert_eq!(handled, (0..5).chain(20..30).collect::<Vec<_>>());
}

/// A partition whose handler is slow is not read beyond its queue, and is read again once there is room. Others go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_holds_its_partition_back_and_no_other() {
    let Some(world) = World::new(2).await else { return };
    let mut sales: Vec<_> = (0..500).map(|n| (world.sale("slow", n), 0)).collect();
    sales.extend((0..500).map(|n| (world.sale("quick", n), 1)));
    world.send_all(&sales).await;
    let config = world.config().max_poll_records(10).queue_size(5);
    let gate = Arc::new(Semaphore::new(0));
    let (effects, entry) = (world.clone(), Arc::clone(&gate));
    let running = Running::start(Consumer::new(config, world.inbox()).on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            if event.partition == 0 {
                entry.acquire().await?.forget();
            }
            Ok(effects
                .effect(tx, &event.partition.to_string(), event.payload.n)
                .await?)
        },
    ));
    world.until_committed(1, 500).await;
    assert!(
        world.effects().await.iter().all(|(key, _)| key == "1"),
        "the slow partition waits at its first event"
    );
    let full = || logs::with(&["is_full=true", "partition=0", &world.topic]).len();
    until("the queue is full", async || full() > 0).await;
    assert_eq!(full(), 1, "and stays so");
    gate.add_permits(500);
    world.until_committed(0, 500).await;
    assert_eq!(running.stop().await.handled, 1000);
    let slow: Vec<i64> = world
        .effects()
        .await
        .iter()
        .filter(|(key, _)| key == "0")
        .map(|(_, n)| *n)
        .collect();
    assert_eq!(slow, (0..500).collect::<Vec<_>>(), "in order");
}

/// A handler may take longer than the poll interval of the group: the consumer goes on asking while it works.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_slower_than_the_poll_interval_costs_nothing() {
    let Some(world) = World::new(1).await else { return };
    world.send(&world.sale("a", 1), Some(0)).await;
    let config = world
        .config()
        .session_timeout(Duration::from_secs(6))
        .max_poll_interval(Duration::from_secs(6))
        .revoke_grace(Duration::from_secs(3));
    let (effects, runs) = (world.clone(), support::shared(0));
    let count = Arc::clone(&runs);
    let running = Running::start(Consumer::new(config, world.inbox()).on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            *count.lock().unwrap() += 1;
            tokio::time::sleep(Duration::from_secs(9)).await;
            Ok(effects.effect(tx, "a", event.payload.n).await?)
        },
    ));
    world.until_committed(0, 1).await;
    assert_eq!(
        logs::with(&["giving up partitions", &world.group]),
        Vec::<String>::new()
    );
    running.stop().await;
    assert_eq!(*runs.lock().unwrap(), 1);
}
