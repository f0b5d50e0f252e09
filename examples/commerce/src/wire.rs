//! How the shop's events look to others: their names, their topics and their JSON.

use posthaste::Event;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::domain;

/// Every event of the shop. A variant without a name does not compile.
#[derive(Event)]
pub enum ShopEvent {
    #[event(type = "acme.order.created.v1", aggregate = "Order", id = order_id, payload = <OrderCreated>::from)]
    OrderCreated(domain::OrderCreated),
    #[event(type = "acme.order.paid.v1", aggregate = "Order", id = order_id, payload = <OrderPaid>::from)]
    OrderPaid(domain::OrderPaid),
    #[event(type = "acme.like.created.v1", aggregate = "Product", id = product_id, payload = created)]
    LikeCreated(domain::LikeCreated),
    #[event(type = "acme.like.canceled.v1", aggregate = "Product", id = product_id, payload = canceled)]
    LikeCanceled(domain::LikeCanceled),
    #[event(type = "acme.product-view.recorded.v1", aggregate = "ProductView", id = product_id, payload = <View>::from)]
    ProductViewed(domain::ProductViewed),
    #[event(type = "acme.stock.depleted.v1", aggregate = "Product", id = product_id, payload = <Depletion>::from)]
    StockDepleted(domain::StockDepleted),
}

/// The topics of [`ShopEvent`], as `{domain}-events`.
pub const TOPICS: [&str; 4] = ["order-events", "like-events", "product-view-events", "stock-events"];

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    pub product_id: i64,
    pub quantity: i64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderCreated {
    pub order_id: Uuid,
    pub user_id: i64,
    pub items: Vec<Item>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderPaid {
    pub order_id: Uuid,
    pub items: Vec<Item>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Like {
    pub product_id: i64,
    pub user_id: i64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    pub product_id: i64,
    pub user_id: i64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Depletion {
    pub product_id: i64,
}

fn items(items: &[domain::Item]) -> Vec<Item> {
    let item = |item: &domain::Item| Item {
        product_id: item.product_id,
        quantity: item.quantity,
    };
    items.iter().map(item).collect()
}

impl From<&domain::OrderCreated> for OrderCreated {
    fn from(event: &domain::OrderCreated) -> Self {
        Self {
            order_id: event.order_id,
            user_id: event.user_id,
            items: items(&event.items),
        }
    }
}

impl From<&domain::OrderPaid> for OrderPaid {
    fn from(event: &domain::OrderPaid) -> Self {
        Self {
            order_id: event.order_id,
            items: items(&event.items),
        }
    }
}

fn created(event: &domain::LikeCreated) -> Like {
    Like {
        product_id: event.product_id,
        user_id: event.user_id,
    }
}

fn canceled(event: &domain::LikeCanceled) -> Like {
    Like {
        product_id: event.product_id,
        user_id: event.user_id,
    }
}

impl From<&domain::ProductViewed> for View {
    fn from(event: &domain::ProductViewed) -> Self {
        Self {
            product_id: event.product_id,
            user_id: event.user_id,
        }
    }
}

impl From<&domain::StockDepleted> for Depletion {
    fn from(event: &domain::StockDepleted) -> Self {
        Self {
            product_id: event.product_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use posthaste::core::type_name::TypeName;

    use super::*;

    #[test]
    fn the_topics_are_those_of_the_type_names() {
        let derived: BTreeSet<String> = ShopEvent::TYPE_NAMES
            .iter()
            .map(|name| TypeName::parse(name).expect("checked by the derive").default_topic())
            .collect();
        assert_eq!(derived, TOPICS.map(str::to_owned).into());
    }
}
