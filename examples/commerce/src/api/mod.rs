//! The shop's HTTP service. Every change and its event are one transaction.

mod error;
mod likes;
mod orders;
mod products;
mod views;

use axum::Router;
use axum::routing::{get, post, put};
use posthaste::postgres::PostgresLogOutbox;
use sqlx::PgPool;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::cache::Cache;
use crate::tables;
use error::Refused;

/// What every request needs.
#[derive(Clone)]
struct Shop {
    pool: PgPool,
    outbox: PostgresLogOutbox,
    cache: Cache,
}

/// Serves until the token fires.
pub async fn serve(listener: TcpListener, pool: PgPool, cache: Cache, until: CancellationToken) -> anyhow::Result<()> {
    let outbox = tables::outbox(pool.clone())?;
    let shop = Shop { pool, outbox, cache };
    let routes = Router::new()
        .route("/products", post(products::create))
        .route("/products/{id}", get(products::show))
        .route("/products/{id}/likes/{user}", put(likes::like).delete(likes::unlike))
        .route("/products/{id}/views", post(views::record))
        .route("/orders", post(orders::create))
        .route("/orders/{id}/payment", post(orders::pay))
        .with_state(shop);
    axum::serve(listener, routes)
        .with_graceful_shutdown(async move { until.cancelled().await })
        .await?;
    Ok(())
}
