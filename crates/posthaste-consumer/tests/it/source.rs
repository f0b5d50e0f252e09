//! The rules of the runtime over a source in memory: order, retries, dead letters, commits, revocations and the stop are
//! its own, and no broker's.

use std::sync::Arc;
use std::time::Duration;

use crate::support::memory::{Broker, DeadLetter};
use crate::support::{Running, SOLD, Sale, World, until};
use posthaste_consumer::source::Lane;
use posthaste_consumer::{Consumer, ConsumerConfig, ConsumerError, HandlerError, Once, Received};
use posthaste_postgres::PostgresInbox;
use sqlx::PgConnection;
use tokio::sync::Semaphore;

fn lane(partition: i32) -> Lane {
    Lane::new("orders", partition)
}

fn sales(numbers: impl IntoIterator<Item = i64>) -> impl Iterator<Item = String> {
    numbers.into_iter().map(|n| format!("{{\"n\":{n}}}"))
}

/// Only what every source needs: no brokers, no topics.
fn config(world: &World) -> ConsumerConfig {
    ConsumerConfig::default()
        .group(&world.group)
        .max_poll_records(1)
        .retry(world.config().retry)
}

/// Where handlers wait, and where it is seen that they do.
#[derive(Clone)]
struct Gate {
    entered: Arc<Semaphore>,
    opened: Arc<Semaphore>,
}

impl Gate {
    fn closed() -> Self {
        let new = || Arc::new(Semaphore::new(0));
        Self {
            entered: new(),
            opened: new(),
        }
    }

    async fn pass(&self) {
        self.entered.add_permits(1);
        self.opened.acquire().await.unwrap().forget();
    }

    async fn until_entered(&self) {
        let entered = tokio::time::timeout(crate::support::SOON, self.entered.acquire()).await;
        entered.expect("a handler comes so far").unwrap().forget();
    }
}

/// Writes down every sale, after the gate if it is negative.
fn counting(world: &World, config: ConsumerConfig, gate: &Gate) -> Consumer<PostgresInbox> {
    let (effects, gate) = (world.clone(), gate.clone());
    Consumer::new(config, world.inbox()).on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            let key = event.partition.to_string();
            effects.effect(tx, &key, event.payload.n).await?;
            if event.payload.n < 0 {
                gate.pass().await;
            }
            Ok(())
        },
    )
}

async fn until_committed(broker: &Broker, lane: &Lane, position: i64) {
    until("it is committed", async || broker.committed(lane) == Some(position)).await;
}

async fn effects_of(world: &World, lane: &Lane) -> Vec<i64> {
    let of_lane = |(key, n): (String, i64)| (key == lane.partition.to_string()).then_some(n);
    world.effects().await.into_iter().filter_map(of_lane).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_is_handled_in_order_and_waits_for_no_other() {
    let Some(world) = World::without_kafka().await else {
        return;
    };
    let (broker, gate) = (Broker::default(), Gate::closed());
    let (blocked, free) = (lane(0), lane(1));
    broker.append(&blocked, sales([-1, 2, 3]));
    broker.append(&free, sales(10..60));
    let (member, source) = broker.join();
    let running = Running::with_source(counting(&world, config(&world), &gate), source);
    member.assign(&blocked).await;
    member.assign(&free).await;
    gate.until_entered().await;
    until_committed(&broker, &free, 50).await;
    assert_eq!(broker.committed(&blocked), None, "its first event is not settled");
    gate.opened.add_permits(1);
    until_committed(&broker, &blocked, 3).await;
    assert_eq!(running.stop().await.handled, 53);
    assert_eq!(effects_of(&world, &blocked).await, [-1, 2, 3]);
    assert_eq!(effects_of(&world, &free).await, (10..60).collect::<Vec<_>>());
}

/// Three attempts, or one where another is of no use; then the dead letter, and only then the commit, although the first
/// try to write it is refused.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_handled_is_a_dead_letter_before_it_is_committed() {
    let Some(world) = World::without_kafka().await else {
        return;
    };
    let (broker, lane) = (Broker::default(), lane(0));
    broker.append(&lane, sales([1]));
    broker.append(&lane, ["{}".to_owned(), String::new()]);
    broker.append(&lane, sales([2]));
    broker.refuse_dead_letters(1);
    let (member, source) = broker.join();
    let effects = world.clone();
    let consumer = Consumer::new(config(&world), world.inbox()).on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            effects.effect(tx, "0", event.payload.n).await?;
            if event.payload.n == 1 {
                return Err(HandlerError::retry("out of stock"));
            }
            Ok(())
        },
    );
    let running = Running::with_source(consumer, source);
    member.assign(&lane).await;
    until_committed(&broker, &lane, 4).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.retried, report.dead_letters), (1, 2, 3));
    assert_eq!(effects_of(&world, &lane).await, [2]);
    let dead = broker.dead_letters();
    let first = DeadLetter {
        offset: 0,
        error: "out of stock".to_owned(),
        attempts: 3,
        committed: None,
    };
    assert_eq!(dead[0], first);
    for (letter, (offset, why)) in dead[1..]
        .iter()
        .zip([(1, "missing field `n`"), (2, "no event: it is empty")])
    {
        assert_eq!((letter.offset, letter.attempts), (offset, 1));
        assert!(letter.error.contains(why), "{}", letter.error);
        assert!(letter.committed <= Some(offset), "{letter:?}");
    }
}

