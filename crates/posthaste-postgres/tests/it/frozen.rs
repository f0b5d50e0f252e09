//! A server that stops answering without closing its connections: stopped, or behind a firewall that drops packets.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use posthaste_core::store::{ProducerStore, SchemaStore};
use posthaste_core::{Message, OutboxOptions};
use posthaste_postgres::PostgresStore;
use posthaste_relay::Relay;
use posthaste_testkit::RecordingPublisher;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::support;

/// Stands between a client and its server, and lets nothing through while it is frozen.
struct Proxy {
    address: SocketAddr,
    frozen: Arc<AtomicBool>,
}

impl Proxy {
    fn start(host: String, port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, frozen) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let ice = Arc::clone(&frozen);
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let Ok(server) = TcpStream::connect((host.as_str(), port)) else {
                    continue;
                };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to, ice) = (from.try_clone().unwrap(), to.try_clone().unwrap(), Arc::clone(&ice));
                    thread::spawn(move || pass_on(from, &to, &ice));
                }
            }
        });
        Self { address, frozen }
    }

    fn freeze(&self, frozen: bool) {
        self.frozen.store(frozen, Ordering::SeqCst);
    }
}

fn pass_on(mut from: TcpStream, mut to: &TcpStream, ice: &AtomicBool) {
    let mut buffer = [0; 8192];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        while ice.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(10));
        }
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

async fn enqueue(store: &PostgresStore) {
    let messages = vec![Message::new("orders", "{}")];
    store
        .enqueue_and_commit(&OutboxOptions::default(), messages)
        .await
        .unwrap();
}

/// With the settings that it ships with.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_answering_is_said_within_15_s_and_the_relay_goes_on_by_itself() {
    let schema = support::fresh_schema();
    let direct = PostgresStore::in_schema(support::pool(2).await, &schema).unwrap();
    direct.migrate().await.unwrap();
    let options = PgConnectOptions::from_str(&support::server_url()).unwrap();
    let proxy = Proxy::start(options.get_host().to_owned(), options.get_port());
    let options = options.host("127.0.0.1").port(proxy.address.port());
    let pool = PgPoolOptions::new()
        .max_connections(10)
        .connect_with(options)
        .await
        .unwrap();
    let store = PostgresStore::in_schema(pool, &schema).unwrap();

    let (broker, shutdown) = (RecordingPublisher::new(), CancellationToken::new());
    let relay = Relay::new(store, broker.clone());
    let health = relay.health();
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    enqueue(&direct).await;
    timeout(Duration::from_secs(10), broker.wait_for(1)).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(health.problem(), None);

    proxy.freeze(true);
    let frozen = Instant::now();
    while health.is_healthy() {
        assert!(frozen.elapsed() < Duration::from_secs(15), "nothing was said");
        sleep(Duration::from_millis(50)).await;
    }
    let problem = health.problem().unwrap();
    let said = ["gave no answer", "has not answered"];
    assert!(said.iter().any(|said| problem.contains(said)), "{problem}");

    proxy.freeze(false);
    enqueue(&direct).await;
    timeout(Duration::from_mins(1), broker.wait_for(2))
        .await
        .expect("it goes on by itself");
    let thawed = Instant::now();
    while let Some(problem) = health.problem() {
        assert!(thawed.elapsed() < Duration::from_mins(1), "{problem}");
        sleep(Duration::from_millis(50)).await;
    }
    shutdown.cancel();
    relay.await.unwrap().unwrap();
}
