//! Several publishers in one relay: each message goes to one of them, and the trouble of one is not that of the others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use posthaste_core::publisher::{Batch, Delivery, ErrorScope, Outcome, PublishError, Report};
use posthaste_core::store::SchemaStore;
use posthaste_core::{BreakerConfig, Message, OutboxOptions, Publisher, RelayStore};
use posthaste_publishers::{Callback, Route, Routed, Routes, Stdout};
use posthaste_relay::{Relay, RelayConfig};
use posthaste_sqlite::SqliteStore;
use tokio_util::sync::CancellationToken;

use crate::support::{message, publish};

/// How a publisher behaves.
#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Well,
    Unavailable,
    Silent,
}

/// A publisher that remembers what it was given and when.
#[derive(Clone)]
struct Target {
    mood: Arc<Mutex<Mood>>,
    got: Arc<Mutex<Vec<(String, Instant)>>>,
}

impl Target {
    fn new(mood: Mood) -> Self {
        Self {
            mood: Arc::new(Mutex::new(mood)),
            got: Arc::default(),
        }
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        let this = self.clone();
        Arc::new(Callback::new(move |delivery: Delivery| {
            let this = this.clone();
            async move {
                let mood = *this.mood.lock().unwrap();
                match mood {
                    Mood::Well => {}
                    Mood::Unavailable => return Err(PublishError::transport("connection refused")),
                    Mood::Silent => std::future::pending().await,
                }
                let payload = String::from_utf8_lossy(&delivery.message.payload).into_owned();
                this.got.lock().unwrap().push((payload, Instant::now()));
                Ok::<(), PublishError>(())
            }
        }))
    }

    fn payloads(&self) -> Vec<String> {
        self.got
            .lock()
            .unwrap()
            .iter()
            .map(|(payload, _)| payload.clone())
            .collect()
    }
}

/// Messages of type `bad` go to the first, all others to the second.
fn routed(first: &Target, second: &Target) -> Routed {
    Routed::new(
        vec![
            ("first".to_owned(), first.publisher()),
            ("second".to_owned(), second.publisher()),
        ],
        vec![Route::to("first").event_type("acme.test.first.v1"), Route::to("second")],
    )
    .unwrap()
}

#[tokio::test]
async fn a_message_goes_where_the_first_route_that_fits_says() {
    let (first, second) = (Target::new(Mood::Well), Target::new(Mood::Well));
    let publisher = routed(&first, &second);
    let messages = [message("", "1").event_type("acme.test.first.v1"), message("", "2")];
    assert_eq!(publish(&publisher, &messages).await, vec![Outcome::DELIVERED; 2]);
    assert_eq!(
        (first.payloads(), second.payloads()),
        (vec!["1".to_owned()], vec!["2".to_owned()])
    );
    let destination = publisher.destination(&messages[0]).unwrap();
    assert_eq!(&*destination, "first");
}

#[tokio::test]
async fn the_failure_of_a_publisher_is_that_of_a_destination() {
    let (first, second) = (Target::new(Mood::Unavailable), Target::new(Mood::Well));
    let messages = [message("", "1").event_type("acme.test.first.v1"), message("", "2")];
    let outcomes = publish(&routed(&first, &second), &messages).await;
    let Outcome::Failed(error) = &outcomes[0] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(error.scope, ErrorScope::Destination("first".into()));
    assert_eq!(error.message, "publisher first: connection refused");
    assert!(outcomes[1].is_delivered());
}

/// A lane that goes to several publishers goes out one after the other, or a later event would overtake.
#[tokio::test]
async fn of_a_lane_that_goes_to_several_publishers_the_later_waits_for_the_earlier() {
    let (first, second) = (Target::new(Mood::Well), Target::new(Mood::Well));
    let lane = |name: &'static str| {
        (0..20).map(move |n| {
            let message = message(name, &format!("{name}{n}"));
            if n % 2 == 0 {
                message
            } else {
                message.event_type("acme.test.first.v1")
            }
        })
    };
    let messages: Vec<Message> = lane("a").chain(lane("b")).collect();
    let publisher = routed(&first, &second);
    assert_eq!(publish(&publisher, &messages).await, vec![Outcome::DELIVERED; 40]);
    let mut got: Vec<_> = [&first, &second]
        .map(|target| target.got.lock().unwrap().clone())
        .concat();
    got.sort_by_key(|(_, at)| *at);
    for name in ["a", "b"] {
        let in_order = got.iter().filter_map(|(payload, _)| payload.strip_prefix(name));
        let expected: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        assert!(in_order.eq(&expected), "{got:?}");
    }
}