/// A commit that fails is made again, and none runs ahead of what is settled.
#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_settled_is_committed_and_a_failed_commit_is_made_again() {
    let Some(world) = World::without_kafka().await else {
        return;
    };
    let (broker, gate, lane) = (Broker::default(), Gate::closed(), lane(0));
    broker.append(&lane, sales([1, -2, 3]));
    broker.refuse_commits(2);
    let (member, source) = broker.join();
    let running = Running::with_source(counting(&world, config(&world), &gate), source);
    member.assign(&lane).await;
    gate.until_entered().await;
    until_committed(&broker, &lane, 1).await;
    gate.opened.add_permits(1);
    until_committed(&broker, &lane, 3).await;
    running.stop().await;
    assert_eq!(effects_of(&world, &lane).await, [1, -2, 3]);
}

/// The event in hand is finished and committed before the lane is given up; the next owner goes on behind it, and the
/// first one commits nothing more.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_lane_is_given_up_between_two_events() {
    let Some(world) = World::without_kafka().await else {
        return;
    };
    let (broker, gate, lane) = (Broker::default(), Gate::closed(), lane(0));
    broker.append(&lane, sales([-1, -2, 3]));
    let consumer = || counting(&world, config(&world).max_poll_records(100), &gate);
    let (first, source) = broker.join();
    let leaving = Running::with_source(consumer(), source);
    first.assign(&lane).await;
    gate.until_entered().await;
    let (revoked, ()) = tokio::join!(
        async {
            first.revoke(&lane).await;
            (broker.committed(&lane), broker.commits())
        },
        async {
            // The revocation waits for the handler.
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(broker.committed(&lane), None);
            gate.opened.add_permits(1);
        },
    );
    assert_eq!(revoked, (Some(1), 1));
    assert_eq!(effects_of(&world, &lane).await, [-1], "the rest is the next owner's");

    let (second, source) = broker.join();
    let taking = Running::with_source(consumer(), source);
    second.assign(&lane).await;
    gate.opened.add_permits(1);
    until_committed(&broker, &lane, 3).await;
    assert_eq!(leaving.stop().await.handled, 1);
    let report = taking.stop().await;
    assert_eq!((report.handled, report.duplicates), (2, 0));
    assert_eq!(broker.committed(&lane), Some(3));
    assert_eq!(effects_of(&world, &lane).await, [-1, -2, 3]);
}

/// A handler that does not come to its end in time is abandoned: nothing of it is kept or committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_outlasts_the_revocation_is_abandoned() {
    let Some(world) = World::without_kafka().await else {
        return;
    };
    let (broker, gate, lane) = (Broker::default(), Gate::closed(), lane(0));
    broker.append(&lane, sales([1, -2]));
    let impatient = config(&world).revoke_grace(Duration::from_millis(50));
    let (member, source) = broker.join();
    let running = Running::with_source(counting(&world, impatient, &gate), source);
    member.assign(&lane).await;
    gate.until_entered().await;
    member.revoke(&lane).await;
    assert_eq!(broker.committed(&lane), Some(1));
    assert_eq!(effects_of(&world, &lane).await, [1]);
    member.assign(&lane).await;
    gate.until_entered().await;
    gate.opened.add_permits(1);
    until_committed(&broker, &lane, 2).await;
    assert_eq!(running.stop().await.handled, 2);
    assert_eq!(effects_of(&world, &lane).await, [1, -2]);
}

