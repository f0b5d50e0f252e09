//! What the settings of every publisher have in common.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::Publisher;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// The settings of one publisher.
pub trait PublisherOptions: DeserializeOwned {
    /// Says which setting cannot work, as far as that can be known without a connection or a change to anything.
    ///
    /// # Errors
    ///
    /// Names the setting, with a remedy.
    fn validate(&self, context: &PublisherContext) -> Result<(), InvalidOption>;

    /// The publisher. Connects to nothing yet, so that a relay may start before its broker.
    ///
    /// # Errors
    ///
    /// Names the setting that cannot work, with a remedy.
    fn build(self, context: &PublisherContext) -> Result<Arc<dyn Publisher>, InvalidOption>;
}

/// What publishers take from the settings around them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PublisherContext {
    /// How long the relay waits for any answer of a publisher.
    pub publish_timeout: Duration,
    /// The cluster of Kafka publishers that name none.
    #[cfg(feature = "kafka")]
    pub kafka: posthaste_kafka::Connection,
}

impl PublisherContext {
    /// That of a relay which waits so long for any answer of a publisher.
    pub fn new(publish_timeout: Duration) -> Self {
        Self {
            publish_timeout,
            #[cfg(feature = "kafka")]
            kafka: posthaste_kafka::Connection::default(),
        }
    }

    /// How long a publisher waits for an answer: what is given, else two thirds of what the relay waits. It must be able to
    /// say what is wrong before the relay gives up on it.
    ///
    /// # Errors
    ///
    /// If it is not below what the relay waits.
    pub fn answer_within(&self, given: Option<Duration>) -> Result<Duration, InvalidOption> {
        let publish_timeout = self.publish_timeout;
        match given {
            None => Ok(publish_timeout * 2 / 3),
            Some(given) if given < publish_timeout => Ok(given),
            Some(given) => Err(InvalidOption::new(
                "answer_within",
                format!("{given:?}"),
                format!(
                    "must be below relay.publish_timeout, which is {publish_timeout:?}: the relay would give up before the \
                     publisher can say what is wrong"
                ),
            )),
        }
    }
}

/// A setting that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field} = {value}: {remedy}")]
#[non_exhaustive]
pub struct InvalidOption {
    /// The field, with dots and, in lists, the place from 0.
    pub field: String,
    /// The value that was given; `***` for secrets.
    pub value: String,
    /// What to give instead.
    pub remedy: String,
}

impl InvalidOption {
    /// This field with this value cannot work; do this instead.
    pub fn new(field: impl Into<String>, value: impl Display, remedy: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            value: value.to_string(),
            remedy: remedy.into(),
        }
    }
}
