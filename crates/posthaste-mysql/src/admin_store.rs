//! An operator's verbs.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::lifecycle::State;
use posthaste_core::retry::MAX_DURATION;
use posthaste_core::store::{AdminStore, DeadLetter, Filter, PurgeRequest, Purgeable, Record, Restored};
use posthaste_core::{MessageId, StoreError};
use posthaste_sql::table::StateLabel;
use sqlx::Row;

use crate::MySqlStore;
use crate::claim::MAX_IDS;
use crate::error::store_error;
use crate::retry::retrying;
use crate::rows::{ByRole, ids, millis};
use crate::statement::{Statement, Value};

#[async_trait]
impl AdminStore for MySqlStore {
    async fn list(&self, filter: &Filter, after: Option<MessageId>, limit: u32) -> Result<Vec<Record>, StoreError> {
        self.map.check_filter(filter)?;
        if let Some(after) = after.filter(|after| matches!(Value::id(*after, &self.map), Value::Number(None))) {
            return Err(StoreError::gone(after));
        }
        let records = self.find_records(filter, after, limit).await.map_err(store_error)?;
        if let (true, Some(after)) = (records.is_empty(), after) {
            self.show(after).await?.ok_or_else(|| StoreError::gone(after))?;
        }
        Ok(records)
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
        retrying!(self.change_dead(&self.statements.common.replay, filter, limit)).map_err(store_error)
    }

    async fn discard(&self, filter: &Filter, limit: u32) -> Result<Vec<MessageId>, StoreError> {
        self.map.check_filter(filter)?;
        retrying!(self.change_dead(&self.statements.common.discard, filter, limit)).map_err(store_error)
    }

    async fn restore(&self, letter: &DeadLetter) -> Result<Restored, StoreError> {
        self.restore_letter(letter).await
    }

    async fn purgeable(&self, request: &PurgeRequest) -> Result<Purgeable, StoreError> {
        if request.dead.is_some() && self.statements.dying.is_none() {
            return Err(StoreError::no_time_of_death(self.map.name()));
        }
        self.count_purgeable(request).await.map_err(store_error)
    }
}

impl MySqlStore {
    async fn count_purgeable(&self, request: &PurgeRequest) -> sqlx::Result<Purgeable> {
        let mut conn = self.pool.acquire().await?;
        let age = |kept: Option<Duration>| Value::from(millis(kept.unwrap_or(MAX_DURATION)));
        let namespace = Value::optional(request.namespace.as_deref());
        let values = [age(request.delivered), namespace, age(request.dead)];
        let found = self.statements.common.purgeable.fetch_one(&mut conn, &values).await?;
        let count = |name: &str| found.try_get::<i64, _>(name).map(i64::cast_unsigned);
        Ok(Purgeable {
            delivered: count("delivered")?,
            dead: count("dead")?,
            dedupe: if request.dedupe { count("dedupe")? } else { 0 },
            cursor: 0,
        })
    }

    async fn find_records(&self, filter: &Filter, after: Option<MessageId>, limit: u32) -> sqlx::Result<Vec<Record>> {
        let labels = self.labels(filter.state);
        let values = [
            Value::optional(filter.namespace.as_deref()),
            Value::flag(labels.is_none()),
            Value::List(labels.unwrap_or_default()),
            Value::optional(filter.topic.as_deref()),
            Value::optional(filter.ordering_key.as_deref()),
            Value::optional(filter.tenant.as_deref()),
            Value::flag(filter.ids.is_empty()),
            Value::ids(&filter.ids, &self.map),
            after.map_or(Value::Text(None), |id| Value::id(id, &self.map)),
            limit.into(),
        ];
        let mut conn = self.pool.acquire().await?;
        let rows = self.statements.common.list.fetch_all(&mut conn, &values).await?;
        rows.iter().map(|row| self.map.record(&ByRole(row))).collect()
    }

    /// The table's labels for a state, or for all: rows with other labels are none of ours. Nothing if there can be no
    /// others.
    fn labels(&self, state: Option<State>) -> Option<Vec<Value>> {
        if state.is_none() && self.map.is_native() {
            return None;
        }
        let states = State::ALL
            .into_iter()
            .filter(|one| state.is_none_or(|state| state == *one));
        let labels = states.flat_map(|state| match state {
            State::Pending => self.map.claimable_labels(),
            state => self.map.label(state.as_str()).into_iter().collect(),
        });
        let value = |label: &StateLabel| match label {
            StateLabel::Text(text) => text.as_str().into(),
            StateLabel::Number(number) => (*number).into(),
            StateLabel::Boolean(flag) => Value::flag(*flag),
        };
        Some(labels.map(value).collect())
    }

    async fn change_dead(&self, change: &Statement, filter: &Filter, limit: u32) -> sqlx::Result<Vec<MessageId>> {
        if filter.state.is_some_and(|state| state != State::Dead) {
            return Ok(Vec::new());
        }
        let mut tx = self.begin().await?;
        let wanted = [
            Value::optional(filter.namespace.as_deref()),
            Value::optional(filter.topic.as_deref()),
            Value::optional(filter.ordering_key.as_deref()),
            Value::optional(filter.tenant.as_deref()),
            Value::flag(filter.ids.is_empty()),
            Value::ids(&filter.ids, &self.map),
            limit.into(),
        ];
        let found = ids(
            &self.statements.common.find_dead.fetch_all(&mut tx, &wanted).await?,
            &self.map,
        )?;
        let mut changed = Vec::new();
        for chunk in found.chunks(MAX_IDS) {
            let values = [Value::ids(chunk, &self.map)];
            let dead = ids(
                &self.statements.common.lock_dead.fetch_all(&mut tx, &values).await?,
                &self.map,
            )?;
            if !dead.is_empty() {
                change.execute(&mut tx, &[Value::ids(&dead, &self.map)]).await?;
            }
            changed.extend(dead);
        }
        tx.commit().await?;
        Ok(changed)
    }
}
