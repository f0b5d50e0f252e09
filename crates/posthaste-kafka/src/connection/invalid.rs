//! What is wrong with a connection's settings.

use rdkafka::error::KafkaError;
use thiserror::Error;

/// A setting of a connection that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field} = {value}: {remedy}")]
pub struct InvalidConnection {
    /// The field, with dots, below the connection: `brokers`, `properties.linger.ms`.
    pub field: String,
    /// The value that was given, unless it is a secret.
    pub value: String,
    /// What to give instead.
    pub remedy: String,
}

impl From<KafkaError> for InvalidConnection {
    /// Settings that librdkafka refused when a client was made of them: those that are wrong only together.
    fn from(error: KafkaError) -> Self {
        let said = match error {
            KafkaError::ClientCreation(said) | KafkaError::ClientConfig(_, said, _, _) => said,
            other => other.to_string(),
        };
        Self {
            field: "properties".to_owned(),
            value: "(together)".to_owned(),
            remedy: format!("librdkafka refuses them: {said}; correct them, or leave out what you need not set"),
        }
    }
}
