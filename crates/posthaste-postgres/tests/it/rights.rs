//! Users with no more rights than the documentation says they need.

use std::time::Duration;

use posthaste_core::store::{PurgeRequest, RelayRegistry, SchemaStore};
use posthaste_core::{Message, OutboxOptions, RelayStore};
use posthaste_postgres::PostgresStore;
use posthaste_relay::{Relay, RelayConfig};
use posthaste_testkit::RecordingPublisher;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Executor};
use tokio_util::sync::CancellationToken;

use crate::support;

/// An outbox, and the same one as a user with these rights sees it.
struct Place {
    owner: PostgresStore,
    schema: String,
    role: String,
    user: PostgresStore,
}

impl Place {
    /// `{}` in the grants stands for the schema.
    async fn with(grants: &[&str]) -> Self {
        let owner = support::store(2).await;
        let schema = owner.channel().replace("posthaste:", "");
        let role = format!("r_{}", &schema[2..]);
        let run = async |sql: String| owner.pool().execute(AssertSqlSafe(sql)).await.unwrap();
        run(format!("create role {role}")).await;
        run(format!("grant usage on schema {schema} to {role}")).await;
        for grant in grants {
            run(format!("{} to {role}", grant.replace("{}", &schema))).await;
        }
        let become_user = format!("set role {role}");
        let pool = PgPoolOptions::new().max_connections(3).after_connect(move |conn, _| {
            let become_user = become_user.clone();
            Box::pin(async move { conn.execute(AssertSqlSafe(become_user)).await.map(drop) })
        });
        let pool = pool.connect(&support::server_url()).await.unwrap();
        let user = PostgresStore::in_schema(pool, &schema).unwrap();
        Self {
            owner,
            schema,
            role,
            user,
        }
    }

    async fn enqueue(&self, store: &PostgresStore, dedupe_key: &str) -> bool {
        let mut tx = store.pool().begin().await.unwrap();
        let outbox = store.outbox(OutboxOptions::default());
        let message = Message::new("t", "x").key("k").dedupe_key(dedupe_key);
        let enqueued = outbox.enqueue(&mut tx, message).await.unwrap();
        tx.commit().await.unwrap();
        enqueued.is_new()
    }

    /// Runs a relay as the user until it has delivered a message.
    async fn deliver(&self, config: RelayConfig) {
        let (broker, shutdown) = (RecordingPublisher::new(), CancellationToken::new());
        let relay = Relay::new(self.user.clone(), broker.clone()).config(config);
        let relay = tokio::spawn(relay.run_until(shutdown.clone()));
        let delivered = tokio::time::timeout(Duration::from_secs(20), broker.wait_for(1)).await;
        delivered.expect("the relay delivers");
        shutdown.cancel();
        assert_eq!(relay.await.unwrap().unwrap().delivered, 1);
    }

    async fn dispose(self) {
        self.user.pool().close().await;
        let sql = format!("drop schema {} cascade; drop role {}", self.schema, self.role);
        let dropped = self.owner.pool().execute(sqlx::raw_sql(AssertSqlSafe(sql))).await;
        dropped.unwrap();
    }
}

const ALL_TABLES: &str = "grant select, insert, update, delete on all tables in schema {}";

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_needs_the_rights_on_the_tables_and_no_more() {
    let place = Place::with(&[ALL_TABLES]).await;
    place.enqueue(&place.owner, "1").await;
    let exclusive = RelayConfig {
        exclusive: true,
        ..RelayConfig::default()
    };
    place.deliver(exclusive).await;
    assert_eq!(place.user.relays("default").await.unwrap(), [], "it has left");
    place.dispose().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_needs_no_more_than_to_enqueue() {
    let place = Place::with(&[
        "grant insert, select on {}.outbox",
        "grant insert, select, update on {}.outbox_dedupe",
    ])
    .await;
    assert!(place.enqueue(&place.user, "1").await);
    assert!(!place.enqueue(&place.user, "1").await);
    place.dispose().await;
}

/// What is proposed to be granted is what the statement lacks, and no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_hint_names_the_table_and_the_rights_that_the_statement_needs() {
    let place = Place::with(&["grant select on {}.schema_version"]).await;
    let says = async |expected: &str| {
        let stats = place.user.stats("default").await.map(drop);
        let error = stats.and(place.user.relays("default").await.map(drop)).unwrap_err();
        let error = error.to_string();
        assert!(error.ends_with(expected), "{error}");
    };
    says("permission denied for table outbox; grant the user select on it").await;
    let grant = async |what: &str| {
        let sql = format!("grant {what} to {}", place.role).replace("{}", &place.schema);
        place.owner.pool().execute(AssertSqlSafe(sql)).await.unwrap();
    };
    grant("select on {}.outbox").await;
    says("permission denied for table relays; grant the user select on it").await;
    let error = place
        .user
        .purge(&PurgeRequest::older_than(Duration::ZERO, 1))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("table outbox; grant the user select, update and delete on it"),
        "{error}"
    );
    grant("update, delete on {}.outbox").await;
    let error = place
        .user
        .purge(&PurgeRequest::older_than(Duration::ZERO, 1))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("for table outbox_dedupe; grant the user select, update and delete"),
        "{error}"
    );
    let revoke = format!("revoke usage on schema {} from {}", place.schema, place.role);
    place.owner.pool().execute(AssertSqlSafe(revoke)).await.unwrap();
    let error = place.user.stats("default").await.unwrap_err().to_string();
    assert!(error.ends_with("grant the user usage on that schema"), "{error}");
    place.dispose().await;
}

/// The list of relays is for operators; nothing depends on it.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_may_not_announce_itself_delivers_all_the_same() {
    let place = Place::with(&[ALL_TABLES]).await;
    let sql = format!("revoke all on {}.relays from {}", place.schema, place.role);
    place.owner.pool().execute(AssertSqlSafe(sql)).await.unwrap();
    place.enqueue(&place.owner, "1").await;
    place.deliver(RelayConfig::default()).await;
    assert!(place.user.relays("default").await.is_err());
    place.dispose().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn migrations_need_no_right_to_create_a_schema_that_is_there() {
    let place = Place::with(&[]).await;
    let (schema, role) = (&place.schema, &place.role);
    let empty = format!("drop schema {schema} cascade; create schema {schema} authorization {role}");
    let emptied = place.owner.pool().execute(sqlx::raw_sql(AssertSqlSafe(empty))).await;
    emptied.unwrap();
    assert!(!place.user.migrate().await.unwrap().is_empty());
    assert!(place.enqueue(&place.user, "1").await);
    place.dispose().await;
}
