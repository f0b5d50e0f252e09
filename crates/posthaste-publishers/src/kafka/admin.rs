//! The client for questions that producers cannot ask.

use std::sync::Arc;

use rdkafka::ClientConfig;
use rdkafka::admin::AdminClient;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::KafkaError;

use super::context::LoggingContext;
use super::producer::{Living, drop_elsewhere};

/// A whole client of librdkafka, with threads and connections: made once, and neither made nor dropped on a thread that
/// has other things to do.
pub(super) struct Admin {
    /// Always there; taken out only to be dropped.
    client: Option<AdminClient<LoggingContext>>,
    living: Option<Living>,
}

impl Admin {
    pub(super) async fn create(config: &ClientConfig) -> Result<Self, KafkaError> {
        let config = config.clone();
        let creating =
            tokio::task::spawn_blocking(move || AdminClient::from_config_and_context(&config, LoggingContext));
        let client = Some(creating.await.unwrap_or(Err(KafkaError::Canceled))?);
        Ok(Self {
            client,
            living: Some(Living::new(&Arc::default())),
        })
    }

    pub(super) fn client(&self) -> &AdminClient<LoggingContext> {
        self.client.as_ref().expect("it is taken out only when this is dropped")
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        drop_elsewhere((self.client.take(), self.living.take()));
    }
}
