//! The hand-written SQL that Posthaste is compared with: one connection, one statement after the other, nothing else.

use posthaste_core::message::Message;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

/// Delivers so many rows to nobody: claims a batch, acknowledges it, and so on. Returns how many there were.
pub(crate) async fn drain(conn: &mut PgConnection, rows: u32, batch: u32) -> sqlx::Result<u64> {
    let mut delivered = 0;
    while delivered < u64::from(rows) {
        let token = Uuid::now_v7();
        let claimed: Vec<(Uuid, String, Option<String>, Vec<u8>)> =
            sqlx::query_as(include_str!("../queries/loop_claim.sql"))
                .bind(i64::from(batch))
                .bind(token)
                .fetch_all(&mut *conn)
                .await?;
        if claimed.is_empty() {
            break;
        }
        let ids: Vec<Uuid> = claimed.into_iter().map(|(id, ..)| id).collect();
        let acknowledged = sqlx::query(include_str!("../queries/loop_ack.sql"))
            .bind(ids)
            .bind(token)
            .execute(&mut *conn)
            .await?;
        delivered += acknowledged.rows_affected();
    }
    Ok(delivered)
}

/// Stands in for the hash, which a plain insert does not work out.
const NO_HASH: [u8; 32] = [0; 32];

/// Inserts the messages in one transaction: one statement for one message, one statement for many.
pub(crate) async fn insert(conn: &mut PgConnection, messages: &[Message]) -> sqlx::Result<()> {
    let mut tx = conn.begin().await?;
    if let [message] = messages {
        sqlx::query(include_str!("../queries/insert_one.sql"))
            .bind(message.id.uuid())
            .bind(message.topic.as_str())
            .bind(message.ordering_key.as_deref())
            .bind(message.payload.as_ref())
            .bind(NO_HASH.as_slice())
            .execute(&mut *tx)
            .await?;
    } else {
        let each = messages.iter();
        sqlx::query(include_str!("../queries/insert_many.sql"))
            .bind(each.clone().map(|m| m.id.uuid()).collect::<Vec<_>>())
            .bind(each.clone().map(|m| m.topic.as_str()).collect::<Vec<_>>())
            .bind(each.clone().map(|m| m.ordering_key.as_deref()).collect::<Vec<_>>())
            .bind(each.clone().map(|m| m.payload.as_ref()).collect::<Vec<_>>())
            .bind(each.map(|_| NO_HASH.as_slice()).collect::<Vec<_>>())
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await
}
