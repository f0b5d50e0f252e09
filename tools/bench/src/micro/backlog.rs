//! Backlogs: what is in the table before the clock starts.

use sqlx::PgConnection;

/// Bytes of each payload.
pub(crate) const PAYLOAD_BYTES: i32 = 300;

/// How the rows are spread over ordering keys.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Keys {
    /// No row has a key.
    None,
    /// All keys have equally many.
    Even(i32),
    /// Every row has the same key.
    Single,
}

impl Keys {
    /// The number of keys, and the share of the first in per cent.
    fn parameters(self) -> (i32, i32) {
        match self {
            Self::None => (0, 0),
            Self::Even(keys) => (keys, 0),
            Self::Single => (1, 100),
        }
    }
}

/// Replaces the table's content by a backlog, in a state that is the same each time: nothing dead in table or indexes,
/// statistics up to date, no checkpoint due.
pub(crate) async fn fill(conn: &mut PgConnection, rows: u32, keys: Keys) -> sqlx::Result<()> {
    let (keys, hot) = keys.parameters();
    sqlx::query("truncate posthaste.outbox restart identity")
        .execute(&mut *conn)
        .await?;
    sqlx::query(include_str!("../../queries/micro/fill.sql"))
        .bind(i64::from(rows))
        .bind(PAYLOAD_BYTES)
        .bind(keys)
        .bind(hot)
        .execute(&mut *conn)
        .await?;
    for upkeep in ["vacuum (analyze) posthaste.outbox", "checkpoint"] {
        sqlx::query(upkeep).execute(&mut *conn).await?;
    }
    Ok(())
}

/// Rows that are not delivered. A drain that leaves some has measured something else.
pub(crate) async fn left(conn: &mut PgConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar("select count(*) from posthaste.outbox where status <> 'delivered'")
        .fetch_one(conn)
        .await
}
