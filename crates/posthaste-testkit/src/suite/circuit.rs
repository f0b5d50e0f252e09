//! The circuit breaker around any publisher: what a broker that is unavailable costs, and how it comes back.

use std::time::Duration;

use posthaste_core::lifecycle::State;
use posthaste_core::{Backoff, BreakerConfig, Message, MessageId, PublishError, RelayStore, RetryPolicy};
use posthaste_relay::{Relay, RelayConfig, RelayError};
use tokio::time::{sleep, timeout};

use super::engine::{DUE_AGAIN, OneByOne, broker, config, drain, eventually, retrying_after, start};
use super::steps::{HOUR, MINUTE, SECOND, enqueue_new, keyed, plain, record, records};
use crate::backend::Backend;
use crate::{Fault, RecordingPublisher, Rule};

/// Not so soon that another claim tries again what has failed before the fifth failure is known, also on a machine that
/// has much else to do.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// A relay that never gives up, and whose circuit is open for so long.
fn patient(open_for: Duration) -> RelayConfig {
    RelayConfig {
        retry: RetryPolicy {
            max_attempts: 1_000_000,
            backoff: Backoff::Schedule {
                delays: vec![RETRY_DELAY],
            },
        },
        breaker: BreakerConfig {
            open_for,
            ..BreakerConfig::default()
        },
        poll_interval: Duration::from_millis(5),
        max_poll_interval: Duration::from_millis(10),
        ..RelayConfig::default()
    }
}

fn many(count: usize) -> Vec<Message> {
    (0..count).map(|n| plain(&n.to_string())).collect()
}

/// How often each row was attempted, by sequence.
async fn attempts<B: Backend>(b: &B) -> Vec<u32> {
    records(b).await.iter().map(|row| row.attempts).collect()
}

/// Waits until rows have been attempted and nothing is under a lease.
async fn until_tried<B: Backend>(b: &B, count: u32) {
    eventually("the relay to try and come to rest", async || {
        let rows = records(b).await;
        let tried: u32 = rows.iter().map(|row| row.attempts).sum();
        tried >= count && rows.iter().all(|row| row.state != State::Processing)
    })
    .await;
}

/// Five failures of five calls open it; the last of them, by which the broker is found to be unavailable, costs no
/// attempt. The rest of the batch is given back, and retries that are due stay where they are.
pub async fn while_the_circuit_is_open_nothing_is_claimed_and_no_attempt_is_used<B: Backend>(b: &B) {
    enqueue_new(b, many(30)).await;
    let broker = broker();
    broker.vanish();
    let one_by_one = OneByOne::new(&broker);
    let (shutdown, relay) = start(b, one_by_one.clone(), patient(HOUR));
    until_tried(b, 4).await;
    // A claim that was under way when the circuit opened is given back, and every retry becomes due.
    sleep(RETRY_DELAY + SECOND).await;
    let before = records(b).await;
    // Fifty polls: whatever were claimed now would show.
    sleep(SECOND / 2).await;
    assert!(
        records(b).await == before,
        "no row is touched while the circuit is open"
    );
    let expected: Vec<u32> = (0..30).map(|n| u32::from(n < 4)).collect();
    assert_eq!(
        attempts(b).await,
        expected,
        "five were tried, their neighbours were not"
    );
    assert_eq!(one_by_one.tried().len(), 5);
    let errors = before.iter().filter(|row| row.last_error.is_some()).count();
    assert_eq!(errors, 5, "what was not tried has not failed");
    shutdown.cancel();
    let report = relay.await.expect("the relay does not panic");
    assert_eq!((report.retried, report.postponed, report.died), (4, 1, 0));
    assert!(report.released >= 25, "{report:?}");
}

/// Trials are claimed in their number, not given back beyond it.
pub async fn after_the_open_time_exactly_three_messages_are_tried<B: Backend>(b: &B) {
    let ids = enqueue_new(b, many(30)).await;
    let broker = broker();
    broker.vanish();
    let one_by_one = OneByOne::new(&broker);
    let (shutdown, relay) = start(b, one_by_one.clone(), patient(SECOND));
    until_tried(b, 4).await;
    broker.hang();
    broker.up();
    broker.wait_until_hanging(1).await;
    // Fifty polls while the trials are on their way.
    sleep(SECOND / 2).await;
    let rows = records(b).await;
    let processing = rows.iter().filter(|row| row.state == State::Processing).count();
    assert_eq!(processing, 3, "three are tried, the others wait for what comes of it");
    let tried = one_by_one.tried();
    assert!(tried[5].1 - tried[4].1 >= SECOND, "nothing was tried before the time");
    broker.release();
    broker.inner().wait_for(30).await;
    shutdown.cancel();
    relay.await.expect("the relay does not panic");
    broker.inner().assert_delivered_once(&ids);
    assert_eq!(
        attempts(b).await.iter().sum::<u32>(),
        34,
        "thirty deliveries, and four failures before the broker was found to be unavailable"
    );
}

