//! Events and orders are committed together or not at all, on a real server.
#![expect(clippy::unwrap_used, reason = "the whole file is a test")]

use example_sea_orm::{PlaceOrderError, SeaOrm, Shop};
use posthaste::core::store::SchemaStore;
use posthaste::postgres::{PostgresEnqueue, PostgresStore};
use posthaste::testing::{assert_enqueued_count, assert_event, deliver_all};
use posthaste::{EnqueueError, Message, MessageId, OutboxOptions};
use sea_orm::{ConnectionTrait, Database, DatabaseConnection, TransactionTrait};

struct Place {
    store: PostgresStore,
    schema: String,
    db: DatabaseConnection,
}

impl Place {
    async fn new() -> Self {
        let url = std::env::var("POSTHASTE_TEST_POSTGRES_URL")
            .expect("POSTHASTE_TEST_POSTGRES_URL names no server: run these tests with `cargo xtask test`");
        let schema = format!("t_{}", MessageId::new().to_string().replace('-', ""));
        let store = PostgresStore::in_schema(sqlx::PgPool::connect(&url).await.unwrap(), &schema).unwrap();
        store.migrate().await.unwrap();
        let mut options = sea_orm::ConnectOptions::new(url);
        options.set_schema_search_path(&schema);
        let db = Database::connect(options).await.unwrap();
        db.execute_unprepared("create table orders (id bigint primary key)")
            .await
            .unwrap();
        Self { store, schema, db }
    }

    fn shop(&self) -> Shop {
        Shop::new(self.db.clone(), &self.schema)
    }

    async fn orders(&self) -> Vec<i64> {
        let select = format!("select id from {}.orders order by id", self.schema);
        let select = sqlx::query_scalar(sqlx::AssertSqlSafe(select));
        select.fetch_all(self.store.pool()).await.unwrap()
    }
}

/// Proves A2, B2.
#[tokio::test]
async fn a_commit_leaves_both_order_and_event() {
    let place = Place::new().await;
    let id = place.shop().place_order(42, "r1").await.unwrap();
    assert_eq!(place.orders().await, [42]);
    let event = assert_event(&place.store, "acme.order.placed.v1", |order| order["order_id"] == 42).await;
    assert_eq!(event.message.id, id);
    assert_eq!(deliver_all(&place.store).await, [event.message], "its hash is right");
}

/// Proves A2, B2.
#[tokio::test]
async fn a_rollback_leaves_neither() {
    let place = Place::new().await;
    let shop = place.shop();
    shop.place_order(42, "r1").await.unwrap();
    let refused = shop.place_order(42, "r2").await.unwrap_err();
    assert!(matches!(refused, PlaceOrderError::Database(_)), "{refused:?}");
    assert_eq!(place.orders().await, [42]);
    assert_enqueued_count(&place.store, 1).await;
}

/// Proves B4.
#[tokio::test]
async fn a_request_that_comes_again_is_known() {
    let place = Place::new().await;
    let shop = place.shop();
    let first = shop.place_order(42, "r1").await.unwrap();
    assert_eq!(shop.place_order(43, "r1").await.unwrap(), first);
    assert_eq!(place.orders().await, [42]);
    assert_enqueued_count(&place.store, 1).await;
}

/// Every kind of argument, with values and without.
#[tokio::test]
async fn every_field_arrives_and_a_refused_message_leaves_the_transaction_usable() {
    let place = Place::new().await;
    let statements = PostgresEnqueue::in_schema(&place.schema).unwrap();
    let outbox = statements.outbox(OutboxOptions::default());
    let full = Message::new("order-events", vec![0, 255])
        .namespace("default")
        .key(r#"{a,"b\c",null}"#)
        .tenant("t")
        .dedupe_key("t/1")
        .event_type("acme.order.placed.v1")
        .source("shop")
        .aggregate("Order", "42")
        .content_type("application/octet-stream")
        .header("note", r#""quoted" \ é"#);
    let later = Message::new("order-events", "later").not_before("9999-01-01T00:00:00Z".parse().unwrap());

    let tx = place.db.begin().await.unwrap();
    let refused = outbox.enqueue(&mut SeaOrm(&tx), Message::new("", "{}")).await;
    assert!(matches!(refused, Err(EnqueueError::Invalid { .. })), "{refused:?}");
    let messages = [full.clone(), later];
    outbox.enqueue_all(&mut SeaOrm(&tx), messages).await.unwrap();
    tx.commit().await.unwrap();
    assert_enqueued_count(&place.store, 2).await;
    assert_eq!(deliver_all(&place.store).await, [full], "the other one is not due");
}

/// Whoever copies from the page copies what is tested here.
#[test]
fn the_recipe_is_the_one_in_the_documentation() {
    let code = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with("//") && !line.is_empty());
        lines.collect::<Vec<_>>().join("\n")
    };
    let recipe = code(include_str!("../src/outbox.rs"));
    assert!(code(include_str!("../../../docs/orm.md")).contains(&recipe));
}
