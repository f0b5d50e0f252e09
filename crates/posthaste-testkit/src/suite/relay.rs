//! The whole engine on the store: from a committed message to a broker and back.

use std::time::Duration;

use posthaste_core::lifecycle::{State, Verdict};
use posthaste_core::store::{DeadHead, Scope};
use posthaste_core::{Backoff, Message, MessageId, RelayStore};
use posthaste_relay::{OrderingConfig, RelayConfig};

use super::engine::{DUE_AGAIN, broker, config, drain};
use super::steps::{SECOND, Worker, enqueue_new, keyed, plain, record, settle, state};
use crate::backend::Backend;
use crate::{Fault, RecordingPublisher, Rule};

/// Messages of five keys and of none, with the place of each as its payload.
fn mixed(count: usize) -> Vec<Message> {
    let message = |n: usize| match n % 6 {
        0 => plain(&n.to_string()),
        key => keyed(&format!("k{key}"), &n.to_string()),
    };
    (0..count).map(message).collect()
}

/// Proves B13.
pub async fn everything_that_was_committed_is_delivered_once_and_in_order<B: Backend>(b: &B) {
    let messages = mixed(600);
    let ids = enqueue_new(b, messages.clone()).await;
    let broker = RecordingPublisher::new();
    let report = drain(
        b,
        broker.clone(),
        RelayConfig {
            batch_size: 50,
            max_in_flight: 150,
            ..config()
        },
    )
    .await;
    assert_eq!((report.delivered, report.retried, report.lease_lost), (600, 0, 0));
    broker.assert_delivered_once(&ids);
    broker.assert_order_per_key(&messages);
    for id in ids {
        assert_eq!(state(b, id).await, State::Delivered);
    }
}

/// Proves B14 and pitfall 4.
pub async fn relays_that_run_at_the_same_time_share_the_work<B: Backend>(b: &B) {
    let messages = mixed(400);
    let ids = enqueue_new(b, messages.clone()).await;
    let broker = RecordingPublisher::new();
    let relay = || {
        drain(
            b,
            broker.clone(),
            RelayConfig {
                batch_size: 7,
                max_in_flight: 21,
                ..config()
            },
        )
    };
    let reports = futures::future::join_all((0..4).map(|_| relay())).await;
    assert_eq!(reports.iter().map(|report| report.delivered).sum::<u64>(), 400);
    broker.assert_delivered_once(&ids);
    broker.assert_order_per_key(&messages);
}

/// Proves pitfalls 5, 19.
pub async fn a_failing_key_stops_only_itself<B: Backend>(b: &B) {
    let messages = [
        keyed("bad", "1"),
        keyed("good", "2"),
        keyed("bad", "3"),
        plain("4"),
        keyed("good", "5"),
    ];
    let ids = enqueue_new(b, messages.clone()).await;
    let broker = broker();
    broker.fail_while(|message| message.ordering_key.as_deref() == Some("bad"));
    let report = drain(b, broker.clone(), config()).await;
    assert_eq!((report.delivered, report.retried, report.released), (3, 1, 1));
    broker.inner().assert_delivered_once(&[ids[1], ids[3], ids[4]]);
    let head = record(b, ids[0]).await;
    assert_eq!((head.state, head.attempts), (State::Pending, 1));
    assert!(
        head.last_error
            .expect("it failed")
            .contains("the broker is unavailable")
    );
    let follower = record(b, ids[2]).await;
    assert_eq!(
        (follower.attempts, follower.last_error),
        (0, None),
        "it was never tried"
    );

    broker.heal();
    b.pass_time(DUE_AGAIN).await;
    drain(b, broker.clone(), config()).await;
    broker.inner().assert_delivered_once(&ids);
    broker.inner().assert_order_per_key(&messages);
}

/// Proves pitfall 5.
pub async fn a_failure_in_the_middle_of_a_run_is_not_overtaken<B: Backend>(b: &B) {
    let messages: Vec<_> = (0..20).map(|n| keyed("k", &n.to_string())).collect();
    let ids = enqueue_new(b, messages.clone()).await;
    let broker = broker();
    broker.inject(Rule::new(Fault::transient()).on([ids[7]]).times(1));
    broker.inject(Rule::new(Fault::LostAcknowledgement).on([ids[12]]).times(1));
    for _ in 0..3 {
        drain(b, broker.clone(), config()).await;
        b.pass_time(DUE_AGAIN).await;
    }
    assert_eq!(broker.inner().first_deliveries(), ids);
    assert_eq!(
        broker.inner().ids().len(),
        21,
        "only the one whose acknowledgement was lost came twice"
    );
}

