//! An HTTP receiver, for each format.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste_core::{Message, Publisher};
use posthaste_publishers::http::{HttpFormat, HttpOptions, HttpPublisher};
use posthaste_testkit::publishing::{message, names_in};
use posthaste_testkit::{Ability, Counterpart, Disturbance};
use tokio::runtime::{Builder, Runtime};

use super::beside;
use crate::support::receiver::{Receiver, Reply, url};

const ANSWER_WITHIN: Duration = Duration::from_secs(4);
const REFUSE: &str = "refuse this";
/// More than the receiver reads of a body.
const TOO_LARGE: usize = 2_500_000;

trait Format: 'static {
    const FORMAT: HttpFormat;
    const LACKS: &'static [(Ability, &'static str)];
}

/// A receiver that lives as long as its runtime, connections included.
struct Living<F> {
    receiver: Mutex<Receiver>,
    runtime: Mutex<Option<Runtime>>,
    publisher: Arc<dyn Publisher>,
    format: PhantomData<F>,
}

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

fn publisher(options: HttpOptions, format: HttpFormat) -> Arc<dyn Publisher> {
    let options = options.format(format).answer_within(ANSWER_WITHIN);
    Arc::new(HttpPublisher::new(options).unwrap())
}

impl<F: Format> Living<F> {
    fn die(&self) {
        if let Some(runtime) = self.runtime.lock().unwrap().take() {
            runtime.shutdown_background();
        }
    }
}

/// A runtime must not be dropped where others run.
impl<F> Drop for Living<F> {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.lock().unwrap().take() {
            runtime.shutdown_background();
        }
    }
}

impl<F: Format> Counterpart for Living<F> {
    fn lacks() -> &'static [(Ability, &'static str)] {
        F::LACKS
    }

    async fn fresh(_: &[Ability]) -> Option<Self> {
        let runtime = runtime();
        let receiver = runtime.spawn(Receiver::start([])).await.unwrap();
        receiver.refuse_bodies_with(REFUSE);
        Some(Self {
            publisher: publisher(receiver.options(), F::FORMAT),
            receiver: Mutex::new(receiver),
            runtime: Mutex::new(Some(runtime)),
            format: PhantomData,
        })
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::clone(&self.publisher)
    }

    fn answer_within(&self) -> Duration {
        ANSWER_WITHIN
    }

    async fn arrived(&self) -> Vec<String> {
        let posts = self.receiver.lock().unwrap().posts();
        let taken = posts.iter().filter(|post| post.taken);
        taken
            .flat_map(|post| names_in(&String::from_utf8_lossy(&post.bytes).replace("\\n", "")))
            .collect()
    }

    async fn disturb(&self, disturbance: Disturbance) {
        match disturbance {
            Disturbance::Death => self.die(),
            Disturbance::Silence => self.receiver.lock().unwrap().otherwise(Some(Reply::Hang)),
            Disturbance::Throttle(pause) => {
                let reply = Reply::RetryAfter(429, pause.as_secs());
                self.receiver.lock().unwrap().next(reply);
            }
            Disturbance::Full => unreachable!("it is lacked"),
        }
    }

    async fn recover(&self) {
        self.receiver.lock().unwrap().otherwise(None);
        if self.runtime.lock().unwrap().is_some() {
            return;
        }
        let runtime = runtime();
        let handle = runtime.handle().clone();
        tokio::task::block_in_place(|| {
            let mut receiver = self.receiver.lock().unwrap();
            *receiver = handle.block_on(receiver.start_again());
        });
        *self.runtime.lock().unwrap() = Some(runtime);
    }

    fn refused(&self, name: &str) -> Message {
        message("t", name, REFUSE)
    }

    fn too_large(&self, name: &str) -> Message {
        message("t", name, &"x".repeat(TOO_LARGE))
    }

    fn beside_a_dead_one(&self) -> (Arc<dyn Publisher>, String) {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let dead = publisher(HttpOptions::new(url(address)), F::FORMAT);
        beside(dead, self.publisher())
    }
}

const PANIC: (Ability, &str) = (Ability::Panic, "no code of others runs");
const FULL: (Ability, &str) = (Ability::Full, "a receiver that is full says so by its status");

macro_rules! formats {
    ($($module:ident $format:ident [$($lack:expr),*])*) => {$(
        mod $module {
            use posthaste_publishers::http::HttpFormat;
            use posthaste_testkit::Ability;
            use posthaste_testkit::publishing::left_out;

            use super::{FULL, Format, Living, PANIC};

            struct This;

            impl Format for This {
                const FORMAT: HttpFormat = HttpFormat::$format;
                const LACKS: &'static [(Ability, &'static str)] = &[PANIC, FULL $(, $lack)*];
            }

            posthaste_testkit::publisher_suite!(Living<This>);

            #[test]
            fn what_is_left_out() {
                insta::assert_snapshot!(left_out::<Living<This>>());
            }
        }
    )*};
}

formats! {
    binary Binary []
    structured Structured []
    batch Batch []
    discord Discord [(Ability::Limit, "what is too long is cut off")]
}
