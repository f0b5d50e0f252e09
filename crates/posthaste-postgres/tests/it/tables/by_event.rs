//! A log whose rows go by the ids of their events. A row's own id is no business of its producer: it is given late, and
//! another one once the row has failed.

use std::collections::HashMap;

use async_trait::async_trait;
use posthaste_core::lifecycle::Settlement;
use posthaste_core::store::{
    Claim, ClaimRequest, ExtendRequest, Extended, Filter, Migration, OutboxStats, ProducerStore, PurgeRequest,
    Purgeable, Purged, Record, RecoverRequest, Recovered, RelayRegistry, SchemaStore, Scope, Settled,
    StoreRequirements,
};
use posthaste_core::wake::Listener;
use posthaste_core::{AdminStore, EnqueueError, Enqueued, Message, MessageId, OutboxOptions, RelayStore, StoreError};
use posthaste_postgres::PostgresLogStore;

/// The store under test, which is asked by row and answers by event.
#[derive(Clone)]
pub struct ByEvent(pub PostgresLogStore);

/// Which event is which row, at one moment. An event that has failed is the row of its failure.
struct Names {
    rows: HashMap<MessageId, MessageId>,
    events: HashMap<MessageId, MessageId>,
}

impl Names {
    fn row(&self, event: MessageId) -> MessageId {
        self.rows.get(&event).copied().unwrap_or(event)
    }

    fn event(&self, row: MessageId) -> MessageId {
        self.events.get(&row).copied().unwrap_or(row)
    }

    fn events(&self, rows: Vec<MessageId>) -> Vec<MessageId> {
        rows.into_iter().map(|row| self.event(row)).collect()
    }

    fn filter(&self, filter: &Filter) -> Filter {
        Filter {
            ids: filter.ids.iter().map(|event| self.row(*event)).collect(),
            ..filter.clone()
        }
    }
}

/// What is published says itself which event it is.
fn by_event(message: &mut Message) {
    message.id = message.effective_event_id().parse().unwrap();
}

impl ByEvent {
    async fn names(&self) -> Names {
        let all = if self.0.map().is_native() {
            "select seq::text, id::text from log union all select 'failed-' || id, event_id::text from log_failed"
        } else {
            "select id::text, event_id from outbox union all select 'failed-' || id, event_id from outbox_failed"
        };
        let all: Vec<(String, String)> = sqlx::query_as(all).fetch_all(self.0.pool()).await.unwrap();
        let mut names = Names {
            rows: HashMap::new(),
            events: HashMap::new(),
        };
        for (row, event) in all {
            let (row, event): (MessageId, MessageId) = (row.parse().unwrap(), event.parse().unwrap());
            names.rows.insert(event, row);
            names.events.insert(row, event);
        }
        names
    }

    /// The row of an event, if there is one.
    pub async fn row(&self, event: MessageId) -> MessageId {
        self.names().await.row(event)
    }
}

#[async_trait]
impl RelayStore for ByEvent {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let mut claim = self.0.claim(request).await?;
        for claimed in &mut claim.messages {
            by_event(&mut claimed.message);
        }
        Ok(claim)
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError> {
        let names = self.names().await;
        let by_row = |settlement: &Settlement| Settlement {
            id: names.row(settlement.id),
            ..settlement.clone()
        };
        let by_row: Vec<_> = settlements.iter().map(by_row).collect();
        let mut settled = self.0.settle(&by_row).await?;
        settled.lost = names.events(settled.lost);
        for refused in &mut settled.refused {
            refused.id = names.event(refused.id);
        }
        for busy in &mut settled.busy {
            busy.id = names.event(busy.id);
        }
        Ok(settled)
    }

    async fn extend(&self, request: ExtendRequest<'_>) -> Result<Extended, StoreError> {
        let names = self.names().await;
        let rows: Vec<_> = request.ids.iter().map(|event| names.row(*event)).collect();
        let request = ExtendRequest { ids: &rows, ..request };
        let Extended { held, busy } = self.0.extend(request).await?;
        Ok(Extended {
            held: names.events(held),
            busy: names.events(busy),
        })
    }

    async fn sweep(&self, scope: &Scope, max_attempts: u32) -> Result<Vec<MessageId>, StoreError> {
        let names = self.names().await;
        Ok(names.events(self.0.sweep(scope, max_attempts).await?))
    }

    async fn rescan(&self) {
        self.0.rescan().await;
    }

    fn requirements(&self) -> StoreRequirements {
        self.0.requirements()
    }

    async fn recover(&self, request: &RecoverRequest) -> Result<Recovered, StoreError> {
        self.0.recover(request).await
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Purged, StoreError> {
        self.0.purge(request).await
    }

    async fn stats(&self, namespace: &str) -> Result<OutboxStats, StoreError> {
        self.0.stats(namespace).await
    }

    async fn keep_alive(&self) -> Result<(), StoreError> {
        self.0.keep_alive().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.0.close().await
    }

    fn registry(&self) -> Option<&dyn RelayRegistry> {
        self.0.registry()
    }

    async fn listener(&self) -> Option<Box<dyn Listener>> {
        self.0.listener().await
    }

    async fn check_for(&self, scope: &Scope) -> Result<(), StoreError> {
        self.0.check_for(scope).await
    }
}

#[async_trait]
impl AdminStore for ByEvent {
    async fn list(&self, filter: &Filter, after: Option<MessageId>, limit: u32) -> Result<Vec<Record>, StoreError> {
        let names = self.names().await;
        let after = after.map(|event| names.row(event));
        let mut records = self.0.list(&names.filter(filter), after, limit).await?;
        for record in &mut records {
            by_event(&mut record.message);
        }
        Ok(records)
    }

    async fn show(&self, id: MessageId) -> Result<Option<Record>, StoreError> {
        let mut record = self.0.show(self.row(id).await).await?;
        if record.is_none() {
            // A failed row that was delivered meanwhile.
            record = self.0.show(self.row(id).await).await?;
        }
        if let Some(record) = &mut record {
            by_event(&mut record.message);
        }
        Ok(record)
    }

    async fn replay(&self, filter: &Filter, limit: u32) -> Result<Vec<MessageId>, StoreError> {
        let names = self.names().await;
        Ok(names.events(self.0.replay(&names.filter(filter), limit).await?))
    }

    async fn discard(&self, filter: &Filter, limit: u32) -> Result<Vec<MessageId>, StoreError> {
        let names = self.names().await;
        Ok(names.events(self.0.discard(&names.filter(filter), limit).await?))
    }

    async fn purgeable(&self, request: &PurgeRequest) -> Result<Purgeable, StoreError> {
        self.0.purgeable(request).await
    }
}

#[async_trait]
impl ProducerStore for ByEvent {
    async fn enqueue_and_commit(
        &self,
        options: &OutboxOptions,
        messages: Vec<Message>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        self.0.enqueue_and_commit(options, messages).await
    }
}

#[async_trait]
impl SchemaStore for ByEvent {
    fn migrations(&self) -> Vec<Migration> {
        self.0.migrations()
    }

    async fn applied(&self) -> Result<Vec<i64>, StoreError> {
        self.0.applied().await
    }

    async fn migrate(&self) -> Result<Vec<Migration>, StoreError> {
        self.0.migrate().await
    }

    fn statements(&self) -> Vec<(&'static str, String)> {
        self.0.statements()
    }
}