/// For the whole time again, and without an attempt.
pub async fn one_failed_trial_opens_the_circuit_again<B: Backend>(b: &B) {
    enqueue_new(b, many(10)).await;
    let broker = broker();
    broker.vanish();
    let one_by_one = OneByOne::new(&broker);
    let open_for = Duration::from_millis(100);
    let (shutdown, relay) = start(b, one_by_one.clone(), patient(open_for));
    eventually("four trials", async || one_by_one.tried().len() >= 9).await;
    shutdown.cancel();
    let report = relay.await.expect("the relay does not panic");
    let tried = one_by_one.tried();
    for pair in tried[4..].windows(2) {
        assert!(
            pair[1].1 - pair[0].1 >= open_for,
            "one trial failed, and no other was made"
        );
    }
    assert_eq!((report.retried, report.postponed), (4, tried.len() as u64 - 4));
    assert_eq!(attempts(b).await.iter().sum::<u32>(), 4);
}

/// A relay that gives up soon, and whose circuit opens and is tried often.
fn hasty() -> RelayConfig {
    let mut hasty = patient(Duration::from_millis(10));
    hasty.retry.max_attempts = 3;
    hasty.retry.backoff = Backoff::Schedule {
        delays: vec![Duration::from_millis(1)],
    };
    hasty
}

/// Many more trials fail than a message has attempts.
pub async fn no_message_dies_of_a_long_outage<B: Backend>(b: &B) {
    let ids = enqueue_new(b, many(12)).await;
    let broker = broker();
    broker.vanish();
    let one_by_one = OneByOne::new(&broker);
    let (shutdown, relay) = start(b, one_by_one.clone(), hasty());
    eventually("fifty trials", async || one_by_one.tried().len() >= 50).await;
    broker.up();
    let all = timeout(MINUTE, broker.inner().wait_for(12)).await;
    all.expect("the relay recovers by itself");
    shutdown.cancel();
    let report = relay.await.expect("the relay does not panic");
    assert_eq!((report.delivered, report.died), (12, 0));
    broker.inner().assert_delivered_once(&ids);
}

/// A message at which the broker hangs up looks like an outage while it is a trial. It must not keep the circuit open for
/// the others, and it dies like any other that fails, as soon as these show that the broker is there.
pub async fn one_message_that_breaks_the_connection_does_not_stop_the_others<B: Backend>(b: &B) {
    let ids = enqueue_new(b, many(30)).await;
    let broker = broker();
    broker.inject(Rule::new(Fault::transport()).on(vec![ids[0]]));
    broker.vanish();
    let one_by_one = OneByOne::new(&broker);
    let (shutdown, relay) = start(b, one_by_one.clone(), hasty());
    eventually("the circuit to open", async || one_by_one.tried().len() >= 8).await;
    broker.up();
    let others = timeout(MINUTE, broker.inner().wait_for(29)).await;
    others.expect("the others are delivered");
    // Alone it could not be told from a broker that is unavailable.
    let mut delivered = ids[1..].to_vec();
    while record(b, ids[0]).await.state != State::Dead {
        delivered.extend(enqueue_new(b, many(1)).await);
        let all = timeout(MINUTE, broker.inner().wait_for(delivered.len())).await;
        all.expect("others are delivered meanwhile");
    }
    shutdown.cancel();
    relay.await.expect("the relay does not panic");
    broker.inner().assert_delivered_once(&delivered);
}

