//! The application: an order and its event in one transaction.

use posthaste::core::StoreOutbox;
use posthaste::postgres::PostgresEnqueue;
use posthaste::{EnqueueError, Enqueued, Event, Message, MessageId, OutboxOptions};
use sea_orm::{ActiveModelTrait, ActiveValue::Set, DatabaseConnection, DbErr, TransactionTrait};
use serde::Serialize;

use crate::SeaOrm;

mod orders {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "orders")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub id: i64,
    }

    #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
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
    Database(DbErr),
    /// Its event could not be enqueued.
    Enqueue(EnqueueError),
}

impl From<DbErr> for PlaceOrderError {
    fn from(error: DbErr) -> Self {
        Self::Database(error)
    }
}

impl From<EnqueueError> for PlaceOrderError {
    fn from(error: EnqueueError) -> Self {
        Self::Enqueue(error)
    }
}

/// A shop on sea-orm.
pub struct Shop {
    db: DatabaseConnection,
    outbox: StoreOutbox<PostgresEnqueue>,
}

impl Shop {
    /// A shop whose outbox is in this schema.
    ///
    /// # Panics
    /// If the schema's name is none.
    pub fn new(db: DatabaseConnection, schema: &str) -> Self {
        let statements = PostgresEnqueue::in_schema(schema).expect("a valid name");
        Self {
            db,
            outbox: statements.outbox(OutboxOptions::default()),
        }
    }

    /// Places an order. `request` names the customer's request: one that comes again places none.
    ///
    /// # Errors
    /// Nothing is written then.
    pub async fn place_order(&self, order_id: i64, request: &str) -> Result<MessageId, PlaceOrderError> {
        let tx = self.db.begin().await?;
        let event = ShopEvent::from(OrderPlaced { order_id });
        let message: Message = posthaste::IntoMessage::into_message(event).map_err(EnqueueError::Encode)?;
        let enqueued = self
            .outbox
            .enqueue(&mut SeaOrm(&tx), message.dedupe_key(request))
            .await?;
        if let Enqueued::Inserted(_) = enqueued {
            let order = orders::ActiveModel { id: Set(order_id) };
            order.insert(&tx).await?;
        }
        tx.commit().await?;
        Ok(enqueued.id())
    }
}
