//! A function as publisher.

use std::sync::{Arc, Mutex};

use posthaste_core::publisher::{Delivery, Outcome};
use posthaste_core::{Message, Publisher};
use posthaste_publishers::Callback;

use crate::support;
use crate::support::{message, publish, refused};

/// Proves B13.
#[tokio::test]
async fn a_callback_sees_the_opaque_payload_and_answers_ok_or_error() {
    let seen: Arc<Mutex<Vec<Delivery>>> = Arc::default();
    let publisher = Callback::new({
        let seen = Arc::clone(&seen);
        move |delivery: Delivery| {
            let seen = Arc::clone(&seen);
            async move {
                let refuse = delivery.message.payload.is_empty();
                seen.lock().unwrap().push(delivery);
                if refuse { Err(refused()) } else { Ok(()) }
            }
        }
    });
    let not_even_text = Message::new("t", vec![0xff, 0x00, b'\n']).content_type("application/octet-stream");
    let messages = [not_even_text, message("", "")];
    let outcomes = publish(&publisher, &messages).await;
    assert_eq!(outcomes, [Outcome::DELIVERED, Outcome::Failed(refused())]);
    assert_eq!(*seen.lock().unwrap(), support::deliveries(&messages));
    assert_eq!(publisher.name(), "callback");
}

#[tokio::test]
async fn a_plain_async_function_will_do() {
    async fn accept(_: Delivery) -> Result<(), posthaste_core::PublishError> {
        Ok(())
    }
    let publisher = Callback::new(accept).concurrency(1);
    assert_eq!(publish(&publisher, &[message("a", "1")]).await, [Outcome::DELIVERED]);
}
