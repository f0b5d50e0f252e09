//! The conformance suite through PgBouncer in transaction mode, and what is found out about the way to the server.

use std::sync::LazyLock;

use posthaste_core::store::{RelayStore, SchemaStore};
use posthaste_core::{Message, OutboxOptions};
use posthaste_postgres::{Pooling, PostgresStore};
use posthaste_servers::{PgBouncer, PoolMode};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::support;
use crate::support::native::{Pg, Route};
use crate::support::{fresh_schema, server_url};

/// More sessions than all tests hold at a time: one that waits for another of its own transactions would wait forever.
const SESSIONS: u32 = 60;

fn in_front(mode: PoolMode, sessions: u32) -> PgBouncer {
    let server: PgConnectOptions = server_url().parse().unwrap();
    PgBouncer::start(&std::env::temp_dir(), server.get_port(), mode, sessions)
        .expect("PgBouncer is installed: run these tests with `cargo xtask test`")
}

static BOUNCER: LazyLock<PgBouncer> = LazyLock::new(|| in_front(PoolMode::Transaction, SESSIONS));

struct ThroughPgBouncer;

impl Route for ThroughPgBouncer {
    async fn pool(connections: u32) -> PgPool {
        let options = PgPoolOptions::new().max_connections(connections);
        options.connect(&BOUNCER.url("postgres")).await.unwrap()
    }
}

posthaste_testkit::conformance_suite!(Pg<true, ThroughPgBouncer>);

async fn store_behind(bouncer: &PgBouncer) -> PostgresStore {
    let pool = PgPoolOptions::new().max_connections(4);
    let pool = pool.connect(&bouncer.url("postgres")).await.unwrap();
    let store = PostgresStore::in_schema(pool, &fresh_schema()).unwrap();
    store.migrate().await.unwrap();
    store
}

#[tokio::test]
async fn a_pooler_in_transaction_mode_is_noticed_also_with_one_session() {
    for sessions in [1, 4] {
        let bouncer = in_front(PoolMode::Transaction, sessions);
        let store = store_behind(&bouncer).await;
        store.check().await.unwrap();
        assert!(store.listener().await.is_none(), "nothing could be heard there");

        let direct = store.direct(server_url().parse().unwrap());
        assert!(direct.listener().await.is_some(), "but past it");
    }
}

#[tokio::test]
async fn a_pooler_in_session_mode_is_none() {
    let bouncer = in_front(PoolMode::Session, 20);
    let store = store_behind(&bouncer).await;
    assert!(store.listener().await.is_some());
    let plain = support::store(2).await;
    assert!(plain.listener().await.is_some());
}

/// What is said is believed: nothing is asked of the server first.
#[tokio::test]
async fn what_the_connections_are_can_be_said() {
    let store = support::store(2).await.pooling(Pooling::Transaction);
    assert!(store.listener().await.is_none());
}

/// Applications share server sessions with each other and with relays; no statement of one may meet one of another.
#[tokio::test(flavor = "multi_thread")]
async fn many_producers_share_one_session() {
    let bouncer = in_front(PoolMode::Transaction, 1);
    let store = store_behind(&bouncer).await;
    let mut producers = tokio::task::JoinSet::new();
    for producer in 0..8 {
        // Each is a process of its own as far as the pooler can see: its own connections, its own statements.
        let pool = PgPoolOptions::new().max_connections(2);
        let pool = pool.connect(&bouncer.url("postgres")).await.unwrap();
        let map_of = store.clone();
        producers.spawn(async move {
            let outbox = map_of.outbox(OutboxOptions::default());
            for n in 0..20 {
                let mut tx = pool.begin().await.unwrap();
                let message = Message::new("orders", format!("{{\"n\": {n}}}")).key(producer.to_string());
                outbox.enqueue(&mut tx, message).await.unwrap();
                tx.commit().await.unwrap();
            }
        });
    }
    producers.join_all().await;
    assert_eq!(store.stats("default").await.unwrap().pending, 8 * 20);
}
