//! A relay between an outbox and a webhook whose receiver has a bad day.

use std::time::Duration;

use posthaste_core::retry::{Backoff, RetryPolicy};
use posthaste_core::store::SchemaStore;
use posthaste_core::{AdminStore, BreakerConfig, Message, OutboxOptions, RelayStore};
use posthaste_publishers::HttpPublisher;
use posthaste_relay::{Relay, RelayConfig};
use posthaste_sqlite::SqliteStore;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::support::receiver::{Receiver, Reply};

struct Scene {
    store: SqliteStore,
    receiver: Receiver,
    _directory: tempfile::TempDir,
}

const TIMEOUT: Duration = Duration::from_mins(1);

impl Scene {
    async fn new(script: impl IntoIterator<Item = Reply>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::connect(&directory.path().join("outbox.db")).await.unwrap();
        store.migrate().await.unwrap();
        Self {
            store,
            receiver: Receiver::start(script).await,
            _directory: directory,
        }
    }

    /// Enqueues `count` messages for each of these keys, numbered within the key.
    async fn enqueue(&self, keys: &[&str], count: usize) {
        let outbox = self.store.outbox(OutboxOptions::default());
        let mut tx = self.store.pool().begin().await.unwrap();
        for n in 0..count {
            for key in keys {
                let message = Message::new("donations", format!("{key}{n}")).key(*key);
                outbox.enqueue(&mut tx, message).await.unwrap();
            }
        }
        tx.commit().await.unwrap();
    }

    fn relay(&self) -> Relay {
        let options = self.receiver.options().answer_within(Duration::from_secs(1));
        let config = RelayConfig {
            retry: RetryPolicy {
                max_attempts: 4,
                backoff: Backoff::Schedule {
                    delays: vec![Duration::from_millis(50)],
                },
            },
            breaker: BreakerConfig {
                open_for: Duration::from_millis(200),
                ..BreakerConfig::default()
            },
            ..RelayConfig::default()
        };
        Relay::new(self.store.clone(), HttpPublisher::new(options).unwrap()).config(config)
    }

    async fn count(&self) -> (u64, u64) {
        let stats = self.store.stats("default").await.unwrap();
        (stats.pending + stats.processing, stats.dead)
    }

    async fn until(&self, what: &str, holds: impl AsyncFn(&Self) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !holds(self).await {
            assert!(Instant::now() < deadline, "never: {what}");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Every message arrives, those of one key in order, though the receiver throttles, fails, hangs and refuses one.
///
/// Proves D10.
#[tokio::test(flavor = "multi_thread")]
async fn everything_is_notified_in_order_per_key_although_the_receiver_stumbles() {
    let stumbles = [
        Reply::Status(204),
        Reply::Throttle(0.2),
        Reply::Status(500),
        Reply::Status(204),
        Reply::Hang,
        Reply::Last(0.2),
        Reply::Status(425),
        Reply::Status(503),
    ];
    let scene = Scene::new(stumbles).await;
    let keys = ["a", "b", "c", "d", "e", "f"];
    scene.enqueue(&keys, 10).await;
    let stop = CancellationToken::new();
    let relay = tokio::spawn(scene.relay().run_until(stop.clone()));
    scene
        .until("all are delivered", async |scene| scene.count().await.0 == 0)
        .await;
    stop.cancel();
    relay.await.unwrap().unwrap();
    assert_eq!(scene.count().await, (0, 0));
    let taken = scene.receiver.taken();
    assert_eq!(
        taken.len(),
        60,
        "each once: no answer to a notification that was taken was lost"
    );
    for key in keys {
        let of_key: Vec<_> = taken.iter().filter(|text| text.starts_with(key)).cloned().collect();
        assert_eq!(of_key, (0..10).map(|n| format!("{key}{n}")).collect::<Vec<_>>());
    }
}

/// Proves pitfall 26.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_was_removed_uses_up_no_message() {
    let scene = Scene::new([]).await;
    scene.receiver.otherwise(Some(Reply::Status(404)));
    scene.enqueue(&["a", "b", "c", "d", "e", "f", "g", "h"], 5).await;
    let stop = CancellationToken::new();
    let relay = tokio::spawn(scene.relay().run_until(stop.clone()));
    // Many more than four attempts for the heads of eight keys.
    let tried = async |scene: &Scene| scene.receiver.posts().len() >= 60;
    scene.until("it was tried again and again", tried).await;
    assert_eq!(scene.count().await, (40, 0));
    scene.receiver.otherwise(None);
    scene
        .until("all are delivered", async |scene| scene.count().await.0 == 0)
        .await;
    stop.cancel();
    relay.await.unwrap().unwrap();
    assert_eq!(scene.count().await, (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_that_is_refused_for_what_it_says_is_dead_with_the_reason() {
    let scene = Scene::new([Reply::Status(400)]).await;
    scene.enqueue(&["a"], 2).await;
    scene.relay().drain().await.unwrap();
    let dead = scene
        .store
        .list(&posthaste_core::store::Filter::default(), None, 10)
        .await
        .unwrap();
    let errors: Vec<_> = dead.iter().filter_map(|record| record.last_error.clone()).collect();
    assert_eq!(errors.len(), 1, "{dead:?}");
    assert!(errors[0].contains("400 Bad Request"), "{errors:?}");
    assert_eq!(scene.receiver.taken(), ["a1"]);
}
