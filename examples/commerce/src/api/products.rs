use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{Refused, Shop};

#[derive(Debug, Serialize, Deserialize)]
pub struct Product {
    id: i64,
    name: String,
    stock: i64,
}

pub async fn create(State(shop): State<Shop>, Json(product): Json<Product>) -> Result<StatusCode, Refused> {
    sqlx::query("insert into product (id, name, stock) values ($1, $2, $3)")
        .bind(product.id)
        .bind(product.name)
        .bind(product.stock)
        .execute(&shop.pool)
        .await?;
    Ok(StatusCode::CREATED)
}

/// From the cache, which the consumer clears when the stock runs out. A cache that is unavailable costs time, not answers.
pub async fn show(State(shop): State<Shop>, Path(id): Path<i64>) -> Result<Json<Product>, Refused> {
    let miss = match shop.cache.get(id).await {
        Ok(Ok(found)) => return Ok(Json(serde_json::from_str(&found)?)),
        Ok(Err(miss)) => Some(miss),
        Err(error) => {
            tracing::warn!(%error, "the cache cannot be read");
            None
        }
    };
    let found: Option<(String, i64)> = sqlx::query_as("select name, stock from product where id = $1")
        .bind(id)
        .fetch_optional(&shop.pool)
        .await?;
    let (name, stock) = found.ok_or_else(|| Refused::not_found(format!("there is no product {id}")))?;
    let product = Product { id, name, stock };
    if let Some(miss) = miss
        && let Err(error) = shop.cache.fill(miss, &serde_json::to_string(&product)?).await
    {
        tracing::warn!(%error, "the cache cannot be filled");
    }
    Ok(Json(product))
}
