//! An operator's verbs.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::lifecycle::State;
use posthaste_core::retry::MAX_DURATION;
use posthaste_core::store::{AdminStore, DeadLetter, Filter, PurgeRequest, Purgeable, Record, Restored};
use posthaste_core::{MessageId, StoreError};
use posthaste_sql::table::StateLabel;
use sqlx::Row;
use sqlx::types::Json;

use crate::SqliteStore;
use crate::rows::{ByRole, ids_in_order, millis};
use crate::statements::Statement;

#[async_trait]
impl AdminStore for SqliteStore {
    async fn list(&self, filter: &Filter, after: Option<MessageId>, limit: u32) -> Result<Vec<Record>, StoreError> {
        self.map.check_filter(filter)?;
        let ids = filter_ids(filter);
        let statement = if ids.is_some() {
            &self.statements.rows.find
        } else {
            &self.statements.rows.list
        };
        let rows = sqlx::query(statement.sql())
            .bind(&filter.namespace)
            .bind(Json(self.labels(filter.state)))
            .bind(&filter.topic)
            .bind(&filter.ordering_key)
            .bind(&filter.tenant)
            .bind(ids)
            .bind(after.map(|id| id.to_string()))
            .bind(i64::from(limit))
            .fetch_all(&self.pool)
            .await
            .map_err(|error| self.error(error))?;
        if let (true, Some(after)) = (rows.is_empty(), after) {
            self.show(after).await?.ok_or_else(|| StoreError::gone(after))?;
        }
        rows.iter()
            .map(|row| self.map.record(&ByRole(row)))
            .collect::<sqlx::Result<_>>()
            .map_err(|error| self.error(error))
    }

    async fn show(&self, id: MessageId) -> Result<Option<Record>, StoreError> {
        let filter = Filter {
            ids: vec![id],
            ..Filter::default()
        };
        Ok(self.list(&filter, None, 1).await?.pop())
    }

    async fn replay(&self, filter: &Filter, limit: u32) -> Result<Vec<MessageId>, StoreError> {
        self.change_dead(&self.statements.rows.replay, filter, limit).await
    }

    async fn discard(&self, filter: &Filter, limit: u32) -> Result<Vec<MessageId>, StoreError> {
        self.change_dead(&self.statements.rows.discard, filter, limit).await
    }

    async fn restore(&self, letter: &DeadLetter) -> Result<Restored, StoreError> {
        self.restore_letter(letter).await
    }

    async fn purgeable(&self, request: &PurgeRequest) -> Result<Purgeable, StoreError> {
        if request.dead.is_some() && self.statements.dying.is_none() {
            return Err(StoreError::no_time_of_death(self.map.name()));
        }
        let age = |kept: Option<Duration>| millis(kept.unwrap_or(MAX_DURATION));
        let row = sqlx::query(self.statements.rows.purgeable.sql())
            .bind(age(request.delivered))
            .bind(age(request.dead))
            .bind(&request.namespace)
            .fetch_one(&self.pool)
            .await
            .map_err(|error| self.error(error))?;
        let count = |name: &str| {
            let rows = row.try_get::<i64, _>(name).map_err(|error| self.error(error));
            rows.map(i64::cast_unsigned)
        };
        Ok(Purgeable {
            delivered: count("delivered")?,
            dead: count("dead")?,
            dedupe: if request.dedupe { count("dedupe")? } else { 0 },
            cursor: 0,
        })
    }
}

impl SqliteStore {
    async fn change_dead(
        &self,
        statement: &Statement,
        filter: &Filter,
        limit: u32,
    ) -> Result<Vec<MessageId>, StoreError> {
        self.map.check_filter(filter)?;
        if filter.state.is_some_and(|state| state != State::Dead) {
            return Ok(Vec::new());
        }
        sqlx::query(statement.sql())
            .bind(&filter.namespace)
            .bind(&filter.topic)
            .bind(&filter.ordering_key)
            .bind(&filter.tenant)
            .bind(filter_ids(filter))
            .bind(i64::from(limit))
            .fetch_all(&self.pool)
            .await
            .and_then(|rows| ids_in_order(rows, &self.map))
            .map_err(|error| self.error(error))
    }

    /// The table's labels for a state, or for all: rows with other labels are none of ours.
    fn labels(&self, state: Option<State>) -> Vec<&StateLabel> {
        let states = State::ALL
            .into_iter()
            .filter(|one| state.is_none_or(|state| state == *one));
        states
            .flat_map(|state| match state {
                State::Pending => self.map.claimable_labels(),
                _ => self.map.label(state.as_str()).into_iter().collect(),
            })
            .collect()
    }
}

fn filter_ids(filter: &Filter) -> Option<Json<&[MessageId]>> {
    (!filter.ids.is_empty()).then_some(Json(&filter.ids))
}
