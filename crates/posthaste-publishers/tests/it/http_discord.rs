//! Notifications to a webhook, on a real receiver that refuses, delays and hangs up.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use posthaste_core::publisher::{ErrorKind, LeaseCheck, Outcome, Place, PublishError};
use posthaste_core::{Batch, Message, Publisher, Report};
use posthaste_publishers::{HttpFormat, HttpOptions, HttpPublisher};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use crate::support::receiver;
use crate::support::receiver::{Receiver, Reply, SECRET};
use crate::support::{deliveries, message, publish, publish_without_lease};

fn publisher(receiver: &Receiver) -> HttpPublisher {
    HttpPublisher::new(receiver.options()).unwrap()
}

#[track_caller]
fn failure(outcome: &Outcome) -> &PublishError {
    let Outcome::Failed(error) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(!error.message.contains(SECRET), "{error}");
    error
}

/// Proves D10.
#[tokio::test]
async fn a_message_is_posted_as_a_card_in_discords_format() {
    let receiver = Receiver::start([]).await;
    let publisher = publisher(&receiver);
    let message = Message::new("donations", r#"{"amount":5,"note":"@everyone"}"#).event_type("DONATION_COMPLETED");
    assert_eq!(
        publish(&publisher, std::slice::from_ref(&message)).await,
        [Outcome::DELIVERED]
    );
    let post = &receiver.posts()[0];
    assert_eq!(post.uri.query(), Some("wait=true"));
    assert_eq!(post.headers["content-type"], "application/json");
    let card = &post.body["embeds"][0];
    assert_eq!(card["title"], "DONATION_COMPLETED");
    assert_eq!(card["footer"]["text"], message.id.to_string());
    assert_eq!(post.text(), r#"{"amount":5,"note":"@everyone"}"#);
    assert_eq!(post.body["allowed_mentions"], serde_json::json!({"parse": []}));
    assert_eq!(publisher.name(), "http");
}

#[tokio::test]
async fn a_key_goes_out_in_order_and_keys_side_by_side_but_not_too_many() {
    let receiver = Receiver::start([]).await;
    receiver.otherwise(Some(Reply::Slow(Duration::from_millis(20))));
    let options = receiver.options().concurrency(3);
    let keys = ["a", "b", "c", "d", "e"];
    let messages: Vec<Message> = (0..50)
        .map(|n| message(keys[n % 5], &format!("{}{}", keys[n % 5], n / 5)))
        .collect();
    let outcomes = publish(&HttpPublisher::new(options).unwrap(), &messages).await;
    assert_eq!(outcomes, vec![Outcome::DELIVERED; 50]);
    assert_eq!(receiver.most_in_flight(), 3);
    let taken = receiver.taken();
    for key in keys {
        let of_key: Vec<_> = taken.iter().filter(|text| text.starts_with(key)).cloned().collect();
        assert_eq!(of_key, (0..10).map(|n| format!("{key}{n}")).collect::<Vec<_>>());
    }
}

/// Proves D10 and pitfall 26.
#[tokio::test]
async fn what_the_receiver_refuses_is_sorted_by_whose_fault_it_is() {
    for (status, kind) in [
        (400, ErrorKind::Permanent),
        (413, ErrorKind::Permanent),
        (401, ErrorKind::Transport),
        (403, ErrorKind::Transport),
        (404, ErrorKind::Transport),
        (408, ErrorKind::Transient),
        (409, ErrorKind::Transient),
        (425, ErrorKind::Transient),
        (500, ErrorKind::Transient),
        (503, ErrorKind::Transport),
    ] {
        let receiver = Receiver::start([Reply::Status(status)]).await;
        let options = receiver.options().concurrency(1);
        let messages = [message("a", "a0"), message("a", "a1"), message("b", "b0")];
        let outcomes = publish(&HttpPublisher::new(options).unwrap(), &messages).await;
        let error = failure(&outcomes[0]);
        assert_eq!(error.kind, kind, "{status}: {error}");
        assert!(error.message.starts_with("HTTP receiver 127.0.0.1:"), "{error}");
        assert_eq!(outcomes[1..], [Outcome::NotAttempted, Outcome::DELIVERED]);
        assert_eq!(receiver.taken(), ["b0"]);
    }
}

#[tokio::test]
async fn a_rate_limit_is_waited_for_by_everybody_and_costs_no_attempt() {
    let receiver = Receiver::start([Reply::Throttle(0.5)]).await;
    let options = receiver.options().concurrency(1);
    let messages = [message("a", "a0"), message("b", "b0"), message("", "c0")];
    let outcomes = publish(&HttpPublisher::new(options).unwrap(), &messages).await;
    assert_eq!(outcomes, vec![Outcome::DELIVERED; 3]);
    assert_eq!(receiver.taken(), ["a0", "b0", "c0"]);
    let posts = receiver.posts();
    assert_eq!(posts.len(), 4, "one was told to wait, and then nobody else");
    assert!(posts[1].at - posts[0].at >= Duration::from_millis(490));
}

#[tokio::test]
async fn a_limit_that_was_announced_is_not_run_into() {
    let receiver = Receiver::start([Reply::Last(0.5)]).await;
    let publisher = publisher(&receiver);
    publish(&publisher, &[message("", "a")]).await;
    publish(&publisher, &[message("", "b"), message("", "c")]).await;
    let posts = receiver.posts();
    assert_eq!(posts.len(), 3);
    assert!(posts[1].at - posts[0].at >= Duration::from_millis(490));
}

#[tokio::test]
async fn a_limit_that_outlasts_all_timeouts_is_told_to_everybody_and_nobody_waits_in_vain() {
    for reply in [Reply::Throttle(600.0), Reply::Last(600.0)] {
        let receiver = Receiver::start([reply.clone()]).await;
        let options = receiver.options().concurrency(1);
        let publisher = HttpPublisher::new(options).unwrap();
        let begin = Instant::now();
        let outcomes = publish(&publisher, &[message("a", "a0"), message("b", "b0")]).await;
        for (n, outcome) in outcomes.iter().enumerate() {
            if n == 0 && matches!(reply, Reply::Last(_)) {
                assert_eq!(*outcome, Outcome::DELIVERED);
                continue;
            }
            let ErrorKind::Throttled { retry_after } = failure(outcome).kind else {
                panic!("{outcome:?}")
            };
            assert!((590..=600).contains(&retry_after.as_secs()), "{retry_after:?}");
        }
        assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
        assert_eq!(receiver.posts().len(), 1);
    }
}

#[tokio::test]
async fn a_receiver_that_asks_for_no_time_at_all_is_not_asked_again_at_once() {
    let receiver = Receiver::start([]).await;
    receiver.otherwise(Some(Reply::Throttle(0.0)));
    let options = receiver.options().answer_within(Duration::from_secs(3));
    let publisher = HttpPublisher::new(options).unwrap();
    let outcomes = publish(&publisher, &[message("a", "a0")]).await;
    assert!(matches!(failure(&outcomes[0]).kind, ErrorKind::Throttled { .. }));
    assert!(receiver.posts().len() <= 4, "{}", receiver.posts().len());
}

#[tokio::test]
async fn an_answer_whose_text_never_comes_is_an_answer() {
    let receiver = Receiver::start([Reply::Unfinished]).await;
    let outcomes = publish(&publisher(&receiver), &[message("a", "a0"), message("a", "a1")]).await;
    assert_eq!(outcomes, vec![Outcome::DELIVERED; 2]);
    assert_eq!(receiver.posts().len(), 2);
}

#[tokio::test]
async fn a_message_that_was_told_how_long_to_wait_does_not_wait_in_vain() {
    let receiver = Receiver::start([Reply::Throttle(600.0)]).await;
    let begin = Instant::now();
    let outcomes = publish(&publisher(&receiver), &[message("a", "a0")]).await;
    assert!(matches!(failure(&outcomes[0]).kind, ErrorKind::Throttled { .. }));
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_receiver_that_hangs_is_given_up_in_time() {
    let receiver = Receiver::start([Reply::Hang]).await;
    let options = receiver.options().answer_within(Duration::from_secs(1));
    let begin = Instant::now();
    let outcomes = publish(&HttpPublisher::new(options).unwrap(), &[message("", "a")]).await;
    let error = failure(&outcomes[0]);
    assert_eq!(error.kind, ErrorKind::Transport);
    assert!(error.message.contains("gave no answer in time"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn a_receiver_that_hangs_up_or_is_unavailable_is_a_matter_of_the_way() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let hanging_up = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        connection.read_u8().await.unwrap();
        connection.set_zero_linger().unwrap();
    });
    let publisher = HttpPublisher::new(HttpOptions::new(receiver::url(address)).format(HttpFormat::Discord)).unwrap();
    let outcomes = publish(&publisher, &[message("", "a")]).await;
    let error = failure(&outcomes[0]);
    assert_eq!(error.kind, ErrorKind::Transport);
    assert!(error.message.contains("hung up"), "{error}");
    hanging_up.await.unwrap();

    let outcomes = publish(&publisher, &[message("", "a")]).await;
    let error = failure(&outcomes[0]);
    assert_eq!(error.kind, ErrorKind::Transport);
    assert!(error.message.contains("cannot be reached"), "{error}");
    assert!(publisher.check().await.is_err());
}

#[tokio::test]
async fn what_may_not_be_sent_is_not_posted_nor_is_the_rest_of_its_lane() {
    let receiver = Receiver::start([]).await;
    let messages = [
        message("a", "a0"),
        message("a", "a1"),
        message("a", "a2"),
        message("b", "b0"),
    ];
    let outcomes = publish_without_lease(&publisher(&receiver), &messages, &[1]).await;
    let (ok, not) = (|| Outcome::DELIVERED, || Outcome::NotAttempted);
    assert_eq!(outcomes, [ok(), not(), not(), ok()]);
    assert_eq!(receiver.posts().len(), 2);
}

/// A lease that ends when it is told to.
struct Ending(AtomicBool);

impl LeaseCheck for Ending {
    fn may_send(&self, _: Place) -> bool {
        !self.0.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn a_lease_that_ends_during_a_pause_ends_the_wait() {
    let receiver = Receiver::start([Reply::Last(20.0)]).await;
    let publisher = publisher(&receiver);
    publish(&publisher, &[message("", "a")]).await;
    let (lease, outcome) = (Arc::new(Ending(AtomicBool::new(false))), Arc::new(OnceLock::new()));
    let batch = Batch::new(
        deliveries(&[message("", "b")]),
        Arc::clone(&lease) as Arc<dyn LeaseCheck>,
    );
    let sink = Arc::clone(&outcome);
    let report = Report::new(move |_, outcome| sink.set(outcome).unwrap());
    let mut publishing = pin!(publisher.publish(batch, report));
    let early = tokio::time::timeout(Duration::from_millis(500), &mut publishing).await;
    assert!(early.is_err(), "it waits for the pause to end");
    lease.0.store(true, Ordering::Relaxed);
    let begin = Instant::now();
    publishing.await;
    assert_eq!(outcome.get(), Some(&Outcome::NotAttempted));
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert_eq!(receiver.posts().len(), 1);
}

#[tokio::test]
async fn batches_share_the_seats() {
    let receiver = Receiver::start([]).await;
    receiver.otherwise(Some(Reply::Slow(Duration::from_millis(20))));
    let options = receiver.options().concurrency(2);
    let publisher = HttpPublisher::new(options).unwrap();
    let batches: Vec<Vec<Message>> = (0..3).map(|_| [(); 5].map(|()| message("", "x")).into()).collect();
    let batches = batches.iter().map(|batch| publish(&publisher, batch));
    for outcomes in futures::future::join_all(batches).await {
        assert_eq!(outcomes, vec![Outcome::DELIVERED; 5]);
    }
    assert_eq!(receiver.most_in_flight(), 2);
}

#[tokio::test]
async fn a_probe_posts_nothing_and_finds_a_webhook_that_was_removed() {
    let receiver = Receiver::start([]).await;
    let publisher = publisher(&receiver);
    let found = publisher.check().await.unwrap();
    assert!(found.ends_with("answers 200 OK"), "{found}");
    receiver.otherwise(Some(Reply::Status(404)));
    let error = publisher.check().await.unwrap_err();
    assert!(error.message.contains("correct the publisher's url"), "{error}");
    assert!(receiver.posts().is_empty());
}

#[tokio::test]
async fn the_address_is_never_shown() {
    let receiver = Receiver::start([]).await;
    let publisher = publisher(&receiver);
    let shown = format!("{publisher:?} {:?}", receiver.options());
    assert!(shown.contains("127.0.0.1") && !shown.contains(SECRET), "{shown}");
}
