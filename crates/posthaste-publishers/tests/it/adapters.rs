//! Publishers made of publishers.

use std::sync::{Arc, Mutex};

use posthaste_core::Publisher;
use posthaste_core::publisher::{Delivery, Outcome, PublishError};
use posthaste_publishers::{Callback, PublisherExt, Route};

use crate::support::{message, publish, refused};

/// A publisher that remembers topics and payloads, and refuses payloads with `fail`.
fn noted() -> (impl Publisher, Arc<Mutex<Vec<String>>>) {
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = Arc::clone(&log);
    let publisher = Callback::new(move |delivery: Delivery| {
        let sink = Arc::clone(&sink);
        async move {
            let payload = String::from_utf8_lossy(&delivery.message.payload).into_owned();
            if payload.contains("fail") {
                return Err(refused());
            }
            sink.lock()
                .unwrap()
                .push(format!("{}:{payload}", delivery.message.topic));
            Ok::<(), PublishError>(())
        }
    });
    (publisher, log)
}

#[tokio::test]
async fn what_is_filtered_out_counts_as_delivered_and_is_not_sent() {
    let (publisher, log) = noted();
    let publisher = publisher.filter(|message| message.payload != "2");
    let messages = ["1", "2", "3"].map(|payload| message("k", payload));
    assert_eq!(publish(&publisher, &messages).await, vec![Outcome::DELIVERED; 3]);
    assert_eq!(*log.lock().unwrap(), ["t:1", "t:3"]);
}

#[tokio::test]
async fn what_is_changed_is_sent_and_reported_under_its_own_id() {
    let (publisher, log) = noted();
    let publisher = publisher.map(|mut message| {
        message.topic = "eu.orders".into();
        message.id = posthaste_core::MessageId::new();
        message
    });
    let outcomes = publish(&publisher, &[message("", "1"), message("", "fail")]).await;
    assert_eq!(outcomes, [Outcome::DELIVERED, Outcome::Failed(refused())]);
    assert_eq!(*log.lock().unwrap(), ["eu.orders:1"]);
}

#[tokio::test]
async fn what_fits_a_route_goes_to_the_other_publisher() {
    let ((own, here), (other, there)) = (noted(), noted());
    let publisher = own.route(Route::to("audit").tenant("acme"), other).unwrap();
    let messages = [message("", "1"), message("", "2").tenant("acme")];
    assert_eq!(publish(&publisher, &messages).await, vec![Outcome::DELIVERED; 2]);
    assert_eq!(
        (here.lock().unwrap().len(), there.lock().unwrap().clone()),
        (1, vec!["t:2".to_owned()])
    );
}

#[tokio::test]
async fn a_fan_out_delivers_when_all_have_it_and_stops_the_lane_when_one_has_not() {
    let ((one, first), (other, second)) = (noted(), noted());
    let publisher = one.fan_out(other.filter(|_| true));
    let messages = ["1", "fail", "3"].map(|payload| message("k", payload));
    let expected = [Outcome::DELIVERED, Outcome::Failed(refused()), Outcome::NotAttempted];
    assert_eq!(publish(&publisher, &messages).await, expected);
    assert_eq!((first.lock().unwrap().len(), second.lock().unwrap().len()), (1, 1));
    let panicking = Callback::new(|_: Delivery| async { panic!("it was asked to") });
    let (fine, log) = noted();
    let outcomes = publish(&fine.fan_out(panicking), &[message("", "1")]).await;
    assert!(matches!(&outcomes[0], Outcome::Failed(_)), "{outcomes:?}");
    assert_eq!(log.lock().unwrap().len(), 1);
}