/// A lane that may have another owner already is not committed for. What was handled comes again, and is skipped.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_committed_for_a_lost_lane() {
    let Some(world) = World::without_kafka().await else {
        return;
    };
    let (broker, gate, lane) = (Broker::default(), Gate::closed(), lane(0));
    broker.append(&lane, sales([-1]));
    let (member, source) = broker.join();
    let config = config(&world).max_poll_records(100);
    let running = Running::with_source(counting(&world, config, &gate), source);
    member.assign(&lane).await;
    gate.until_entered().await;
    // The next two are one batch, which is not over before the loss.
    broker.append(&lane, sales([2, -3]));
    until("both wait for their turn", async || broker.received(&lane) == 3).await;
    gate.opened.add_permits(1);
    gate.until_entered().await;
    member.lose(&lane).await;
    assert_eq!(effects_of(&world, &lane).await, [-1, 2]);
    assert!(broker.committed(&lane) <= Some(1), "{:?}", broker.committed(&lane));

    gate.opened.add_permits(1);
    member.assign(&lane).await;
    until_committed(&broker, &lane, 3).await;
    let report = running.stop().await;
    assert_eq!(report.handled, 3);
    assert!(report.duplicates >= 1, "{report:?}");
    assert_eq!(effects_of(&world, &lane).await, [-1, 2, -3]);
}

/// The handler in hand may finish, and what it did is committed; what waits behind it is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_lets_handlers_finish_and_commits_what_they_did() {
    let Some(world) = World::without_kafka().await else {
        return;
    };
    let (broker, gate, lane) = (Broker::default(), Gate::closed(), lane(0));
    broker.append(&lane, sales([1, -2, -3]));
    let config = config(&world).max_poll_records(100);
    let (member, source) = broker.join();
    let running = Running::with_source(counting(&world, config, &gate), source);
    member.assign(&lane).await;
    gate.until_entered().await;
    let opened = Arc::clone(&gate.opened);
    let opening = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        opened.add_permits(1);
    });
    assert_eq!(running.stop().await.handled, 2);
    opening.await.unwrap();
    assert_eq!(broker.committed(&lane), Some(2));
    assert_eq!(effects_of(&world, &lane).await, [1, -2]);
}

/// One that takes too long is abandoned.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_ever() {
    let Some(world) = World::without_kafka().await else {
        return;
    };
    let (broker, gate, lane) = (Broker::default(), Gate::closed(), lane(0));
    broker.append(&lane, sales([1, -2]));
    let config = config(&world).shutdown_grace(Duration::from_millis(50));
    let (member, source) = broker.join();
    let running = Running::with_source(counting(&world, config, &gate), source);
    member.assign(&lane).await;
    gate.until_entered().await;
    assert_eq!(running.stop().await.handled, 1);
    assert_eq!(broker.committed(&lane), Some(1));
    assert_eq!(effects_of(&world, &lane).await, [1]);
}

/// A lane whose worker is behind is not asked for more than fits into its queue, by number and by bytes.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_lane_is_paused_and_resumed() {
    let Some(world) = World::without_kafka().await else {
        return;
    };
    let (broker, gate) = (Broker::default(), Gate::closed());
    let (many, heavy) = (lane(0), lane(1));
    broker.append(&many, sales([-1]).chain(sales(1..1_000)));
    let padded = |n: i64| format!("{{\"n\":{n},\"padding\":\"{}\"}}", "x".repeat(1_000));
    broker.append(&heavy, [-1, 1, 2, 3, 4, 5, 6, 7, 8].map(padded));
    let config = config(&world).queue_size(10).prefetch_bytes(4_000);
    let (member, source) = broker.join();
    let running = Running::with_source(counting(&world, config, &gate), source);
    member.assign(&many).await;
    member.assign(&heavy).await;
    gate.until_entered().await;
    gate.until_entered().await;
    until("the queues are full", async || {
        (broker.received(&many), broker.received(&heavy)) == (11, 4)
    })
    .await;
    // What comes to another lane is committed after the polling thread has gone round once more.
    broker.append(&lane(2), sales([1]));
    member.assign(&lane(2)).await;
    until_committed(&broker, &lane(2), 1).await;
    assert_eq!((broker.received(&many), broker.received(&heavy)), (11, 4));
    gate.opened.add_permits(2);
    until_committed(&broker, &many, 1_000).await;
    until_committed(&broker, &heavy, 9).await;
    assert_eq!(running.stop().await.handled, 1_010);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_cannot_go_on_ends_the_consumer_with_its_reason() {
    let Some(world) = World::without_kafka().await else {
        return;
    };
    let (broker, gate, lane) = (Broker::default(), Gate::closed(), lane(0));
    broker.append(&lane, sales([1]));
    let (member, source) = broker.join();
    let running = Running::with_source(counting(&world, config(&world), &gate), source);
    member.assign(&lane).await;
    until_committed(&broker, &lane, 1).await;
    member.fail("the stream was deleted; create it again").await;
    let error = running.end().await.unwrap_err();
    assert!(matches!(&error, ConsumerError::Source(_)), "{error:?}");
    assert_eq!(error.to_string(), "the stream was deleted; create it again");
}
