//! A cluster as an operator looks at it: who is there, which topics, and why nobody answers.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::metadata::{Metadata, MetadataBroker, MetadataTopic};

use crate::connection::{Connection, InvalidConnection};
use crate::error::{Cause, Explanation, explain_error};

/// How long an operator waits for an answer before he is told that there is none.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long one attempt may take, so that a reason which came up meanwhile ends the waiting.
const ATTEMPT: Duration = Duration::from_secs(1);

/// All brokers may be down for a moment only: while the second address of a host name has not been tried yet.
const GRACE: Duration = Duration::from_secs(3);

/// Remembers why brokers cannot be reached: the calls themselves say no more than that nobody answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Witness {
    seen: Arc<Mutex<Option<(Code, String)>>>,
}

impl Witness {
    fn reason(&self) -> Option<(Code, String)> {
        self.seen.lock().map_or(None, |seen| seen.clone())
    }
}

/// How much a failure explains. A connection that is refused since the password is wrong is reported twice.
fn weight(code: Code) -> u8 {
    match code {
        Code::Authentication | Code::SaslAuthenticationFailed | Code::SSL => 3,
        Code::Resolve => 2,
        Code::AllBrokersDown => 1,
        _ => 0,
    }
}

impl ClientContext for Witness {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(target: "librdkafka", facility, "{message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "librdkafka", %error, "{reason}");
        let (Some(code), Ok(mut seen)) = (error.rdkafka_error_code(), self.seen.lock()) else {
            return;
        };
        if seen.as_ref().is_none_or(|(before, _)| weight(*before) < weight(code)) {
            *seen = Some((code, reason.to_owned()));
        }
    }
}

impl ConsumerContext for Witness {}

/// Whatever a client could not do, in words for somebody who waits for it.
pub(crate) fn explain_to_operator(error: &KafkaError, topic: Option<&str>, connection: &Connection) -> Explanation {
    let explanation = explain_error(error, topic);
    match explanation.cause {
        Cause::Away => no_answer(connection, error.rdkafka_error_code(), None),
        _ => explanation,
    }
}

fn no_answer(connection: &Connection, code: Option<Code>, reason: Option<&str>) -> Explanation {
    let brokers = connection.brokers.join(",");
    let code = code.map_or_else(String::new, |code| format!(" ({code:?})"));
    let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    Explanation {
        cause: Cause::Away,
        text: format!(
            "Kafka: no broker answers at {brokers}{code}{reason}; start the brokers, or correct kafka.brokers and \
             security.protocol in kafka.properties"
        ),
    }
}

/// The settings of a consumer, some of which nothing overrides.
pub(crate) fn config_with(
    connection: &Connection,
    settings: &[(&str, String)],
) -> Result<ClientConfig, InvalidConnection> {
    let mut config = connection.client_config(&[("allow.auto.create.topics", "false")])?;
    for (name, value) in settings {
        config.set(*name, value);
    }
    Ok(config)
}

/// A client that looks and does not touch. It joins no consumer group and never has topics created.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Arc<BaseConsumer<Witness>>,
    connection: Connection,
}

impl Cluster {
    pub(crate) fn connect(connection: &Connection) -> Result<Self, InvalidConnection> {
        Self::connect_with(connection, &[])
    }

    /// With settings that nothing overrides.
    pub(crate) fn connect_with(
        connection: &Connection,
        settings: &[(&str, String)],
    ) -> Result<Self, InvalidConnection> {
        let config = config_with(connection, settings)?;
        Ok(Self {
            client: Arc::new(config.create_with_context(Witness::default())?),
            connection: connection.clone(),
        })
    }

    pub(crate) fn client(&self) -> &BaseConsumer<Witness> {
        &self.client
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn explain(&self, error: &KafkaError, topic: Option<&str>) -> Explanation {
        explain_to_operator(error, topic, &self.connection)
    }

    /// What is there now.
    pub(crate) async fn look(&self) -> Result<Sight, Explanation> {
        // All topics: asked for one that is not there, a client may have it created.
        self.ask(|client, timeout| Ok(Sight::of(&client.fetch_metadata(None, timeout)?)))
            .await
    }

    /// Asks until there is an answer, or a reason why there will be none.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl Fn(&BaseConsumer<Witness>, Duration) -> Result<T, KafkaError> + Send + 'static,
    ) -> Result<T, Explanation> {
        let cluster = self.clone();
        let asking = tokio::task::spawn_blocking(move || cluster.ask_and_wait(&question));
        asking.await.unwrap_or_else(|_| {
            let stopped = KafkaError::Canceled;
            Err(explain_error(&stopped, None))
        })
    }

    fn ask_and_wait<T>(
        &self,
        question: &impl Fn(&BaseConsumer<Witness>, Duration) -> Result<T, KafkaError>,
    ) -> Result<T, Explanation> {
        let start = Instant::now();
        loop {
            let error = match question(&self.client, ATTEMPT) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let explanation = explain_error(&error, None);
            if !matches!(explanation.cause, Cause::Away | Cause::Unavailable) {
                return Err(explanation);
            }
            // Serves the callbacks; nothing is fetched.
            while self.client.poll(Duration::ZERO).is_some() {}
            let code = error.rdkafka_error_code();
            match self.client.context().reason() {
                Some((seen @ (Code::Authentication | Code::SaslAuthenticationFailed | Code::SSL), reason)) => {
                    let Explanation { cause, text } = explain_error(&KafkaError::Global(seen), None);
                    let text = format!("{text}: {reason}");
                    return Err(Explanation { cause, text });
                }
                Some((seen, reason)) if weight(seen) > 0 && start.elapsed() > GRACE => {
                    return Err(no_answer(&self.connection, Some(seen), Some(&reason)));
                }
                _ if start.elapsed() > PATIENCE => return Err(no_answer(&self.connection, code, None)),
                _ => {}
            }
        }
    }
}

/// What a cluster says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Sight {
    pub(crate) brokers: Vec<i32>,
    pub(crate) topics: Vec<SeenTopic>,
}

#[derive(Clone, Debug)]
pub(crate) struct SeenTopic {
    pub(crate) name: String,
    pub(crate) partitions: Vec<SeenPartition>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenPartition {
    pub(crate) id: i32,
    pub(crate) has_leader: bool,
    pub(crate) replicas: usize,
}

impl Sight {
    fn of(metadata: &Metadata) -> Self {
        let seen = |topic: &MetadataTopic| SeenTopic {
            name: topic.name().to_owned(),
            partitions: topic
                .partitions()
                .iter()
                .map(|partition| SeenPartition {
                    id: partition.id(),
                    has_leader: partition.leader() >= 0 && partition.error().is_none(),
                    replicas: partition.replicas().len(),
                })
                .collect(),
        };
        Self {
            brokers: metadata.brokers().iter().map(MetadataBroker::id).collect(),
            // A topic that is being deleted, or that we may not see, is none that we could use.
            topics: metadata
                .topics()
                .iter()
                .filter(|topic| !topic.partitions().is_empty())
                .map(seen)
                .collect(),
        }
    }

    pub(crate) fn topic(&self, name: &str) -> Option<&SeenTopic> {
        self.topics.iter().find(|topic| topic.name == name)
    }
}
