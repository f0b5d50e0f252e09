//! An application that is written against `Outbox`, and its tests, which run unchanged on the store in memory and on those
//! of databases.
#![expect(clippy::unwrap_used, reason = "the whole file is a test")]

use std::marker::PhantomData;

use posthaste::core::outbox::{AnyConnection, AnyOutbox};
use posthaste::core::store::SchemaStore;
use posthaste::core::{AdminStore, RelayStore};
use posthaste::postgres::PostgresStore;
use posthaste::sqlite::SqliteStore;
use posthaste::testing::{MemoryConnection, MemoryStore, assert_enqueued_count, assert_event, deliver_all};
use posthaste::{EnqueueError, Enqueued, Event, Message, MessageId, Outbox, OutboxOptions, StoreError};
use serde::Serialize;
use sqlx::{PgConnection, SqliteConnection};

#[derive(Serialize)]
struct OrderPlaced {
    order_id: i64,
}

#[derive(Event)]
enum ShopEvent {
    #[event(type = "acme.order.placed.v1", aggregate = "Order", id = order_id)]
    OrderPlaced(OrderPlaced),
}

/// The application's own table, on connections of one database.
trait Orders<C> {
    fn insert(&self, conn: &mut C, order: i64) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Those that were committed.
    fn all(&self) -> impl Future<Output = Vec<i64>> + Send;
}

struct Shop<B, R> {
    outbox: B,
    orders: R,
}

impl<B: Outbox, R: Orders<B::Connection>> Shop<B, R> {
    async fn place_order(&self, order_id: i64) -> Result<MessageId, EnqueueError> {
        let mut tx = self.outbox.begin().await?;
        self.orders.insert(&mut tx, order_id).await?;
        let event = ShopEvent::from(OrderPlaced { order_id });
        let enqueued = self.outbox.enqueue(&mut tx, event).await?;
        self.outbox.commit(tx).await?;
        Ok(enqueued.id())
    }
}

/// Proves A2, B2.
async fn a_commit_leaves_both_order_and_event<S: AdminStore + RelayStore + Clone, B: Outbox>(
    store: S,
    shop: Shop<B, impl Orders<B::Connection>>,
) {
    let id = shop.place_order(42).await.unwrap();
    assert_eq!(shop.orders.all().await, [42]);
    let event = assert_event(&store, "acme.order.placed.v1", |order| order["order_id"] == 42).await;
    assert_eq!(event.message.id, id);
    let delivered = deliver_all(&store).await;
    assert_eq!(delivered.iter().map(|message| message.id).collect::<Vec<_>>(), [id]);
}

/// Proves A2, B2.
async fn a_rollback_leaves_neither<S: AdminStore + RelayStore + Clone, B: Outbox>(
    store: S,
    shop: Shop<B, impl Orders<B::Connection>>,
) {
    for dropped in [false, true] {
        let mut tx = shop.outbox.begin().await.unwrap();
        shop.orders.insert(&mut tx, 42).await.unwrap();
        let enqueued = shop.outbox.enqueue(&mut tx, Message::new("order-events", "{}")).await;
        assert!(enqueued.unwrap().is_new());
        if dropped {
            drop(tx);
        } else {
            shop.outbox.rollback(tx).await.unwrap();
        }
    }
    assert_eq!(shop.orders.all().await, [] as [i64; 0]);
    assert_enqueued_count(&store, 0).await;
    assert_eq!(deliver_all(&store).await, []);
}

