//! Raising the number of shards.

use posthaste_core::StoreError;

use super::LogTables;
use crate::error::store_error;

impl LogTables {
    /// Divides the log into so many shards, with a new generation of them; says which generation that is. Rows go there from
    /// now on; its readers begin when the generation before is read to its end, so that no event passes an earlier one of its
    /// key. Cut short, it is gone on with when it is called again.
    ///
    /// # Errors
    /// Those of the database, which refuses fewer shards than there are.
    pub async fn raise_shards(&self, shards: u32) -> Result<u32, StoreError> {
        let queries = &self.statements.shards;
        let mut tx = self.begin_bounded().await?;
        let generation: i32 = sqlx::query_scalar(queries.make_shards.sql())
            .bind(i32::try_from(shards).unwrap_or(i32::MAX))
            .fetch_one(&mut *tx)
            .await
            .map_err(store_error)?;
        // Others must see the sequences before they are told to use them.
        tx.commit().await.map_err(store_error)?;
        let mut tx = self.begin_bounded().await?;
        sqlx::query(queries.use_shards.sql())
            .execute(&mut *tx)
            .await
            .map_err(store_error)?;
        tx.commit().await.map_err(store_error)?;
        Ok(generation.cast_unsigned())
    }
}