/// Proves A10 and pitfall 32.
pub async fn a_lost_acknowledgement_delivers_again_under_the_same_id<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let broker = broker();
    broker.lose_acknowledgements(1);
    drain(b, broker.clone(), config()).await;
    b.pass_time(DUE_AGAIN).await;
    drain(b, broker.clone(), config()).await;
    assert_eq!(broker.inner().ids(), [ids[0], ids[0]]);
    assert_eq!(state(b, ids[0]).await, State::Delivered);
}

/// Proves D3.
pub async fn a_message_whose_bytes_were_changed_is_dead_and_never_published<B: Backend>(b: &B) {
    let messages = [keyed("k", "1"), keyed("k", "2"), keyed("k", "3"), plain("4")];
    let ids = enqueue_new(b, messages.clone()).await;
    b.corrupt_payload(ids[1]).await;
    let broker = RecordingPublisher::new();
    let report = drain(b, broker.clone(), config()).await;
    assert_eq!((report.delivered, report.died, report.retried), (3, 1, 0));
    broker.assert_delivered_once(&[ids[0], ids[2], ids[3]]);
    broker.assert_order_per_key(&messages);
    let row = record(b, ids[1]).await;
    assert_eq!((row.state, row.attempts), (State::Dead, 1), "straight to dead");
    assert!(row.last_error.expect("it says why").contains("do not match their hash"));
}

/// Proves B10 and pitfall 9.
pub async fn a_message_that_always_fails_is_dead_after_its_last_attempt<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let broker = broker();
    broker.down();
    for attempt in 1..=3 {
        drain(b, broker.clone(), config()).await;
        assert_eq!(record(b, ids[0]).await.attempts, attempt);
        b.pass_time(DUE_AGAIN).await;
    }
    let row = record(b, ids[0]).await;
    assert_eq!(row.state, State::Dead);
    assert!(
        row.last_error
            .expect("it says why")
            .starts_with("gave up after 3 attempts: the broker is unavailable")
    );
    broker.up();
    drain(b, broker.clone(), config()).await;
    assert_eq!(broker.inner().ids(), [], "the dead are not delivered");
    assert_eq!(b.store().stats("default").await.expect("stats work").dead, 1);
}

/// Proves pitfall 17.
pub async fn a_refused_head_is_dead_at_once_and_the_policy_decides_about_the_rest<B: Backend>(b: &B) {
    let skipping = [plain("1").key("k"), plain("2").key("k")];
    let blocking = [
        Message::new("strict", "3").key("k"),
        Message::new("strict", "4").key("k"),
    ];
    let ids = enqueue_new(b, skipping.into_iter().chain(blocking)).await;
    let broker = broker();
    broker.refuse([ids[0], ids[2]]);
    let topics = [("strict".to_owned(), DeadHead::Block)].into();
    let config = RelayConfig {
        ordering: OrderingConfig {
            topics,
            ..OrderingConfig::default()
        },
        ..config()
    };
    let report = drain(b, broker.clone(), config).await;
    assert_eq!((report.died, report.delivered), (2, 1));
    broker.inner().assert_delivered_once(&[ids[1]]);
    assert_eq!(
        record(b, ids[0]).await.attempts,
        1,
        "nothing would come of more attempts"
    );
    assert_eq!(state(b, ids[3]).await, State::Pending, "its topic blocks");
}

/// Proves B9.
pub async fn a_publisher_that_forgets_to_answer_is_asked_again<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1"), plain("2")]).await;
    let broker = broker();
    broker.inject(Rule::new(Fault::Silence).on([ids[0]]).times(1));
    let report = drain(b, broker.clone(), config()).await;
    assert_eq!((report.delivered, report.retried), (1, 1));
    let error = record(b, ids[0]).await.last_error.expect("it says why");
    assert!(error.contains("without an outcome"), "{error}");
}

/// Proves B13.
pub async fn a_publisher_that_panics_does_not_end_the_relay<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let broker = broker();
    broker.panic_next();
    let report = drain(b, broker.clone(), config()).await;
    assert_eq!(report.retried, 1);
    b.pass_time(DUE_AGAIN).await;
    drain(b, broker.clone(), config()).await;
    broker.inner().assert_delivered_once(&ids);
}

