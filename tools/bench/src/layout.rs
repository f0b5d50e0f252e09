//! The tables that rows are in before they are sent.

use anyhow::Context;
use posthaste_core::store::SchemaStore;
use posthaste_postgres::PostgresStore;
use posthaste_sql::TableMap;
use posthaste_sql::table::BuiltinMap;
use sqlx::{Executor, PgConnection, PgPool};

use crate::workload::Workload;

/// A kind of outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Posthaste's queue.
    Queue,
    /// Posthaste's log.
    NativeLog,
    /// Design A: a status column, polled.
    OrderService,
    /// Design B: leased rows.
    Usage,
    /// Design C: a log with cursor and failed tables.
    Commerce,
    /// Design E: rows locked while they are published.
    Logistics,
    /// A log with the writing transaction in each row.
    Watermark,
    /// What Debezium's outbox event router reads.
    Debezium,
}

/// The map of Posthaste's log, if this build has one.
pub(crate) fn native_log() -> Option<TableMap> {
    TableMap::native_log(posthaste_postgres::DEFAULT_SCHEMA).ok()
}

/// The log that the relay is measured on, and the floor with it: Posthaste's own, else design C's.
pub(crate) fn log() -> Layout {
    match native_log() {
        Some(_) => Layout::NativeLog,
        None => Layout::Commerce,
    }
}

impl Layout {
    /// The table map by which Posthaste serves it, unless it is a queue of our own or not for Posthaste at all.
    pub(crate) fn map(self) -> anyhow::Result<Option<TableMap>> {
        let builtin = |name| Ok(Some(BuiltinMap::named(name)?.map()?));
        match self {
            Self::Queue | Self::Watermark | Self::Debezium => Ok(None),
            Self::NativeLog => Ok(native_log()),
            Self::OrderService => builtin("order-service"),
            Self::Usage => builtin("usage"),
            Self::Commerce => builtin("commerce"),
            Self::Logistics => builtin("logistics"),
        }
    }

    pub(crate) fn is_log(self) -> bool {
        matches!(self, Self::NativeLog | Self::Commerce)
    }

    /// Creates the tables in an empty database.
    pub(crate) async fn create(self, pool: &PgPool) -> anyhow::Result<()> {
        let ddl = |name| BuiltinMap::named(name).map(|builtin| builtin.ddl);
        let script = match self {
            Self::Queue => return Ok(PostgresStore::new(pool.clone()).migrate().await.map(drop)?),
            Self::NativeLog => {
                let map = native_log().context("this build has no native log")?;
                let store = posthaste_postgres::PostgresLogStore::new(pool.clone(), map)?;
                return Ok(store.migrate().await.map(drop)?);
            }
            Self::OrderService => ddl("order-service")?,
            Self::Usage => ddl("usage")?,
            Self::Commerce => ddl("commerce")?,
            Self::Logistics => ddl("logistics")?,
            Self::Watermark => include_str!("../queries/ddl/watermark.sql"),
            Self::Debezium => include_str!("../queries/ddl/debezium.sql"),
        };
        pool.execute(sqlx::raw_sql(script)).await?;
        Ok(())
    }

    /// The table that producers write to.
    pub(crate) fn table(self) -> &'static str {
        match self {
            Self::Queue => "posthaste.outbox",
            Self::NativeLog => "posthaste.log",
            Self::OrderService | Self::Commerce | Self::Debezium => "public.outbox",
            Self::Usage => "public.modkit_outbox_events",
            Self::Logistics => "public.outbox_events",
            Self::Watermark => "public.events",
        }
    }

    /// Writes rows from `first` to `last`, in one transaction.
    pub(crate) async fn fill(
        self,
        conn: &mut PgConnection,
        workload: &Workload,
        (first, last): (i64, i64),
    ) -> anyhow::Result<()> {
        let sql = match self {
            Self::Queue => include_str!("../queries/fill/queue.sql"),
            Self::NativeLog => include_str!("../queries/fill/native_log.sql"),
            Self::OrderService => include_str!("../queries/fill/order_service.sql"),
            Self::Usage => include_str!("../queries/fill/usage.sql"),
            Self::Commerce => include_str!("../queries/fill/commerce.sql"),
            Self::Logistics => include_str!("../queries/fill/logistics.sql"),
            Self::Watermark => include_str!("../queries/fill/watermark.sql"),
            Self::Debezium => include_str!("../queries/fill/debezium.sql"),
        };
        sqlx::query(sql)
            .bind(first)
            .bind(last)
            .bind(i32::try_from(workload.payload_bytes)?)
            .bind(i64::from(workload.keys))
            .execute(conn)
            .await
            .with_context(|| format!("cannot fill {}", self.table()))?;
        Ok(())
    }
}
