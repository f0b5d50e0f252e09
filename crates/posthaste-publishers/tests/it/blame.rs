//! Messages that fail as though the other side were unavailable: they are found out, and hold nobody up.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::lifecycle::State;
use posthaste_core::publisher::{Delivery, PublishError};
use posthaste_core::retry::Backoff;
use posthaste_core::store::{Filter, ProducerStore, Record, SchemaStore};
use posthaste_core::{AdminStore, BreakerConfig, Message, OutboxOptions, Publisher, RetryPolicy};
use posthaste_publishers::{Callback, HttpFormat, HttpOptions, HttpPublisher, Route, Routed};
use posthaste_relay::{Relay, RelayConfig};
use posthaste_sqlite::SqliteStore;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Takes every message but the bad ones, of which it says what a publisher says if nobody answers.
fn hangs_up_on_the_bad() -> impl Publisher {
    Callback::new(|delivery: Delivery| async move {
        match &*delivery.message.payload {
            b"spoilt" => Err(PublishError::transport("the receiver hung up")),
            _ => Ok(()),
        }
    })
}

fn config() -> RelayConfig {
    RelayConfig {
        poll_interval: Duration::from_millis(5),
        max_poll_interval: Duration::from_millis(20),
        retry: RetryPolicy {
            max_attempts: 3,
            backoff: Backoff::Schedule {
                delays: vec![Duration::from_millis(20)],
            },
        },
        breaker: BreakerConfig {
            open_for: Duration::from_millis(200),
            ..BreakerConfig::default()
        },
        ..RelayConfig::default()
    }
}

async fn store() -> (SqliteStore, TempDir) {
    let directory = TempDir::new().unwrap();
    let store = SqliteStore::connect(directory.path().join("outbox.db")).await.unwrap();
    store.migrate().await.unwrap();
    (store, directory)
}

async fn enqueue(store: &SqliteStore, topic: &str, payload: &'static str, count: usize) {
    let messages = (0..count).map(|_| Message::new(topic, payload)).collect();
    let options = OutboxOptions::default();
    store.enqueue_and_commit(&options, messages).await.unwrap();
}

async fn rows(store: &SqliteStore) -> Vec<Record> {
    store.list(&Filter::default(), None, 10_000).await.unwrap()
}

/// Runs a relay until all is delivered but the bad ones, and these are dead.
async fn delivers_all_but_the_bad(store: &SqliteStore, publisher: Arc<dyn Publisher>) {
    let stop = CancellationToken::new();
    let relay = Relay::new(store.clone(), publisher).config(config());
    let relay = tokio::spawn(relay.run_until(stop.clone()));
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let rows = rows(store).await;
        let is_done = |row: &Record| match &*row.message.payload {
            b"spoilt" => row.state == State::Dead,
            _ => row.state == State::Delivered,
        };
        let left: Vec<_> = rows.iter().filter(|row| !is_done(row)).collect();
        if left.is_empty() {
            break;
        }
        assert!(
            !left.iter().any(|row| row.state == State::Dead),
            "a healthy one died: {left:?}"
        );
        assert!(Instant::now() < deadline, "{} left, such as {:?}", left.len(), left[0]);
        sleep(Duration::from_millis(20)).await;
    }
    stop.cancel();
    relay.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_look_like_an_outage_are_found_out_at_the_head_of_the_table() {
    let (store, _directory) = store().await;
    enqueue(&store, "t", "spoilt", 20).await;
    enqueue(&store, "t", "good", 200).await;
    delivers_all_but_the_bad(&store, Arc::new(hangs_up_on_the_bad())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn they_are_found_out_among_those_of_one_publisher_of_several() {
    let (store, _directory) = store().await;
    enqueue(&store, "first", "spoilt", 8).await;
    enqueue(&store, "first", "good", 100).await;
    enqueue(&store, "second", "good", 100).await;
    let targets: Vec<(String, Arc<dyn Publisher>)> = vec![
        ("first".to_owned(), Arc::new(hangs_up_on_the_bad())),
        ("second".to_owned(), Arc::new(hangs_up_on_the_bad())),
    ];
    let routes = vec![Route::to("first").topic("first"), Route::to("second")];
    delivers_all_but_the_bad(&store, Arc::new(Routed::new(targets, routes).unwrap())).await;
}

/// Reads requests and hangs up on those with a bad body; closes every connection after its answer, without saying so.
async fn serve(mut connection: TcpStream) -> io::Result<()> {
    let mut request = Vec::new();
    loop {
        let mut read = [0; 4096];
        let bytes = connection.read(&mut read).await?;
        request.extend_from_slice(&read[..bytes]);
        let text = String::from_utf8_lossy(&request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if bytes > 0 && body.len() < length.unwrap().parse().unwrap() {
            continue;
        }
        // In a batch the payload is in base64.
        if !body.contains("spoilt") && !body.contains("c3BvaWx0") {
            connection
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                .await?;
        }
        return Ok(());
    }
}

async fn receiver() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            tokio::spawn(serve(listener.accept().await.unwrap().0));
        }
    });
    address
}

/// Proves pitfall 19.
#[tokio::test(flavor = "multi_thread")]
async fn one_event_that_a_receiver_hangs_up_on_takes_none_of_its_batch_along() {
    let (store, _directory) = store().await;
    enqueue(&store, "t", "good", 150).await;
    enqueue(&store, "t", "spoilt", 1).await;
    enqueue(&store, "t", "good", 150).await;
    let url = format!("http://{}/", receiver().await).parse().unwrap();
    let publisher = HttpPublisher::new(HttpOptions::new(url).format(HttpFormat::Batch)).unwrap();
    delivers_all_but_the_bad(&store, Arc::new(publisher)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_closes_connections_without_saying_so_fails_no_message() {
    let (store, _directory) = store().await;
    enqueue(&store, "t", "good", 300).await;
    let url = format!("http://{}/", receiver().await).parse().unwrap();
    let publisher = HttpPublisher::new(HttpOptions::new(url)).unwrap();
    delivers_all_but_the_bad(&store, Arc::new(publisher)).await;
    assert!(rows(&store).await.iter().all(|row| row.attempts == 1));
}