/// Proves B13.
pub async fn a_publisher_that_hangs_is_given_up<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1")]).await;
    let broker = broker();
    broker.hang();
    let report = drain(
        b,
        broker.clone(),
        RelayConfig {
            publish_timeout: SECOND / 10,
            ..config()
        },
    )
    .await;
    assert_eq!(report.retried, 1);
    let error = record(b, ids[0]).await.last_error.expect("it says why");
    assert!(error.contains("gave no answer"), "{error}");
}

/// Proves B17.
pub async fn a_relay_delivers_only_what_is_in_its_scope<B: Backend>(b: &B) {
    let messages = [
        plain("1"),
        Message::new("other", "2"),
        plain("3").namespace("elsewhere"),
        plain("4").tenant("t1"),
        Message::new("other", "5").tenant("t1"),
    ];
    let ids = enqueue_new(b, messages).await;
    let delivered = async |scope: Scope| -> Vec<MessageId> {
        let broker = RecordingPublisher::new();
        drain(b, broker.clone(), RelayConfig { scope, ..config() }).await;
        broker.ids()
    };
    let topic = Scope {
        topics: vec!["other".into()],
        tenant: Some("t1".into()),
        ..Scope::default()
    };
    assert_eq!(delivered(topic).await, ids[4..]);
    assert_eq!(
        delivered(Scope {
            tenant: Some("t1".into()),
            ..Scope::default()
        })
        .await,
        ids[3..4]
    );
    assert_eq!(
        delivered(Scope {
            namespace: "elsewhere".into(),
            ..Scope::default()
        })
        .await,
        ids[2..3]
    );
    assert_eq!(delivered(Scope::default()).await, ids[..2]);
}

/// Fewer failures than open the circuit are failures too, and so is a death; what is delivered by a later attempt of the
/// same drain is not.
pub async fn a_drain_says_how_much_was_due_and_is_not_delivered<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1"), plain("2"), keyed("k", "3"), keyed("k", "4")]).await;
    let broker = broker();
    broker.inject(Rule::new(Fault::transport()).on([ids[0], ids[2]]).times(2));
    broker.refuse([ids[1]]);
    let report = drain(b, broker.clone(), config()).await;
    assert_eq!((report.delivered, report.died), (0, 1));
    assert_eq!(report.undelivered, 4, "failed, dead, failed, given back");
    assert!(!report.is_complete());

    b.pass_time(DUE_AGAIN).await;
    broker.inject(Rule::new(Fault::transient()).on([ids[0]]).times(1));
    let mut at_once = config();
    at_once.retry.backoff = Backoff::Schedule {
        delays: vec![Duration::ZERO],
    };
    let report = drain(b, broker.clone(), at_once).await;
    assert_eq!((report.delivered, report.retried, report.undelivered), (3, 1, 0));
    assert!(report.is_complete());
}

/// Nobody else may be there to sweep.
///
/// Proves B8.
pub async fn a_drain_gives_up_what_waits_above_a_lowered_limit<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [keyed("k", "1"), keyed("k", "2"), plain("3")]).await;
    let work = Worker::new().claim(b, 1).await;
    let retry = Verdict::Retry {
        delay: SECOND * 3_600,
        error: "not now".into(),
    };
    assert_eq!(settle(b, vec![work.verdict(ids[0], retry)]).await, []);
    let mut once = config();
    once.retry.max_attempts = 1;
    let report = drain(b, broker(), once).await;
    assert_eq!((report.delivered, report.died, report.undelivered), (2, 1, 1));
    assert_eq!(state(b, ids[0]).await, State::Dead);
}

/// Proves B18.
pub async fn the_store_can_be_driven_without_a_relay<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1"), plain("2")]).await;
    let work = Worker::new().claim(b, 2).await;
    assert_eq!(work.ids(), ids);
    let nack = Verdict::Retry {
        delay: SECOND,
        error: "not now".into(),
    };
    assert_eq!(settle(b, vec![work.verdict(ids[0], Verdict::Delivered)]).await, []);
    assert_eq!(settle(b, vec![work.verdict(ids[1], nack)]).await, []);
    assert_eq!(
        (state(b, ids[0]).await, state(b, ids[1]).await),
        (State::Delivered, State::Pending)
    );
    assert_eq!(
        settle(b, vec![work.verdict(ids[0], Verdict::Delivered)]).await,
        ids[..1],
        "an ack counts once"
    );
}
