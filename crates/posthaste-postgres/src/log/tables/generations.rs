//! Raising the number of shards.

use std::collections::BTreeMap;

use posthaste_core::StoreError;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::{LogTables, by_owner};
use crate::error::store_error;

/// The connections that a role may still have, and what bounds them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Connections {
    /// How many more there may be.
    pub free: u64,
    /// How many there may be in all: the tightest of the limits.
    pub limit: u64,
    /// How many of these are in use.
    pub in_use: u64,
    /// What has this limit, as an operator would look for it.
    pub bound: String,
}

impl LogTables {
    /// The connections that this role may still have. Each shard that is read at a time takes one.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn connections(&self) -> Result<Connections, StoreError> {
        let row = sqlx::query(self.statements.shards.connections.sql())
            .fetch_one(&self.pool)
            .await
            .map_err(store_error)?;
        let count = |name: &str| row.try_get::<i64, _>(name).map(|count| count.max(0).cast_unsigned());
        let connections = || {
            Ok(Connections {
                free: count("free")?,
                limit: count("bound_limit")?,
                in_use: count("in_use")?,
                bound: row.try_get("bound")?,
            })
        };
        connections().map_err(store_error)
    }

    /// Transactions that have written to the log and not ended, by the names that the server has for them. A new generation of
    /// shards is not read before they have.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn writers(&self) -> Result<BTreeMap<String, String>, StoreError> {
        let rows = sqlx::query(self.statements.shards.writers.sql())
            .bind(&self.schema)
            .fetch_all(&self.pool)
            .await
            .map_err(store_error)?;
        let writer = |row: &PgRow| Ok((row.try_get("name")?, row.try_get("writer")?));
        rows.iter()
            .map(writer)
            .collect::<sqlx::Result<_>>()
            .map_err(store_error)
    }

    /// Divides the log into so many shards, with a new generation of them; says which generation that is. Rows go there from
    /// now on; its readers begin when the generation before is read to its end, so that no event passes an earlier one of its
    /// key. Cut short, it is gone on with when it is called again; one that was begun for fewer shards is finished on the way.
    ///
    /// # Errors
    /// Those of the database, which refuses fewer shards than there are; and fewer than were begun with.
    pub async fn raise_shards(&self, shards: u32) -> Result<u32, StoreError> {
        let queries = &self.statements.shards;
        let wanted = i32::try_from(shards).unwrap_or(i32::MAX);
        loop {
            let mut tx = self.begin_bounded().await?;
            sqlx::query(queries.make_shards.sql())
                .bind(wanted)
                .execute(&mut *tx)
                .await
                .map_err(by_owner)?;
            let newest = sqlx::query(queries.newest_generation.sql())
                .fetch_one(&mut *tx)
                .await
                .map_err(store_error)?;
            let generation: i32 = newest.try_get("generation").map_err(store_error)?;
            let made: i32 = newest.try_get("shards").map_err(store_error)?;
            if made > wanted {
                return Err(begun_with_more(made));
            }
            // Others must see the sequences before they are told to use them.
            tx.commit().await.map_err(store_error)?;
            let mut tx = self.begin_bounded().await?;
            sqlx::query(queries.use_shards.sql())
                .execute(&mut *tx)
                .await
                .map_err(by_owner)?;
            tx.commit().await.map_err(store_error)?;
            if made == wanted {
                return Ok(generation.cast_unsigned());
            }
        }
    }
}

/// Rows do not go there yet, but its shards are made.
fn begun_with_more(shards: i32) -> StoreError {
    StoreError::unsupported(
        format!(
            "raising the number of shards to {shards} was begun and cut short, and their number can only be raised"
        ),
        Some("ask for as many, or for more"),
    )
}
