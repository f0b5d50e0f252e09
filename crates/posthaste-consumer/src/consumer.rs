//! The consumer: handlers in, events handled.

use std::collections::BTreeSet;
use std::sync::Arc;

use posthaste_core::event::DecodeEvent;
use posthaste_core::{InboxStore, StoreError};
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::config::{ConsumerConfig, InvalidConfig};
use crate::guard::{LimitedInbox, RetryLogger};
use crate::handling::{Handler, Once, Payload, Routes, decode_event, decode_payload};
use crate::kafka::{self, KafkaSource};
use crate::path::{self, Engine};
use crate::report::{ConsumerReport, Totals};
use crate::source::{Source, SourceError};
use crate::upkeep::instrument;

/// Handles the events of some topics, each once.
///
/// Any number of consumers of one group share the partitions of their topics, in one process or many.
#[must_use = "a consumer does nothing until it runs"]
pub struct Consumer<I: InboxStore> {
    config: ConsumerConfig,
    inbox: LimitedInbox<I>,
    routes: Routes<I::Connection>,
    /// Where the events go that were registered by their type.
    event_topics: BTreeSet<&'static str>,
}

/// Why a consumer did not run, or could not go on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConsumerError {
    /// A setting cannot work.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// The inbox is not usable, and waiting will not help.
    #[error("the inbox is not usable: {0}")]
    Inbox(#[source] StoreError),
    /// The broker's client came to an end. The text says what to do.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl<I: InboxStore> Consumer<I> {
    /// A consumer without handlers. The inbox is usually named after the group: `store.inbox(&config.group)`.
    pub fn new(config: ConsumerConfig, inbox: I) -> Self {
        Self {
            inbox: LimitedInbox::new(inbox, config.inbox_timeout),
            config,
            routes: Routes::new(),
            event_topics: BTreeSet::new(),
        }
    }

    /// Registers the handler of an event type. Its effect happens once, by the key that `once` makes: the inbox records
    /// the key in the handler's own transaction.
    pub fn on<T, H>(mut self, event_type: impl AsRef<str>, once: Once<T>, handler: H) -> Self
    where
        T: Payload,
        H: for<'tx> Handler<'tx, I::Connection, T> + Clone + Send + Sync + 'static,
    {
        let once = Some(Arc::new(once));
        self.routes.add(event_type.as_ref(), decode_payload::<T>, once, handler);
        self
    }

    /// Registers a handler that may run again for the same event without harm, such as one that sets a value or deletes a
    /// cache entry. Nothing is recorded.
    pub fn on_idempotent<T, H>(mut self, event_type: impl AsRef<str>, handler: H) -> Self
    where
        T: Payload,
        H: for<'tx> Handler<'tx, I::Connection, T> + Clone + Send + Sync + 'static,
    {
        self.routes.add(event_type.as_ref(), decode_payload::<T>, None, handler);
        self
    }

    /// Registers the handler of a type that derives `Event`, by the names that the derive knows: of a struct its own, of an
    /// enum those of all its variants.
    ///
    /// ```
    /// use posthaste_consumer::{Consumer, HandlerError, Once, Received};
    /// use posthaste_derive::Event;
    /// use serde::{Deserialize, Serialize};
    /// # use posthaste_core::InboxStore;
    /// use sqlx::PgConnection;
    ///
    /// // The producer enqueues this very type.
    /// #[derive(Event, Serialize, Deserialize)]
    /// #[event(type = "acme.order.paid.v1", aggregate = "Order", id = order_id)]
    /// # #[event(crate = posthaste_core)]
    /// struct OrderPaid {
    ///     order_id: u64,
    ///     quantity: i64,
    /// }
    ///
    /// async fn count_sale(tx: &mut PgConnection, event: Received<OrderPaid>) -> Result<(), HandlerError> {
    ///     let sold = "update statistics set sold = sold + $1";
    ///     sqlx::query(sold).bind(event.payload.quantity).execute(tx).await?;
    ///     Ok(())
    /// }
    ///
    /// # fn example<I: InboxStore<Connection = PgConnection>>(consumer: Consumer<I>) {
    /// let consumer = consumer.on_event::<OrderPaid>(Once::per_aggregate("SOLD"), count_sale);
    /// # }
    /// ```
    ///
    /// A payload that does not have the form of the type is a permanent failure: it goes to the dead-letter topic at once,
    /// with a reason that names the type, the type name and what is wrong.
    ///
    /// If [`topics`](ConsumerConfig#structfield.topics) is empty, the consumer reads the topics that its events go to.
    pub fn on_event<E>(
        mut self,
        once: Once<E>,
        handler: impl for<'tx> Handler<'tx, I::Connection, E> + Clone + Send + Sync + 'static,
    ) -> Self
    where
        E: DecodeEvent + Send + 'static,
    {
        let once = Arc::new(once);
        for event in E::EVENTS {
            let once = Some(Arc::clone(&once));
            self.routes
                .add(event.type_name, decode_event::<E>, once, handler.clone());
            self.event_topics.insert(event.topic);
        }
        self
    }

    /// Runs over Kafka until the token fires, then lets handlers finish for up to `shutdown_grace`, commits and leaves the
    /// group.
    ///
    /// A broker or a database that is unavailable is waited for.
    ///
    /// # Errors
    /// What can never work (a bad setting, no inbox table) is an error at the start; a client that has come to an end is
    /// one later.
    pub async fn run_until(mut self, shutdown: CancellationToken) -> Result<ConsumerReport, ConsumerError> {
        self.choose_topics();
        self.config.validate()?;
        self.check_handlers()?;
        self.check_inbox().await?;
        // Last, because it connects: a client that subscribes later than that may wait for its next look at the topics.
        let source = KafkaSource::new(&self.config)?;
        // However this function is left, also by being dropped, what runs beside it ends.
        let stop = shutdown.child_token();
        let _stop_all = stop.clone().drop_guard();
        let span = tracing::info_span!("consumer", group = self.config.group);
        tokio::spawn(kafka::watch(self.config.clone(), stop.clone()).instrument(span));
        self.run(source, stop).await
    }

    /// The same over another source than Kafka. Of the settings those hold that are not Kafka's.
    ///
    /// # Errors
    /// As of [`run_until`](Self::run_until).
    pub async fn run_with_source(
        self,
        source: impl Source,
        shutdown: CancellationToken,
    ) -> Result<ConsumerReport, ConsumerError> {
        self.config.check_handling()?;
        self.check_handlers()?;
        self.check_inbox().await?;
        let stop = shutdown.child_token();
        let _stop_all = stop.clone().drop_guard();
        self.run(source, stop).await
    }

    async fn run<S: Source>(self, source: S, stop: CancellationToken) -> Result<ConsumerReport, ConsumerError> {
        instrument::register(&self.config.topics, self.routes.types());
        let engine = Arc::new(Engine {
            config: self.config,
            inbox: Arc::new(self.inbox),
            routes: self.routes,
            dead_letters: source.dead_letters(),
            database: RetryLogger::new("using the database"),
            totals: Totals::default(),
        });
        let (group, topics) = (&engine.config.group, &engine.config.topics);
        tracing::info!(group, topics = topics.join(", "), "consumer started");
        let result = path::run(&engine, source, stop).await;
        let report = engine.totals.report();
        tracing::info!(
            group,
            report.handled,
            report.duplicates,
            report.skipped,
            report.retried,
            report.dead_letters,
            "consumer stopped"
        );
        result?;
        Ok(report)
    }

    /// Refuses an inbox that will never work.
    async fn check_inbox(&self) -> Result<(), ConsumerError> {
        match self.inbox.purge(self.config.inbox_retention, 1).await {
            Err(error) if !error.kind.is_transient() => Err(ConsumerError::Inbox(error)),
            _ => Ok(()),
        }
    }

    /// Without topics of its own a consumer reads those of its events.
    fn choose_topics(&mut self) {
        let topics = &mut self.config.topics;
        if topics.is_empty() {
            topics.extend(self.event_topics.iter().map(|topic| (*topic).to_owned()));
        }
        for topic in &self.event_topics {
            if !topics.iter().any(|read| read == topic) {
                tracing::warn!(
                    topic,
                    topics = topics.join(", "),
                    "a handler is registered for events that go to a topic which this consumer does not read; add it to \
                     `topics`, unless the relay routes them elsewhere"
                );
            }
        }
    }

    fn check_handlers(&self) -> Result<(), InvalidConfig> {
        let refused = |value: String, remedy: &str| {
            Err(InvalidConfig {
                field: "handlers".to_owned(),
                value,
                remedy: remedy.to_owned(),
            })
        };
        if self.routes.is_empty() {
            return refused("none".to_owned(), "register at least one with Consumer::on");
        }
        match &self.routes.repeated {
            Some(twice) => refused(
                twice.clone(),
                "has two handlers; do both in one, or give the second a consumer group and an inbox of its own",
            ),
            None => Ok(()),
        }
    }
}