#[tokio::test]
async fn behind_a_failure_of_one_publisher_nothing_of_its_lane_goes_to_another() {
    let (first, second) = (Target::new(Mood::Unavailable), Target::new(Mood::Well));
    let messages = [
        message("k", "1"),
        message("k", "2").event_type("acme.test.first.v1"),
        message("k", "3"),
        message("other", "4"),
    ];
    let outcomes = publish(&routed(&first, &second), &messages).await;
    assert!(outcomes[0].is_delivered() && outcomes[3].is_delivered(), "{outcomes:?}");
    assert!(matches!(outcomes[1], Outcome::Failed(_)), "{outcomes:?}");
    assert_eq!(outcomes[2], Outcome::NotAttempted);
    let mut got = second.payloads();
    got.sort();
    assert_eq!(got, ["1", "4"]);
}

#[test]
fn routes_that_lead_nowhere_are_refused() {
    let names = ["a".to_owned(), "b".to_owned()];
    for (routes, expected) in [
        (
            vec![],
            "routes = []: is missing; say which messages go to which of a, b",
        ),
        (
            vec![Route::to("c")],
            "routes.0.to = \"c\": no publisher has this name; there are a, b",
        ),
        (
            vec![Route::to("a"), Route::to("b")],
            "routes.0.to = \"a\": is for all messages, so those that follow it are never reached",
        ),
        (
            vec![
                Route::to("a").topic("x*"),
                Route::to("b").topic("xy").tenant("t"),
                Route::to("b"),
            ],
            "routes.1.to = \"b\": is never reached: routes.0 is for all its messages",
        ),
        (
            vec![Route::to("a").topic("x"), Route::to("b").topic("y")],
            "routes.1.to = \"b\": is the last and has conditions",
        ),
        (
            vec![Route::to("a")],
            "publishers.1.name = \"b\": no route sends anything to it",
        ),
    ] {
        let text = Routes::new(routes, &names).unwrap_err().to_string();
        assert!(text.starts_with(expected), "{text}");
    }
    let text = Routes::new(vec![Route::to("a")], &[]).unwrap_err().to_string();
    assert!(text.contains("there is no publisher that they could name"), "{text}");
}

