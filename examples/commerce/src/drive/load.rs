//! Customers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use posthaste::Message;
use rand::RngExt;
use reqwest::Client;
use serde_json::json;
use sqlx::PgPool;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::tables;

/// Products on sale; the last ones are scarce and sell out.
pub const PRODUCTS: i64 = 30;
const SCARCE: i64 = 5;
const USERS: i64 = 200;

pub struct Load {
    api: String,
    client: Client,
    requests: Arc<AtomicU64>,
}

/// Customers at work.
pub struct Shopping {
    customers: JoinSet<()>,
    stop: CancellationToken,
    requests: Arc<AtomicU64>,
}

impl Load {
    /// Puts the products on sale.
    pub async fn new(api: String, pool: PgPool) -> anyhow::Result<Self> {
        for id in 1..=PRODUCTS {
            let stock: i64 = if id > PRODUCTS - SCARCE { 20 } else { 1_000_000 };
            sqlx::query("insert into product (id, name, stock) values ($1, $2, $3)")
                .bind(id)
                .bind(format!("product {id}"))
                .bind(stock)
                .execute(&pool)
                .await?;
        }
        Ok(Self {
            api,
            client: Client::new(),
            requests: Arc::default(),
        })
    }

    pub fn start(&self, customers: usize) -> Shopping {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for _ in 0..customers {
            let (client, api, requests) = (self.client.clone(), self.api.clone(), Arc::clone(&self.requests));
            let stop = stop.clone();
            tasks.spawn(async move {
                while !stop.is_cancelled() {
                    // A request that fails was not committed, or was: the books are made from the database.
                    let _ = shop(&client, &api).await;
                    requests.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Shopping {
            customers: tasks,
            stop,
            requests: Arc::clone(&self.requests),
        }
    }
}

impl Shopping {
    /// Lets everybody finish, and returns how many requests were made.
    pub async fn stop(self) -> u64 {
        self.stop.cancel();
        self.customers.join_all().await;
        self.requests.load(Ordering::Relaxed)
    }
}

/// One thing that a customer does.
async fn shop(client: &Client, api: &str) -> reqwest::Result<()> {
    let (dice, product, user) = {
        let mut rng = rand::rng();
        (
            rng.random_range(0..100),
            rng.random_range(1..=PRODUCTS),
            rng.random_range(1..=USERS),
        )
    };
    match dice {
        0..30 => {
            let view = json!({"userId": user});
            client
                .post(format!("{api}/products/{product}/views"))
                .json(&view)
                .send()
                .await?;
        }
        30..50 => {
            client
                .put(format!("{api}/products/{product}/likes/{user}"))
                .send()
                .await?;
        }
        50..60 => {
            client
                .delete(format!("{api}/products/{product}/likes/{user}"))
                .send()
                .await?;
        }
        60..75 => {
            client.get(format!("{api}/products/{product}")).send().await?;
        }
        _ => order(client, api, product, user).await?,
    }
    Ok(())
}

/// Orders two products, and mostly pays.
async fn order(client: &Client, api: &str, product: i64, user: i64) -> reqwest::Result<()> {
    let order_id = Uuid::new_v4();
    let other = product % PRODUCTS + 1;
    let (quantity, pays) = {
        let mut rng = rand::rng();
        (rng.random_range(1..4), rng.random_bool(0.8))
    };
    let order = json!({
        "orderId": order_id,
        "userId": user,
        "items": [{"productId": product, "quantity": quantity}, {"productId": other, "quantity": 1}],
    });
    let created = client.post(format!("{api}/orders")).json(&order).send().await?;
    if created.status().is_success() && pays {
        client.post(format!("{api}/orders/{order_id}/payment")).send().await?;
    }
    Ok(())
}

/// An event that no consumer can read; it must end in the dead-letter topic and stop nobody.
pub async fn poison(pool: &PgPool) -> anyhow::Result<()> {
    let outbox = tables::outbox(pool.clone())?;
    let mut tx = pool.begin().await?;
    let message = Message::new("order-events", r#"{"orderId": "not an order"}"#)
        .event_type("acme.order.paid.v1")
        .aggregate("Order", "poison")
        .key("poison");
    outbox.enqueue(&mut tx, message).await?;
    tx.commit().await?;
    Ok(())
}
