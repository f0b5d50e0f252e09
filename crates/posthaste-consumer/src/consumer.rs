//! The consumer: handlers in, events handled.

use std::sync::Arc;

use posthaste_core::{InboxStore, StoreError};
use posthaste_kafka::InvalidConnection;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::assignments::{Assignments, StartWorker};
use crate::attempt::within;
use crate::config::{ConsumerConfig, InvalidConfig};
use crate::context::Context;
use crate::dead_letters::DeadLetters;
use crate::engine::{ConsumerReport, Engine, Totals};
use crate::handler::Handler;
use crate::once::Once;
use crate::outage::Outage;
use crate::received::Payload;
use crate::route::Routes;
use crate::signal::Signal;
use crate::{instrument, janitor, poll, worker};

/// Handles the events of some topics, each once.
///
/// Any number of consumers of one group share the partitions of their topics, in one process or many.
#[must_use = "a consumer does nothing until it runs"]
pub struct Consumer<I: InboxStore> {
    config: ConsumerConfig,
    inbox: I,
    routes: Routes<I::Connection>,
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
    /// Kafka's client came to an end. The text says what to do.
    #[error("{0}")]
    Kafka(String),
}

impl<I: InboxStore> Consumer<I> {
    /// A consumer without handlers. The inbox is usually named after the group: `store.inbox(&config.group)`.
    pub fn new(config: ConsumerConfig, inbox: I) -> Self {
        Self {
            config,
            inbox,
            routes: Routes::new(),
        }
    }

    /// Registers the handler of an event type. Its effect happens once, by the key that `once` makes: the inbox records
    /// the key in the handler's own transaction.
    pub fn on<T, H>(mut self, event_type: impl Into<String>, once: Once<T>, handler: H) -> Self
    where
        T: Payload,
        H: for<'tx> Handler<'tx, I::Connection, T> + Clone + Send + Sync + 'static,
    {
        self.routes.add(event_type.into(), Some(once), handler);
        self
    }

    /// Registers a handler that may run again for the same event without harm, such as one that sets a value or deletes a
    /// cache entry. Nothing is recorded.
    pub fn on_idempotent<T, H>(mut self, event_type: impl Into<String>, handler: H) -> Self
    where
        T: Payload,
        H: for<'tx> Handler<'tx, I::Connection, T> + Clone + Send + Sync + 'static,
    {
        self.routes.add(event_type.into(), None, handler);
        self
    }

    /// Runs until the token fires, then lets handlers finish for up to `shutdown_grace`, commits and leaves the group.
    ///
    /// A broker or a database that is away is waited for; what can never work (a bad setting, no inbox table) is an error
    /// at the start.
    pub async fn run_until(self, shutdown: CancellationToken) -> Result<ConsumerReport, ConsumerError> {
        self.check()?;
        let mut properties = self.config.consumer_properties()?;
        let dead_letters = DeadLetters::new(&self.config)?;
        let engine = Arc::new(Engine {
            config: self.config,
            inbox: self.inbox,
            routes: self.routes,
            dead_letters,
            database: Outage::new("using the database"),
            totals: Totals::default(),
        });
        instrument::register(&engine.config.topics, engine.routes.types());
        let usable = engine.inbox.purge(engine.config.inbox_retention, 1);
        match within(engine.config.inbox_timeout, "answer the inbox", usable).await {
            Err(error) if !error.kind.is_transient() => return Err(ConsumerError::Inbox(error)),
            _ => {}
        }
        let signal = Arc::new(Signal::default());
        let assignments = Assignments::new(workers(&engine), Arc::clone(&signal), &engine.config);
        let begins_at_the_end = matches!(properties.get("auto.offset.reset"), Some("latest" | "largest" | "end"));
        if begins_at_the_end {
            // The end is where a new group is put by a commit of its own; the property would also hold for an offset that
            // is no longer there, and pass over what still is.
            properties.set("auto.offset.reset", "earliest");
        }
        let mut consumer: BaseConsumer<Context> = properties
            .create_with_context(Context::new(assignments, begins_at_the_end))
            .map_err(|error| InvalidConfig::from(InvalidConnection::from(error)))?;
        let wake = Arc::clone(&signal);
        consumer.set_nonempty_callback(move || wake.give());
        run(&engine, consumer, shutdown, &signal).await?;
        Ok(engine.totals.report())
    }

    fn check(&self) -> Result<(), InvalidConfig> {
        self.config.validate()?;
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

fn workers<I: InboxStore>(engine: &Arc<Engine<I>>) -> StartWorker {
    let (engine, runtime) = (Arc::clone(engine), Handle::current());
    // The polling thread starts workers, within its span.
    Box::new(move |partition, queue| {
        runtime.spawn(worker::run(Arc::clone(&engine), partition, queue).in_current_span());
    })
}

async fn run<I: InboxStore>(
    engine: &Arc<Engine<I>>,
    consumer: BaseConsumer<Context>,
    shutdown: CancellationToken,
    signal: &Arc<Signal>,
) -> Result<(), ConsumerError> {
    let consumer = Arc::new(consumer);
    let threads = |error| ConsumerError::Kafka(format!("a thread cannot be started: {error}"));
    consumer.context().assignments.belong_to(&consumer).map_err(threads)?;
    // However this function is left, also by being dropped, the thread and the loops beside it end.
    let stop = shutdown.child_token();
    let _stop_all = stop.clone().drop_guard();
    let span = tracing::info_span!("consumer", group = engine.config.group);
    tokio::spawn(janitor::purge(Arc::clone(engine), stop.clone()).instrument(span.clone()));
    tokio::spawn(janitor::watch_retention(Arc::clone(engine), stop.clone()).instrument(span.clone()));
    tracing::info!(group = engine.config.group, topics = ?engine.config.topics, "consumer started");

    let (ended, end) = oneshot::channel();
    let (topics, grace) = (engine.config.topics.clone(), engine.config.shutdown_grace);
    let polling = stop.clone();
    let thread = std::thread::Builder::new().name("posthaste-consumer".to_owned());
    let started = thread.spawn(move || {
        let result = span.in_scope(|| poll::run(consumer, &topics, &polling, grace));
        drop(ended.send(result));
    });
    started.map_err(threads)?;

    let wake = Arc::clone(signal);
    tokio::spawn(async move {
        stop.cancelled().await;
        wake.give();
    });
    let result = end.await;
    tracing::info!(group = engine.config.group, report = ?engine.totals.report(), "consumer stopped");
    match result {
        Ok(result) => result.map_err(ConsumerError::Kafka),
        Err(_) => Err(ConsumerError::Kafka(
            "the polling thread panicked; start the consumer again".to_owned(),
        )),
    }
}
