//! Metadata of a cluster for an operator: brokers, topics, and why no broker answers.

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

/// Timeout for admin requests.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of one attempt, so that a reason which came up meanwhile ends the wait.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);

/// All brokers may be down for a moment only: while the second address of a host name has not been tried yet.
const BROKERS_DOWN_GRACE: Duration = Duration::from_secs(3);

/// Records why brokers cannot be reached: the calls themselves only say that there was no answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct ErrorRecorder {
    recorded: Arc<Mutex<Option<(Code, String)>>>,
}

impl ErrorRecorder {
    fn reason(&self) -> Option<(Code, String)> {
        self.recorded.lock().map_or(None, |recorded| recorded.clone())
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

impl ClientContext for ErrorRecorder {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(target: "librdkafka", facility, "{message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "librdkafka", %error, "{reason}");
        let (Some(code), Ok(mut recorded)) = (error.rdkafka_error_code(), self.recorded.lock()) else {
            return;
        };
        if recorded
            .as_ref()
            .is_none_or(|(before, _)| weight(*before) < weight(code))
        {
            *recorded = Some((code, reason.to_owned()));
        }
    }
}

impl ConsumerContext for ErrorRecorder {}

/// Explains a failed request to an operator.
pub(crate) fn explain_to_operator(error: &KafkaError, topic: Option<&str>, connection: &Connection) -> Explanation {
    let explanation = explain_error(error, topic);
    match explanation.cause {
        Cause::BrokerUnavailable => no_answer(connection, error.rdkafka_error_code(), None),
        _ => explanation,
    }
}

fn no_answer(connection: &Connection, code: Option<Code>, reason: Option<&str>) -> Explanation {
    let brokers = connection.brokers.join(",");
    let code = code.map_or_else(String::new, |code| format!(" ({code:?})"));
    let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    Explanation {
        cause: Cause::BrokerUnavailable,
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

/// A read-only client. It joins no consumer group and never has topics created.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Arc<BaseConsumer<ErrorRecorder>>,
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
            client: Arc::new(config.create_with_context(ErrorRecorder::default())?),
            connection: connection.clone(),
        })
    }

    pub(crate) fn client(&self) -> &BaseConsumer<ErrorRecorder> {
        &self.client
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(crate) fn explain(&self, error: &KafkaError, topic: Option<&str>) -> Explanation {
        explain_to_operator(error, topic, &self.connection)
    }

    /// The current metadata.
    pub(crate) async fn fetch_metadata(&self) -> Result<ClusterMetadata, Explanation> {
        // All topics: asked for one that is not there, a client may have it created.
        self.query(|client, timeout| Ok(ClusterMetadata::of(&client.fetch_metadata(None, timeout)?)))
            .await
    }

    /// Asks until there is an answer, or a reason why there will be none.
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        request: impl Fn(&BaseConsumer<ErrorRecorder>, Duration) -> Result<T, KafkaError> + Send + 'static,
    ) -> Result<T, Explanation> {
        let cluster = self.clone();
        let querying = tokio::task::spawn_blocking(move || cluster.query_blocking(&request));
        querying.await.unwrap_or_else(|_| {
            let stopped = KafkaError::Canceled;
            Err(explain_error(&stopped, None))
        })
    }

    fn query_blocking<T>(
        &self,
        request: &impl Fn(&BaseConsumer<ErrorRecorder>, Duration) -> Result<T, KafkaError>,
    ) -> Result<T, Explanation> {
        let start = Instant::now();
        loop {
            let error = match request(&self.client, ATTEMPT_TIMEOUT) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let explanation = explain_error(&error, None);
            if !matches!(
                explanation.cause,
                Cause::BrokerUnavailable | Cause::PartitionUnavailable
            ) {
                return Err(explanation);
            }
            // Serves the callbacks; nothing is fetched.
            while self.client.poll(Duration::ZERO).is_some() {}
            let code = error.rdkafka_error_code();
            match self.client.context().reason() {
                Some((recorded @ (Code::Authentication | Code::SaslAuthenticationFailed | Code::SSL), reason)) => {
                    let Explanation { cause, text } = explain_error(&KafkaError::Global(recorded), None);
                    let text = format!("{text}: {reason}");
                    return Err(Explanation { cause, text });
                }
                Some((recorded, reason)) if weight(recorded) > 0 && start.elapsed() > BROKERS_DOWN_GRACE => {
                    return Err(no_answer(&self.connection, Some(recorded), Some(&reason)));
                }
                _ if start.elapsed() > ADMIN_TIMEOUT => return Err(no_answer(&self.connection, code, None)),
                _ => {}
            }
        }
    }
}

/// The brokers and topics of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct ClusterMetadata {
    pub(crate) brokers: Vec<i32>,
    pub(crate) topics: Vec<TopicMetadata>,
}

#[derive(Clone, Debug)]
pub(crate) struct TopicMetadata {
    pub(crate) name: String,
    pub(crate) partitions: Vec<PartitionMetadata>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PartitionMetadata {
    pub(crate) id: i32,
    pub(crate) has_leader: bool,
    pub(crate) replicas: usize,
}

impl ClusterMetadata {
    fn of(metadata: &Metadata) -> Self {
        let recorded = |topic: &MetadataTopic| TopicMetadata {
            name: topic.name().to_owned(),
            partitions: topic
                .partitions()
                .iter()
                .map(|partition| PartitionMetadata {
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
                .map(recorded)
                .collect(),
        }
    }

    pub(crate) fn topic(&self, name: &str) -> Option<&TopicMetadata> {
        self.topics.iter().find(|topic| topic.name == name)
    }
}