/// Proves pitfall 5.
pub async fn a_broker_that_comes_back_gets_everything_in_order<B: Backend>(b: &B) {
    let messages: Vec<_> = (0..120)
        .map(|n| keyed(&format!("k{}", n % 7), &n.to_string()))
        .collect();
    let ids = enqueue_new(b, messages.clone()).await;
    let broker = broker();
    // Comes and goes: runs of failures open the circuit, others fail a trial, some do neither.
    broker.inject(
        Rule::new(Fault::transport())
            .when(|_| rand::random_ratio(1, 3))
            .times(60),
    );
    let one_by_one = OneByOne::new(&broker);
    let mut often = patient(Duration::from_millis(10));
    often.retry.backoff = Backoff::Schedule {
        delays: vec![SECOND / 5],
    };
    let (shutdown, relay) = start(b, one_by_one, often);
    let all = timeout(MINUTE * 5, broker.inner().wait_for(120)).await;
    all.expect("the relay recovers by itself");
    shutdown.cancel();
    let report = relay.await.expect("the relay does not panic");
    assert_eq!((report.delivered, report.died, report.lease_lost), (120, 0, 0));
    broker.inner().assert_delivered_once(&ids);
    broker.inner().assert_order_per_key(&messages);
}

/// What is wrong with a message or its topic is no reason to stop the others.
pub async fn failures_that_are_not_the_brokers_absence_never_open_the_circuit<B: Backend>(b: &B) {
    let ids = enqueue_new(b, many(60)).await;
    let broker = broker();
    let third = |n: usize| -> Vec<MessageId> { ids.iter().copied().skip(n).step_by(3).collect() };
    broker.inject(Rule::new(Fault::transient()).on(third(0)));
    broker.inject(Rule::new(Fault::permanent()).on(third(1)));
    broker.inject(Rule::new(Fault::Silence).on(third(2)));
    let report = drain(b, OneByOne::new(&broker), config()).await;
    assert_eq!((report.retried, report.died, report.released), (40, 20, 0));
    assert_eq!(attempts(b).await, [1; 60], "every one was tried");
}

/// Silence is a transport error too.
pub async fn a_broker_that_does_not_answer_opens_the_circuit<B: Backend>(b: &B) {
    let ids = enqueue_new(b, many(20)).await;
    let broker = broker();
    broker.hang();
    let impatient = RelayConfig {
        batch_size: 5,
        max_in_flight: 5,
        publish_timeout: SECOND / 10,
        ..patient(HOUR)
    };
    let (shutdown, relay) = start(b, broker.clone(), impatient);
    until_tried(b, 4).await;
    sleep(SECOND / 5).await;
    assert_eq!(attempts(b).await.iter().sum::<u32>(), 4, "one batch found out for all");
    let error = record(b, ids[0]).await.last_error.expect("it says why");
    assert!(error.contains("gave no answer"), "{error}");
    shutdown.cancel();
    relay.await.expect("the relay does not panic");
}

/// Proves B12.
pub async fn a_relay_stops_while_the_circuit_is_open<B: Backend>(b: &B) {
    enqueue_new(b, many(10)).await;
    let broker = broker();
    broker.vanish();
    let (shutdown, relay) = start(b, OneByOne::new(&broker), patient(HOUR));
    until_tried(b, 4).await;
    shutdown.cancel();
    let report = timeout(SECOND * 30, relay)
        .await
        .expect("it does not wait for the broker");
    assert_eq!(report.expect("the relay does not panic").abandoned, 0);
    let stats = b.store().stats("default").await.expect("stats work");
    assert_eq!((stats.pending, stats.processing), (10, 0));
}

