//! The program's log, whose filter may drop events.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use posthaste_core::Publisher;
use posthaste_publishers::{LogLevel, LogOptions, LogPublisher};
use posthaste_testkit::publishing::{left_out, names_in};
use posthaste_testkit::{Ability, Counterpart, Disturbance};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;

use super::beside;

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A log of the thread that the case runs on.
struct Log {
    written: Written,
    dropping: Arc<AtomicBool>,
    publisher: Arc<dyn Publisher>,
    _installed: DefaultGuard,
}

impl Counterpart for Log {
    fn lacks() -> &'static [(Ability, &'static str)] {
        &[
            (Ability::Refuse, "a filter does not look at payloads"),
            (Ability::Silence, "a log answers at once"),
            (Ability::Panic, "no code of others runs"),
            (Ability::Throttle, "a log asks nobody to wait"),
            (Ability::Limit, "what is too long is cut off"),
            (Ability::Full, "a log does not say that it is full"),
        ]
    }

    async fn fresh(_: &[Ability]) -> Option<Self> {
        let (written, dropping) = (Written::default(), Arc::<AtomicBool>::default());
        let (writer, drops) = (written.clone(), Arc::clone(&dropping));
        // Of level debug nothing is logged at all: that is the dead destination.
        let lets_through = dynamic_filter_fn(move |event, _| {
            event.target() == "posthaste::message"
                && *event.level() <= tracing::Level::INFO
                && !drops.load(Ordering::SeqCst)
        });
        let layer = tracing_subscriber::fmt::layer()
            .json()
            .with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(lets_through).with(layer);
        Some(Self {
            written,
            dropping,
            publisher: Arc::new(LogPublisher::default()),
            _installed: tracing::subscriber::set_default(subscriber),
        })
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::clone(&self.publisher)
    }

    async fn arrived(&self) -> Vec<String> {
        names_in(&String::from_utf8(self.written.0.lock().unwrap().clone()).unwrap())
    }

    async fn disturb(&self, disturbance: Disturbance) {
        assert_eq!(disturbance, Disturbance::Death);
        self.dropping.store(true, Ordering::SeqCst);
    }

    async fn recover(&self) {
        self.dropping.store(false, Ordering::SeqCst);
    }

    fn beside_a_dead_one(&self) -> (Arc<dyn Publisher>, String) {
        let dropped = LogPublisher::new(LogOptions::default().level(LogLevel::Debug));
        beside(Arc::new(dropped), self.publisher())
    }
}

posthaste_testkit::publisher_suite!(Log);

#[test]
fn what_is_left_out() {
    insta::assert_snapshot!(left_out::<Log>());
}
