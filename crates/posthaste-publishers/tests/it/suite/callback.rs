//! A function.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use posthaste_core::publisher::{Delivery, PublishError};
use posthaste_core::{Message, Publisher};
use posthaste_publishers::Callback;
use posthaste_testkit::publishing::{left_out, message, names_in};
use posthaste_testkit::{Ability, Counterpart, Disturbance};

use super::beside;

#[derive(Default)]
struct Called {
    names: Mutex<Vec<String>>,
    dead: AtomicBool,
}

impl Called {
    fn take(&self, delivery: &Delivery) -> Result<(), PublishError> {
        if self.dead.load(Ordering::SeqCst) {
            return Err(PublishError::transport("the application is not ready"));
        }
        let text = String::from_utf8(delivery.message.payload.to_vec()).unwrap();
        if text.contains(REFUSE) {
            return Err(PublishError::transient("refused"));
        }
        assert!(!text.contains(PANIC), "as the suite asked for");
        self.names.lock().unwrap().extend(names_in(&text));
        Ok(())
    }
}

struct Function {
    called: Arc<Called>,
    publisher: Arc<dyn Publisher>,
}

const REFUSE: &str = "refuse this";
const PANIC: &str = "panic at this";

fn calling(called: &Arc<Called>) -> Arc<dyn Publisher> {
    let called = Arc::clone(called);
    Arc::new(Callback::new(move |delivery: Delivery| {
        let called = Arc::clone(&called);
        async move {
            // Gives way, as a function does that sends something.
            tokio::task::yield_now().await;
            called.take(&delivery)
        }
    }))
}

impl Counterpart for Function {
    fn lacks() -> &'static [(Ability, &'static str)] {
        &[
            (Ability::Silence, "the relay ends a call that takes too long"),
            (Ability::Throttle, "a pause is left to the relay"),
            (Ability::Limit, "a function takes any size"),
            (Ability::Full, "a function has no size"),
            (Ability::Check, "a function cannot be asked"),
        ]
    }

    async fn fresh(_: &[Ability]) -> Option<Self> {
        let called = Arc::default();
        let publisher = calling(&called);
        Some(Self { called, publisher })
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::clone(&self.publisher)
    }

    async fn arrived(&self) -> Vec<String> {
        self.called.names.lock().unwrap().clone()
    }

    async fn disturb(&self, disturbance: Disturbance) {
        assert_eq!(disturbance, Disturbance::Death);
        self.called.dead.store(true, Ordering::SeqCst);
    }

    async fn recover(&self) {
        self.called.dead.store(false, Ordering::SeqCst);
    }

    fn refused(&self, name: &str) -> Message {
        message("t", name, REFUSE)
    }

    fn panicking(&self, name: &str) -> Message {
        message("t", name, PANIC)
    }

    fn beside_a_dead_one(&self) -> (Arc<dyn Publisher>, String) {
        let dead = Arc::new(Called::default());
        dead.dead.store(true, Ordering::SeqCst);
        beside(calling(&dead), self.publisher())
    }
}

posthaste_testkit::publisher_suite!(Function);

#[test]
fn what_is_left_out() {
    insta::assert_snapshot!(left_out::<Function>());
}
