//! A table like the outbox, and the plain inserts that an enqueue is compared with.

use anyhow::bail;
use posthaste_core::Message;
use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use crate::layout::Layout;
use crate::workload::TOPIC;

/// Creates the table: the same columns, defaults and indexes.
pub(crate) async fn create_table(conn: &mut PgConnection, layout: Layout) -> anyhow::Result<()> {
    let like = format!("create table plain (like {} including all)", layout.table());
    for statement in ["create sequence plain_seq", &like] {
        sqlx::query(AssertSqlSafe(statement)).execute(&mut *conn).await?;
    }
    Ok(())
}

/// Writes the messages by one statement.
pub(crate) async fn insert<'m>(conn: &mut PgConnection, layout: Layout, messages: &'m [Message]) -> anyhow::Result<()> {
    let (one, many) = match layout {
        Layout::Queue => (
            include_str!("../queries/plain/queue_one.sql"),
            include_str!("../queries/plain/queue_many.sql"),
        ),
        Layout::Commerce => (
            include_str!("../queries/plain/commerce_one.sql"),
            include_str!("../queries/plain/commerce_many.sql"),
        ),
        Layout::NativeLog => (
            include_str!("../queries/plain/native_log_one.sql"),
            include_str!("../queries/plain/native_log_many.sql"),
        ),
        _ => bail!("nobody enqueues into {}", layout.table()),
    };
    let key = |message: &'m Message| message.ordering_key.as_deref();
    let body = |message: &'m Message| message.payload.as_ref();
    let query = if let [message] = messages {
        sqlx::query(one).bind(message.id.uuid()).bind(TOPIC).bind(key(message))
    } else {
        let ids: Vec<Option<Uuid>> = messages.iter().map(|message| message.id.uuid()).collect();
        let keys: Vec<Option<&str>> = messages.iter().map(key).collect();
        sqlx::query(many).bind(ids).bind(TOPIC).bind(keys)
    };
    let query = query.bind("shop.order.created.v1").bind("order-service").bind("Order");
    let query = if let [message] = messages {
        query.bind(body(message))
    } else {
        query.bind(messages.iter().map(body).collect::<Vec<&[u8]>>())
    };
    query.execute(conn).await?;
    Ok(())
}