/// Proves B4.
async fn a_duplicate_is_no_error_and_writes_nothing<S: AdminStore + RelayStore + Clone, B: Outbox>(
    store: S,
    shop: Shop<B, impl Orders<B::Connection>>,
) {
    let first = Message::new("order-events", "1").dedupe_key("order/42");
    let again = Message::new("order-events", "2").dedupe_key("order/42");
    let same_id = Message {
        id: first.id,
        ..Message::new("order-events", "3")
    };
    let id = first.id;
    let mut tx = shop.outbox.begin().await.unwrap();
    let outcome = shop.outbox.enqueue(&mut tx, first).await.unwrap();
    assert_eq!(outcome, Enqueued::Inserted(id));
    let outcome = shop.outbox.enqueue(&mut tx, again.clone()).await.unwrap();
    assert_eq!(outcome, Enqueued::Duplicate(id), "within its transaction");
    shop.outbox.commit(tx).await.unwrap();

    let mut tx = shop.outbox.begin().await.unwrap();
    let outcomes = shop.outbox.enqueue_all(&mut tx, [again, same_id]).await.unwrap();
    assert_eq!(outcomes, [Enqueued::Duplicate(id); 2]);
    shop.orders.insert(&mut tx, 42).await.unwrap();
    shop.outbox.commit(tx).await.unwrap();
    assert_enqueued_count(&store, 1).await;
    assert_eq!(shop.orders.all().await, [42], "the transaction went on");
}

/// Proves B2.
async fn an_invalid_message_leaves_the_transaction_usable<S: AdminStore + RelayStore + Clone, B: Outbox>(
    store: S,
    shop: Shop<B, impl Orders<B::Connection>>,
) {
    let mut tx = shop.outbox.begin().await.unwrap();
    shop.orders.insert(&mut tx, 42).await.unwrap();
    let messages = [Message::new("order-events", "{}"), Message::new("", "{}")];
    let refused = shop.outbox.enqueue_all(&mut tx, messages).await.unwrap_err();
    assert!(
        matches!(refused, EnqueueError::Invalid { position: 1, .. }),
        "{refused}"
    );
    shop.outbox
        .enqueue(&mut tx, Message::new("order-events", "good"))
        .await
        .unwrap();
    shop.outbox.commit(tx).await.unwrap();
    assert_eq!(shop.orders.all().await, [42]);
    let delivered = deliver_all(&store).await;
    assert_eq!(
        delivered.iter().map(|message| &message.payload[..]).collect::<Vec<_>>(),
        [b"good"]
    );
}

macro_rules! on {
    ($database:ident: $($case:ident),*) => {
        mod $database {
            $(#[tokio::test]
            async fn $case() {
                let (store, shop) = super::$database().await;
                super::$case(store, shop).await;
            })*
        }
    };
}

macro_rules! on_every_database {
    ($($case:ident),* $(,)?) => {
        on!(memory: $($case),*);
        on!(postgres: $($case),*);
        on!(sqlite: $($case),*);
        on!(any_memory: $($case),*);
        on!(any_postgres: $($case),*);
    };
}

on_every_database!(
    a_commit_leaves_both_order_and_event,
    a_rollback_leaves_neither,
    a_duplicate_is_no_error_and_writes_nothing,
    an_invalid_message_leaves_the_transaction_usable,
);

struct MemoryOrders(MemoryStore);

impl Orders<MemoryConnection> for MemoryOrders {
    async fn insert(&self, conn: &mut MemoryConnection, order: i64) -> Result<(), StoreError> {
        conn.write_business_row(order.to_string());
        Ok(())
    }

    async fn all(&self) -> Vec<i64> {
        self.0.business_rows().iter().map(|row| row.parse().unwrap()).collect()
    }
}

async fn memory() -> (
    MemoryStore,
    Shop<impl Outbox<Connection = MemoryConnection>, MemoryOrders>,
) {
    let store = MemoryStore::new();
    let outbox = store.outbox(OutboxOptions::default());
    let orders = MemoryOrders(store.clone());
    (store, Shop { outbox, orders })
}

struct PostgresOrders(sqlx::PgPool, String);

impl Orders<PgConnection> for PostgresOrders {
    async fn insert(&self, conn: &mut PgConnection, order: i64) -> Result<(), StoreError> {
        let insert = sqlx::AssertSqlSafe(format!("insert into {}.orders values ($1)", self.1));
        let done = sqlx::query(insert).bind(order).execute(conn).await;
        done.map(drop).map_err(posthaste::postgres::store_error)
    }

