//! The floor: what reading rows and sending them costs if nothing else is done.

use anyhow::bail;
use futures::TryStreamExt;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::sink::Sink;
use crate::arm::How;
use crate::layout::{self, Layout};
use crate::workload::{WARM_UP, Workload, number_of};

/// Rows of one SELECT.
const BATCH: i64 = 5_000;

/// Sends so many rows, or all that there are; returns how many.
pub(super) async fn run(how: How, conn: &mut PgConnection, sink: &Sink, rows: u32) -> anyhow::Result<u64> {
    match how {
        How::ProduceOnly => produce(sink, rows).await,
        How::SelectOnly | How::SelectAndProduce => select(conn, sink, rows).await,
        _ => bail!("this is no floor"),
    }
}

/// Rows from memory.
async fn produce(sink: &Sink, rows: u32) -> anyhow::Result<u64> {
    const EVENT_ID: &str = "0198c5a2-7b1e-7000-8000-000000000000";
    let workload = Workload::of(rows);
    for n in 1..=rows {
        sink.send(EVENT_ID, &workload.key(n), workload.payload(n).as_bytes())
            .await?;
    }
    sink.acknowledged().await?;
    Ok(u64::from(rows))
}

async fn select(conn: &mut PgConnection, sink: &Sink, rows: u32) -> anyhow::Result<u64> {
    let sql = match layout::log() {
        Layout::NativeLog => include_str!("../../queries/floor/native_log.sql"),
        _ => include_str!("../../queries/floor/commerce.sql"),
    };
    let (mut shard, mut id, mut sent) = (-1i64, 0i64, 0);
    while sent < u64::from(rows) {
        let mut batch = sqlx::query(sql).bind(shard).bind(id).bind(BATCH).fetch(&mut *conn);
        let mut found = 0u64;
        while let Some(row) = batch.try_next().await? {
            (shard, id) = (row.try_get(0)?, row.try_get(1)?);
            found += 1;
            // The row of the warm-up is still there.
            sent += u64::from(send(&row, sink).await?);
        }
        if found == 0 {
            break;
        }
    }
    sink.acknowledged().await?;
    Ok(sent)
}

/// Looks at every column, by its position. Returns whether the row counts.
async fn send(row: &PgRow, sink: &Sink) -> anyhow::Result<bool> {
    let texts: [&str; 5] = [
        row.try_get(2)?,
        row.try_get(3)?,
        row.try_get(4)?,
        row.try_get(5)?,
        row.try_get(6)?,
    ];
    let payload: &[u8] = row.try_get(7)?;
    sink.send(texts[0], texts[4], payload).await?;
    Ok(number_of(payload) != Some(WARM_UP))
}