/// A publisher whose check never ends, or fails.
struct Checked(Option<&'static str>);

#[async_trait]
impl Publisher for Checked {
    async fn publish(&self, _: Batch, _: Report) {}

    fn name(&self) -> &'static str {
        "checked"
    }

    async fn check(&self) -> Result<String, PublishError> {
        match self.0 {
            Some(reason) => Err(PublishError::transport(reason)),
            None => std::future::pending().await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_check_names_every_publisher_that_fails_and_waits_for_none_for_ever() {
    let publishers: [(&str, Arc<dyn Publisher>); 4] = [
        ("a", Arc::new(Checked(None))),
        ("b", Arc::new(Checked(Some("connection refused")))),
        ("c", Arc::new(Checked(None))),
        ("d", Arc::new(Stdout::new())),
    ];
    let names = publishers.each_ref().map(|(name, _)| *name);
    let mut routes: Vec<Route> = names[..3].iter().map(|name| Route::to(*name).topic(*name)).collect();
    routes.push(Route::to("d"));
    let publishers = publishers.map(|(name, publisher)| (name.to_owned(), publisher));
    let all = Routed::new(publishers.to_vec(), routes).unwrap();
    let started = tokio::time::Instant::now();
    let error = all.check().await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(31), "one after the other");
    assert_eq!(
        error.message,
        "publisher a: no answer within 30s; publisher b: connection refused; publisher c: no answer within 30s"
    );
}

struct Running {
    store: SqliteStore,
    stop: CancellationToken,
    relay: tokio::task::JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl Running {
    async fn start(publisher: Routed) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::connect(directory.path().join("outbox.db")).await.unwrap();
        store.migrate().await.unwrap();
        let config = RelayConfig {
            batch_size: 50,
            max_in_flight: 200,
            poll_interval: Duration::from_millis(20),
            publish_timeout: Duration::from_secs(20),
            shutdown_grace: Duration::from_millis(100),
            breaker: BreakerConfig {
                open_for: Duration::from_mins(1),
                ..BreakerConfig::default()
            },
            ..RelayConfig::default()
        };
        let stop = CancellationToken::new();
        let relay = Relay::new(store.clone(), publisher).config(config);
        let running = relay.run_until(stop.clone());
        Self {
            store,
            stop,
            relay: tokio::spawn(async move { drop(running.await.unwrap()) }),
            _directory: directory,
        }
    }

    /// Writes `bad` events for the first publisher and one for the second, again and again; returns how long each of the
    /// latter took until it was delivered.
    async fn load(&self, second: &Target, rounds: usize, bad: usize) -> Vec<Duration> {
        let mut written = Vec::new();
        let earlier = second.got.lock().unwrap().len();
        for round in 0..rounds {
            let mut tx = self.store.pool().begin().await.unwrap();
            let outbox = self.store.outbox(OutboxOptions::default());
            for _ in 0..bad {
                outbox
                    .enqueue(&mut *tx, Message::new("t", "bad").event_type("acme.test.first.v1"))
                    .await
                    .unwrap();
            }
            let payload = format!("{earlier}-{round}");
            outbox
                .enqueue(&mut *tx, Message::new("t", payload.clone()))
                .await
                .unwrap();
            tx.commit().await.unwrap();
            written.push((payload, Instant::now()));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let deadline = Instant::now() + Duration::from_secs(15);
        while second.got.lock().unwrap().len() < earlier + rounds {
            assert!(
                Instant::now() < deadline,
                "the healthy publisher is held up by the other one"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let got = second.got.lock().unwrap();
        written
            .iter()
            .map(|(payload, at)| {
                let delivered = got.iter().find(|(got, _)| got == payload).unwrap().1;
                delivered.saturating_duration_since(*at)
            })
            .collect()
    }

    async fn stop(self) {
        self.stop.cancel();
        self.relay.await.unwrap();
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Both sorts of death: one that refuses at once, and one that takes everything and never answers.
#[tokio::test(flavor = "multi_thread")]
async fn the_death_of_one_publisher_does_not_hold_up_the_other() {
    for mood in [Mood::Unavailable, Mood::Silent] {
        let (first, second) = (Target::new(Mood::Well), Target::new(Mood::Well));
        let running = Running::start(routed(&first, &second)).await;
        let before = median(running.load(&second, 40, 5).await);
        *first.mood.lock().unwrap() = mood;
        // More than fits into flight, so that without a share of its own nothing would be left for the other.
        let during = median(running.load(&second, 100, 5).await);
        let bearable = (before * 3).max(Duration::from_millis(500));
        assert!(during < bearable, "{during:?} where it was {before:?}");
        let stats = running.store.stats("default").await.unwrap();
        assert_eq!(stats.dead, 0, "nothing dies of it");
        running.stop().await;
    }
}

/// Whether one that was silent is given messages again once it answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_that_comes_back_gets_what_waited() {
    static BACK: AtomicBool = AtomicBool::new(false);
    let (first, second) = (Target::new(Mood::Well), Target::new(Mood::Well));
    let slow = {
        let got = Arc::clone(&first.got);
        Callback::new(move |delivery: Delivery| {
            let got = Arc::clone(&got);
            async move {
                while !BACK.load(Ordering::Acquire) {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                let payload = String::from_utf8_lossy(&delivery.message.payload).into_owned();
                got.lock().unwrap().push((payload, Instant::now()));
                Ok::<(), PublishError>(())
            }
        })
    };
    let routed = Routed::new(
        vec![
            ("first".to_owned(), Arc::new(slow) as Arc<dyn Publisher>),
            ("second".to_owned(), second.publisher()),
        ],
        vec![Route::to("first").event_type("acme.test.first.v1"), Route::to("second")],
    )
    .unwrap();
    let running = Running::start(routed).await;
    running.load(&second, 80, 5).await;
    BACK.store(true, Ordering::Release);
    let deadline = Instant::now() + Duration::from_mins(3);
    while first.got.lock().unwrap().len() < 400 {
        assert!(Instant::now() < deadline, "{} of 400", first.got.lock().unwrap().len());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    running.stop().await;
}