    async fn all(&self) -> Vec<i64> {
        let select = sqlx::AssertSqlSafe(format!("select id from {}.orders order by id", self.1));
        sqlx::query_scalar(select).fetch_all(&self.0).await.unwrap()
    }
}

async fn postgres() -> (
    PostgresStore,
    Shop<impl Outbox<Connection = PgConnection>, PostgresOrders>,
) {
    let url = std::env::var("POSTHASTE_TEST_POSTGRES_URL")
        .expect("POSTHASTE_TEST_POSTGRES_URL names no server: run these tests with `cargo xtask test`");
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    let schema = format!("t_{}", MessageId::new().to_string().replace('-', ""));
    let store = PostgresStore::in_schema(pool.clone(), &schema).unwrap();
    store.migrate().await.unwrap();
    let create = sqlx::AssertSqlSafe(format!("create table {schema}.orders (id bigint primary key)"));
    sqlx::query(create).execute(&pool).await.unwrap();
    let outbox = store.outbox(OutboxOptions::default());
    let orders = PostgresOrders(pool, schema);
    (store, Shop { outbox, orders })
}

struct SqliteOrders(sqlx::SqlitePool);

impl Orders<SqliteConnection> for SqliteOrders {
    async fn insert(&self, conn: &mut SqliteConnection, order: i64) -> Result<(), StoreError> {
        let insert = sqlx::query("insert into orders values (?)").bind(order);
        insert
            .execute(conn)
            .await
            .map(drop)
            .map_err(posthaste::sqlite::store_error)
    }

    async fn all(&self) -> Vec<i64> {
        let select = sqlx::query_scalar("select id from orders order by id");
        select.fetch_all(&self.0).await.unwrap()
    }
}

async fn sqlite() -> (
    SqliteStore,
    Shop<impl Outbox<Connection = SqliteConnection>, SqliteOrders>,
) {
    let options = sqlx::pool::PoolOptions::new().max_connections(1);
    let pool: sqlx::SqlitePool = options.connect("sqlite::memory:").await.unwrap();
    let store = SqliteStore::new(pool.clone());
    store.migrate().await.unwrap();
    let create = sqlx::query("create table orders (id integer primary key)");
    create.execute(&pool).await.unwrap();
    let outbox = store.outbox(OutboxOptions::default());
    (
        store,
        Shop {
            outbox,
            orders: SqliteOrders(pool),
        },
    )
}

/// Orders of an application that does not know its database until it runs.
struct AnyOrders<C, R>(R, PhantomData<fn(C)>);

impl<C: Send + 'static, R: Orders<C> + Sync> Orders<AnyConnection> for AnyOrders<C, R> {
    async fn insert(&self, conn: &mut AnyConnection, order: i64) -> Result<(), StoreError> {
        let conn = conn.downcast_mut().expect("a connection of this database");
        self.0.insert(conn, order).await
    }

    async fn all(&self) -> Vec<i64> {
        self.0.all().await
    }
}

fn any<B, R>(shop: Shop<B, R>) -> Shop<AnyOutbox, AnyOrders<B::Connection, R>>
where
    B: Outbox<Connection: 'static, Transaction: 'static> + 'static,
{
    Shop {
        outbox: AnyOutbox::new(shop.outbox),
        orders: AnyOrders(shop.orders, PhantomData),
    }
}

async fn any_memory() -> (MemoryStore, Shop<AnyOutbox, AnyOrders<MemoryConnection, MemoryOrders>>) {
    let (store, shop) = memory().await;
    (store, any(shop))
}

async fn any_postgres() -> (PostgresStore, Shop<AnyOutbox, AnyOrders<PgConnection, PostgresOrders>>) {
    let (store, shop) = postgres().await;
    (store, any(shop))
}
