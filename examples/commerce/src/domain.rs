//! What happens in the shop. Nothing here knows a topic, a type name or a byte format.

use uuid::Uuid;

/// One line of an order.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    pub product_id: i64,
    pub quantity: i64,
}

#[derive(Clone, Debug)]
pub struct OrderCreated {
    pub order_id: Uuid,
    pub user_id: i64,
    pub items: Vec<Item>,
}

#[derive(Clone, Debug)]
pub struct OrderPaid {
    pub order_id: Uuid,
    pub items: Vec<Item>,
}

#[derive(Clone, Debug)]
pub struct LikeCreated {
    pub product_id: i64,
    pub user_id: i64,
}

#[derive(Clone, Debug)]
pub struct LikeCanceled {
    pub product_id: i64,
    pub user_id: i64,
}

#[derive(Clone, Debug)]
pub struct ProductViewed {
    pub product_id: i64,
    pub user_id: i64,
}

#[derive(Clone, Debug)]
pub struct StockDepleted {
    pub product_id: i64,
}
