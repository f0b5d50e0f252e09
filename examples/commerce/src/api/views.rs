use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{Refused, Shop};
use crate::domain::ProductViewed;
use crate::wire::ShopEvent;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewView {
    user_id: i64,
}

pub async fn record(
    State(shop): State<Shop>,
    Path(product_id): Path<i64>,
    Json(NewView { user_id }): Json<NewView>,
) -> Result<StatusCode, Refused> {
    let mut tx = shop.pool.begin().await?;
    sqlx::query("insert into product_view (product_id, user_id) values ($1, $2)")
        .bind(product_id)
        .bind(user_id)
        .execute(&mut *tx)
        .await?;
    let event = ShopEvent::from(ProductViewed { product_id, user_id });
    shop.outbox.enqueue(&mut tx, event).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}
