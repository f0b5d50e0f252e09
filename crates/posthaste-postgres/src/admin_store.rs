//! An operator's verbs.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::lifecycle::State;
use posthaste_core::retry::MAX_DURATION;
use posthaste_core::store::{AdminStore, DeadLetter, Filter, PurgeRequest, Purgeable, Record, Restored};
use posthaste_core::{MessageId, StoreError};
use sqlx::Row;

use crate::PostgresStore;
use crate::error::store_error;
use crate::rows::{ByRole, id_text, ids, millis};
use crate::statements::Statement;

#[async_trait]
impl AdminStore for PostgresStore {
    async fn list(&self, filter: &Filter, after: Option<MessageId>, limit: u32) -> Result<Vec<Record>, StoreError> {
        self.map.check_filter(filter)?;
        let row = |after| id_text(after, &self.map).ok_or_else(|| StoreError::gone(after));
        let after_row = after.map(row).transpose()?;
        let query = self
            .statements
            .common
            .list
            .query()
            .bind(&filter.namespace)
            .bind(self.labels(filter.state))
            .bind(&filter.topic)
            .bind(&filter.ordering_key)
            .bind(&filter.tenant)
            .bind(self.filter_ids(filter))
            .bind(after_row)
            .bind(i64::from(limit));
        let rows = self.fetch_all(query).await.map_err(store_error)?;
        if let (true, Some(after)) = (rows.is_empty(), after) {
            self.show(after).await?.ok_or_else(|| StoreError::gone(after))?;
        }
        rows.iter()
            .map(|row| self.map.record(&ByRole(row)))
            .collect::<sqlx::Result<_>>()
            .map_err(store_error)
    }

    async fn show(&self, id: MessageId) -> Result<Option<Record>, StoreError> {
        let filter = Filter {
            ids: vec![id],
            ..Filter::default()
        };
        Ok(self.list(&filter, None, 1).await?.pop())
    }

    async fn replay(&self, filter: &Filter, limit: u32) -> Result<Vec<MessageId>, StoreError> {
        self.map.check_filter(filter)?;
        self.change_dead(&self.statements.common.replay, filter, limit)
            .await
            .map_err(store_error)
    }

    async fn discard(&self, filter: &Filter, limit: u32) -> Result<Vec<MessageId>, StoreError> {
        self.map.check_filter(filter)?;
        self.change_dead(&self.statements.common.discard, filter, limit)
            .await
            .map_err(store_error)
    }

    async fn restore(&self, letter: &DeadLetter) -> Result<Restored, StoreError> {
        self.restore_letter(letter).await
    }

    async fn purgeable(&self, request: &PurgeRequest) -> Result<Purgeable, StoreError> {
        if request.dead.is_some() && self.statements.dying.is_none() {
            return Err(StoreError::no_time_of_death(self.map.name()));
        }
        let age = |kept: Option<Duration>| millis(kept.unwrap_or(MAX_DURATION));
        let query = self.statements.common.purgeable.query().bind(age(request.delivered));
        let query = query.bind(&request.namespace).bind(age(request.dead));
        let row = self.fetch_one(query).await.map_err(store_error)?;
        let count = |name: &str| row.try_get::<i64, _>(name).map(i64::cast_unsigned).map_err(store_error);
        Ok(Purgeable {
            delivered: count("delivered")?,
            dead: count("dead")?,
            dedupe: if request.dedupe { count("dedupe")? } else { 0 },
            cursor: 0,
        })
    }
}

impl PostgresStore {
    async fn change_dead(&self, statement: &Statement, filter: &Filter, limit: u32) -> sqlx::Result<Vec<MessageId>> {
        if filter.state.is_some_and(|state| state != State::Dead) {
            return Ok(Vec::new());
        }
        let query = statement
            .query()
            .bind(&filter.namespace)
            .bind(&filter.topic)
            .bind(&filter.ordering_key)
            .bind(&filter.tenant)
            .bind(self.filter_ids(filter))
            .bind(i64::from(limit));
        let rows = self.fetch_all(query).await?;
        ids(&rows, &self.map)
    }

    fn filter_ids(&self, filter: &Filter) -> Option<Vec<String>> {
        let texts = || filter.ids.iter().filter_map(|id| id_text(*id, &self.map)).collect();
        (!filter.ids.is_empty()).then(texts)
    }

    /// The table's labels for a state, or for all: rows with other labels are none of ours. Nothing if there can be no
    /// others.
    fn labels(&self, state: Option<State>) -> Option<Vec<String>> {
        if state.is_none() && self.map.is_native() {
            return None;
        }
        let states = State::ALL
            .into_iter()
            .filter(|one| state.is_none_or(|state| state == *one));
        let labels = states.flat_map(|state| match state {
            State::Pending => self.map.claimable_labels(),
            _ => self.map.label(state.as_str()).into_iter().collect(),
        });
        Some(labels.map(ToString::to_string).collect())
    }
}