/// A drain ends with an error, instead of waiting for a broker that may be unavailable for long.
pub async fn draining_ends_with_an_error_when_the_broker_is_unavailable<B: Backend>(b: &B) {
    let ids = enqueue_new(b, many(20)).await;
    let broker = broker();
    broker.vanish();
    // Some tables have no place for a retry, and a drain waits for it.
    let config = retrying_after(RETRY_DELAY);
    let relay = Relay::new(b.store().clone(), OneByOne::new(&broker)).config(config.clone());
    let drained = timeout(MINUTE, relay.drain())
        .await
        .expect("it does not wait for the broker");
    let error = drained.expect_err("the broker is unavailable");
    let RelayError::BrokerUnavailable { report, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(
        (report.delivered, report.retried, report.postponed, report.died),
        (0, 4, 1, 0)
    );
    assert!(
        error.to_string().contains("the broker cannot be reached, as scripted"),
        "{error}"
    );
    let stats = b.store().stats("default").await.expect("stats work");
    assert_eq!(
        (stats.pending, stats.processing, stats.dead),
        (20, 0, 0),
        "nothing is lost"
    );
    b.pass_time(DUE_AGAIN).await;
    let broker = RecordingPublisher::new();
    drain(b, broker.clone(), config).await;
    broker.assert_delivered_once(&ids);
}

fn to(topic: &str, count: usize) -> Vec<Message> {
    let message = |n: usize| Message::new(topic.to_owned(), n.to_string()).key(format!("k{}", n % 3));
    (0..count).map(message).collect()
}

/// A failure that reaches one destination says nothing about the others.
pub async fn a_destination_that_is_unavailable_stops_only_its_own_messages<B: Backend>(b: &B) {
    let (dead, healthy) = (to("dead", 30), to("healthy", 30));
    let dead_ids = enqueue_new(b, dead.clone()).await;
    let healthy_ids = enqueue_new(b, healthy).await;
    let broker = broker();
    let unavailable = PublishError::transport("no leader, as scripted").at("dead");
    broker.inject(Rule::new(Fault::Error(unavailable)).when(|message| message.topic == "dead"));
    let one_by_one = OneByOne::new(&broker);
    let small = RelayConfig {
        batch_size: 10,
        ..hasty()
    };
    let (shutdown, relay) = start(b, one_by_one.clone(), small);
    let others = timeout(MINUTE, broker.inner().wait_for(30)).await;
    others.expect("the others are delivered");
    eventually("many trials", async || one_by_one.tried().len() >= 30 + 12).await;
    broker.inner().assert_delivered_once(&healthy_ids);
    let dead_rows = records(b).await.into_iter().filter(|row| row.message.topic == "dead");
    assert!(
        dead_rows.into_iter().all(|row| row.state != State::Dead),
        "nothing dies of it"
    );
    broker.heal();
    // Until the destination is tried again, and for the waits of its messages.
    eventually("everything to be delivered", async || {
        b.pass_time(SECOND * 10).await;
        // Leases grow older, too: what is on its way needs a moment in which none runs out.
        sleep(SECOND / 5).await;
        broker.inner().ids().len() >= 60
    })
    .await;
    shutdown.cancel();
    let report = relay.await.expect("the relay does not panic");
    assert_eq!((report.delivered, report.died), (60, 0));
    let all: Vec<_> = dead_ids.into_iter().chain(healthy_ids).collect();
    broker.inner().assert_delivered_once(&all);
    broker.inner().assert_order_per_key(&dead);
}

/// There is nothing wrong with a message that the broker has no room for yet.
pub async fn a_broker_that_throttles_is_waited_for_and_costs_no_attempt<B: Backend>(b: &B) {
    let ids = enqueue_new(b, many(20)).await;
    let broker = broker();
    let busy = PublishError::throttled(SECOND / 5, "too many requests, as scripted");
    broker.inject(Rule::new(Fault::Error(busy)));
    let one_by_one = OneByOne::new(&broker);
    let (shutdown, relay) = start(b, one_by_one.clone(), hasty());
    eventually("more refusals than attempts", async || one_by_one.tried().len() >= 6).await;
    let tried = one_by_one.tried();
    for pair in tried.windows(2) {
        assert!(pair[1].1 - pair[0].1 >= SECOND / 5, "nothing is tried meanwhile");
    }
    assert!(
        attempts(b).await.iter().all(|attempts| *attempts <= 1),
        "none was used up"
    );
    broker.heal();
    let all = timeout(MINUTE, broker.inner().wait_for(20)).await;
    all.expect("it goes on by itself");
    shutdown.cancel();
    let report = relay.await.expect("the relay does not panic");
    assert_eq!((report.delivered, report.died, report.retried), (20, 0, 0));
    broker.inner().assert_delivered_once(&ids);
}

/// It has fewer attempts than it takes to open the circuit, and nothing else is there to be tried.
pub async fn the_only_message_does_not_die_of_an_outage<B: Backend>(b: &B) {
    let ids = enqueue_new(b, many(1)).await;
    let broker = broker();
    broker.vanish();
    let one_by_one = OneByOne::new(&broker);
    let (shutdown, relay) = start(b, one_by_one.clone(), hasty());
    eventually("more failures than attempts", async || one_by_one.tried().len() >= 20).await;
    broker.up();
    timeout(MINUTE, broker.inner().wait_for(1))
        .await
        .expect("it is delivered");
    shutdown.cancel();
    let report = relay.await.expect("the relay does not panic");
    assert_eq!((report.delivered, report.died), (1, 0));
    broker.inner().assert_delivered_once(&ids);
}
