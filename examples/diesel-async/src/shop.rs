//! The application: an order and its event in one transaction.

use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use posthaste::core::StoreOutbox;
use posthaste::postgres::PostgresEnqueue;
use posthaste::{EnqueueError, Enqueued, Event, IntoMessage, MessageId, OutboxOptions};
use serde::Serialize;

use crate::Diesel;

diesel::table! {
    orders (id) {
        id -> BigInt,
    }
}

#[derive(Serialize)]
struct OrderPlaced {
    order_id: i64,
}

#[derive(Event)]
enum ShopEvent {
    #[event(type = "acme.order.placed.v1", aggregate = "Order", id = order_id)]
    OrderPlaced(OrderPlaced),
}

/// Why an order was not placed.
#[derive(Debug)]
pub enum PlaceOrderError {
    /// The database refused the order.
    Database(diesel::result::Error),
    /// Its event could not be enqueued.
    Enqueue(EnqueueError),
}

impl From<diesel::result::Error> for PlaceOrderError {
    fn from(error: diesel::result::Error) -> Self {
        Self::Database(error)
    }
}

impl From<EnqueueError> for PlaceOrderError {
    fn from(error: EnqueueError) -> Self {
        Self::Enqueue(error)
    }
}

/// A shop on diesel-async.
pub struct Shop {
    outbox: StoreOutbox<PostgresEnqueue>,
}

impl Shop {
    /// A shop whose outbox is in this schema.
    ///
    /// # Panics
    /// If the schema's name is none.
    pub fn new(schema: &str) -> Self {
        let statements = PostgresEnqueue::in_schema(schema).expect("a valid name");
        Self {
            outbox: statements.outbox(OutboxOptions::default()),
        }
    }

    /// Places an order. `request` names the customer's request: one that comes again places none.
    ///
    /// # Errors
    /// Nothing is written then.
    pub async fn place_order(
        &self,
        conn: &mut AsyncPgConnection,
        order_id: i64,
        request: &str,
    ) -> Result<MessageId, PlaceOrderError> {
        conn.transaction(async |tx| {
            let event = ShopEvent::from(OrderPlaced { order_id });
            let message = event.into_message().map_err(EnqueueError::Encode)?;
            let enqueued = self
                .outbox
                .enqueue(&mut Diesel(tx), message.dedupe_key(request))
                .await?;
            if let Enqueued::Inserted(_) = enqueued {
                let order = diesel::ExpressionMethods::eq(orders::id, order_id);
                diesel::insert_into(orders::table).values(order).execute(tx).await?;
            }
            Ok(enqueued.id())
        })
        .await
    }
}
