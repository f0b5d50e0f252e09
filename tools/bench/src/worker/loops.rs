//! What one would write by hand: one connection, one statement after the other, no second worker, no retries.

use std::time::Duration;

use anyhow::bail;
use sqlx::{Connection, PgConnection, PgPool};
use uuid::Uuid;

use super::floor;
use super::rows::{Row, ids};
use super::sink::Sink;
use crate::arm::How;

/// Rows of one batch, as many as the relay's queue takes by default.
const BATCH: i64 = 500;
/// Rows of one read of a log.
const LOG_BATCH: i64 = 1_000;

/// Delivers so many rows, or all that there are; returns how many.
pub(super) async fn drain(how: How, pool: &PgPool, sink: &Sink, rows: u32) -> anyhow::Result<u64> {
    let mut conn = pool.acquire().await?;
    let mut reader = match how {
        How::Watermark => Some(Reader::load(&mut conn).await?),
        _ => None,
    };
    let mut delivered = 0;
    while delivered < u64::from(rows) {
        let sent = match how {
            How::ClaimAndAcknowledge => claim_and_acknowledge(&mut conn, sink).await?,
            How::DeleteReturning => delete_returning(&mut conn, sink).await?,
            How::LockedBatch => locked_batch(&mut conn, sink).await?,
            How::Watermark => match &mut reader {
                Some(reader) => reader.read(&mut conn, sink).await?,
                None => bail!("there is no reader"),
            },
            How::OrderServicePoller { pauses } => order_service_poll(&mut conn, sink, pauses).await?,
            How::LogisticsPoller { pauses } => logistics_poll(&mut conn, sink, pauses).await?,
            How::SelectOnly | How::ProduceOnly | How::SelectAndProduce => {
                return floor::run(how, &mut conn, sink, rows).await;
            }
            How::Relay(_) | How::Debezium => bail!("this is no loop"),
        };
        if sent == 0 {
            break;
        }
        delivered += sent;
    }
    Ok(delivered)
}

async fn send(sink: &Sink, rows: &[Row]) -> anyhow::Result<()> {
    for (id, key, payload) in rows {
        sink.send(&id.to_string(), key, payload).await?;
    }
    sink.acknowledged().await
}

async fn claim_and_acknowledge(conn: &mut PgConnection, sink: &Sink) -> anyhow::Result<u64> {
    let token = Uuid::now_v7();
    let rows: Vec<Row> = sqlx::query_as(include_str!("../../queries/loops/claim.sql"))
        .bind(BATCH)
        .bind(token)
        .fetch_all(&mut *conn)
        .await?;
    send(sink, &rows).await?;
    let acknowledged = sqlx::query(include_str!("../../queries/loops/acknowledge.sql"))
        .bind(ids(&rows))
        .bind(token)
        .execute(&mut *conn)
        .await?;
    Ok(acknowledged.rows_affected())
}

async fn delete_returning(conn: &mut PgConnection, sink: &Sink) -> anyhow::Result<u64> {
    let mut tx = conn.begin().await?;
    let rows: Vec<Row> = sqlx::query_as(include_str!("../../queries/loops/delete.sql"))
        .bind(BATCH)
        .fetch_all(&mut *tx)
        .await?;
    send(sink, &rows).await?;
    tx.commit().await?;
    Ok(rows.len() as u64)
}

async fn locked_batch(conn: &mut PgConnection, sink: &Sink) -> anyhow::Result<u64> {
    let mut tx = conn.begin().await?;
    let rows: Vec<Row> = sqlx::query_as(include_str!("../../queries/loops/lock.sql"))
        .bind(BATCH)
        .fetch_all(&mut *tx)
        .await?;
    send(sink, &rows).await?;
    sqlx::query(include_str!("../../queries/loops/mark.sql"))
        .bind(ids(&rows))
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(rows.len() as u64)
}

/// How far a log was read.
struct Reader {
    transaction: String,
    id: i64,
}

impl Reader {
    async fn load(conn: &mut PgConnection) -> anyhow::Result<Self> {
        let (transaction, id) = sqlx::query_as("select xid::text, id from reader")
            .fetch_one(conn)
            .await?;
        Ok(Self { transaction, id })
    }

    async fn read(&mut self, conn: &mut PgConnection, sink: &Sink) -> anyhow::Result<u64> {
        let rows: Vec<(String, i64, Uuid, String, Vec<u8>)> =
            sqlx::query_as(include_str!("../../queries/loops/watermark_read.sql"))
                .bind(&self.transaction)
                .bind(self.id)
                .bind(LOG_BATCH)
                .fetch_all(&mut *conn)
                .await?;
        let Some((transaction, id, ..)) = rows.last() else {
            return Ok(0);
        };
        for (_, _, event_id, key, payload) in &rows {
            sink.send(&event_id.to_string(), key, payload).await?;
        }
        sink.acknowledged().await?;
        sqlx::query(include_str!("../../queries/loops/watermark_move.sql"))
            .bind(transaction)
            .bind(id)
            .execute(&mut *conn)
            .await?;
        (self.transaction, self.id) = (transaction.clone(), *id);
        Ok(rows.len() as u64)
    }
}

/// Each event is sent, waited for and marked by itself. The pause follows every poll.
async fn order_service_poll(conn: &mut PgConnection, sink: &Sink, pauses: bool) -> anyhow::Result<u64> {
    let mut tx = conn.begin().await?;
    let rows: Vec<Row> = sqlx::query_as(include_str!("../../queries/loops/order_service_poll.sql"))
        .fetch_all(&mut *tx)
        .await?;
    for row in &rows {
        send(sink, std::slice::from_ref(row)).await?;
        sqlx::query(include_str!("../../queries/loops/order_service_sent.sql"))
            .bind(row.0)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    pause(pauses && !rows.is_empty(), Duration::from_secs(5)).await;
    Ok(rows.len() as u64)
}

async fn logistics_poll(conn: &mut PgConnection, sink: &Sink, pauses: bool) -> anyhow::Result<u64> {
    let mut tx = conn.begin().await?;
    let rows: Vec<Row> = sqlx::query_as(include_str!("../../queries/loops/logistics_poll.sql"))
        .fetch_all(&mut *tx)
        .await?;
    for row in &rows {
        send(sink, std::slice::from_ref(row)).await?;
        sqlx::query(include_str!("../../queries/loops/logistics_published.sql"))
            .bind(row.0)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    pause(pauses && !rows.is_empty(), Duration::from_millis(200)).await;
    Ok(rows.len() as u64)
}

async fn pause(pauses: bool, time: Duration) {
    if pauses {
        tokio::time::sleep(time).await;
    }
}
